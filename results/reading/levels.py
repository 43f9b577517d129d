"""What one arm did in one group of requests: levels, quantiles, acceptance. Every figure knows its scope.

A level is the median over startups of the startup's median of request averages; a corpus' decode rate is the sum of
tokens over the sum of seconds. Acceptance is micro (sums over sums) unless a name says macro.
"""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter

import numpy as np
import numpy.typing as npt
import pandas as pd

from campaigns.judging.quantiles import Quantile, median_quantile, quantile
from campaigns.scope import Scope
from results.reading.frames import CLIENT_MS, ENGINE_MS, Column

QUANTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True)
class Source:
    """Which clock the whole campaign is told by: the engine's where every request has it, else the client's."""

    engine_averages: bool
    engine_rounds: bool

    @property
    def request(self) -> Scope:
        return Scope.REQUEST_AVERAGE_ENGINE if self.engine_averages else Scope.REQUEST_AVERAGE_CLIENT

    @property
    def round(self) -> Scope:
        return Scope.ROUND_ENGINE if self.engine_rounds else Scope.ROUND_CLIENT

    @property
    def level_column(self) -> str:
        return ENGINE_MS if self.engine_averages else CLIENT_MS

    @property
    def decode_column(self) -> str:
        return f"decode_tokens_per_s_{'engine' if self.engine_averages else 'client'}"

    @property
    def effect_column(self) -> str:
        return f"effect_{'engine' if self.engine_averages else 'client'}"

    @property
    def round_prefix(self) -> str:
        return "engine" if self.engine_rounds else "client"


def source_of(measured: pd.DataFrame) -> Source:
    """Decided over all admissible requests of a campaign, so that no table mixes two clocks."""
    counted = measured[measured.admissible]
    return Source(
        engine_averages=bool(len(counted)) and bool(counted.engine_decode_ns.notna().all()),
        engine_rounds=bool(len(counted)) and bool((counted.n_engine_rounds > 0).all()),
    )


@dataclass(frozen=True)
class ArmLevels:
    n_requests: int
    level_ms: float | None
    startup_levels_ms: dict[int, float]
    ttft_ms: float | None
    cold_ttft_ms: float | None
    prefill_ms: float | None
    decode_tokens_per_s: float | None
    accepted_drafts_per_round: float | None
    emitted_tokens_per_round: float | None
    drafted_per_round: float | None
    acceptance_length: float | None
    acceptance_length_macro: float | None
    draft_acceptance_rate: float | None
    acceptance_histogram: tuple[int, ...]
    rounds: tuple[Quantile, ...]  # of QUANTILES: median over requests of each request's round quantile, ms
    request_averages: tuple[Quantile, ...]  # of QUANTILES: over requests, ms
    n_capped: int
    energy_per_request_j: float | None  # drawn by all leased devices from sending to the end, mean over requests
    energy_per_token_j: float | None  # the same energy, prefill and idle draw included, over all completion tokens
    completion_tokens: tuple[int, ...] = field(default=())  # distinct counts, sorted
    residuals: tuple[int, ...] = field(default=())  # distinct, sorted

    @property
    def drift(self) -> float | None:
        """ln of the highest startup level over the lowest."""
        levels = self.startup_levels_ms.values()
        return math.log(max(levels) / min(levels)) if len(levels) > 1 else None

    @property
    def per_position_rates(self) -> tuple[float, ...]:
        """Rounds that accepted at least i drafts over all rounds, i = 1 …"""
        total = sum(self.acceptance_histogram)
        return tuple(sum(self.acceptance_histogram[i:]) / total for i in range(1, len(self.acceptance_histogram)))

    @property
    def conditional_rates(self) -> tuple[float, ...]:
        """Accepted at position i given that the one before was."""
        rates = (1.0, *self.per_position_rates)
        return tuple(b / a if a else 0.0 for a, b in itertools.pairwise(rates))


@dataclass(frozen=True)
class Rows:
    """Some requests of `frames.requests`, column by column: of so few, a frame of their own costs more than they."""

    requests: pd.DataFrame
    chosen: npt.NDArray[np.bool_]

    def __getitem__(self, name: str) -> Column:
        column: Column = self.requests[name].to_numpy()
        return column[self.chosen]


