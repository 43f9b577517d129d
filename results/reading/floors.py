"""Which A/A campaigns may lend a campaign their noise floor: the same host, build and way of measuring, any arm."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pandas as pd
from sqlalchemy import text

from campaigns.judging.statistics import PairEffect, by_startup, startup_medians
from campaigns.plan import Mode
from results.reading.levels import Source
from results.store.reader import Reader

# What an A/A campaign may have otherwise: its arms, its prompts (matched by name), and the code round the server.
_FREE = ("arm.", "control_plane_sha256", "prompts_sha256", "corpus_sha256", "warmups")
_AA = text("SELECT campaign_id, fingerprint FROM campaign WHERE json_extract(plan_json, '$.mode') = :mode")

Effects = Callable[[Reader, str], Mapping[str, list[PairEffect]]]


def family(fingerprint: Mapping[str, str]) -> dict[str, str]:
    """The part of a fingerprint that a noise floor depends on."""
    return {name: value for name, value in fingerprint.items() if not name.startswith(_FREE)}


def aa_medians(
    reader: Reader, campaign_id: str, fingerprint: Mapping[str, str], effects: Effects
) -> dict[str, list[float]]:
    """Startup medians of every comparable A/A campaign but `campaign_id` itself, by group."""
    found: dict[str, list[float]] = {}
    for row in reader.connection.execute(_AA, {"mode": Mode.AA.value}).all():
        if row.campaign_id != campaign_id and family(json.loads(row.fingerprint)) == family(fingerprint):
            with reader.damaged.sparing(row.campaign_id):
                for group, pairs in effects(reader, row.campaign_id).items():
                    found.setdefault(group, []).extend(startup_medians(by_startup(pairs)).values())
    return found


def pair_effects(admissible: pd.DataFrame, source: Source) -> list[PairEffect]:
    """The effects of pairs that have a time in both arms, in the order of running (`judging.compare.effect`)."""
    turn = admissible[["control_position", "candidate_position"]].min(axis=1)
    timed = admissible.assign(turn=turn).dropna(subset=source.effect_column)
    timed = timed.sort_values(["startup", "turn"], kind="stable")
    columns = zip(timed.startup, timed[source.effect_column], timed.control_first, strict=True)
    return [PairEffect(int(startup), float(delta), bool(first)) for startup, delta, first in columns]
