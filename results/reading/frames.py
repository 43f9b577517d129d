"""The store as pandas frames: the only place that knows both. Columns are documented in docs/history.md.

Reads summaries, never rounds, unless rounds are asked for. Times of different scopes have different columns
(`campaigns.scope`); a quantity that a server did not report is NaN. The arithmetic repeats `campaigns.quantities` over
columns, and a test holds the two together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from sqlalchemy import TextClause, bindparam, text

from campaigns.plan import Role
from campaigns.reasons import Reason
from campaigns.scope import Scope
from results.store.reader import Reader

ENGINE_MS = f"{Scope.REQUEST_AVERAGE_ENGINE.column}_ms"
CLIENT_MS = f"{Scope.REQUEST_AVERAGE_CLIENT.column}_ms"

Column: TypeAlias = npt.NDArray[Any]  # one value of every request or pair, NaN where unknown

# Short texts, a few thousand of them: through Arrow, where that is installed, a report would take a third longer.
pd.options.mode.string_storage = "python"

_REQUESTS = text("""
SELECT r.id AS request_id, r.campaign_id, r.startup, r.startup_attempt, r.fixture, r.seed, r.repeat, r.block_attempt,
    r.role, r.arm, r.phase, r.position, r.order_in_pair, r.prompt_tokens, r.max_tokens, r.sched_ns, r.send_ns,
    r.first_event_ns, r.first_content_ns, r.last_content_ns, r.end_ns, r.first_tokens, r.n_rounds, r.n_q1_steps,
    r.completion_tokens, r.cached_tokens, r.finish_reason, r.engine_queue_ns, r.engine_prefill_ns, r.engine_decode_ns,
    r.token_sha256, r.emitted_sha256, r.accepted_sha256, r.admissible, r.reasons, r.error, r.min_sm_clock_mhz,
    r.median_sm_clock_mhz, r.throttle_bits, r.first_characters, r.stamp, r.first_wake_ns, r.last_wake_ns,
    r.energy_mj, r.energy_source,
    r.sent_seed,
    s.sum_accepted, s.sum_drafted, s.sum_emitted, s.accepted_histogram, s.n_client_rounds, s.client_round_mean_ns,
    s.client_round_p50_ns, s.client_round_p90_ns, s.client_round_p99_ns, s.client_round_lag1, s.n_engine_rounds,
    s.engine_round_mean_ns, s.engine_round_p50_ns, s.engine_round_p90_ns, s.engine_round_p99_ns, s.engine_round_lag1,
    r.block_attempt BETWEEN 1 AND coalesce(b.attempt, 0) - 1 AS superseded
FROM request r
JOIN request_summary s ON s.request_id = r.id
LEFT JOIN (
    SELECT campaign_id, startup, fixture, seed, max(attempt) AS attempt FROM block
    GROUP BY campaign_id, startup, fixture, seed
) b USING (campaign_id, startup, fixture, seed)
WHERE r.campaign_id = :campaign
ORDER BY r.id
""")
_PAIRS = text("""
SELECT p.startup, p.fixture, p.seed, p.repeat, p.block_attempt, p.exactness, p.divergence_index, p.divergence_ids,
    p.delta_log, p.delta_ns, p.admissible, p.reasons
FROM pair p
JOIN (
    SELECT campaign_id, startup, fixture, seed, max(attempt) AS attempt FROM block
    GROUP BY campaign_id, startup, fixture, seed
) b ON b.campaign_id = p.campaign_id AND b.startup = p.startup AND b.fixture = p.fixture AND b.seed = p.seed
    AND b.attempt = p.block_attempt
WHERE p.campaign_id = :campaign
ORDER BY p.id
""")
_EXACTNESS_BEFORE = text("""
SELECT p.exactness, p.reasons FROM pair p
WHERE p.campaign_id = :campaign AND p.block_attempt < (
    SELECT max(b.attempt) FROM block b WHERE b.campaign_id = p.campaign_id AND b.startup = p.startup
        AND b.fixture = p.fixture AND b.seed = p.seed)
