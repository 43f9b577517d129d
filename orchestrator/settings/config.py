"""The configuration's schema.

Hydra merges `conf/` into these dataclasses, which reject unknown and mistyped keys; what types cannot say is checked
in `plans.py`. No DictConfig goes further than this module. (The classes are mutable because OmegaConf can merge
neither frozen dataclasses nor Literal types.)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, OmegaConf

from campaigns.fixtures import OUTPUT_TOKENS
from results.store.place import DEFAULT


@dataclass
class ArmConfig:
    name: str = MISSING
    schedules: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    args: list[str] = field(default_factory=list)
    speculation: str | None = None  # dflash, lookup or none
    num_speculative_tokens: int | None = None  # drafts a round
    tree: str = ""  # the folder of code that its server runs from


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
    caps: list[int] = field(default_factory=list)  # output tokens of each length, in their order
    seeds: list[int] = field(default_factory=lambda: [0])
    ignore_eos: bool = False  # answers as long as their cap, from a server that knows the field


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
    model_root: list[str] = field(default_factory=list)  # folders below which a host may have the model
    model_command: str = ""  # what makes the folder {model} where it is missing; only said, never run
    command: list[str] = field(default_factory=list)
    base_url: str = ""
    proxy: str = ""  # http://HOST:PORT, for server=attach alone
    headers: dict[str, str] = field(default_factory=dict)
    api_key_env: str = ""
    api_key_file: str = ""
    request_fields: dict[str, Any] = field(default_factory=dict)  # of the body of every request; null leaves one out
    prompt_state: str = ""  # snapshot: a prompt that comes again is copied back; shared: also of the other arm
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
    config = OmegaConf.to_object(OmegaConf.merge(_schema(), values))
    assert isinstance(config, Config), type(config)
    return config


@cache
def _schema() -> Any:
    """Who merges into it gets a copy."""
    return OmegaConf.structured(Config)


@cache
def register_schema() -> None:
    ConfigStore.instance().store(name="schema", node=_schema())
