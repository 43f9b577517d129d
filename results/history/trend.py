"""Paired effects of one fixture over campaigns: the one statement that may cross campaigns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pandas as pd

from campaigns.errors import UsageError
from results.history.entries import EVERYTHING, Filter, history
from results.reports import figures
from results.reports.svg import png, svg
from results.store.reader import Reader

COLUMNS = (
    "created_utc",
    "campaign_id",
    "control",
    "candidate",
    "n_startups",
    "effect_pct",
    "lowest_pct",
    "highest_pct",
    "noise_floor_pct",
    "verdict",
)
_COLOURS = {
    "currentColor": "#1b1f24",
    "var(--faint)": "#818b98",
    "var(--control)": "#0969da",
    "var(--candidate)": "#bc4c00",
    "var(--band)": "#dde3ea",
}


def trend(reader: Reader, fixture: str, wanted: Filter = EVERYTHING) -> pd.DataFrame:
    """Rows of the history of exactly this fixture; UsageError where none measured it."""
    found = history(reader, replace(wanted, fixture=fixture))
    exact = found[(found.fixture == fixture) & found.effect_pct.notna()]
    if exact.empty:
        names = ", ".join(dict.fromkeys(history(reader, replace(wanted, fixture="")).fixture)) or "none"
        raise UsageError(f"no campaign measured {fixture!r}; there are {names}")
    return exact


def png_figure(effects: pd.DataFrame, fixture: str) -> bytes:
    """The same picture for places that take no SVG."""
    drawn = png(lambda ax: figures.trend(ax, effects), _COLOURS)
    assert drawn is not None, "trend() gives at least one row"
    return drawn


def figure(effects: pd.DataFrame, fixture: str) -> str:
    """An SVG file of its own: the page's colours are written into it."""
    drawn = svg(lambda ax: figures.trend(ax, effects), f"{fixture}: paired effects over time")
    assert drawn is not None, "trend() gives at least one row"
    for variable, colour in _COLOURS.items():
        drawn = drawn.replace(variable, colour)
    return drawn.replace(
        "<svg ", '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" ', 1
    )


FIGURES: dict[str, Callable[[pd.DataFrame, str], str | bytes]] = {".svg": figure, ".png": png_figure}
