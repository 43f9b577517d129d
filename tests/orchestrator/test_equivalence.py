"""The equivalence worker: answers, and replacement of a worker that hangs or dies."""

from __future__ import annotations

from campaigns.scorers.answer import Equal
from orchestrator.equivalence import EquivalenceWorker


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
