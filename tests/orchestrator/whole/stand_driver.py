"""`campaign` with its stand in the driver's own process instead of a Ray actor: the same loop, processes and store.

stand_driver.py run|resume WORD…
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orchestrator.attempt
import orchestrator.loop
from campaigns.plan import CampaignPlan, LeasePlan
from orchestrator.cli import main
from orchestrator.startups.stand import Assignment, Stand


@contextmanager
def connect(plan: LeasePlan, halted: object) -> Iterator[None]:
    yield


@contextmanager
def lease(
    cluster: None,
    plan: CampaignPlan,
    campaign_id: str,
    startup: int,
    attempt: int,
    workdir: Path,
    on_wait: Callable[[str], None],
) -> Iterator[Any]:
    environment, nice = dict(os.environ), os.getpriority(os.PRIO_PROCESS, 0)
    stand = Stand(Assignment(plan, campaign_id, startup, attempt, workdir.resolve(), "test", environment, nice))
    stand.acquire((), 60.0)
    ends: list[Any] = []
    stop = stand.stop
    stand.stop = lambda: ends[0] if ends else (ends.append(stop()) or ends[0])
    try:
        yield stand
    finally:
        stand.stop()


orchestrator.loop.connect = connect
orchestrator.attempt.StartupHandle.lease = lease

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
