"""The store as pandas frames: the only place that knows both. Columns are documented in docs/history.md.

Reads summaries, never rounds, unless rounds are asked for. Times of different scopes have different columns
(`campaigns.scope`); a quantity that a server did not report is NaN. The arithmetic repeats `campaigns.quantities` over
columns, and a test holds the two together.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from sqlalchemy import bindparam, text

from campaigns.reasons import Reason
from campaigns.scope import Scope
from results.store.reader import Reader

ENGINE_MS = f"{Scope.REQUEST_AVERAGE_ENGINE.column}_ms"
CLIENT_MS = f"{Scope.REQUEST_AVERAGE_CLIENT.column}_ms"

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
_NS_MS = 1e-6
# What the client's rounds say, where they are the engine's rounds.
_CLIENT_ROUNDS = [f"client_round_{what}" for what in ("mean_ns", "p50_ns", "p90_ns", "p99_ns", "lag1")]


def requests(reader: Reader, campaign_id: str) -> pd.DataFrame:
    """Every request of a campaign, warm-ups and superseded ones too, one row each."""
    frame = pd.read_sql(_REQUESTS, reader.connection, params={"campaign": campaign_id})
    frame = _numeric(frame)
    first_ns = frame.first_content_ns.mask(frame.reasons.str.contains(Reason.FIRST_CHUNK_COALESCED.value))
    positive = frame.n_rounds.where(frame.n_rounds > 0)
    # A decode that took no time was not timed.
    frame["decode_ns_engine"] = frame.engine_decode_ns.where(frame.engine_decode_ns > 0)
    frame["decode_ns_client"] = (frame.last_content_ns - first_ns).where(frame.last_content_ns > first_ns)
    frame["decoded_engine"] = frame.completion_tokens - 1
    frame["decoded_client"] = frame.completion_tokens - frame.first_tokens
    frame["ttft_ms"] = (first_ns - frame.send_ns) * _NS_MS
    frame["e2el_ms"] = (frame.last_content_ns - frame.send_ns) * _NS_MS
    frame["prefill_ms"] = frame.engine_prefill_ns * _NS_MS
    restored = frame.reasons.str.contains(Reason.PROMPT_RESTORED.value)
    frame.loc[restored, ["ttft_ms", "prefill_ms"]] = math.nan  # of a copy, and not of a prompt
    frame[ENGINE_MS] = frame.decode_ns_engine * _NS_MS / positive
    frame[CLIENT_MS] = frame.decode_ns_client * _NS_MS / positive
    unusable = frame.reasons.str.contains(Reason.CLIENT_ROUNDS_UNUSABLE.value)
    for name in _CLIENT_ROUNDS:
        frame[name] = frame[name].mask(unusable)
    for source in ("engine", "client"):
        frame[f"decode_tokens_per_s_{source}"] = frame[f"decoded_{source}"] / (frame[f"decode_ns_{source}"] * 1e-9)
    frame["tpot_ms"] = frame.decode_ns_client * _NS_MS / frame.decoded_engine.where(frame.decoded_engine > 0)
    frame["residual"] = frame.decoded_client - frame.sum_accepted - frame.n_rounds
    return frame.copy()  # columns of one type in one block: rows are taken out of it again and again


def measured(frame: pd.DataFrame) -> pd.DataFrame:
    """The requests that make the pairs of the newest block attempts."""
    return frame[(frame.phase == "measure") & ~frame.superseded]


def pairs(reader: Reader, campaign_id: str, all_requests: pd.DataFrame | None = None) -> pd.DataFrame:
    """The pairs of the newest block attempts, each with both arms' request averages and its order."""
    frame = pd.read_sql(_PAIRS, reader.connection, params={"campaign": campaign_id})
    frame["admissible"] = frame.admissible.astype(bool)
    sides = measured(requests(reader, campaign_id) if all_requests is None else all_requests)
    for role in ("control", "candidate"):
        side = sides.loc[sides.role == role, _KEY + _COMPARED]
        frame = frame.merge(side.rename(columns={c: f"{role}_{c}" for c in _COMPARED}), on=_KEY, how="left")
    frame["control_first"] = frame.control_order_in_pair == 0
    methodology = reader.campaign(campaign_id).methodology_version
    for source in ("engine", "client"):
        frame[f"effect_{source}"] = _effects(frame, source, methodology)
    return frame.copy()


def pairs_before(reader: Reader, campaign_id: str) -> pd.DataFrame:
    """`exactness` and `reasons` of the pairs of older block attempts."""
    return pd.read_sql(_EXACTNESS_BEFORE, reader.connection, params={"campaign": campaign_id})


def _effects(pairs: pd.DataFrame, source: str, methodology: int) -> pd.Series:
    """`campaigns.exactness.compare.effect` by one source for all pairs; versions 1 and 2 left the tokens out."""
    control, candidate = (pairs[f"{role}_decode_ns_{source}"] for role in ("control", "candidate"))
    if methodology < 3:
        counted = (pairs.control_n_rounds > 0) & (pairs.candidate_n_rounds > 0)
        return _log((candidate / control).where(counted))
    one, other = (pairs[f"{role}_decoded_{source}"] for role in ("control", "candidate"))
    same = (pairs.control_completion_tokens == pairs.candidate_completion_tokens) & (
        pairs.control_first_characters == pairs.candidate_first_characters
    )
    more = (other.where(other > 0) / one.where(one > 0)).mask(one.isna() & other.isna() & same, 1.0)
    return _log(candidate / control) - _log(more)


def _log(ratios: pd.Series) -> pd.Series:
    return pd.Series(np.log(ratios), index=ratios.index)


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


def _numeric(frame: pd.DataFrame) -> pd.DataFrame:
    """Counts and times as float64 with NaN for unknown; a column that is NULL throughout would come as objects."""
    counts = frame.columns.difference([*_WHOLE, *_TEXT, *_TEXT_TOO, *_SAID])
    return frame.astype({**dict.fromkeys(_SAID, "bool"), **dict.fromkeys(counts, "float64")})
