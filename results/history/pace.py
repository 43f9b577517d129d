"""How long things took before: the pace of recorded campaigns over the same weights. Reads the store only."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import text

from results.store.reader import Reader

_REQUESTS = text("""
SELECT count(*), avg(r.end_ns - r.sched_ns) * 1e-9 FROM request r JOIN campaign c USING (campaign_id)
WHERE json_extract(c.fingerprint, '$.weights_sha256') = :weights
    AND json_extract(c.fingerprint, '$."server.args"') = :args
    AND NOT coalesce(json_extract(c.plan_json, '$.profile'), 0)
""")
_STARTUPS = text("""
SELECT avg(s.ready_ns) * 1e-9 FROM startup s JOIN campaign c USING (campaign_id)
WHERE json_extract(c.fingerprint, '$.weights_sha256') = :weights
    AND json_extract(c.fingerprint, '$."server.args"') = :args
""")


@dataclass(frozen=True)
class Pace:
    request_s: float
    startup_s: float
    source: str  # where the two come from, in words


GUESS = Pace(request_s=2.0, startup_s=30.0, source="a guess: no campaign over these weights is recorded")


def pace(reader: Reader, weights_sha256: str, server_args: str) -> Pace:
    """From every recorded request over these weights and server arguments; the guess where there is none."""
    like = {"weights": weights_sha256, "args": server_args}
    count, request_s = reader.connection.execute(_REQUESTS, like).one()
    startup_s = reader.connection.scalar(_STARTUPS, like)
    if not count:
        return GUESS
    return Pace(float(request_s), float(startup_s or GUESS.startup_s), f"{count} recorded requests over these weights")
