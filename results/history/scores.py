"""What the arms' answers scored over time: one row per campaign and scorer, each with its own denominator.

A row compares the two arms on the pairs that both have a verdict; scores of different campaigns stand beside each other
and are not compared.
"""

from __future__ import annotations

import pandas as pd

from campaigns.scorers.paired import discordance, newest
from results.history.entries import EVERYTHING, Filter, chosen
from results.store.reader import Reader
from results.store.unchanged import set_changed_aside

COLUMNS = (
    "campaign_id",
    "created_utc",
    "name",
    "control",
    "candidate",
    "scorer",
    "n_pairs",
    "control_passed",
    "candidate_passed",
    "only_control",
    "only_candidate",
    "mcnemar_p",
)


def scores(reader: Reader, wanted: Filter = EVERYTHING) -> pd.DataFrame:
    """COLUMNS, oldest first, of the campaigns that `wanted` takes and that were scored."""
    rows = []
    abouts = chosen(reader, wanted)
    set_changed_aside(reader, [about["campaign_id"] for about in abouts])
    for about in abouts:
        with reader.damaged.sparing(about["campaign_id"]):
            found = reader.scores(about["campaign_id"])
            for name in dict.fromkeys(score.scorer for score in newest(found).values()):
                pairs = discordance(found, name)
                passed = (pairs.both + pairs.only_control, pairs.both + pairs.only_candidate)
                apart = (pairs.only_control, pairs.only_candidate, pairs.p)
                rows.append((*(about[column] for column in COLUMNS[:5]), name, pairs.n_pairs, *passed, *apart))
    kept = [row for row in rows if row[0] not in reader.damaged and wanted.fixture in row[5]]
    return pd.DataFrame(kept, columns=list(COLUMNS))
