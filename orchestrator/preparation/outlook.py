"""What a configuration would do, without doing it: counts from the plan, time from history or a stated guess."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from campaigns.order import blocks, life_warmups, pair_keys
from campaigns.plan import CampaignPlan, Stop, several_changes
from campaigns.provenance import canonical_json
from orchestrator.preparation.prepare import Prepared
from results.history.pace import GUESS, Pace, pace
from results.store.reader import Reader


def outlook(prepared: Prepared) -> str:
    plan, speed = prepared.plan, _pace(prepared)
    every = [block for startup in range(plan.startups) for block in blocks(plan, startup)]
    num_pairs = len(pair_keys(plan))
    num_warmups = 2 * (sum(block.warmups for block in every) + plan.startups * life_warmups(plan))
    startups_s = speed.startups_s(plan.startups, 2 * num_pairs, num_warmups, plan.calibrate_s)
    at_once = min(plan.lease.parallel, plan.startups)
    in_turn = math.ceil(plan.startups / at_once) / plan.startups  # of the time that one at a time takes
    total_s = speed.once_s + startups_s * in_turn
    return (
        f"{plan.name}: {plan.candidate.name} against {plan.control.name}\n"
        f"{''.join(_arms(prepared))}"
        f"  startups   {_startups(plan)}\n"
        f"  fixtures   {len(plan.fixtures)}, {len(every)} blocks\n"
        f"  pairs      {num_pairs}\n"
        f"  requests   {2 * num_pairs} measured, {num_warmups} warm-ups\n"
        f"  time       about {total_s / 60:.1f} min{_side_by_side(at_once, speed.once_s + startups_s)}: "
        f"{speed.request_s:.2f} s a request, {speed.startup_s + plan.calibrate_s:.0f} s a startup, "
        f"{speed.once_s:.0f} s before the first ({speed.source})\n"
        f"{_unknown(prepared)}"
    )


def _unknown(prepared: Prepared) -> str:
    """A plan may be made where no device is, by which nothing of it was checked."""
    told = f"  unknown    whether it runs, which this host cannot tell: {prepared.unknown}\n"
    return told if prepared.unknown else ""


def _startups(plan: CampaignPlan) -> str:
    if plan.stop is Stop.PLANNED:
        return str(plan.startups)
    return f"{plan.min_startups} to {plan.startups}, as few as decide it; what follows is for {plan.startups}"


def _side_by_side(at_once: int, total_s: float) -> str:
    """A host that has no place for all of them makes it longer, up to the time of one after the other."""
    if at_once == 1:
        return ""
    return f" with {at_once} startups at once ({total_s / 60:.1f} min one at a time)"


def _arms(prepared: Prepared) -> Iterator[str]:
    """What each arm names, what changes between them, and which files of one's own say so."""
    plan = prepared.plan
    for role, arm in (("control", plan.control), ("candidate", plan.candidate)):
        named = [*map("/".join, arm.choices), *map("=".join, arm.env), *arm.args, *([arm.tree] if arm.tree else [])]
        yield f"  {role:<10} {arm.name}: {' '.join(named) or 'nothing named'}\n"
    yield f"  changes    {'; '.join(plan.differences) or 'nothing: both arms do the same'}\n"
    if several := several_changes(plan.control, plan.candidate):
        yield f"  warning    {several}\n"
    own = [path for path in prepared.provenance["config_files"] if Path(path).is_absolute()]
    if own:
        yield f"  files      {', '.join(own)}\n"


def _pace(prepared: Prepared) -> Pace:
    if not prepared.store_path.exists():
        return GUESS
    with Reader.open(prepared.store_path) as reader:
        arguments = canonical_json(prepared.plan.server.args)
        return pace(reader, prepared.fingerprint["weights_sha256"], arguments, prepared.plan.name)
