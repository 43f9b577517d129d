"""Which A/A campaigns may lend a campaign their noise floor: the same host, build and way of measuring, any arm."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
from sqlalchemy import text

from campaigns.judging.statistics import PairEffect, by_startup, startup_medians
from campaigns.plan import Mode
from campaigns.scope import Series
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
    for row in reader.connection.execute(_AA, {"mode": Mode.AA.value}):
        if row.campaign_id != campaign_id and family(json.loads(row.fingerprint)) == family(fingerprint):
            for group, pairs in effects(reader, row.campaign_id).items():
                found.setdefault(group, []).extend(startup_medians(by_startup(pairs)).values())
    return found


def pair_effects(admissible: pd.DataFrame, source: Source) -> list[PairEffect]:
    """The effects of pairs that have a time in both arms, in the order of running (`judging.compare.effect`)."""
    sides = [f"{role}_{source.level_column}" for role in ("control", "candidate")]
    turn = admissible[["control_position", "candidate_position"]].min(axis=1)
    timed = admissible.assign(turn=turn).dropna(subset=sides).sort_values(["startup", "turn"], kind="stable")
    control, candidate = (Series(source.request, tuple(timed[side])) for side in sides)
    more_rounds = np.log(timed.candidate_n_rounds / timed.control_n_rounds)
    columns = zip(timed.startup, candidate.log_ratios(control), more_rounds, timed.control_first, strict=True)
    return [PairEffect(int(startup), delta + more, bool(first)) for startup, delta, more, first in columns]
