"""What a campaign will do, decided once and frozen: arms, fixtures, server, lease (`campaigns.order`: in which order).

Knows nothing of YAML, servers or devices. `orchestrator.settings.plans.build_plan` makes the one `CampaignPlan` of a
run; the loop, the store and the report read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

SNAPSHOT, SHARED = "snapshot", "shared"  # prompts computed once per arm and server life; once for both, by defaults


class Role(StrEnum):
    """The place of an arm in the comparison; the arm itself has its own name."""

    CONTROL = "control"
    CANDIDATE = "candidate"

    @property
    def other(self) -> Role:
        return Role.CANDIDATE if self is Role.CONTROL else Role.CONTROL


class Mode(StrEnum):
    AB = "ab"
    AA = "aa"  # the same switches in both arms: measures the noise floor


class Order(StrEnum):
    ABBA = "abba"  # the first arm flips from pair to pair
    BLOCKED = "blocked"  # all requests of one arm, then all of the other; never mixed with ABBA in one table


class Stop(StrEnum):
    PLANNED = "planned"  # after all startups
    DECIDED = "decided"  # after any from the first look on, once the verdict is faster, slower or equivalent


class StartupMode(StrEnum):
    SWITCH = "switch"  # one server, the arm selected between requests
    CO_RESIDENT = "co_resident"  # two servers on one lease, one active at a time
    SEQUENTIAL = "sequential"  # two server lives on one lease, one after the other: not interleaved


class Seeds(StrEnum):
    FIXED = "fixed"  # every pair of a fixture has the seed that the fixture names
    FRESH = "fresh"  # every pair has one of its own, the same for both arms


class Phase(StrEnum):
    WARMUP = "warmup"
    MEASURE = "measure"
    RETRIED = "retried"  # a measured request that broke and was asked again in its place


@dataclass(frozen=True)
class Sampling:
    temperature: float = 1.0
    top_k: int = 20
    top_p: float = 0.95
    min_p: float = 0.0


Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Arm:
    """One side of the comparison: what the server is told to do differently."""

    name: str
    schedules: Pairs = ()  # (operator, schedule), sorted by operator
    env: Pairs = ()
    args: tuple[str, ...] = ()
    speculation: str = ""  # dflash, lookup or none; empty: the server's own
    num_speculative_tokens: int | None = None  # drafts a round; None: the server's own
    tree: str = ""  # the folder of code that its server runs from; empty: one for both arms

    @property
    def life(self) -> tuple[Pairs, tuple[str, ...], str]:
        """What a server cannot change once it runs."""
        return self.env, self.args, self.tree

    @property
    def choices(self) -> Pairs:
        """What is chosen inside one server of ours: schedules, and how it drafts."""
        count = "" if self.num_speculative_tokens is None else str(self.num_speculative_tokens)
        drafting = (("speculation", self.speculation), ("num_speculative_tokens", count))
        return (*self.schedules, *(pair for pair in drafting if pair[1]))


def differences(control: Arm, candidate: Arm) -> tuple[str, ...]:
    """What the candidate does otherwise: `selection: sort -> keys`, one line per operator and variable."""
    named = [*_changed("", control.choices, candidate.choices), *_changed("env ", control.env, candidate.env)]
    if control.args != candidate.args:
        named.append(f"args: {' '.join(control.args) or 'none'} -> {' '.join(candidate.args) or 'none'}")
    if control.tree != candidate.tree:
        named.append(f"tree: {control.tree or 'this one'} -> {candidate.tree or 'this one'}")
    return tuple(named)


def several_changes(control: Arm, candidate: Arm) -> str:
    """A warning where the arms differ in more than one operator: no effect could be told to be of one of them."""
    operators = [change.partition(":")[0] for change in _changed("", control.choices, candidate.choices)]
    if len(operators) < 2:
        return ""
    return f"the arms differ in {len(operators)} operators ({', '.join(operators)}): the effect is of all of them"


def _changed(kind: str, control: Pairs, candidate: Pairs) -> Iterator[str]:
    one, other = dict(control), dict(candidate)
    for name in sorted(one.keys() | other.keys()):
        if one.get(name) != other.get(name):
            yield f"{kind}{name}: {one.get(name, 'default')} -> {other.get(name, 'default')}"


@dataclass(frozen=True)
class Fixture:
    """One prompt with its seeds.

    `body` is the JSON text of the request's own part ({"messages": […]}, {"prompt": …}, tools, response_format …), key
    order kept because it reaches the wire. `max_tokens` is a cap; None means the model's capacity minus the prompt.
    """

    id: str
    body: str
    seeds: tuple[int, ...]
    dataset: str = "fixture"
    max_tokens: int | None = None
    chat: bool = True  # /v1/chat/completions, else /v1/completions


@dataclass(frozen=True, order=True)
class PairKey:
    startup: int
    fixture: str
    seed: int
    repeat: int


@dataclass(frozen=True)
class Step:
    """One measured request: where it stands in its pair (0 first, 1 second)."""

    key: PairKey
    role: Role
    order_in_pair: int


@dataclass(frozen=True)
class Block:
    """The unit that is lost and repeated as a whole: all pairs of one fixture and seed in one startup.

    Every request of a block comes from one server life. `warmups` counts requests per arm before the first step.
    """

    startup: int
    fixture: str
    seed: int
    warmups: int
    steps: tuple[Step, ...]

    @property
    def keys(self) -> tuple[PairKey, ...]:
        return tuple(dict.fromkeys(step.key for step in self.steps))


@dataclass(frozen=True)
class ServerPlan:
    """How the measured server comes to be. `adapter` names a module in orchestrator/servers/adapters."""

    adapter: str
    model: str = ""  # folder of the checkpoint, or the served model's name for foreign servers
    model_root: tuple[str, ...] = ()  # folders below which a host may have it
    model_sha256: str = ""  # of the checkpoint's folder, where other hosts must find the same
    model_bytes: int = 0
    command: tuple[str, ...] = ()  # template with {port} {model} {workdir} {tree}
    base_url: str = ""
    proxy: str = ""  # http://HOST:PORT before an attached server; one of the environment is never used
    headers: tuple[tuple[str, str], ...] = ()  # of every request, beside the client's own
    api_key_env: str = ""  # name of the variable, or of the file, that holds the bearer key: the key is in no plan
    api_key_file: str = ""
    request_fields: tuple[
        tuple[str, str], ...
    ] = ()  # JSON by name, laid over the body of every request; null: left out
    ready_path: str = "/health"
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    ready_timeout_s: float = 300.0
    stop_grace_s: float = 10.0
    retries: int = 1  # new attempts of a block after a failed request
    prompt_state: str = ""  # a prompt that comes again in a server life: SNAPSHOT, SHARED, or empty, computed anew
    traces: bool = False  # a profiled server keeps a Chrome trace per arm in its folder


@dataclass(frozen=True)
class LeasePlan:
    """Which devices a startup gets, by exactly one of count, indices or UUIDs; always on one host.

    `parallel` startups may run at once, `per_host` of them on one host.
    """

    count: int = 1
    indices: tuple[int, ...] = ()
    uuids: tuple[str, ...] = ()
    wait_s: float = 0.0
    lock_dir: str = ""
    inventory: str = "auto"  # auto | simulated:<name>
    ray_address: str = ""  # empty: start a private Ray
    ray_start_s: float = 240.0  # how long Ray may take to start, or to be joined, on a slow host, per attempt
    parallel: int = 1
    per_host: int = 1


@dataclass(frozen=True)
class ClientPlan:
    timeout_s: float = 300.0  # the longest silence on the stream
    keep_alive: bool = False  # else every request has a fresh connection, opened before its clock starts


@dataclass(frozen=True)
class CampaignPlan:
    name: str
    control: Arm
    candidate: Arm
    fixtures: tuple[Fixture, ...]
    server: ServerPlan
    mode: Mode = Mode.AB
    corpus: str = ""  # sha256 of the frozen corpus; empty for a campaign over speed fixtures
    startups: int = 3  # at most, where the campaign stops when it is decided
    stop: Stop = Stop.PLANNED
    min_startups: int = 3  # before the first look of a campaign that stops when it is decided
    margin: float = 0.005  # relative; arms that differ by less are equivalent
    pairs: int = 6  # K, per fixture and seed in each startup; 1 in a corpus campaign
    warmups: int = 5  # per fixture and arm; per startup and arm in a corpus campaign
    order: Order = Order.ABBA
    startup_mode: StartupMode = StartupMode.SWITCH
    seed: int = 0
    seeds: Seeds = Seeds.FIXED
    sampling: Sampling = Sampling()
    lease: LeasePlan = LeasePlan()
    client: ClientPlan = ClientPlan()
    required_exactness: int = 4  # E4; the report says so when a server allows only E3
    sample_hz: float = 4.0
    calibrate_s: float = 5.0
    profile: bool = False  # measured requests run under the server's profiler, and none of their times counts

    def arm(self, role: Role) -> Arm:
        return self.control if role is Role.CONTROL else self.candidate

    @property
    def differences(self) -> tuple[str, ...]:
        return differences(self.control, self.candidate)

    def fixture(self, fixture_id: str) -> Fixture:
        return next(f for f in self.fixtures if f.id == fixture_id)
