"""The one way from a typed configuration to a frozen `CampaignPlan`: what types cannot say is checked here.

Knows no YAML, and reads no prompt: `fixtures.py` lists those that the configuration names.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from campaigns.design.planning import MAX_STARTUPS
from campaigns.errors import UsageError
from campaigns.judging.statistics import MIN_STARTUPS_INTERVAL
from campaigns.plan import (
    SHARED,
    SNAPSHOT,
    Arm,
    CampaignPlan,
    ClientPlan,
    Fixture,
    LeasePlan,
    Mode,
    Order,
    Sampling,
    Seeds,
    ServerPlan,
    StartupMode,
    Stop,
)
from orchestrator.settings.config import ArmConfig, CampaignConfig, Config, LeaseConfig
from orchestrator.settings.limits import (
    MOST_PAIRS,
    at_least,
    check_headers,
    check_proxy,
    check_request_fields,
    check_values,
    unique,
)

SPECULATION = ("dflash", "lookup", "none")


@dataclass(frozen=True)
class Prompts:
    """Where the prompts of a campaign come from once corpora have been read: see orchestrator.launch."""

    fixtures: tuple[Fixture, ...]
    corpus_sha256: str = ""


def build_plan(config: Config, prompts: Prompts) -> CampaignPlan:
    """Check every value that its type cannot check, and freeze."""
    c, s = config.campaign, config.startup
    check_values(config)
    if prompts.corpus_sha256 and not config.corpus.seeds:
        raise UsageError("corpus.seeds is empty; give at least one")
    if not prompts.fixtures:
        told = "fixtures.items is empty, so is fixtures.file.path, and no corpus is chosen: name fixtures=… or corpus=…"
        raise UsageError(told)
    plan = CampaignPlan(
        name=c.name,
        mode=_choice("campaign.mode", c.mode, Mode),
        control=_arm(c.control),
        candidate=_arm(c.candidate),
        fixtures=prompts.fixtures,
        corpus=prompts.corpus_sha256,
        startups=c.startups,
        stop=_choice("campaign.stop", c.stop, Stop),
        min_startups=_min_startups(c),
        margin=c.margin_percent / 100,
        pairs=1 if prompts.corpus_sha256 else c.pairs,
        warmups=c.warmups,
        order=_choice("campaign.order", c.order, Order),
        startup_mode=_choice("startup.mode", s.mode, StartupMode),
        seed=c.seed,
        seeds=_choice("campaign.seeds", c.seeds, Seeds),
        sampling=Sampling(**vars(config.sampling)),
        server=_server(config),
        lease=_lease(config.lease),
        client=ClientPlan(**vars(config.client)),
        required_exactness=c.required_exactness,
        sample_hz=s.sample_hz,
        calibrate_s=s.calibrate_s,
        profile=c.profile,
    )
    _check_size(plan)
    _check_arms(plan)
    if plan.lease.parallel > 1 and plan.server.adapter == "attach":
        raise UsageError(
            f"lease.parallel={plan.lease.parallel}: an attached server is one, and startups side by side would share it"
        )
    return plan


def _check_size(plan: CampaignPlan) -> None:
    prompts = sum(len(fixture.seeds) for fixture in plan.fixtures)
    if plan.startups * prompts * plan.pairs > MOST_PAIRS:
        raise UsageError(
            f"campaign.startups={plan.startups}, {prompts} prompts with seeds and campaign.pairs={plan.pairs} make "
            f"{plan.startups * prompts * plan.pairs:,} pairs: at most {MOST_PAIRS:,} are a campaign; ask for fewer"
        )


def _min_startups(c: CampaignConfig) -> int:
    """Two numbers and no range: Hydra reads `3,16` and `range(3,16)` as sweeps, each value a campaign of its own."""
    if c.stop != Stop.DECIDED:
        if c.min_startups is not None:
            raise UsageError(
                f"campaign.min_startups={c.min_startups} says when a campaign is looked at first: add "
                "campaign.stop=decided, or drop it"
            )
        return MIN_STARTUPS_INTERVAL
    if c.profile:
        raise UsageError(
            "campaign.stop=decided asks for a verdict, and campaign.profile=true compares no times: drop one"
        )
    fewest = MIN_STARTUPS_INTERVAL if c.min_startups is None else c.min_startups
    if not MIN_STARTUPS_INTERVAL <= fewest <= c.startups <= MAX_STARTUPS:
        raise UsageError(
            f"campaign.stop=decided with campaign.min_startups={fewest} and campaign.startups={c.startups}: "
            f"it looks first after {MIN_STARTUPS_INTERVAL} or more and last after {MAX_STARTUPS} or fewer, as 3 and 16"
        )
    return fewest


def _arm(arm: ArmConfig) -> Arm:
    mode, count = arm.speculation or "", arm.num_speculative_tokens
    if mode not in ("", *SPECULATION):
        raise UsageError(f"arm {arm.name}: speculation={mode}: choose {', '.join(SPECULATION)}")
    if count is not None and (count < 1 or mode == "none"):
        raise UsageError(f"arm {arm.name}: num_speculative_tokens={count}: at least 1, and not with speculation=none")
    schedules, env = (tuple(sorted(pairs.items())) for pairs in (arm.schedules, arm.env))
    return Arm(arm.name, schedules, env, tuple(arm.args), mode, count, _tree(arm))


def _tree(arm: ArmConfig) -> str:
    folder = Path(arm.tree).expanduser().absolute()
    if arm.tree and not folder.is_dir():
        raise UsageError(f"arm {arm.name}: tree={arm.tree}: no such folder; name one with the code of its server")
    return str(folder) if arm.tree else ""


def _server(config: Config) -> ServerPlan:
    s = config.server
    if not s.ready_path.startswith("/"):
        raise UsageError(f"server.ready_path={s.ready_path}: write a path, as /health")
    values = {**vars(s), "command": tuple(s.command), "args": tuple(s.args), "env": tuple(sorted(s.env.items()))}
    values["api_key_file"] = str(Path(s.api_key_file).expanduser().absolute()) if s.api_key_file else ""
    values["model_root"] = tuple(str(Path(root).expanduser().absolute()) for root in s.model_root)
    values["headers"] = tuple(sorted(s.headers.items()))
    values["request_fields"] = tuple((name, json.dumps(value)) for name, value in sorted(s.request_fields.items()))
    del values["model_command"]
    check_headers(s.headers, s.api_key_env, s.api_key_file)
    check_request_fields(s.request_fields)
    check_proxy(s.proxy, s.adapter)
    if s.prompt_state not in ("", SNAPSHOT, SHARED):
        raise UsageError(
            f"server.prompt_state={s.prompt_state}: {SNAPSHOT} (once per arm and startup), {SHARED} (once per startup, "
            "by default schedules), or nothing to compute every prompt anew"
        )
    if config.campaign.trace and not config.campaign.profile:
        raise UsageError("campaign.trace=true keeps the trace of a profiled run: add campaign.profile=true")
    return ServerPlan(**values, retries=config.startup.retries, traces=config.campaign.trace)


def _lease(lease: LeaseConfig) -> LeasePlan:
    if lease.indices and lease.uuids:
        raise UsageError("lease.indices and lease.uuids are both set: name the devices in one way")
    unique([*lease.indices, *lease.uuids], "lease.indices or lease.uuids")
    if "" in lease.uuids:
        raise UsageError("lease.uuids names an empty UUID: campaign lease list shows those that are here")
    named = len(lease.indices) or len(lease.uuids)
    if named and lease.count not in (1, named):
        raise UsageError(f"lease.count={lease.count} contradicts {named} named devices: drop one of the two")
    _check_parallel(lease, bool(named))
    values = {**vars(lease), "indices": tuple(lease.indices), "uuids": tuple(lease.uuids)}
    return LeasePlan(**{**values, "count": at_least("lease.count", named or lease.count, 1)})


def _check_parallel(lease: LeaseConfig, named: bool) -> None:
    if lease.parallel > 1 and named:
        raise UsageError(
            f"lease.parallel={lease.parallel}, and the devices of one startup are named: ask for them by lease.count, "
            "so that every startup gets its own"
        )
    if lease.parallel > lease.per_host and not lease.ray_address:
        raise UsageError(
            f"lease.parallel={lease.parallel}, and one host takes lease.per_host={lease.per_host} startup at a time: "
            f"join a cluster (lease.ray_address), or set lease.per_host={lease.parallel} and find out what neighbours "
            "do to each other (campaign probe neighbours)"
        )


def _check_arms(plan: CampaignPlan) -> None:
    one, other = (plan.control, plan.candidate)
    same = (one.choices, one.life) == (other.choices, other.life)
    if plan.mode is Mode.AB and same:
        raise UsageError(
            f"campaign.control={one.name} and campaign.candidate={other.name} do the same: "
            "choose another arm, or campaign.mode=aa to measure the noise floor"
        )
    if one.name == other.name and not same:
        raise UsageError(
            f"campaign.control and campaign.candidate are both called {one.name} and differ: give one another name, as "
            "campaign.candidate.name=…"
        )
    if plan.mode is Mode.AA and not same:
        raise UsageError(f"campaign.mode=aa needs equal arms, and {one.name} differs from {other.name}")
    if plan.startup_mode is StartupMode.SWITCH and any(part for arm in (one, other) for part in arm.life):
        raise UsageError(
            "startup.mode=switch serves both arms from one process: arm.env, arm.args and arm.tree need co_resident"
        )


_Enum = TypeVar("_Enum", bound=StrEnum)


def _choice(path: str, value: str, kind: type[_Enum]) -> _Enum:
    try:
        return kind(value)
    except ValueError:
        raise UsageError(f"{path}={value}: use one of {', '.join(kind)}") from None
