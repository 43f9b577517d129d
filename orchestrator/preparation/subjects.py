"""Which names a ledger of gates can be about: a schedule, an arm, or whatever the store has facts about."""

from __future__ import annotations

import json
from collections.abc import Iterator

from campaigns.errors import UsageError
from campaigns.nearest import alike
from orchestrator.checkouts.places import CONF
from orchestrator.preparation.schedules import listing
from results.store.reader import Reader


def check_subject(name: str, reader: Reader | None = None) -> None:
    """UsageError for a name that nothing here has: its ledger would be empty, and look as if work were missing."""
    known = [path.stem for path in (CONF / "arm").glob("*.yaml")]
    known += _recorded(reader) if reader is not None else []
    if name in known:
        return
    known += [f"{operator}/{schedule}" for operator, schedules in listing().operators.items() for schedule in schedules]
    if name not in known:
        close = alike(name, known)
        remedy = f"did you mean {close}?" if close else "conf/arm has the arms, python -m kernels.list the schedules"
        raise UsageError(f"{name} is no schedule, arm or recorded subject; {remedy}")


def _recorded(reader: Reader) -> Iterator[str]:
    yield from (probe.subject for probe in reader.probes())
    yield from (decision.subject for decision in reader.decisions())
    for campaign in reader.campaigns():
        plan = json.loads(campaign.plan_json)
        for arm in (plan["control"], plan["candidate"]):
            yield from (arm["name"], *map("/".join, arm["schedules"]))
