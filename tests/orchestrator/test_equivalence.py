"""The equivalence worker: answers, and replacement of a worker that hangs or dies."""

from __future__ import annotations

import subprocess
import sys
import time

from campaigns.scorers.answer import Equal
from orchestrator.equivalence import ROOT, EquivalenceWorker
from orchestrator.sandbox import _is_alive, descendants


def test_answers_hangs_and_deaths() -> None:
    with EquivalenceWorker(timeout_s=60) as worker:
        assert worker("\\frac{1}{2}", "0.5") is Equal.YES
        assert worker("\\frac{1}{2}", "0.6") is Equal.NO
        first = worker._process
        assert first is not None
        first.kill()
        first.wait()
        assert worker("1", "2") is Equal.ERROR, "a dead worker has no verdict"
        assert worker("2", "4/2") is Equal.YES and worker._process is not first
        worker.timeout_s = 0.0
        assert worker("10^{10}", "x+1") is Equal.TIMEOUT
        worker.timeout_s = 60.0
        assert worker("3", "6/2") is Equal.YES
        last = worker._process
    assert last is not None and last.poll() is not None, "nothing is left behind"


def test_a_worker_that_hangs_dies_with_its_owner() -> None:
    script = (
        "from orchestrator.equivalence import EquivalenceWorker\n"
        "with EquivalenceWorker(600) as worker:\n"
        "    worker('1', '1')\n"
        "    print('ready', flush=True)\n"
        "    worker('1', '10^{10^{10}}')\n"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None and owner.stdout.readline() == "ready\n"
        (worker,) = descendants(owner.pid)
        time.sleep(0.5)
        assert _is_alive(worker), "it has an answer that takes for ever"
        owner.kill()
    deadline = time.monotonic() + 60
    while _is_alive(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _is_alive(worker)
