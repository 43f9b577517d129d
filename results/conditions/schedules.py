"""What the schedules of each arm did over a campaign: how often they ran, and why how many calls they refused.

Over every request that was recorded, warm-ups and superseded attempts too: an arm that cannot run leaves nothing else.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from campaigns.plan import Role
from campaigns.routes import Route, routes, unasked
from results.store import schema
from results.store.reader import Reader


@dataclass(frozen=True)
class ArmRoute:
    role: Role
    arm: str
    route: Route
    asked: bool = True  # the arm names it

    def lines(self) -> list[str]:
        ran = f"ran {self.route.hits} times" if self.route.hits else "never ran"
        ran += "" if self.asked else ", unasked"
        return [f"{self.role} ({self.arm}): {text}" for text in (f"{self.route.name} {ran}", *self.route.told())]


def arm_routes(reader: Reader, campaign_id: str, plan: Mapping[str, Any]) -> tuple[ArmRoute, ...]:
    """One per arm and schedule that it names, and what ran unasked; nothing of a server without counters."""
    totals: dict[Role, Counter[str]] = {role: Counter() for role in Role}
    t = schema.request.c
    for role, counters in reader.connection.execute(select(t.role, t.counters).where(t.campaign_id == campaign_id)):
        totals[Role(role)].update(json.loads(counters))
    return tuple(
        ArmRoute(role, plan[role]["name"], route, asked)
        for role, counters in totals.items()
        for asked, found in ((True, routes), (False, unasked))
        for route in (found(plan[role]["schedules"], counters) if counters else ())
    )
