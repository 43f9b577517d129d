"""Rounds as integers: from facts and back, and the summary that is stored beside them.

A report or a history query reads summaries; `verify` makes them again from the rows and compares. Quantiles are numpy's
(linear). Narrow steps (q1) are rows too, but no speculative rounds: they enter neither counts nor round times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from campaigns.records import Round
from results.store.hashing import canonical_json
from results.store.schema import round_

COLUMNS = tuple(column.name for column in round_.columns if not column.foreign_keys)  # round_index first
_VALUES = attrgetter("index", *COLUMNS[1:])
_KIND, _COALESCED = COLUMNS.index("kind"), COLUMNS.index("coalesced")
_KIND_CODES = {None: None, "spec": 1, "q1": 2}
_KINDS = {code: kind for kind, code in _KIND_CODES.items()}
_Q1 = 2
Flat = list[Any]  # of int | None
Matrix = NDArray[np.float64]


def flatten(rounds: Iterable[Round]) -> Flat:
    """The values of COLUMNS, round after round. An unknown kind is a KeyError: the client decides what a round is."""
    # Whole columns at a time: a request may have fifteen thousand rounds.
    flat = list(chain.from_iterable(map(_VALUES, rounds)))
    flat[_KIND :: len(COLUMNS)] = [_KIND_CODES[kind] for kind in flat[_KIND :: len(COLUMNS)]]
    flat[_COALESCED :: len(COLUMNS)] = map(int, flat[_COALESCED :: len(COLUMNS)])
    return flat


def to_matrix(flat: Flat) -> Matrix:
    """(rounds, columns) in float64, NaN where null; exact, since no duration reaches 2^53 ns."""
    try:
        values: NDArray[Any] = np.fromiter(flat, dtype=np.int64, count=len(flat))  # thrice as fast
    except TypeError:
        values = np.array(flat, dtype=np.float64)
    return values.reshape(-1, len(COLUMNS)).astype(np.float64, copy=False)


def from_rows(rows: Iterable[Sequence[int | None]]) -> tuple[Round, ...]:
    """`rows` in the order of COLUMNS."""
    return tuple(
        Round(int(index or 0), _KINDS[kind], client_ns, tokens, bool(coalesced), *rest)
        for index, kind, client_ns, tokens, coalesced, *rest in rows
    )


def summarise(matrix: Matrix) -> dict[str, Any]:
    """The columns of `request_summary`, without its id. Missing quantities are None, never 0."""
    column = {name: matrix[:, i] for i, name in enumerate(COLUMNS)}
    speculative = column["kind"] != _Q1
    stepped = speculative & ~np.isnan(column["engine_ns"])
    summary: dict[str, Any] = {
        "sum_accepted": _sum(column["accepted"][stepped]),
        "sum_drafted": _sum(column["drafted"][stepped]),
        "sum_emitted": _first(_sum(column["emitted"][~np.isnan(column["engine_ns"])]), _sum(column["client_tokens"])),
        "accepted_histogram": _histogram(column["accepted"][stepped]),
    }
    return summary | _times("client", column["client_ns"][speculative]) | _times("engine", column["engine_ns"][stepped])


def lag1(times: NDArray[np.float64]) -> float | None:
    """Lag-1 autocorrelation; None where it is undefined."""
    centred = times - times.mean() if len(times) else times
    power = float(centred @ centred)
    return float(centred[:-1] @ centred[1:]) / power if len(times) > 2 and power > 0 else None


def same_summary(stored: Mapping[str, Any], again: Mapping[str, Any]) -> str | None:
    """The first column that differs; floats may differ in the last digits between machines."""
    for name, value in again.items():
        kept = stored[name]
        if isinstance(value, float) and kept is not None:
            if not np.isclose(value, kept, rtol=1e-9, atol=1e-12):
                return name
        elif value != kept:
            return name
    return None


def _times(source: str, values: NDArray[np.float64]) -> dict[str, Any]:
    times = values[~np.isnan(values)]
    prefix = f"{source}_round"
    summary: dict[str, Any] = {f"n_{source}_rounds": len(times), f"{prefix}_lag1": lag1(times)}
    figures = [times.mean(), *_quantiles(np.sort(times))] if len(times) else [None] * 4
    for name, figure in zip(("mean", "p50", "p90", "p99"), figures, strict=True):
        summary[f"{prefix}_{name}_ns"] = None if figure is None else float(figure)
    return summary


def _quantiles(ordered: NDArray[np.float64]) -> Iterator[float]:
    """p50, p90, p99 as numpy's linear method has them, without its overhead per call; a test compares."""
    for q in (0.5, 0.9, 0.99):
        at = q * (len(ordered) - 1)
        below = int(at)
        above = min(below + 1, len(ordered) - 1)
        yield float(ordered[below] + (at - below) * (ordered[above] - ordered[below]))


def _sum(counts: NDArray[np.float64]) -> int | None:
    """None unless every round reported its count."""
    return int(counts.sum()) if len(counts) and not np.isnan(counts).any() else None


def _histogram(accepted: NDArray[np.float64]) -> str | None:
    complete = len(accepted) and not np.isnan(accepted).any()
    return canonical_json(np.bincount(accepted.astype(np.int64)).tolist()) if complete else None


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)
