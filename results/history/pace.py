"""How long things took before: the pace of recorded campaigns over the same weights. Reads the store only."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import text

from results.store.reader import Reader

_LIKE = """
json_extract(c.fingerprint, '$.weights_sha256') = :weights
    AND json_extract(c.fingerprint, '$."server.args"') = :args
    AND NOT coalesce(json_extract(c.plan_json, '$.profile'), 0)
"""
_REQUESTS = text(f"""
SELECT count(*), avg(r.end_ns - r.sched_ns) * 1e-9 FROM request r JOIN campaign c USING (campaign_id) WHERE {_LIKE}
""")
# Seconds of a complete startup beside its requests and the calibration: start, checks, pauses, scores, stop. A store of
# another clock may say less than the server took to be ready.
_STARTUPS = text(f"""
SELECT avg(max(ready_s, lived_s - asked_s - calibrate_s)) FROM (
    SELECT max(s.ready_ns) * 1e-9 AS ready_s,
        (julianday(max(e.ended_utc)) - julianday(min(s.created_utc))) * 86400 AS lived_s,
        (SELECT total(r.end_ns - r.sched_ns) * 1e-9 FROM request r WHERE r.campaign_id = s.campaign_id
            AND r.startup = s.startup AND r.startup_attempt = s.attempt) AS asked_s,
        json_extract(c.plan_json, '$.calibrate_s') AS calibrate_s
    FROM startup s JOIN campaign c USING (campaign_id)
    LEFT JOIN startup_end e ON e.campaign_id = s.campaign_id AND e.startup = s.startup AND e.attempt = s.attempt
        AND e.role IS s.role AND e.status = 'complete'
    WHERE {_LIKE} GROUP BY s.campaign_id, s.startup, s.attempt
)""")
_ONCE = text(f"""
SELECT avg((julianday(began_utc) - julianday(created_utc)) * 86400) FROM (
    SELECT c.created_utc, min(s.created_utc) AS began_utc FROM startup s JOIN campaign c USING (campaign_id)
    WHERE {_LIKE} GROUP BY c.campaign_id
)""")


@dataclass(frozen=True)
class Pace:
    """Seconds of a request, of a startup beside requests and calibration, of a campaign before its first startup."""

    request_s: float
    startup_s: float
    once_s: float
    source: str  # where the three come from, in words


GUESS = Pace(2.0, 30.0, 10.0, "a guess: no campaign over these weights is recorded")


def pace(reader: Reader, weights_sha256: str, server_args: str) -> Pace:
    """From every recorded request over these weights and server arguments; the guess where there is none."""
    like = {"weights": weights_sha256, "args": server_args}
    count, request_s = reader.connection.execute(_REQUESTS, like).one()
    if not count:
        return GUESS
    startup_s, once_s = (reader.connection.scalar(question, like) for question in (_STARTUPS, _ONCE))
    source = f"{count} recorded requests over these weights"
    return Pace(float(request_s), float(startup_s or GUESS.startup_s), max(0.0, float(once_s or 0.0)), source)
