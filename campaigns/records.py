"""Facts: what was observed, frozen when it is written and never changed.

The driver makes them, `results.store.writer` keeps them, all others read them. Times are integers in nanoseconds of one
monotonic clock on the leased host unless a name says `utc`. `None` means that the server or the machine did not say;
it is never replaced by a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any

from campaigns.plan import PairKey, Phase, Role
from campaigns.reasons import Reason


class Exactness(IntEnum):
    """How far the two requests of a pair agree; each level contains the ones below it."""

    NOT_COMPARED = 0
    TEXT = 1
    TOKEN_IDS = 2
    STRUCTURE = 3  # and finish reason, count, tool-call structure
    ACCEPTANCE = 4  # and accepted and emitted per round
    DRAFT_WIDTH = 5  # and drafted per round


class Stamp(StrEnum):
    """Whose clock says when a chunk arrived: the kernel that received it, or the client's process once it ran."""

    KERNEL = "kernel"
    CLIENT = "client"


class EnergySource(StrEnum):
    """What told a request's energy: NVML's counter of each device, or the integral of its power samples."""

    COUNTER = "counter"
    POWER = "power"


class CampaignStatus(StrEnum):
    RUNNING = "running"
    COMPLETE = "complete"
    HELD = "held"  # the operator said so, with a reason
    INTERRUPTED = "interrupted"
    FAILED = "failed"


class StartupStatus(StrEnum):
    COMPLETE = "complete"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Campaign:
    campaign_id: str
    name: str
    created_utc: str
    methodology_version: int
    config_json: str  # resolved configuration, canonical
    config_sha256: str
    plan_json: str  # the frozen plan
    fingerprint: Mapping[str, str]  # what makes two results comparable; see provenance.fingerprint
    provenance: Mapping[str, Any]  # everything else that identifies the run


@dataclass(frozen=True)
class Process:
    """One process of a server, identified beyond the reuse of its number."""

    pid: int
    start_ticks: int  # field 22 of /proc/PID/stat
    role: str = ""


@dataclass(frozen=True)
class Startup:
    """One server life: written when it is ready or has failed to become so."""

    campaign_id: str
    startup: int
    attempt: int
    role: Role | None  # None where one server serves both arms
    created_utc: str
    boot_id: str
    host: str
    device_uuids: tuple[str, ...]
    processes: tuple[Process, ...]
    ready_ns: int | None  # from starting the server to its readiness
    identity: Mapping[str, Any]  # what the live server said of itself, after warm-up
    environment: Mapping[str, str]  # effective environment of the server
    command: tuple[str, ...]
    calibration: Calibration | None = None


@dataclass(frozen=True)
class StartupEnd:
    status: StartupStatus
    ended_utc: str
    reason: Reason | None = None
    message: str = ""
    survivors: tuple[Process, ...] = ()


@dataclass(frozen=True)
class Calibration:
    """How well this host's client sees a server whose truth is scripted."""

    n_chunks: int
    delivery_p50_ns: int
    delivery_p99_ns: int
    request_bias_ns: int  # error of a request-average round
    round_bias_ns: int  # error of a round median
    resolution_ns: int
    coalesced_share: float | None = None  # chunks that arrived with another although they were sent alone
    # error of a request-average round against servers of other manners
    nagle_bias_ns: int | None = None  # Nagle's algorithm left on
    coalescing_bias_ns: int | None = None  # two chunks a write
    fragments_bias_ns: int | None = None  # segments that end inside a chunk and begin inside another


@dataclass(frozen=True)
class Round:
    """One emission after the first content chunk.

    Client and engine columns stand side by side only where both counted the same rounds; otherwise each source fills
    its own indices, the other is None, and the request carries `client-rounds-unusable`.
    """

    index: int  # from 1
    kind: str | None = None  # spec | q1, as the engine said
    client_ns: int | None = None  # since the previous content chunk
    client_tokens: int | None = None
    coalesced: bool = False  # shared its recv with another content chunk
    engine_ns: int | None = None
    draft_ns: int | None = None
    verify_ns: int | None = None
    sample_ns: int | None = None
    commit_ns: int | None = None
    rows: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    emitted: int | None = None
    wake_ns: int | None = None  # from the chunk's arrival until the client's process had it


