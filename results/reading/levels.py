"""What one arm did in one group of requests: levels, quantiles, acceptance. Every figure knows its scope.

A level is the median over startups of the startup's median of request averages; a corpus' decode rate is the sum of
tokens over the sum of seconds. Acceptance is micro (sums over sums) unless a name says macro.
"""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from campaigns.judging.quantiles import Quantile, median_quantile, quantile
from campaigns.scope import Scope
from results.reading.frames import CLIENT_MS, ENGINE_MS

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


def arm_levels(counted: pd.DataFrame, warmups: pd.DataFrame, source: Source, *, summed: bool) -> ArmLevels:
    """`counted` are the arm's requests in admissible pairs; `summed` pools the decode rate as a corpus does."""
    rounds, accepted, drafted = (_sum(counted[name]) for name in ("n_rounds", "sum_accepted", "sum_drafted"))
    energy_j = None if (energy_mj := _sum(counted.energy_mj)) is None else energy_mj * 1e-3
    per_round = accepted / rounds if accepted is not None and rounds else None
    lengths = 1 + counted.sum_accepted / counted.n_rounds
    startup_levels = counted.groupby("startup")[source.level_column].median().dropna()
    return ArmLevels(
        n_requests=len(counted),
        level_ms=_median(startup_levels),
        startup_levels_ms={int(str(startup)): float(ms) for startup, ms in startup_levels.items()},
        ttft_ms=median_of_medians(counted, "ttft_ms"),
        cold_ttft_ms=_cold(warmups),
        prefill_ms=median_of_medians(counted, "prefill_ms"),
        decode_tokens_per_s=_decode(counted, source, summed=summed),
        accepted_drafts_per_round=per_round,
        emitted_tokens_per_round=_ratio(_sum(counted.completion_tokens), rounds),
        drafted_per_round=_ratio(drafted, rounds),
        acceptance_length=None if per_round is None else 1 + per_round,
        acceptance_length_macro=None if per_round is None else float(lengths.mean()),
        draft_acceptance_rate=_ratio(accepted, drafted),
        acceptance_histogram=_histogram(counted.accepted_histogram),
        rounds=_round_quantiles(counted, source),
        request_averages=tuple(quantile(counted[source.level_column].dropna().tolist(), q) for q in QUANTILES),
        energy_per_request_j=_ratio(energy_j, len(counted)),
        energy_per_token_j=_ratio(energy_j, _sum(counted.completion_tokens)),
        n_capped=int((counted.finish_reason == "length").sum()),
        completion_tokens=_distinct(counted.completion_tokens),
        residuals=_distinct(counted.residual),
    )


def median_of_medians(frame: pd.DataFrame, column: str) -> float | None:
    return _median(frame.groupby("startup")[column].median().dropna())


def _decode(counted: pd.DataFrame, source: Source, *, summed: bool) -> float | None:
    if not summed:
        return median_of_medians(counted, source.decode_column)
    decoded = counted[f"decoded_{'engine' if source.engine_averages else 'client'}"]
    seconds = decoded / counted[source.decode_column]
    tokens = decoded[seconds.notna()]
    total_s = float(seconds.sum())
    return float(tokens.sum()) / total_s if total_s > 0 else None


def _round_quantiles(counted: pd.DataFrame, source: Source) -> tuple[Quantile, ...]:
    sizes = counted[f"n_{source.round_prefix}_rounds"].astype(int)
    columns = [f"{source.round_prefix}_round_{name}_ns" for name in ("p50", "p90", "p99")]
    have = counted[columns[0]].notna()
    return tuple(
        median_quantile((counted.loc[have, column] * 1e-6).tolist(), sizes[have].tolist(), q)
        for column, q in zip(columns, QUANTILES, strict=True)
    )


def _cold(warmups: pd.DataFrame) -> float | None:
    """TTFT of the first request of each startup's fixtures; None where nothing was warmed up."""
    first = warmups.sort_values("position").groupby(["startup", "fixture"]).ttft_ms.first()
    return _median(first.dropna())


def _histogram(texts: pd.Series) -> tuple[int, ...]:
    parts = [np.asarray(json.loads(t)) for t in texts.dropna()]
    if not parts or len(parts) < len(texts):
        return ()
    total = np.zeros(max(map(len, parts)), dtype=np.int64)
    for part in parts:
        total[: len(part)] += part
    return tuple(int(count) for count in total)


def _sum(column: pd.Series) -> float | None:
    """None unless every request reported its count."""
    return float(column.sum()) if len(column) and column.notna().all() else None


def _ratio(numerator: float | None, denominator: float | None) -> float | None:
    return numerator / denominator if numerator is not None and denominator else None


def _median(column: pd.Series) -> float | None:
    return float(column.median()) if len(column) else None


def _distinct(column: pd.Series) -> tuple[int, ...]:
    return tuple(sorted({int(value) for value in column.dropna()}))
