"""The configuration's schema and the one way from YAML to a frozen plan.

Hydra merges `conf/` into these dataclasses, which reject unknown and mistyped keys; `build_plan` checks what types
cannot say and returns a `CampaignPlan`. No DictConfig goes further than this module. (The classes are mutable because
OmegaConf can merge neither frozen dataclasses nor Literal types.)
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, OmegaConf

from campaigns.corpora.conversations import Choice, fixtures_from
from campaigns.errors import UsageError
from campaigns.fixtures import OUTPUT_TOKENS, Curve
from campaigns.judging.planning import MAX_STARTUPS
from campaigns.judging.statistics import MIN_STARTUPS_INTERVAL
from campaigns.plan import (
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
from orchestrator.settings.limits import (
    at_least,
    check_headers,
    check_proxy,
    check_request_fields,
    check_values,
    unique,
)
from results.store.place import DEFAULT

_SPECULATION = ("dflash", "lookup", "none")


@dataclass
class ArmConfig:
    name: str = MISSING
    schedules: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    args: list[str] = field(default_factory=list)
    speculation: str | None = None  # dflash, lookup or none
    num_speculative_tokens: int | None = None  # drafts a round


@dataclass
class CampaignConfig:
    name: str = MISSING
    mode: str = "ab"
    startups: int = 3
    stop: str = "planned"  # or decided: startups is then the most, min_startups (3) the fewest
    min_startups: int | None = None
    margin_percent: float = 0.5  # arms that differ by less are equivalent
    pairs: int = 6
    warmups: int = 5
    order: str = "abba"
    seed: int = 0
    seeds: str = "fixed"  # fixed | fresh
    required_exactness: int = 4
    max_tokens: int | None = None  # a cap for every fixture that has none of its own
    profile: bool = False  # a run that tells where rounds go, and compares nothing
    trace: bool = False  # with profile: a Chrome trace per arm in the server's folder
    control: ArmConfig = field(default_factory=ArmConfig)
    candidate: ArmConfig = field(default_factory=ArmConfig)


@dataclass
class FixtureConfig:
    id: str = MISSING
    messages: list[dict[str, str]] | None = None
    prompt: str | None = None
    prompt_token_ids: list[int] | None = None
    seeds: list[int] = field(default_factory=lambda: [0])
    max_tokens: int | None = None
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass
class CurveConfig:
    """Prompts of exact lengths, built from token ids: see campaigns.fixtures."""

    lengths: list[int] = field(default_factory=list)
    scaled: bool = False  # the public lengths in proportion to the model's capacity
    boundary: bool = False  # all but eight tokens of the capacity
    output_tokens: int = OUTPUT_TOKENS
    seeds: list[int] = field(default_factory=lambda: [0])


@dataclass
class FileConfig:
    """A file of one's own: see campaigns.corpora.conversations."""

    path: str = ""
    count: int = 8
    seed: int = 0
    turns: int | None = None
    seeds: list[int] = field(default_factory=lambda: [0])
    max_tokens: int | None = None


@dataclass
class FixturesConfig:
    items: list[FixtureConfig] = field(default_factory=list)
    curve: CurveConfig = field(default_factory=CurveConfig)
    file: FileConfig = field(default_factory=FileConfig)


@dataclass
class CorpusConfig:
    source: str = "none"  # none | embedded | file
    path: str = ""
    sha256: str = ""  # expected hash of the frozen file; empty accepts and records what is there
    seeds: list[int] = field(default_factory=lambda: [0])


@dataclass
class StartupConfig:
    mode: str = "switch"
    retries: int = 1
    calibrate_s: float = 5.0
    sample_hz: float = 4.0


@dataclass
class ServerConfig:
    adapter: str = MISSING
    model: str = ""
    model_command: str = ""  # what makes the folder {model} where it is missing; only said, never run
    command: list[str] = field(default_factory=list)
    base_url: str = ""
    proxy: str = ""  # http://HOST:PORT, for server=attach alone
    headers: dict[str, str] = field(default_factory=dict)
    api_key_env: str = ""
    api_key_file: str = ""
    request_fields: dict[str, Any] = field(default_factory=dict)  # of the body of every request; null leaves one out
    prompt_state: str = ""  # snapshot: states after prompts are copied back, so that a long one is computed once a life
    ready_path: str = "/health"
    ready_timeout_s: float = 300.0
    stop_grace_s: float = 10.0
    args: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)


@dataclass
class LeaseConfig:
    count: int = 1
    indices: list[int] = field(default_factory=list)
    uuids: list[str] = field(default_factory=list)
    wait_s: float = 0.0
    lock_dir: str = ""
    inventory: str = "auto"
    ray_address: str = ""
    ray_start_s: float = 240.0
    parallel: int = 1
    per_host: int = 1


@dataclass
class SamplingConfig:
    temperature: float = 1.0
    top_k: int = 20
    top_p: float = 0.95
    min_p: float = 0.0


@dataclass
class ClientConfig:
    timeout_s: float = 300.0
    keep_alive: bool = False


@dataclass
class StoreConfig:
    path: str = str(DEFAULT)


@dataclass
class SweepConfig:
    parallel: int = 1  # campaigns of a --multirun at once


@dataclass
class Config:
    campaign: CampaignConfig = field(default_factory=CampaignConfig)
    fixtures: FixturesConfig = field(default_factory=FixturesConfig)
    corpus: CorpusConfig = field(default_factory=CorpusConfig)
    startup: StartupConfig = field(default_factory=StartupConfig)
    server: ServerConfig = field(default_factory=ServerConfig)
    lease: LeaseConfig = field(default_factory=LeaseConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    client: ClientConfig = field(default_factory=ClientConfig)
    store: StoreConfig = field(default_factory=StoreConfig)
    sweep: SweepConfig = field(default_factory=SweepConfig)
    strict: bool = False


def typed(values: Any) -> Config:
    """Plain data against the schema once more: Hydra lets `+key=…` add what no class declares."""
    config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Config), values))
    assert isinstance(config, Config), type(config)
    return config


