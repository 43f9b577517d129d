"""`campaign probe neighbours`: what startups that work beside each other on one host do to each other's times.

One-startup A/A campaigns, alone and beside K - 1 working neighbours, in the order ABBA so that slow drifts cancel. All
have the CPUs that lease.per_host=K gives them; only the neighbours differ. What is said: how much longer a request's
time is beside neighbours, with an interval over turns, and how much further the pairs of equal arms lie apart.
"""

from __future__ import annotations

import json
import math
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from campaigns.errors import Exit, UsageError, WorldError
from campaigns.judging.gates import GateStatus
from campaigns.judging.statistics import percent, t_interval
from campaigns.judging.verdicts import counted
from campaigns.plan import Mode
from campaigns.remarks import Probe
from orchestrator.campaign import execute
from orchestrator.hosts.devices.inventory import open_inventory
from orchestrator.output.progress import Output
from orchestrator.preparation.prepare import Prepared
from orchestrator.studies import sweep
from results.conditions.neighbours import GATE, subject
from results.reading.summary import summarise
from results.store.reader import Reader
from results.store.writer import Store, utc_now

_HARMLESS = math.log1p(0.01)  # an effect of neighbours within one per cent, by its whole interval
_NEIGHBOUR_STARTUPS = 10_000  # they are ended when the turn is over
_LOOK_S = 0.5


@dataclass(frozen=True)
class Turn:
    campaign_id: str
    beside: bool
    level: float  # mean logarithm of the request-average round over arms and fixtures
    deltas: tuple[float, ...]  # of the pairs: equal arms, so noise


def probe(prepared: Prepared, turns: int, output: Output) -> Probe:
    """Measured now, recorded in the campaign's store. Raises WorldError where a turn did not end well."""
    _check(prepared)
    done = [_turn(prepared, beside, output) for beside in _order(turns)]
    found = _probe(prepared, done)
    with Store.open(prepared.store_path) as store:
        store.probes([found])
    return found


def _check(prepared: Prepared) -> None:
    plan = prepared.plan
    if plan.mode is not Mode.AA or plan.lease.per_host < 2 or plan.lease.ray_address:
        raise UsageError(
            "a probe of neighbours needs equal arms (campaign.mode=aa), lease.per_host=K of at least 2, and this host "
            "(no lease.ray_address): run it on one of the hosts that the campaign will use"
        )
    per_host, wanted = plan.lease.per_host, plan.lease.per_host * plan.lease.count
    with open_inventory(plan.lease.inventory) as inventory:
        num_devices = len(inventory.devices())
    if num_devices < wanted:
        raise UsageError(
            f"lease.per_host={per_host} startups at once need {counted(wanted, 'device')}, and this host has "
            f"{num_devices}: set lease.per_host to what fits"
        )


def _order(turns: int) -> list[bool]:
    """Alone, beside, beside, alone, …"""
    return [turn % 4 in (1, 2) for turn in range(2 * turns)]


def _turn(prepared: Prepared, beside: bool, output: Output) -> Turn:
    campaign = replace(prepared.campaign(), name=f"neighbours {'beside' if beside else 'alone'}")
    if beside:
        with _neighbours(prepared):
            code = execute(prepared, output, campaign)
    else:
        code = execute(prepared, output, campaign)
    if code not in (Exit.COMPLETE, Exit.SLOWER, Exit.STRICT):
        raise WorldError(f"a turn of the probe ended with {int(code)}: see the report of {campaign.campaign_id}")
    return _read(prepared.store_path, campaign.campaign_id, beside)


@contextmanager
def _neighbours(prepared: Prepared) -> Iterator[None]:
    """K - 1 campaigns like the probe's, at work from here to the end of the block; what they measure is thrown away."""
    with tempfile.TemporaryDirectory(prefix="neighbours-") as folder:
        plan = replace(prepared.plan, startups=_NEIGHBOUR_STARTUPS)
        stores = [Path(folder) / f"{number}.sqlite" for number in range(plan.lease.per_host - 1)]
        them = [replace(prepared, plan=plan, store_path=store) for store in stores]
        jobs = [sweep.Job("neighbour", each, each.campaign()) for each in them]
        children = [sweep.start(job) for job in jobs]
        try:
            for job, child in zip(jobs, children, strict=True):
                while not _measures(job.prepared.store_path):
                    _require_at_work(job, child, "before it measured")
                    time.sleep(_LOOK_S)
            yield
            for job, child in zip(jobs, children, strict=True):
                _require_at_work(job, child, "before the turn did, and what was measured was not beside it")
        finally:
            for child in children:
                child.send_signal(signal.SIGINT)
            for child in children:
                child.wait()


def _require_at_work(job: sweep.Job, child: subprocess.Popen[bytes], when: str) -> None:
    if (code := child.poll()) is not None:
        said = (job.folder / "console.log").read_text(errors="replace").splitlines()[-1:]
        raise WorldError(f"a neighbour ended with {code} {when}; its last words: {''.join(said)}")


def _measures(store: Path) -> bool:
    try:
        with Reader.open(store) as reader:
            return any(reader.recorded(campaign.campaign_id).pairs for campaign in reader.campaigns())
    except UsageError:
        return False  # not there yet


def _read(store: Path, campaign_id: str, beside: bool) -> Turn:
    with Reader.open(store) as reader:
        summary = summarise(reader, campaign_id)
        deltas = tuple(pair.delta_log for pair in reader.pairs(campaign_id) if pair.admissible and pair.delta_log)
    arms = [arm for group in summary.groups for arm in (group.control, group.candidate)]
    levels = [arm.level_ms for arm in arms if arm.level_ms]
    if not levels or len(deltas) < 2:
        raise WorldError(f"campaign {campaign_id} has too few pairs that count to tell anything: see its report")
    return Turn(campaign_id, beside, math.fsum(map(math.log, levels)) / len(levels), deltas)


def _probe(prepared: Prepared, turns: Sequence[Turn]) -> Probe:
    alone, beside = ([turn for turn in turns if turn.beside is side] for side in (False, True))
    shifts = [b.level - a.level for a, b in zip(alone, beside, strict=True)]
    interval = t_interval(shifts)
    spread = [math.sqrt(np.mean([np.var(turn.deltas, ddof=1) for turn in side])) for side in (alone, beside)]
    if interval is None:
        status = GateStatus.HELD
    elif interval.low >= -_HARMLESS and interval.high <= _HARMLESS:
        status = GateStatus.PASSED
    else:
        status = GateStatus.FAILED if interval.low > 0 or interval.high < 0 else GateStatus.HELD
    line = {
        "per_host": prepared.plan.lease.per_host,
        "devices": prepared.fingerprint["host.device_names"],
        "cpu": prepared.fingerprint["host.cpu"],
        "n_turns": len(shifts),
        "slower_pct": percent(float(np.mean(shifts))),
        "ci_pct": None if interval is None else [percent(interval.low), percent(interval.high)],
        "pair_sd_alone_pct": percent(spread[0]),
        "pair_sd_beside_pct": percent(spread[1]),
        "campaigns": [turn.campaign_id for turn in turns],
    }
    return Probe(utc_now(), GATE, subject(prepared.plan.lease.per_host), status.value, "", json.dumps(line))
