"""How long things took before: the pace of recorded campaigns over the same weights. Reads the store only.

A request costs the time from its sending to the next one's, so that the pauses between requests are in it. The first
answer to each arm loads and captures what later ones find, ten seconds and more on a GPU: its startup has it.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import text

from campaigns.plan import StartupMode
from results.store.reader import Reader
from results.store.unchanged import set_changed_aside

_LIKE = """
json_extract(c.fingerprint, '$.weights_sha256') = :weights
    AND json_extract(c.fingerprint, '$."server.args"') = :args
    AND NOT coalesce(json_extract(c.plan_json, '$.profile'), 0)
    AND (:name = '' OR c.name = :name)
"""
# Servers of a sequential startup live one after the other: between them lies a stop and a start, and no pause.
_COSTS = f"""
SELECT campaign_id, startup, attempt, phase, next_ns IS NOT NULL AS followed, place > 1 AS later,
    (coalesce(next_ns, end_ns) - send_ns) * 1e-9 AS cost_s
FROM (
    SELECT r.campaign_id, r.startup, r.startup_attempt AS attempt, r.phase, r.send_ns, r.end_ns,
        lead(r.send_ns) OVER (
            PARTITION BY r.campaign_id, r.startup, r.startup_attempt,
                CASE json_extract(c.plan_json, '$.startup_mode') WHEN '{StartupMode.SEQUENTIAL}' THEN r.role END
            ORDER BY r.send_ns
        ) AS next_ns,
        row_number() OVER (
            PARTITION BY r.campaign_id, r.startup, r.startup_attempt, r.role ORDER BY r.send_ns
        ) AS place
    FROM request r JOIN campaign c USING (campaign_id) WHERE {_LIKE}
)
"""
_ALIKE = text(f"SELECT c.campaign_id FROM campaign c WHERE {_LIKE}")
_REQUESTS = text(f"""
SELECT count(*),
    avg(CASE WHEN later AND followed AND phase = 'measure' THEN cost_s END),
    avg(CASE WHEN later AND followed AND phase = 'warmup' THEN cost_s END),
    avg(CASE WHEN later THEN cost_s END), avg(cost_s)
FROM ({_COSTS})
""")
# Seconds of a complete startup beside its later requests and the calibration: start, checks, first answers, scores,
# stop. A store of another clock may say less than the server took to be ready.
_STARTUPS = text(f"""
WITH costs AS ({_COSTS})
SELECT avg(max(ready_s, lived_s - asked_s - calibrate_s)) FROM (
    SELECT max(s.ready_ns) * 1e-9 AS ready_s,
        (julianday(max(e.ended_utc)) - julianday(min(s.created_utc))) * 86400 AS lived_s,
        (SELECT total(costs.cost_s) FROM costs WHERE costs.later AND costs.campaign_id = s.campaign_id
            AND costs.startup = s.startup AND costs.attempt = s.attempt) AS asked_s,
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
    """Seconds of a request and of a warm-up that are not an arm's first, of a startup beside those and calibration, of
    a campaign before its first startup."""

    request_s: float
    warmup_s: float
    startup_s: float
    once_s: float
    source: str  # where they come from, in words

    def startups_s(self, startups: int, measured: int, warmups: int, calibrate_s: float) -> float:
        """Of all startups one after the other, with as many requests of both arms together."""
        first = 2 * startups
        later_warmups = max(0, warmups - first)
        later = max(0, measured + warmups - first) - later_warmups
        return startups * (self.startup_s + calibrate_s) + later * self.request_s + later_warmups * self.warmup_s


GUESS = Pace(2.0, 2.0, 30.0, 10.0, "a guess: no campaign over these weights is recorded")


def pace(reader: Reader, weights_sha256: str, server_args: str, name: str = "") -> Pace:
    """From recorded requests over these weights and server arguments: those of campaigns of that name if there are any,
    which ask for the like, else all; the guess where there is none."""
    like = {"weights": weights_sha256, "args": server_args, "name": name}
    set_changed_aside(reader, list(reader.connection.scalars(_ALIKE, like)))
    count, measured_s, warmup_s, later_s, every_s = reader.connection.execute(_REQUESTS, like).one()
    if not count:
        return pace(reader, weights_sha256, server_args) if name else GUESS
    startup_s, once_s = (reader.connection.scalar(question, like) for question in (_STARTUPS, _ONCE))
    source = f"{count} recorded requests{f' of {name}' if name else ''} over these weights"
    request_s = float(measured_s or later_s or every_s)
    startup_s = float(startup_s or GUESS.startup_s)
    return Pace(request_s, float(warmup_s or request_s), startup_s, max(0.0, float(once_s or 0.0)), source)