""")
_ROUNDS = text("""
SELECT request_id, round_index, kind, client_ns, client_tokens, coalesced, engine_ns, rows, drafted, accepted, emitted
FROM round WHERE request_id IN :requests ORDER BY request_id, round_index
""").bindparams(bindparam("requests", expanding=True))
_KEY = ["startup", "fixture", "seed", "repeat", "block_attempt"]
_DECODES = [f"{what}_{source}" for source in ("engine", "client") for what in ("decode_ns", "decoded")]
_COMPARED = [ENGINE_MS, CLIENT_MS, "n_rounds", "order_in_pair", "position", "request_id", "startup_attempt"]
_COMPARED += [*_DECODES, "completion_tokens", "first_characters", "sent_seed"]
_SAME = ("completion_tokens", "first_characters")
_NS_MS = 1e-6
# What the client's rounds say, where they are the engine's rounds.
_CLIENT_ROUNDS = [f"client_round_{what}" for what in ("mean_ns", "p50_ns", "p90_ns", "p99_ns", "lag1")]


def requests(reader: Reader, campaign_id: str) -> pd.DataFrame:
    """Every request of a campaign, warm-ups and superseded ones too, one row each."""
    told = _numeric(_columns(reader, _REQUESTS, campaign_id))
    with np.errstate(divide="ignore", invalid="ignore"):
        return pd.DataFrame(told | _times(told))


def _times(told: Mapping[str, Column]) -> dict[str, Column]:
    """What follows from the columns of requests, NaN where it is not known."""

    def unless(reason: Reason, name: str) -> Column:
        return np.where([reason.value in text for text in told["reasons"]], math.nan, told[name])

    rounds, tokens, last_ns = (told[name] for name in ("n_rounds", "completion_tokens", "last_content_ns"))
    first_ns = unless(Reason.FIRST_CHUNK_COALESCED, "first_content_ns")
    # A decode that took no time was not timed.
    decode_ns = {
        "engine": _where(told["engine_decode_ns"] > 0, told["engine_decode_ns"]),
        "client": _where(last_ns > first_ns, last_ns - first_ns),
    }
    decoded = {"engine": tokens - 1, "client": tokens - told["first_tokens"]}
    sent_ns = unless(Reason.PROMPT_RESTORED, "send_ns")  # the first token of a copied prompt tells of no prefill
    return {
        **{name: unless(Reason.CLIENT_ROUNDS_UNUSABLE, name) for name in _CLIENT_ROUNDS},
        **{f"decode_ns_{source}": ns for source, ns in decode_ns.items()},
        **{f"decoded_{source}": n for source, n in decoded.items()},
        "ttft_ms": (first_ns - sent_ns) * _NS_MS,
        "e2el_ms": (last_ns - told["send_ns"]) * _NS_MS,
        "prefill_ms": unless(Reason.PROMPT_RESTORED, "engine_prefill_ns") * _NS_MS,
        ENGINE_MS: decode_ns["engine"] * _NS_MS / _where(rounds > 0, rounds),
        CLIENT_MS: decode_ns["client"] * _NS_MS / _where(rounds > 0, rounds),
        **{f"decode_tokens_per_s_{source}": decoded[source] / (ns * 1e-9) for source, ns in decode_ns.items()},
        "tpot_ms": decode_ns["client"] * _NS_MS / _where(decoded["engine"] > 0, decoded["engine"]),
        "residual": decoded["client"] - told["sum_accepted"] - rounds,
    }


def _where(holds: Column, values: Column) -> Column:
    return np.where(holds, values, math.nan)


def measured(frame: pd.DataFrame) -> pd.DataFrame:
    """The requests that make the pairs of the newest block attempts."""
    return frame[(frame.phase == "measure") & ~frame.superseded]


def pairs(reader: Reader, campaign_id: str, all_requests: pd.DataFrame | None = None) -> pd.DataFrame:
    """The pairs of the newest block attempts, each with both arms' request averages and its order."""
    told = _columns(reader, _PAIRS, campaign_id)
    told["admissible"] = np.array(told["admissible"], dtype=bool)
    sides = measured(requests(reader, campaign_id) if all_requests is None else all_requests)
    for role in Role:
        side = (sides.role == role.value).to_numpy()
        row_of = {key: row for row, key in enumerate(_keys(sides)) if side[row]}
        rows = np.array([row_of.get(key, -1) for key in _keys(told)], dtype=int)
        told |= {f"{role.value}_{name}": _taken(sides[name].to_numpy(), rows) for name in _COMPARED}
    methodology = reader.campaign(campaign_id).methodology_version
    with np.errstate(divide="ignore", invalid="ignore"):
        effects = {f"effect_{source}": _effects(told, source, methodology) for source in ("engine", "client")}
    return pd.DataFrame(told | {"control_first": told["control_order_in_pair"] == 0} | effects)


