"""What a row must be before anybody computes with it: its types, its words, its times, and the plan of a campaign.

A hash says that a row is as it was written, not that it makes sense: rows of another's store may be written by anybody.
Knows rows as the database has them, no files.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Boolean, Float, Integer, LargeBinary, Table

from campaigns.plan import Mode, Role, StartupMode, Stop
from campaigns.records import (
    Campaign,
    CampaignStatus,
    DeviceSample,
    Exactness,
    Failure,
    Look,
    Pair,
    Request,
    Startup,
    StartupEnd,
)
from campaigns.remarks import Annotation, Decision, Probe, Score
from results.store import schema
from results.store.rows import decode, unpack_ids

_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{2,63}")  # it names a folder and a lock beside the store
_OLDEST = datetime(2020, 1, 1, tzinfo=UTC)
_SKEW = timedelta(days=1)  # of clocks
_KINDS: dict[type, tuple[type, ...]] = {
    Boolean: (bool, int),
    Integer: (int,),
    Float: (float, int),
    LargeBinary: (bytes,),
}
_RECORDS: dict[str, Any] = {
    "campaign": Campaign,
    "startup_end": StartupEnd,
    "pair": Pair,
    "device_sample": DeviceSample,
    "failure": Failure,
    "look": Look,
    "score": Score,
    "probe": Probe,
    "decision": Decision,
    "annotation": Annotation,
}
_MOST_LOOKS = 100  # a level is computed for each
_MOST = {"startups": 10_000, "pairs": 1_000_000}


def faults(table: Table, row: Mapping[Any, Any]) -> Iterator[str]:
    """What is wrong with a row, as it stands in the database; at most one phrase for each of its columns."""
    typed = list(_type_faults(table, row))
    yield from typed
    if typed:
        return
    yield from _time_faults(row)
    try:
        _read(table, row)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        yield f"it cannot be read ({type(error).__name__}: {str(error)[:100]})"
        return
    if table is schema.campaign:
        yield from campaign_faults(row)


def campaign_faults(row: Mapping[Any, Any]) -> Iterator[str]:
    """Of the row that all others of a campaign hang on."""
    if not _ID.fullmatch(str(row["campaign_id"])):
        yield "its campaign_id is not made of letters and digits"
    yield from _time_faults({"created_utc": row["created_utc"]})
    try:
        plan = json.loads(row["plan_json"])
        for name in ("fingerprint", "provenance"):
            if not isinstance(json.loads(row[name]), dict):
                yield f"its {name} is no mapping"
        if fault := plan_fault(plan):
            yield f"its plan_json {fault}"
    except (ValueError, TypeError, RecursionError) as error:
        yield f"it cannot be read ({type(error).__name__}: {str(error)[:100]})"


def plan_fault(plan: Any) -> str:
    """What every reader of a plan relies on; nothing where it holds."""
    try:
        for name, most in _MOST.items():
            if not (type(plan[name]) is int and 0 < plan[name] <= most):
                return f"has {name} = {plan[name]!r}, not a whole number from 1 to {most}"
        Mode(plan["mode"]), StartupMode(plan["startup_mode"]), Exactness(plan["required_exactness"])
        for role in Role:
            arm = plan[role.value]
            dict(arm["schedules"])
            _require(isinstance(arm["name"], str), f"names no {role.value}")
        _require(isinstance(plan["corpus"], str) and isinstance(plan["server"]["model"], str), "names no server")
        _require(type(plan["seed"]) is int and bool(plan["fixtures"]), "has no fixtures")
        _require_looks(plan)
        for fixture in plan["fixtures"]:
            seeds = fixture["seeds"]
            _require(isinstance(fixture["id"], str) and all(type(s) is int for s in seeds), "has a broken fixture")
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        return f"is no plan ({type(error).__name__}: {str(error)[:100]})"
    return ""


def _require_looks(plan: Mapping[str, Any]) -> None:
    """Plans say of looks and margin what they say since the store has looks."""
    margin, fewest = plan.get("margin", 0.005), plan.get("min_startups", 3)
    _require(type(margin) is float and 0 < margin < 1, "has no margin between 0 and 1")
    if Stop(plan.get("stop", Stop.PLANNED)) is Stop.DECIDED:
        _require(type(fewest) is int and 3 <= fewest <= plan["startups"] <= _MOST_LOOKS, "has no looks")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


def _type_faults(table: Table, row: Mapping[Any, Any]) -> Iterator[str]:
    for column in table.columns:
        value = row[column.name]
        if value is None:
            if not column.nullable:
                yield f"its {column.name} is missing"
            continue
        kinds = next((kinds for kind, kinds in _KINDS.items() if isinstance(column.type, kind)), (str,))
        if not isinstance(value, kinds):
            yield f"its {column.name} is {type(value).__name__} and not {kinds[0].__name__}"
        elif isinstance(value, float) and not math.isfinite(value):
            yield f"its {column.name} is {value}"


def _time_faults(row: Mapping[Any, Any]) -> Iterator[str]:
    for name in (name for name in row if str(name).endswith("utc")):
        try:
            moment = datetime.fromisoformat(row[name])
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            if not _OLDEST <= moment <= datetime.now(UTC) + _SKEW:
                yield f"its {name} is {row[name]}, which is not in the past"
        except (ValueError, TypeError, OverflowError):
            yield f"its {name} is {str(row[name])[:40]!r} and no time"


def _read(table: Table, row: Mapping[Any, Any]) -> None:
    """As a reader would; raises what the reader would."""
    if table is schema.campaign_event:
        CampaignStatus(row["status"])
    elif table is schema.identity:
        _require(isinstance(json.loads(row["identity"]), dict), "identity is no mapping")
    elif table is schema.startup:
        decode(Startup, row, role=Role(row["role"]) if row["role"] else None)
        _require(isinstance(json.loads(row["identity"]), dict), "identity is no mapping")
    elif table is schema.request:
        decode(Request, row, rounds=(), token_ids=unpack_ids(row["token_ids"]), profile=None)
        _require(all(type(n) is int for n in json.loads(row["counters"]).values()), "counters are not numbers")
    elif table is schema.operator_time:
        Role(row["role"])
        _require(row["rounds"] > 0 and row["total_ns"] >= 0, "it has a time of no round, or a negative one")
    elif table is schema.request_summary:
        json.loads(row["accepted_histogram"] or "[]")
    elif table.name in _RECORDS:
        decode(_RECORDS[table.name], row)
