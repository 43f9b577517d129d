"""Where the rounds of a profiled campaign went: what each operator took per round, in both arms, fixture by fixture.

Times of a run under a profiler: they explain a round and are never set beside the times of another run.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from campaigns.errors import UsageError
from campaigns.plan import Role
from results.store.reader import Reader

PIECES = ("draft", "verify", "sample", "commit", "")
Place = tuple[str, str]
"""Piece and operator."""


@dataclass
class Share:
    """Of one place in one arm, in all profiled rounds."""

    total_ns: int = 0
    calls: int = 0
    launches: int = 0
    schedules: set[str] = field(default_factory=set)


@dataclass
class ArmProfile:
    """All profiled rounds of one arm on one fixture."""

    rounds: int = 0
    round_ns: int = 0
    clocks: set[str] = field(default_factory=set)
    shares: defaultdict[Place, Share] = field(default_factory=lambda: defaultdict(Share))

    @property
    def total_ns(self) -> int:
        return sum(share.total_ns for share in self.shares.values())

    @property
    def launches(self) -> int:
        return sum(share.launches for share in self.shares.values())


Profiles = Mapping[str, Mapping[Role, ArmProfile]]
"""By group of the report: fixture, or dataset of a corpus."""


def is_profiled(plan: Mapping[str, Any]) -> bool:
    """Plans that were stored before there were profiles have none."""
    return bool(plan.get("profile", False))


def refuse_profiled(reader: Reader, campaign_id: str, what: str) -> None:
    """UsageError for a campaign that ran under a profiler; `what` begins the reason, as `a baseline holds`."""
    if is_profiled(json.loads(reader.campaign(campaign_id).plan_json)):
        raise UsageError(
            f"campaign {campaign_id} ran under a profiler (campaign.profile=true), and {what} measurements: its report "
            "tells where rounds go; take a campaign without a profiler"
        )


def profiles(reader: Reader, campaign_id: str, plan: Mapping[str, Any]) -> Profiles:
    """Empty of a campaign that was not profiled, or whose server gave no profile."""
    newest = reader.recorded(campaign_id).block_attempts
    datasets = {fixture["id"]: fixture["dataset"] for fixture in plan["fixtures"]} if plan["corpus"] else {}
    found: dict[str, dict[Role, ArmProfile]] = {}
    requests: set[tuple[Any, ...]] = set()
    for row in reader.operator_times(campaign_id):
        if row["block_attempt"] != newest.get((row["startup"], row["fixture"], row["seed"])):
            continue
        arms = found.setdefault(datasets.get(row["fixture"], row["fixture"]), {role: ArmProfile() for role in Role})
        arm = arms[Role(row["role"])]
        request = tuple(row[name] for name in ("startup", "fixture", "seed", "repeat", "role"))
        if request not in requests:  # its rows share what is said of its rounds
            requests.add(request)
            arm.rounds += row["rounds"]
            arm.round_ns += row["round_ns"]
            arm.clocks.add(row["clock"])
        _add(arm.shares[row["piece"], row["operator"]], row)
    return found


def _add(share: Share, row: Mapping[Any, Any]) -> None:
    share.total_ns += row["total_ns"]
    share.calls += row["calls"]
    share.launches += row["launches"] or 0
    if row["schedule"]:
        share.schedules.add(row["schedule"])
