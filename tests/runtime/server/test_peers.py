"""Load generators that nobody here wrote, run against the server: `vllm bench serve`, AIPerf, GuideLLM.

Each lives in an environment of its own under build/peers/NAME. AIPerf's and GuideLLM's are made when they are missing
(minutes, more than a gigabyte each); vLLM's CPU build needs hands, so its environment must be there already.
"""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
CHECKPOINT = ROOT / "runtime/checkpoints/nano"
PACKAGES = {"aiperf": ["aiperf==0.13.0"], "guidellm": ["torch==2.13.0", "guidellm==0.8.1"]}
SECONDS = 900

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(3600)]


@pytest.fixture
def peer(make_environment: Callable[..., Path]) -> Callable[[str], str]:
    """The peer's program; made first where that is possible."""

    def found(name: str) -> str:
        if name in PACKAGES:
            return str(make_environment(name, *PACKAGES[name]) / name)
        program = ROOT / "build/peers" / name / "bin" / name
        if not program.exists():
            pytest.skip(f"{program} is missing; install {name} into {program.parents[1]}")
        return str(program)

    return found


def run(folder: Path, *command: str, offline: bool = True) -> None:
    environment = {**os.environ, **({"HF_HUB_OFFLINE": "1"} if offline else {}), "VLLM_NO_USAGE_STATS": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def base(server: Any) -> str:
    return f"http://127.0.0.1:{server.port}"


def test_vllm_bench_serve(server: Any, peer: Callable[[str], str], tmp_path: Path) -> None:
    """It also reads our speculation counters under vLLM's names."""
    arguments = ["--backend", "openai", "--base-url", base(server), "--endpoint", "/v1/completions", "--model", "nano"]
    arguments += ["--tokenizer", str(CHECKPOINT), "--dataset-name", "random", "--random-input-len", "32"]
    arguments += ["--random-output-len", "8", "--num-prompts", "6", "--max-concurrency", "2", "--ignore-eos"]
    run(tmp_path, peer("vllm"), "bench", "serve", *arguments, "--save-result", "--result-filename", "v.json")
    result = json.loads((tmp_path / "v.json").read_text())
    assert (result["completed"], result["failed"], result["total_output_tokens"]) == (6, 0, 48)
    assert result["spec_decode_num_drafts"] > 0
    assert result["spec_decode_draft_tokens"] <= 7 * result["spec_decode_num_drafts"]


def test_aiperf(server: Any, peer: Callable[[str], str], tmp_path: Path) -> None:
    arguments = ["-m", "nano", "--url", base(server), "--endpoint-type", "chat", "--streaming", "--isl", "32"]
    arguments += ["--tokenizer", str(CHECKPOINT), "--osl", "16", "--concurrency", "2", "--request-count", "6"]
    arguments += [
        "--extra-inputs",
        "ignore_eos:true",
        "--random-seed",
        "1",
        "--output-artifact-dir",
        "out",
        "--ui",
        "none",
    ]
    run(tmp_path, peer("aiperf"), "profile", *arguments, offline=False)
    result = json.loads((tmp_path / "out/profile_export_aiperf.json").read_text())
    assert result["request_count"]["avg"] == 6 and not result.get("error_request_count")
    assert result["time_to_first_token"]["avg"] > 0


def test_guidellm(server: Any, peer: Callable[[str], str], tmp_path: Path) -> None:
    arguments = ["--backend", f"kind=openai_http,target={base(server)},model=nano"]
    arguments += ["--profile", "kind=concurrent,streams=2", "--constraint", "kind=max_requests,count=6"]
    arguments += ["--tokenizer", f"kind=huggingface_auto,model={CHECKPOINT}"]
    arguments += ["--data", "kind=synthetic_text,prompt_tokens=32,output_tokens=16"]
    run(tmp_path, peer("guidellm"), "run", *arguments, "--output", "kind=json,path=g.json", "--disable-progress")
    (benchmark,) = json.loads((tmp_path / "g.json").read_text())["benchmarks"]
    totals = benchmark["metrics"]["request_totals"]
    assert (totals["successful"], totals["errored"], totals["total"]) == (6, 0, 6)
