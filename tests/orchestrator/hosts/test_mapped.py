"""What a process runs from is what the kernel says, by content."""

from __future__ import annotations

import hashlib
import mmap
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from orchestrator.hosts.mapped import mapped_code


def test_a_real_process(tmp_path: Path) -> None:
    """Its interpreter and libc; a library of its own; one that it wrote after it had begun is left out."""
    libc = next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libc" in line)
    given, compiled = tmp_path / "given lib.so", tmp_path / "compiled.so"
    shutil.copy(libc, given)
    os.utime(given, (1, 1))
    code = f"import ctypes, shutil, sys; ctypes.CDLL({str(given)!r}); shutil.copy({libc!r}, {str(compiled)!r}); "
    code += f"ctypes.CDLL({str(compiled)!r}); print(flush=True); sys.stdin.read()"
    began_s = time.time() - 0.001
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        found = mapped_code([process.pid, 2**22 + 1], began_s)  # the second one is nobody
        process.communicate()
    assert found[str(given)] == hashlib.sha256(given.read_bytes()).hexdigest()
    assert os.path.realpath(sys.executable) in found or any("libpython" in path for path in found)
    assert str(compiled) not in found and all(path.startswith("/") for path in found)


def test_data_is_no_code(tmp_path: Path) -> None:
    data = tmp_path / "weights.bin"
    data.write_bytes(b"\0" * 4096)
    with data.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ):
        assert str(data) not in mapped_code([os.getpid()], time.time() + 60)
