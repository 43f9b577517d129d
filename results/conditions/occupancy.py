"""How the leased devices were used: what part of the time was spent on requests, and what changed at the devices.

Time counts from the start of a startup's first server to the end of its lease; hashing, planning and tokenising come
before that and hold nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pandas as pd

from campaigns.plan import Phase
from results.store.reader import IdentityEvent, Life

# Counters that only rise when something went wrong, and what should stay as it was.
_FAULTS = ("ecc_uncorrected", "pcie_replays")
_SETTINGS = ("driver", "pcie_width", "persistence", "mig", "application_sm_mhz", "application_memory_mhz")


@dataclass(frozen=True)
class Occupancy:
    """Over the startups whose lease has ended."""

    n_startups: int
    held_s: float
    measured_s: float
    warmup_s: float
    energy_j: float | None  # from the first to the last reading of each startup; None where no device counts it
    changes: tuple[str, ...]  # of the devices during a startup


def occupancy(requests: pd.DataFrame, lives: Sequence[Life], events: Sequence[IdentityEvent]) -> Occupancy:
    held_s = _held_s(lives)
    spent_s = (requests.end_ns - requests.send_ns) * 1e-9
    counted = pd.Series(
        [key in held_s for key in zip(requests.startup, requests.startup_attempt, strict=True)], requests.index
    )
    states = _states(events)
    energies = [_energy_j(first, last) for first, last in states.values()]
    known = [joules for joules in energies if joules is not None]
    return Occupancy(
        n_startups=len(held_s),
        held_s=sum(held_s.values()),
        measured_s=float(spent_s[counted & (requests.phase == Phase.MEASURE)].sum()),
        warmup_s=float(spent_s[counted & (requests.phase == Phase.WARMUP)].sum()),
        energy_j=sum(known) if known else None,
        changes=tuple(
            f"startup {startup + 1}, device {uuid}: {change}"
            for (startup, _, uuid), (first, last) in states.items()
            for change in _changes(first, last)
        ),
    )


def _held_s(lives: Sequence[Life]) -> dict[tuple[int, int], float]:
    """Seconds by (startup, attempt); a startup in two lives, one per arm, counts from the first of them."""
    began: dict[tuple[int, int], datetime] = {}
    ended: dict[tuple[int, int], datetime] = {}
    for life in lives:
        key = (life.startup.startup, life.startup.attempt)
        began.setdefault(key, datetime.fromisoformat(life.startup.created_utc))
        if life.end is not None:
            ended[key] = datetime.fromisoformat(life.end.ended_utc)
    return {key: (end - began[key]).total_seconds() for key, end in ended.items()}


_State = Mapping[str, Any]


def _states(events: Sequence[IdentityEvent]) -> dict[tuple[int, int, str], tuple[_State, _State]]:
    """First and last reading by startup, attempt and device."""
    found: dict[tuple[int, int, str], tuple[_State, _State]] = {}
    for event in events:
        for state in event.identity.get("device_state", ()):
            key = (event.startup, event.attempt, str(state["uuid"]))
            found[key] = (found.get(key, (state,))[0], state)
    return found


def _energy_j(first: _State, last: _State) -> float | None:
    if first is last or "energy_mj" not in first or "energy_mj" not in last:
        return None
    return float(last["energy_mj"] - first["energy_mj"]) * 1e-3


def _changes(first: _State, last: _State) -> list[str]:
    names = [name for name in (*_FAULTS, *_SETTINGS) if name in first and name in last]
    return [f"{name} {first[name]} became {last[name]}" for name in names if first[name] != last[name]]
