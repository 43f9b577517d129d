"""The pairs that agree less than was required, or whose ids part: what differed, pair by pair."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from campaigns.exactness.differing import differing
from results.reading.exclusions import exact
from results.store.reader import Reader

MOST = 20  # pairs that are told one by one: the first ones show the kind


@dataclass(frozen=True)
class Differing:
    startup: int
    fixture: str
    seed: int
    repeat: int
    what: tuple[str, ...]  # `what: control / candidate`

    @property
    def line(self) -> str:
        where = f"startup {self.startup + 1}, {self.fixture}, seed {self.seed}, repeat {self.repeat}"
        return f"{where}: {'; '.join(self.what)}"


def differing_pairs(reader: Reader, pairs: pd.DataFrame, failed: pd.Series) -> tuple[Differing, ...]:
    """At most MOST, in the order of running; pairs of which a request failed were not compared."""
    parted = ~failed & (~exact(pairs) | pairs.divergence_index.notna())
    ids = pairs.loc[parted, ["control_request_id", "candidate_request_id"]].head(MOST)
    return tuple(_differing(reader, *map(int, of_pair)) for of_pair in ids.to_numpy())


def _differing(reader: Reader, control: int, candidate: int) -> Differing:
    both = [reader.request(request_id) for request_id in (control, candidate)]
    key = both[0].key
    return Differing(key.startup, key.fixture, key.seed, key.repeat, differing(*both))
