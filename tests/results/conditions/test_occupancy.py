"""How much of a lease went into requests, and what changed at the devices meanwhile."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from campaigns.plan import Role
from campaigns.records import Startup, StartupEnd, StartupStatus
from results.conditions.occupancy import occupancy
from results.store.reader import IdentityEvent, Life


def life(startup: int, began: str, ended: str | None, role: Role | None = None) -> Life:
    day = "2026-01-02T03:"
    made = Startup("c", startup, 1, role, f"{day}{began}.000+00:00", "b", "h", ("GPU-a",), (), 1, {}, {}, ())
    return Life(made, StartupEnd(StartupStatus.COMPLETE, f"{day}{ended}.000+00:00") if ended else None)


def requests(*rows: tuple[int, str, float]) -> pd.DataFrame:
    spent = [(startup, 1, phase, 5, 5 + int(seconds * 1e9)) for startup, phase, seconds in rows]
    return pd.DataFrame(spent, columns=["startup", "startup_attempt", "phase", "send_ns", "end_ns"])


def said(startup: int, moment: str, **state: Any) -> IdentityEvent:
    return IdentityEvent(startup, 1, moment, "", {"device_state": [{"uuid": "GPU-a", **state}]})


def test_time_of_requests_against_time_of_leases() -> None:
    lives = [life(0, "00:00", "01:40"), life(1, "02:00", "03:40"), life(2, "04:00", None)]
    sent = requests((0, "measure", 30.0), (0, "warmup", 5.0), (1, "measure", 20.0), (2, "measure", 99.0))
    used = occupancy(sent, lives, [])
    assert (used.n_startups, used.held_s, used.measured_s, used.warmup_s) == (2, 200.0, 50.0, 5.0)
    assert used.energy_j is None and used.changes == ()


def test_two_lives_of_one_startup_count_once() -> None:
    lives = [life(0, "00:00", "01:40", Role.CONTROL), life(0, "00:50", "01:40", Role.CANDIDATE)]
    assert occupancy(requests((0, "measure", 1.0)), lives, []).held_s == 100.0


def test_energy_is_a_difference_within_each_startup() -> None:
    events = [said(0, "warm", energy_mj=1000), said(0, "last", energy_mj=4000), said(1, "warm", energy_mj=9000)]
    events.append(said(1, "last", energy_mj=9500))
    assert occupancy(requests(), [], events).energy_j == pytest.approx(3.5)
    assert occupancy(requests(), [], events[:1]).energy_j is None


def test_a_device_that_made_errors_or_was_reset_is_named() -> None:
    events = [
        said(0, "warm", ecc_uncorrected=0, pcie_width=16, power_limit_mw=1),
        said(0, "last", ecc_uncorrected=2, pcie_width=8, power_limit_mw=2),
        said(1, "warm", ecc_uncorrected=2, pcie_width=8),
        said(1, "last", ecc_uncorrected=2, pcie_width=8),
    ]
    assert occupancy(requests(), [], events).changes == (
        "startup 1, device GPU-a: ecc_uncorrected 0 became 2",
        "startup 1, device GPU-a: pcie_width 16 became 8",
    )
