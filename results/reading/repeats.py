"""First and repeated decode times of the same prompt and seed inside one server life (`campaigns.judging.repeats`).

A report has its requests as a frame; a history asks for those of many campaigns in one question. Both end as `Asked`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, NamedTuple

import pandas as pd
from sqlalchemy import bindparam, text

from campaigns.judging.repeats import Repeats
from campaigns.plan import StartupMode
from campaigns.reasons import Reason
from results.reading.effects import Effects, PairOf
from results.reading.levels import Source
from results.store.reader import Reader

BOTH = "the server of both arms"

# `frames.requests` and `_per_token` in SQL; a test holds them together.
_MET = text(f"""
SELECT r.campaign_id, r.startup, r.startup_attempt, r.fixture, r.role, r.position, r.phase = 'warmup' AS warm,
    r.sent_seed, r.seed, r.repeat, r.block_attempt,
    r.engine_decode_ns IS NOT NULL AS timed,
    r.phase = 'measure' AND r.admissible AND NOT r.block_attempt BETWEEN 1 AND coalesce(b.attempt, 0) - 1 AS decides,
    max(r.engine_decode_ns, 0) * 1.0 / nullif(max(r.completion_tokens - 1, 0), 0) AS engine_ns,
    CASE WHEN r.reasons NOT LIKE '%{Reason.FIRST_CHUNK_COALESCED.value}%'
        THEN max(r.last_content_ns - r.first_content_ns, 0) * 1.0
            / nullif(max(r.completion_tokens - coalesce(r.first_tokens, 0), 0), 0) END AS client_ns
FROM request r
LEFT JOIN (
    SELECT campaign_id, startup, fixture, seed, max(attempt) AS attempt FROM block
    WHERE campaign_id IN :campaigns GROUP BY campaign_id, startup, fixture, seed
) b USING (campaign_id, startup, fixture, seed)
WHERE r.campaign_id IN :campaigns
ORDER BY r.campaign_id
""").bindparams(bindparam("campaigns", expanding=True))


class Asked(NamedTuple):
    """One request as its server met it; sorted they are lives, and in each the order of running."""

    startup: int
    attempt: int
    fixture: str
    position: int
    role: str
    warm: bool  # a warm-up
    sent_seed: int
    per_token_ns: float  # NaN or 0 where unknown
    counted: bool  # in an admissible pair of the group


def decides_nothing(plan: Mapping[str, Any]) -> bool:
    """A corpus asks each prompt once; at temperature 0 seeds say nothing."""
    return bool(plan["corpus"]) or not plan["sampling"]["temperature"]


def repeat_trends(requests: pd.DataFrame, admissible: pd.DataFrame, plan: Mapping[str, Any], source: Source) -> Repeats:
    """ln(repeated / first) of the time per decoded token, by server and startup.

    `requests` are all of the campaign's, `admissible` the pairs of one group. Empty where seeds decide nothing, where
    they were not kept (older stores), and where none comes again.
    """
    if decides_nothing(plan):
        return {}
    counted = {*admissible.control_request_id, *admissible.candidate_request_id}
    known = requests[requests.sent_seed.notna() & requests.fixture.isin(admissible.fixture.unique())]
    columns = (known.startup, known.startup_attempt, known.fixture, known.position, known.role, known.phase == "warmup")
    rows = zip(*columns, known.sent_seed, _per_token(known, source), known.request_id.isin(counted), strict=True)
    return _trends((Asked(*row) for row in rows), plan)


def campaign_repeats(
    reader: Reader, plans: Mapping[str, Mapping[str, Any]], groups: Mapping[str, Mapping[str, Effects]]
) -> dict[str, dict[str, Repeats]]:
    """`repeat_trends` of many campaigns by id, each by group."""
    asked = [name for name, plan in plans.items() if not decides_nothing(plan)]
    rows = reader.connection.execute(_MET, {"campaigns": asked}) if asked else ()
    found: dict[str, dict[str, Repeats]] = {name: {} for name in plans}
    for name, of_campaign in groupby(rows, key=lambda row: str(row.campaign_id)):
        with reader.damaged.sparing(name):
            found[name] = _of_campaign(list(of_campaign), plans[name], groups[name])
    return found


def _of_campaign(rows: list[Any], plan: Mapping[str, Any], groups: Mapping[str, Effects]) -> dict[str, Repeats]:
    deciding = [row.timed for row in rows if row.decides]
    engine = bool(deciding) and all(deciding)  # `levels.source_of`
    by_fixture: dict[str, list[Any]] = {}
    for row in rows:
        if row.sent_seed is not None:
            by_fixture.setdefault(row.fixture, []).append(row)
    found = {}
    for group, of_group in groups.items():
        met = (row for fixture in {key[1] for key in of_group.keys} for row in by_fixture.get(fixture, ()))
        found[group] = _trends((_asked(row, engine, of_group.keys) for row in met), plan)
    return found


def _asked(row: Any, engine: bool, pairs: frozenset[PairOf]) -> Asked:
    key = row.startup, row.fixture, row.seed, row.repeat, row.block_attempt
    per_token_ns = row.engine_ns if engine else row.client_ns
    return Asked(
        row.startup,
        row.startup_attempt,
        row.fixture,
        row.position,
        row.role,
        bool(row.warm),
        row.sent_seed,
        math.nan if per_token_ns is None else float(per_token_ns),
        not row.warm and key in pairs,
    )


def _per_token(requests: pd.DataFrame, source: Source) -> pd.Series:
    """Where a first chunk does not say how much it holds, over all tokens: equal answers divide equally."""
    name = "engine" if source.engine_averages else "client"
    decoded = requests[f"decoded_{name}"].fillna(requests.completion_tokens)
    return requests[f"decode_ns_{name}"] / decoded.where(decoded > 0)


def _trends(asked: Iterable[Asked], plan: Mapping[str, Any]) -> Repeats:
    shared = plan["startup_mode"] == StartupMode.SWITCH.value
    servers: dict[tuple[Any, ...], list[Asked]] = {}
    for each in sorted(asked):
        server = BOTH if shared else each.role
        servers.setdefault((each.startup, each.attempt, each.fixture, server), []).append(each)
    found: dict[str, dict[int, float]] = {}
    for (startup, _, _, server), met in servers.items():
        if (trend := _trend(met)) is not None:
            found.setdefault(server, {}).setdefault(startup, trend)
    return {server: found[server] for server in sorted(found)}


def _trend(met: list[Asked]) -> float | None:
    """Of one prompt in one server; `met` are its requests in the order of running."""
    first = next((i for i, each in enumerate(met) if each.counted), None)
    if first is None:
        return None
    head, before = met[first], met[:first]
    warm = any(each.warm and each.role == head.role for each in before)
    if not warm or any(each.sent_seed == head.sent_seed for each in before):
        return None  # a cold start, or a repeat
    again = [
        each for each in met[first + 1 :] if each.counted and (each.sent_seed, each.role) == (head.sent_seed, head.role)
    ]
    known = [each.per_token_ns for each in again if each.per_token_ns > 0]
    return math.log(statistics.median(known) / head.per_token_ns) if known and head.per_token_ns > 0 else None
