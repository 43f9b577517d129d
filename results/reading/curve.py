"""Context lengths of one campaign as points of a curve, and the gate that they can fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from campaigns.judging.curve import Curve, examined
from campaigns.plan import Mode
from results.reading.exclusions import context_length
from results.reading.groups import Group


def failed_gates(groups: Sequence[Group], plan: Mapping[str, Any]) -> tuple[str, ...]:
    """The one gate that a campaign can fail by itself: the curve over context lengths, from three startups on."""
    curve = curve_of(groups)
    if plan["mode"] != Mode.AB.value or len(curve) < 2 or min(g.judgement.n_startups for g in groups) < 3:
        return ()
    return tuple(f"curve: {fault}" for fault in examined(curve).faults)


def curve_of(groups: Sequence[Group]) -> tuple[Curve, ...]:
    """The groups whose fixtures are context lengths, shortest first."""
    points = ((context_length(g.fixture), g) for g in groups)
    found = (_point(length, g) for length, g in points if length and g.control.level_ms and g.candidate.level_ms)
    return tuple(sorted(found, key=lambda point: point.length))


def _point(length: int, group: Group) -> Curve:
    assert group.control.level_ms is not None and group.candidate.level_ms is not None, "it was asked"
    control, candidate = group.control.startup_levels_ms, group.candidate.startup_levels_ms
    startups = {s: (control[s], candidate[s]) for s in control.keys() & candidate.keys()}
    return Curve(length, group.control.level_ms, group.candidate.level_ms, group.judgement.verdict, startups)
