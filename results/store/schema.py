"""The tables of the store. One row is one fact; the columns are named like the fields of `campaigns.records`.

Facts are joined by their natural keys (campaign, startup, fixture, seed, repeat, attempt), so that stores can be
merged; the integer `id` is of this file only. Lists and mappings are JSON text, times are integers in nanoseconds. An
empty `role` of a startup means that one server serves both arms. `round` holds integers alone and is written past
SQLAlchemy. Knows nothing of how rows are written or read.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

REVISION = "0011"  # the newest revision in migrations/versions; a test compares the two

metadata = MetaData()
_PAIR = ("campaign_id", "startup", "fixture", "seed", "repeat", "block_attempt")  # the natural key of a pair
_SIDE = (*_PAIR, "role")  # and of one of its requests


def _id() -> Column[int]:
    return Column("id", Integer, primary_key=True)


def _campaign() -> Column[str]:
    return Column("campaign_id", Text, ForeignKey("campaign.campaign_id"), nullable=False)


def _hash() -> Column[str]:
    return Column("row_sha256", Text, nullable=False)


def _key() -> list[Column[Any]]:
    """A `PairKey` in columns."""
    return [*_required(Integer, "startup"), *_required(Text, "fixture"), *_required(Integer, "seed", "repeat")]


def _integers(*names: str) -> list[Column[int]]:
    return [Column(name, Integer) for name in names]


def _required(kind: type[Integer] | type[Text], *names: str) -> list[Column[Any]]:
    return [Column(name, kind, nullable=False) for name in names]


campaign = Table(
    "campaign",
    metadata,
    Column("campaign_id", Text, primary_key=True),
    *_required(Text, "name", "created_utc"),
    *_required(Integer, "methodology_version"),
    *_required(Text, "config_json", "config_sha256", "plan_json", "fingerprint", "provenance"),
    _hash(),
)

campaign_event = Table(
    "campaign_event",
    metadata,
    _id(),
    _campaign(),
    *_required(Text, "utc", "status", "reason"),
    _hash(),
)

startup = Table(
    "startup",
    metadata,
    _id(),
    _campaign(),
    *_required(Integer, "startup", "attempt"),
    *_required(Text, "role", "created_utc", "boot_id", "host", "device_uuids", "processes"),
    *_integers("ready_ns"),
    *_required(Text, "identity", "environment", "command"),
    Column("calibration", Text),
    _hash(),
    UniqueConstraint("campaign_id", "startup", "attempt", "role", name="one_startup"),
)

startup_end = Table(
    "startup_end",
    metadata,
    _id(),
    _campaign(),
    *_required(Integer, "startup", "attempt"),
    *_required(Text, "role", "status", "ended_utc"),
    Column("reason", Text),
    *_required(Text, "message", "survivors"),
    _hash(),
    UniqueConstraint("campaign_id", "startup", "attempt", "role", name="one_startup_end"),
)

identity = Table(
    "identity",
    metadata,
    _id(),
    _campaign(),
    *_required(Integer, "startup", "attempt"),
    *_required(Text, "moment", "utc", "identity"),
    _hash(),
    Index("identity_of", "campaign_id", "startup", "attempt"),
)

block = Table(
    "block",
    metadata,
    _id(),
    _campaign(),
    *_required(Integer, "startup"),
    *_required(Text, "fixture"),
    *_required(Integer, "seed", "attempt", "startup_attempt"),
    *_required(Text, "opened_utc"),
    _hash(),
    UniqueConstraint("campaign_id", "startup", "fixture", "seed", "attempt", name="one_block_attempt"),
)

request = Table(
    "request",
    metadata,
    _id(),
    _campaign(),
    *_required(Integer, "startup", "startup_attempt"),
    *_required(Text, "fixture"),
    *_required(Integer, "seed", "repeat", "block_attempt"),
    *_required(Text, "role", "arm", "phase"),
    *_required(Integer, "position"),
    *_integers("order_in_pair"),
    *_required(Text, "prompt_sha256"),
    *_integers("prompt_tokens"),
    *_required(Integer, "max_tokens", "sched_ns", "send_ns"),
    *_integers("first_event_ns", "first_content_ns", "last_content_ns"),
    *_required(Integer, "end_ns"),
    *_integers("first_tokens", "n_rounds"),
    *_required(Integer, "n_q1_steps"),
    *_integers("completion_tokens", "cached_tokens"),
    Column("finish_reason", Text),
    *_required(Text, "text", "reasoning_text", "tool_calls_json"),
    Column("token_ids", LargeBinary),
    Column("token_sha256", Text),
    Column("emitted_sha256", Text),
    Column("accepted_sha256", Text),
    Column("drafted_sha256", Text),
    *_integers("engine_queue_ns", "engine_prefill_ns", "engine_decode_ns"),
    *_required(Text, "counters"),
    Column("admissible", Boolean, nullable=False),
    *_required(Text, "reasons", "error"),
    *_integers("http_status", "min_sm_clock_mhz", "median_sm_clock_mhz", "throttle_bits"),
    *_integers("first_characters"),
    Column("stamp", Text),
    *_integers("first_wake_ns", "last_wake_ns", "energy_mj"),
    Column("energy_source", Text),
    *_integers("sent_seed"),
    *_required(Text, "rounds_sha256"),
    _hash(),
    UniqueConstraint(
        "campaign_id",
        "startup",
        "startup_attempt",
        "role",
        "fixture",
        "seed",
        "block_attempt",
        "phase",
        "position",
        name="one_position",
    ),
)
Index(
    "one_measured_request",
    *(request.c[name] for name in _SIDE),
    unique=True,
    sqlite_where=text("phase = 'measure'"),
)

Index(
    "measured_energy",  # covering: rows are long, and most stores have no energy at all
    *(request.c[name] for name in (*_SIDE, "energy_mj", "completion_tokens")),
    sqlite_where=text("phase = 'measure' AND energy_mj IS NOT NULL"),
)

request_summary = Table(
    "request_summary",
    metadata,
    Column("request_id", Integer, ForeignKey("request.id"), primary_key=True),
    *_integers("sum_accepted", "sum_drafted", "sum_emitted"),
    Column("accepted_histogram", Text),  # JSON: rounds by number of accepted drafts, from 0
    *[
        column
        for source in ("client", "engine")
        for column in (
            Column(f"n_{source}_rounds", Integer, nullable=False),
            *(Column(f"{source}_round_{name}_ns", Float) for name in ("mean", "p50", "p90", "p99")),
            Column(f"{source}_round_lag1", Float),
        )
    ],
    _hash(),
)

_ROUND_INTEGERS = (
    "kind",  # 1 spec, 2 q1, NULL: the engine did not say
    "client_ns",
    "client_tokens",
    "coalesced",
    "engine_ns",
    "draft_ns",
    "verify_ns",
    "sample_ns",
    "commit_ns",
    "rows",
    "drafted",
    "accepted",
    "emitted",
    "wake_ns",
)

round_ = Table(
    "round",
    metadata,
    Column("request_id", Integer, ForeignKey("request.id"), primary_key=True),
    Column("round_index", Integer, primary_key=True),
    *_integers(*_ROUND_INTEGERS),
    sqlite_with_rowid=False,
)

operator_time = Table(
    "operator_time",
    metadata,
    _id(),
    _campaign(),
    *_key(),
    *_required(Integer, "block_attempt"),
    *_required(Text, "role"),
    *_required(Integer, "rounds"),
    *_required(Text, "clock"),
    *_required(Integer, "round_ns"),
    *_required(Text, "piece", "operator", "schedule"),
    *_required(Integer, "calls"),
    *_integers("launches"),
    *_required(Integer, "total_ns"),
    _hash(),
    UniqueConstraint(*_SIDE, "piece", "operator", "schedule", name="one_operator_time"),
)

pair = Table(
    "pair",
    metadata,
    _id(),
    _campaign(),
    *_key(),
    *_required(Integer, "block_attempt", "exactness"),
    *_integers("divergence_index"),
    Column("divergence_ids", Text),
    Column("delta_log", Float),
    Column("delta_ns", Float),
    Column("admissible", Boolean, nullable=False),
    *_required(Text, "reasons"),
    _hash(),
    UniqueConstraint(*_PAIR, name="one_pair"),
)

device_sample = Table(
    "device_sample",
    metadata,
    _id(),
    _campaign(),
    *_required(Integer, "startup", "startup_attempt", "ns"),
    *_required(Text, "device_uuid"),
    *_integers("sm_clock_mhz", "memory_clock_mhz", "power_mw", "temperature_c", "throttle_bits", "used_bytes"),
    Column("load", Float),
    *_required(Text, "foreign_pids"),
    _hash(),
    Index("sample_order", "campaign_id", "startup", "startup_attempt", "ns"),
)

failure = Table(
    "failure",
    metadata,
    _id(),
    _campaign(),
    *_required(Text, "utc", "reason", "message"),
    *_integers("startup", "startup_attempt"),
    Column("key", Text),  # JSON of a PairKey
    _hash(),
    Index("failure_order", "campaign_id", "id"),
)

look = Table(
    "look",
    metadata,
    _id(),
    _campaign(),
    *_required(Integer, "n_seen"),
    *_required(Text, "utc", "verdict"),
    Column("decided", Boolean, nullable=False),
    _hash(),
    UniqueConstraint("campaign_id", "n_seen", name="one_look"),
)

prompt_hash = Table(
    "prompt_hash",
    metadata,
    _id(),
    *_required(Text, "corpus", "tokenizer", "template", "fixture", "prompt_sha256"),
    _hash(),
    UniqueConstraint("corpus", "tokenizer", "template", "fixture", name="one_prompt_hash"),
)

score = Table(
    "score",
    metadata,
    _id(),
    _campaign(),
    *_key(),
    *_required(Text, "role", "utc", "scorer", "version", "arguments_json", "outcome", "details_json"),
    _hash(),
    Index("score_order", "campaign_id", "scorer", "id"),
)

probe = Table(
    "probe",
    metadata,
    _id(),
    *_required(Text, "utc", "gate", "subject", "status", "library_sha256", "line_json"),
    _hash(),
    Index("probe_subject", "subject", "gate"),
)

decision = Table(
    "decision",
    metadata,
    _id(),
    *_required(Text, "utc", "subject", "decision", "by", "reason", "evidence_json"),
    _hash(),
    Index("decision_subject", "subject"),
)

baseline = Table(
    "baseline",
    metadata,
    _id(),
    *_required(Text, "utc", "name"),
    _campaign(),
    *_required(Text, "note"),
    _hash(),
    UniqueConstraint("name", "campaign_id", name="one_baseline_member"),
)

annotation = Table(
    "annotation",
    metadata,
    _id(),
    _campaign(),
    *_required(Text, "utc", "mark", "text", "by"),
    _hash(),
    Index("annotation_of", "campaign_id"),
)

imported = Table(
    "imported",
    metadata,
    _id(),
    *_required(Text, "utc", "source"),
    _campaign(),
    _hash(),
)