@dataclass(frozen=True)
class OperatorTime:
    """What one operator took in one piece of the rounds. Empty names: what no operator covers, what no piece does."""

    piece: str  # draft, verify, sample, commit
    operator: str
    schedule: str
    calls: int
    launches: int | None  # kernels and copies of a device; None where it has none of its own
    total_ns: int


@dataclass(frozen=True)
class Profile:
    """Where the rounds of a profiled request went, over all of them."""

    rounds: int
    clock: str  # device: times of kernels; host: times of calls
    round_ns: int  # the rounds on the host's clock
    times: tuple[OperatorTime, ...]


@dataclass(frozen=True)
class Request:
    campaign_id: str
    startup: int
    startup_attempt: int
    key: PairKey
    block_attempt: int
    role: Role
    arm: str
    phase: Phase
    position: int  # running number of the request in its server life
    order_in_pair: int | None  # None for warm-ups
    prompt_sha256: str  # of the prompt's token ids (little-endian uint32 behind a version byte); empty when unknown
    prompt_tokens: int | None
    max_tokens: int
    sched_ns: int
    send_ns: int
    first_event_ns: int | None
    first_content_ns: int | None
    last_content_ns: int | None
    end_ns: int
    first_tokens: int | None  # tokens of the first content chunk
    rounds: tuple[Round, ...]
    n_rounds: int | None  # R: speculative rounds; None where neither source can tell
    n_q1_steps: int
    completion_tokens: int | None
    cached_tokens: int | None
    finish_reason: str | None
    text: str
    reasoning_text: str
    tool_calls_json: str  # canonical order as received; empty when none
    token_ids: tuple[int, ...] | None
    token_sha256: str | None
    emitted_sha256: str | None
    accepted_sha256: str | None
    drafted_sha256: str | None
    engine_queue_ns: int | None
    engine_prefill_ns: int | None
    engine_decode_ns: int | None
    counters: Mapping[str, int]  # what this request added to the server's; named as in campaigns.routes
    admissible: bool
    reasons: tuple[Reason, ...]
    error: str = ""
    http_status: int | None = None
    min_sm_clock_mhz: int | None = None
    median_sm_clock_mhz: int | None = None
    throttle_bits: int | None = None
    first_characters: int | None = None  # of the first content chunk, in any channel
    stamp: Stamp | None = None  # whose clock told the chunks; None where only the client's was asked
    first_wake_ns: int | None = None  # from the first content's arrival until the client's process had it
    last_wake_ns: int | None = None
    energy_mj: int | None = None  # drawn by all leased devices from sending to the end; None where they do not tell
    energy_source: EnergySource | None = None
    profile: Profile | None = None  # of a profiled run, where the server gave one
    sent_seed: int | None = None  # of the request itself; the key has the one that its fixture names


@dataclass(frozen=True)
class Pair:
    campaign_id: str
    key: PairKey
    block_attempt: int
    exactness: Exactness
    divergence_index: int | None  # first token at which the arms differ
    divergence_ids: tuple[int | None, int | None] | None  # (control, candidate) there
    delta_log: float | None  # ln(candidate/control) of the time per decoded token; see exactness.compare.effect
    delta_ns: float | None  # candidate - control of the request-average round
    admissible: bool
    reasons: tuple[Reason, ...]


@dataclass(frozen=True)
class Failure:
    """Something that went wrong, kept beside the results."""

    campaign_id: str
    utc: str
    reason: Reason
    message: str
    startup: int | None = None
    startup_attempt: int | None = None
    key: PairKey | None = None


@dataclass(frozen=True)
class Look:
    """A verdict that the driver asked for or told, after so many startups from the first on; one for each number."""

    campaign_id: str
    n_seen: int
    utc: str
    verdict: str
    decided: bool  # no further startup was asked for


HIDDEN = "(not recorded)"  # in the place of a variable's value that may be a secret
CPU_UUID = "cpu-"  # how the UUID of a host begins whose processors are leased as one device


@dataclass(frozen=True)
class DeviceSample:
    ns: int  # the client's clock
    device_uuid: str
    sm_clock_mhz: int | None  # of a CPU host the mean clock of its processors
    memory_clock_mhz: int | None
    power_mw: int | None
    temperature_c: int | None
    throttle_bits: int | None
    used_bytes: int | None
    load: float | None  # utilisation in percent; load average on CPU hosts
    foreign_pids: tuple[int, ...] = ()
