"""The table "where a round goes" of a profiled campaign. Knows no store."""

from __future__ import annotations

from collections.abc import Iterator

from campaigns.plan import Role
from results.conditions.profiles import PIECES, ArmProfile, Place, Profiles, Share
from results.reports.tables import cells
from results.reports.tables.common import Table

HEADER = (
    "fixture",
    "piece",
    "operator",
    "control / candidate us",
    "difference us",
    "share",
    "calls",
    "schedules",
)
_NOTE = {
    "device": "Times of kernels per round, launched one by one: what graphs and overlap save between kernels is not in "
    "them, and kernels that wait for the one before count their waiting.",
    "host": "Times of calls per round on the host's clock, each without what it calls.",
}


def table(found: Profiles) -> Table | None:
    """Piece by piece, the largest operators first, then the whole."""
    rows = [row for name, arms in found.items() for row in _rows(name, arms[Role.CONTROL], arms[Role.CANDIDATE])]
    if not rows:
        return None
    clocks = sorted({clock for arms in found.values() for arm in arms.values() for clock in arm.clocks})
    told = [_NOTE[clock] for clock in clocks if clock in _NOTE]
    note = " ".join(["Scope: profiled; comparable with nothing outside this table.", *told])
    return Table("Where a round goes", HEADER, tuple(rows), note)


def _rows(name: str, control: ArmProfile, candidate: ArmProfile) -> Iterator[tuple[str, ...]]:
    if not (control.rounds and candidate.rounds):
        return
    for place in _places(control, candidate):
        one, other = control.shares.get(place, Share()), candidate.shares.get(place, Share())
        piece, operator = place
        yield (
            name,
            piece or "between",
            operator or "other",
            *_times(one.total_ns, other.total_ns, control, candidate),
            f"{_per_round(one.calls, control)} / {_per_round(other.calls, candidate)}" if operator else cells.DASH,
            _schedules(one, other),
        )
    launches = f"{_per_round(control.launches, control)} / {_per_round(candidate.launches, candidate)} launches"
    yield (
        name,
        "all",
        "",
        *_times(control.total_ns, candidate.total_ns, control, candidate),
        launches if control.launches else cells.DASH,
        f"{control.rounds} / {candidate.rounds} rounds",
    )


def _places(control: ArmProfile, candidate: ArmProfile) -> list[Place]:
    def weight(place: Place) -> tuple[int, int]:
        largest = max(arm.shares[place].total_ns for arm in (control, candidate) if place in arm.shares)
        return PIECES.index(place[0]) if place[0] in PIECES else len(PIECES), -largest

    return sorted(control.shares.keys() | candidate.shares.keys(), key=weight)


def _times(one_ns: int, other_ns: int, control: ArmProfile, candidate: ArmProfile) -> tuple[str, str, str]:
    one, other = one_ns / control.rounds / 1e3, other_ns / candidate.rounds / 1e3
    shares = _share(one_ns, control), _share(other_ns, candidate)
    return cells.both(one, other, 1), f"{other - one:+.1f}", " / ".join(cells.share(share, 1) for share in shares)


def _share(ns: int, arm: ArmProfile) -> float | None:
    return ns / arm.total_ns if arm.total_ns else None


def _per_round(count: int, arm: ArmProfile) -> str:
    return f"{count / arm.rounds:g}" if count % arm.rounds == 0 else f"{count / arm.rounds:.1f}"


def _schedules(control: Share, candidate: Share) -> str:
    one, other = (", ".join(sorted(share.schedules)) for share in (control, candidate))
    return one if one == other else f"{one or cells.DASH} / {other or cells.DASH}"
