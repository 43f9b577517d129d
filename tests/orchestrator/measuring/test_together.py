"""Chunks that arrive together beyond what this host's client explains: a flag, then no times of the client's clock."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from campaigns.order import blocks
from campaigns.plan import Phase, Role
from campaigns.reasons import Reason
from campaigns.records import Calibration, Failure, Request, Round
from orchestrator.measuring.together import FLAGGED, MOST, Together
from results.reading.summary import summarise
from results.reports.report import render
from results.store.reader import Reader
from results.store.writer import Store
from results.transfer.synthetic import CREATED, Driver
from tests.results.reports.test_report import PLAN, script

CALIBRATION = Calibration(2000, 110_000, 400_000, 800, 20_000, 2_000, coalesced_share=0.02)


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    with Store.open(tmp_path / "s") as store:
        made = Driver(store, PLAN, script).request("c", blocks(PLAN, 0)[0].steps[0], 1, 1)
    return replace(made, engine_decode_ns=None)


def chunks(request: Request, num: int, together: int) -> Request:
    return replace(request, rounds=tuple(Round(i, client_ns=4, coalesced=i <= together) for i in range(1, num + 1)))


@pytest.mark.parametrize(
    ("num", "together", "reason"),
    [
        (100, 6, None),  # within 5 % of calibration's 2 %
        (100, 8, Reason.COALESCED_ABOVE_CALIBRATION),
        (100, 27, Reason.COALESCED_ABOVE_CALIBRATION),
        (100, 28, Reason.STARTUP_COALESCED),
        (60, 60, None),  # too few to tell
    ],
)
def test_a_share_beyond_calibration(request_: Request, num: int, together: int, reason: Reason | None) -> None:
    seen = Together()
    seen.add([chunks(request_, num, together)])
    found = seen.finding(CALIBRATION)
    assert (found and found[0]) == reason
    assert found is None or f"{together / num:.1%} of {num} chunks arrived with another, where calibration" in found[1]


def test_what_is_no_time_of_the_client_is_not_counted(request_: Request) -> None:
    seen, whole = Together(), chunks(request_, 100, 100)
    seen.add([replace(whole, engine_decode_ns=5), replace(whole, phase=Phase.WARMUP)])
    assert seen.finding(CALIBRATION) is None
    seen.add([whole])
    assert seen.finding(CALIBRATION) and seen.finding(replace(CALIBRATION, coalesced_share=None)) is None
    assert seen.finding(None) is None and 0 < FLAGGED < MOST


@pytest.mark.parametrize("reason", [Reason.COALESCED_ABOVE_CALIBRATION, Reason.STARTUP_COALESCED])
def test_a_report_flags_it_or_leaves_the_startup_out(tmp_path: Path, reason: Reason) -> None:
    with Store.open(tmp_path / "s") as store:
        name = Driver(store, PLAN, script).run()
        store.failure(Failure(name, CREATED, reason, "31.0% of 900 chunks arrived with another", 1, 1))
    with Reader.open(tmp_path / "s") as reader:
        found, text = summarise(reader, name), render(reader, name, "md")
    excluded = reason is Reason.STARTUP_COALESCED
    assert found.n_admissible_pairs == (20 if excluded else 30)
    assert ("## Failures" in text) == excluded and "! startup 2: 31.0% of 900 chunks" in text
    assert (f"startup 2: {reason.value}: 31.0%" in text) != excluded
    assert found.groups[0].arm(Role.CONTROL).n_requests == (10 if excluded else 15)
