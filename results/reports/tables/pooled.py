"""Single rounds pooled over requests: an extra beside the median over requests, and the one table that scans rounds."""

from __future__ import annotations

import pandas as pd

from campaigns.judging.quantiles import Confidence, interval, quantile
from campaigns.scope import Scope, Series, pooled
from results.reading import frames
from results.reading.levels import QUANTILES
from results.reading.summary import Summary
from results.reports.tables import cells
from results.reports.tables.common import Table
from results.store.reader import Reader
from results.store.rounds import lag1

_Q1 = 2


def pooled_rounds(summary: Summary, reader: Reader) -> Table:
    """p50, p90, p99 of all rounds of an arm, each with the interval that its autocorrelation leaves."""
    measured = frames.measured(frames.requests(reader, summary.campaign.campaign_id))
    groups = measured[measured.admissible].groupby(["fixture", "seed", "role"], sort=False)
    column = f"{summary.source.round_prefix}_ns"
    rows = []
    for (fixture, seed, role), requests in groups:
        rounds = frames.rounds(reader, requests.request_id.tolist())
        timed = rounds[(rounds.kind != _Q1) & rounds[column].notna()]
        rows.append((f"{fixture}, seed {seed}", str(role), *_cells(timed, column, summary.source.round)))
    header = ("fixture", "arm", "rounds", *(f"p{100 * q:g} ms (95 % interval)" for q in QUANTILES))
    note = f"{cells.scope_words(summary.source.round)}; requests of all startups in one pool."
    return Table("Pooled rounds", header, tuple(rows), note)


def _cells(timed: pd.DataFrame, column: str, scope: Scope) -> tuple[str, ...]:
    if timed.empty:
        return ("0", *[cells.DASH] * len(QUANTILES))
    per_request = [Series(scope, tuple(ns.astype(float) * 1e-6)) for _, ns in timed.groupby("request_id")[column]]
    values = pooled(per_request).values_ms
    correlation = max(0.0, lag1(timed[column].to_numpy(dtype=float)) or 0.0)
    return (str(len(values)), *(_cell(values, q, correlation) for q in QUANTILES))


def _cell(values: tuple[float, ...], q: float, correlation: float) -> str:
    found, limits = quantile(values, q), interval(values, q, lag1=correlation)
    text = cells.number(found.value, 3) + (f" (refused, n={found.n})" if found.confidence is Confidence.REFUSED else "")
    return text if limits is None else f"{text} ({limits[0]:.3f} … {limits[1]:.3f})"