def _keys(rows: Mapping[str, Any] | pd.DataFrame) -> Iterator[tuple[Any, ...]]:
    return zip(*(list(rows[name]) for name in _KEY), strict=True)


def _taken(values: Column, rows: Column) -> Column:
    """The values of these rows, NaN for a row of -1."""
    if (rows >= 0).all():
        return values[rows]
    return np.where(rows >= 0, values[rows], math.nan) if len(values) else np.full(len(rows), math.nan)


def pairs_before(reader: Reader, campaign_id: str) -> pd.DataFrame:
    """`exactness` and `reasons` of the pairs of older block attempts."""
    return pd.DataFrame(_columns(reader, _EXACTNESS_BEFORE, campaign_id))


def _effects(pairs: Mapping[str, Column], source: str, methodology: int) -> Column:
    """`campaigns.exactness.compare.effect` by one source for all pairs; versions 1 and 2 left the tokens out."""
    control, candidate = (pairs[f"{role.value}_decode_ns_{source}"] for role in Role)
    if methodology < 3:
        counted = (pairs["control_n_rounds"] > 0) & (pairs["candidate_n_rounds"] > 0)
        return np.log(_where(counted, candidate / control))
    one, other = (pairs[f"{role.value}_decoded_{source}"] for role in Role)
    same = np.logical_and.reduce([pairs[f"control_{name}"] == pairs[f"candidate_{name}"] for name in _SAME])
    more = _where(other > 0, other) / _where(one > 0, one)
    more[np.isnan(one) & np.isnan(other) & same] = 1.0
    return np.log(candidate / control) - np.log(more)


def rounds(reader: Reader, request_ids: list[int]) -> pd.DataFrame:
    """The rounds of some requests: the one frame that can be large."""
    return pd.read_sql(_ROUNDS, reader.connection, params={"requests": request_ids})


def samples(reader: Reader, campaign_id: str) -> pd.DataFrame:
    query = text("SELECT * FROM device_sample WHERE campaign_id = :campaign ORDER BY startup, startup_attempt, ns")
    return pd.read_sql(query, reader.connection, params={"campaign": campaign_id})


def campaigns(reader: Reader) -> pd.DataFrame:
    """One row per campaign, newest last."""
    query = text("""
        SELECT c.campaign_id, c.name, c.created_utc, c.methodology_version, c.config_sha256, c.fingerprint,
            (SELECT status FROM campaign_event e WHERE e.campaign_id = c.campaign_id ORDER BY e.id DESC LIMIT 1)
                AS status
        FROM campaign c ORDER BY c.created_utc, c.rowid
    """)
    return pd.read_sql(query, reader.connection)


_SAID = ("admissible", "superseded")
_WHOLE = ("request_id", "startup", "startup_attempt", "seed", "repeat", "block_attempt", "position", "n_client_rounds")
_TEXT = ("campaign_id", "fixture", "role", "arm", "phase", "finish_reason", "token_sha256", "emitted_sha256")
_TEXT_TOO = ("accepted_sha256", "reasons", "error", "accepted_histogram", "stamp", "energy_source")
_AS_TOLD = frozenset({*_WHOLE, *_TEXT, *_TEXT_TOO})
_NOTHING = np.empty(0, dtype=object)  # as a column of nothing but NULL comes


def _columns(reader: Reader, query: TextClause, campaign_id: str) -> dict[str, Any]:
    result = reader.connection.execute(query, {"campaign": campaign_id})
    rows = result.all()
    return dict(zip(result.keys(), zip(*rows, strict=True) if rows else repeat(_NOTHING), strict=False))


def _numeric(told: Mapping[str, Any]) -> dict[str, Any]:
    """Counts and times as float64 with NaN for unknown; a column that is NULL throughout would come as objects."""
    return {
        name: values if name in _AS_TOLD else np.array(values, dtype=bool if name in _SAID else float)
        for name, values in told.items()
    }