def register_schema() -> None:
    ConfigStore.instance().store(name="schema", node=Config)


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
    _check_arms(plan)
    if plan.lease.parallel > 1 and plan.server.adapter == "attach":
        raise UsageError(
            f"lease.parallel={plan.lease.parallel}: an attached server is one, and startups side by side would share it"
        )
    return plan


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


def fixtures_of(config: Config) -> tuple[Fixture, ...]:
    """The speed fixtures that the configuration lists."""
    listed = tuple(_fixture(item, config.campaign.max_tokens) for item in config.fixtures.items)
    fixtures = (*listed, *_from_file(config))
    unique([fixture.id for fixture in fixtures], "fixtures.items")
    return fixtures


def _from_file(config: Config) -> tuple[Fixture, ...]:
    f = config.fixtures.file
    if not f.path:
        return ()
    if not f.seeds:
        raise UsageError("fixtures.file.seeds is empty; give at least one")
    unique(f.seeds, "fixtures.file.seeds")
    choice = Choice(
        count=at_least("fixtures.file.count", f.count, 1),
        seed=f.seed,
        turns=None if f.turns is None else at_least("fixtures.file.turns", f.turns, 1),
        seeds=tuple(f.seeds),
        max_tokens=config.campaign.max_tokens
        if f.max_tokens is None
        else at_least("fixtures.file.max_tokens", f.max_tokens, 1),
    )
    return fixtures_from(Path(f.path).expanduser(), choice)


def curve_of(config: Config) -> Curve:
    """The context curve that the configuration asks for."""
    c = config.fixtures.curve
    for length in c.lengths:
        at_least("fixtures.curve.lengths", length, 1)
    if not c.seeds:
        raise UsageError("fixtures.curve.seeds is empty; give at least one")
    return Curve(
        lengths=tuple(c.lengths),
        scaled=c.scaled,
        boundary=c.boundary,
        output_tokens=at_least("fixtures.curve.output_tokens", c.output_tokens, 1),
        seeds=tuple(c.seeds),
    )


def _fixture(item: FixtureConfig, cap: int | None) -> Fixture:
    given = [n for n in ("messages", "prompt", "prompt_token_ids") if getattr(item, n) is not None]
    if len(given) != 1:
        raise UsageError(f"fixture {item.id}: give exactly one of messages, prompt, prompt_token_ids, not {given}")
    if not getattr(item, given[0]):
        raise UsageError(f"fixture {item.id}: {given[0]} is empty; a server needs something to answer")
    if not item.seeds:
        raise UsageError(f"fixture {item.id}: seeds is empty; give at least one")
    body: dict[str, Any] = {"messages": item.messages} if item.messages else {"prompt": getattr(item, given[0])}
    if item.chat_template_kwargs:
        body["chat_template_kwargs"] = item.chat_template_kwargs
    text = json.dumps(body, ensure_ascii=False)
    limit = at_least(f"fixture {item.id}: max_tokens", item.max_tokens, 1) if item.max_tokens is not None else cap
    return Fixture(item.id, text, tuple(item.seeds), max_tokens=limit, chat=bool(item.messages))


def _arm(arm: ArmConfig) -> Arm:
    mode, count = arm.speculation or "", arm.num_speculative_tokens
    if mode not in ("", *_SPECULATION):
        raise UsageError(f"arm {arm.name}: speculation={mode}: choose {', '.join(_SPECULATION)}")
    if count is not None and (count < 1 or mode == "none"):
        raise UsageError(f"arm {arm.name}: num_speculative_tokens={count}: at least 1, and not with speculation=none")
    schedules, env = (tuple(sorted(pairs.items())) for pairs in (arm.schedules, arm.env))
    return Arm(arm.name, schedules, env, tuple(arm.args), mode, count)


def _server(config: Config) -> ServerPlan:
    s = config.server
    if not s.ready_path.startswith("/"):
        raise UsageError(f"server.ready_path={s.ready_path}: write a path, as /health")
    values = {**vars(s), "command": tuple(s.command), "args": tuple(s.args), "env": tuple(sorted(s.env.items()))}
    values["api_key_file"] = str(Path(s.api_key_file).expanduser().absolute()) if s.api_key_file else ""
    values["headers"] = tuple(sorted(s.headers.items()))
    values["request_fields"] = tuple((name, json.dumps(value)) for name, value in sorted(s.request_fields.items()))
    del values["model_command"]
    check_headers(s.headers, s.api_key_env, s.api_key_file)
    check_request_fields(s.request_fields)
    check_proxy(s.proxy, s.adapter)
    if s.prompt_state not in ("", "snapshot"):
        raise UsageError(f"server.prompt_state={s.prompt_state}: snapshot, or nothing to compute every prompt anew")
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
    same = (one.choices, one.env, one.args) == (other.choices, other.env, other.args)
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
    if plan.startup_mode is StartupMode.SWITCH and (one.env or one.args or other.env or other.args):
        raise UsageError("startup.mode=switch serves both arms from one process: arm.env and arm.args need co_resident")


_Enum = TypeVar("_Enum", bound=StrEnum)


def _choice(path: str, value: str, kind: type[_Enum]) -> _Enum:
    try:
        return kind(value)
    except ValueError:
        raise UsageError(f"{path}={value}: use one of {', '.join(kind)}") from None
