"""One process per rank of the script that asks for it, which find each other in a folder of their own."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# NVLink multicast stays off: on a shared host a program that dies with it can take the fabric out of service.
NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}


def one_process_a_rank(options: argparse.Namespace, run_rank: Callable[[argparse.Namespace], int]) -> int:
    """`run_rank` in a process that has a `rank`; elsewhere the script again, `size` times. The worst exit code."""
    if options.rank is not None:
        return run_rank(options)
    with tempfile.TemporaryDirectory(prefix="ranks-") as meeting:
        command = [sys.executable, *sys.argv, f"--meeting={meeting}"]
        environment = {**os.environ, **NO_MULTICAST, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
        ranks = [subprocess.Popen([*command, f"--rank={rank}"], env=environment) for rank in range(options.size)]
        try:
            return max(abs(rank.wait(timeout=options.timeout_s)) for rank in ranks)
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