def arm_levels(counted: Rows, warmups: Rows, source: Source, *, summed: bool) -> ArmLevels:
    """`counted` are the arm's requests in admissible pairs; `summed` pools the decode rate as a corpus does."""
    rounds, accepted, drafted = (_sum(counted[name]) for name in ("n_rounds", "sum_accepted", "sum_drafted"))
    tokens, averages = counted["completion_tokens"], counted[source.level_column]
    energy_j = None if (energy_mj := _sum(counted["energy_mj"])) is None else energy_mj * 1e-3
    per_round = accepted / rounds if accepted is not None and rounds else None
    startup_levels = _startup_medians(counted["startup"], averages)
    return ArmLevels(
        n_requests=len(averages),
        level_ms=_median(list(startup_levels.values())),
        startup_levels_ms=startup_levels,
        ttft_ms=_median_of_medians(counted, "ttft_ms"),
        cold_ttft_ms=_cold(warmups),
        prefill_ms=_median_of_medians(counted, "prefill_ms"),
        decode_tokens_per_s=_decode(counted, source, summed=summed),
        accepted_drafts_per_round=per_round,
        emitted_tokens_per_round=_ratio(_sum(tokens), rounds),
        drafted_per_round=_ratio(drafted, rounds),
        acceptance_length=None if per_round is None else 1 + per_round,
        acceptance_length_macro=None if per_round is None else _mean_length(counted),
        draft_acceptance_rate=_ratio(accepted, drafted),
        acceptance_histogram=_histogram(counted["accepted_histogram"].tolist()),
        rounds=_round_quantiles(counted, source),
        request_averages=tuple(quantile(_known(averages), q) for q in QUANTILES),
        energy_per_request_j=_ratio(energy_j, len(averages)),
        energy_per_token_j=_ratio(energy_j, _sum(tokens)),
        n_capped=counted["finish_reason"].tolist().count("length"),
        completion_tokens=_distinct(tokens),
        residuals=_distinct(counted["residual"]),
    )


def _startup_medians(startups: Column, values: Column) -> dict[int, float]:
    """Of the values that are known, of the startups that have any, in their order."""
    found: dict[int, list[float]] = {}
    for startup, value in zip(startups.tolist(), values.tolist(), strict=True):
        if not math.isnan(value):
            found.setdefault(startup, []).append(value)
    medians = {int(startup): statistics.median(found[startup]) for startup in sorted(found)}
    return {startup: median for startup, median in medians.items() if not math.isnan(median)}


def _median_of_medians(rows: Rows, name: str) -> float | None:
    return _median(list(_startup_medians(rows["startup"], rows[name]).values()))


def _decode(counted: Rows, source: Source, *, summed: bool) -> float | None:
    if not summed:
        return _median_of_medians(counted, source.decode_column)
    decoded = counted[f"decoded_{'engine' if source.engine_averages else 'client'}"]
    with np.errstate(divide="ignore", invalid="ignore"):
        seconds = decoded / counted[source.decode_column]
    total_s = float(np.nansum(seconds))
    return float(np.nansum(decoded[~np.isnan(seconds)])) / total_s if total_s > 0 else None


def _round_quantiles(counted: Rows, source: Source) -> tuple[Quantile, ...]:
    columns = [f"{source.round_prefix}_round_{name}_ns" for name in ("p50", "p90", "p99")]
    have = ~np.isnan(counted[columns[0]])
    sizes = counted[f"n_{source.round_prefix}_rounds"][have].astype(int).tolist()
    return tuple(
        median_quantile((counted[column][have] * 1e-6).tolist(), sizes, q)
        for column, q in zip(columns, QUANTILES, strict=True)
    )


def _cold(warmups: Rows) -> float | None:
    """TTFT of the first request of each startup's fixtures; None where nothing was warmed up."""
    rows = zip(*(warmups[name].tolist() for name in ("position", "startup", "fixture", "ttft_ms")), strict=True)
    first: dict[tuple[int, str], float] = {}
    for _, startup, fixture, ttft_ms in sorted(rows, key=itemgetter(0)):
        if not math.isnan(ttft_ms):
            first.setdefault((startup, fixture), ttft_ms)
    return _median(list(first.values()))


def _mean_length(counted: Rows) -> float:
    """Over the requests that had a round."""
    with np.errstate(divide="ignore", invalid="ignore"):
        lengths = 1 + counted["sum_accepted"] / counted["n_rounds"]
    return float(np.nansum(lengths)) / int(np.count_nonzero(~np.isnan(lengths)))


def _histogram(texts: Sequence[object]) -> tuple[int, ...]:
    parts = [np.asarray(json.loads(text)) for text in texts if isinstance(text, str)]
    if not parts or len(parts) < len(texts):
        return ()
    total = np.zeros(max(map(len, parts)), dtype=np.int64)
    for part in parts:
        total[: len(part)] += part
    return tuple(int(count) for count in total)


def _known(values: Column) -> list[float]:
    known: list[float] = values[~np.isnan(values)].tolist()
    return known


def _sum(values: Column) -> float | None:
    """None unless every request reported its count."""
    return float(values.sum()) if len(values) and not np.isnan(values).any() else None


def _ratio(numerator: float | None, denominator: float | None) -> float | None:
    return numerator / denominator if numerator is not None and denominator else None


def _median(values: Sequence[float]) -> float | None:
    return float(statistics.median(values)) if values else None


def _distinct(values: Column) -> tuple[int, ...]:
    return tuple(sorted({int(value) for value in _known(values)}))
