"""What a server's own counters say of its drafts, arm by arm: for servers that count them and list no rounds."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from campaigns.plan import Phase, Role
from campaigns.routes import ACCEPTED, DRAFTED, DRAFTS
from results.store import schema
from results.store.reader import Reader


@dataclass(frozen=True)
class ArmSpeculation:
    """Over the measured requests that said so."""

    role: Role
    arm: str
    n_requests: int
    n_drafts: int  # steps that verified a draft
    n_drafted: int
    n_accepted: int

    @property
    def line(self) -> str:
        share = f", {100 * self.n_accepted / self.n_drafted:.1f} % of what was drafted" if self.n_drafted else ""
        each = f", {self.n_accepted / self.n_drafts:.3f} a draft" if self.n_drafts else ""
        return (
            f"{self.role} ({self.arm}): {self.n_drafts} drafts of {self.n_drafted} tokens, {self.n_accepted} accepted"
            f"{share}{each} (the server's counts of {self.n_requests} requests)"
        )


def arm_speculation(reader: Reader, campaign_id: str, plan: Mapping[str, Any]) -> tuple[ArmSpeculation, ...]:
    """Nothing of an arm whose server does not count drafts."""
    totals: dict[Role, Counter[str]] = {role: Counter() for role in Role}
    t = schema.request.c
    query = select(t.role, t.counters).where(t.campaign_id == campaign_id, t.phase == Phase.MEASURE.value)
    for role, text in reader.connection.execute(query):
        counters = json.loads(text)
        if DRAFTS in counters:
            totals[Role(role)].update({name: counters.get(name, 0) for name in (DRAFTS, DRAFTED, ACCEPTED)})
            totals[Role(role)]["requests"] += 1
    return tuple(
        ArmSpeculation(role, plan[role]["name"], found["requests"], found[DRAFTS], found[DRAFTED], found[ACCEPTED])
        for role, found in totals.items()
        if found["requests"]
    )
