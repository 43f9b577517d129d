"""Every script of benchmarks/ explains itself and refuses a wrong word, without loading what it measures with."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = [path for path in sorted((ROOT / "benchmarks").glob("*.py")) if "__main__" in path.read_text()]
HEAVY = "torch", "transformers", "triton"
# Runs a script as a person would, once with each word, and fails where it loaded something heavy before it ended.
PROBE = f"""
import os, runpy, sys
script = sys.argv[1]
sys.path[0] = os.path.dirname(script)
for word, code in (("--help", 0), ("--no-such-option", 2)):
    sys.argv = [script, word]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as ended:
        assert (ended.code or 0) == code, (word, ended.code)
    else:
        raise AssertionError(word)
loaded = [name for name in {HEAVY} if name in sys.modules]
assert not loaded, loaded
"""


def asked(script: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROBE, str(script)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


def test_a_benchmark_explains_itself_and_refuses_a_wrong_word(tmp_path: Path) -> None:
    assert len(SCRIPTS) > 8
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda script: asked(script, tmp_path), SCRIPTS))
    for script, answer in zip(SCRIPTS, answers, strict=True):
        assert answer.returncode == 0 and "Traceback" not in answer.stderr, (script.name, answer.stderr)
        assert "usage:" in answer.stdout and "usage:" in answer.stderr, script.name
    assert not list(tmp_path.iterdir())


def test_a_wrong_value_is_a_sentence(tmp_path: Path) -> None:
    for name, words, said in (
        ("round_27b.py", ("--shape", "/nope"), "--shape /nope is no file"),
        ("tensor_parallel.py", ("--shape", "/nope"), "--shape /nope is no file"),
        ("kernels_h200.py", ("atention",), "there is no operator atention; take some of projection"),
        ("nano_corpus.py", ("http://127.0.0.1:1",), "does not answer"),
    ):
        command = [sys.executable, str(ROOT / "benchmarks" / name), *words]
        answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert answer.returncode and said in answer.stderr and "Traceback" not in answer.stderr, answer.stderr
