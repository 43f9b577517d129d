"""Plots as SVG that need no script: each mark is a link or focusable, and its title says value and origin.

Drawn by hand because a mark must know what it stands for; matplotlib's know coordinates alone. Texts are escaped where
they are put in. Knows rows, no store.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

_WIDTH, _HEIGHT = 720, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 16, 12, 34
_CHARACTER = 7.5  # of a label, at most, in the picture's units
MARKS = ("circle", "square", "triangle", "diamond")
KINDS = len(MARKS) ** 2  # of colour and shape together


@dataclass(frozen=True)
class Mark:
    """One value in percent; `low` and `high` draw a bar through it. `column` counts from 0."""

    column: float
    value: float
    title: str
    kind: int = 0  # which colour and shape together, below KINDS
    low: float | None = None
    high: float | None = None
    href: str = ""


def chart(marks: Sequence[Mark], columns: Sequence[str], label: str, band: float = 0.0) -> Markup:
    """Percent over named columns, zero as a line; `band` shades -band … +band."""
    if not marks:
        return Markup("")
    ends = [v for m in marks for v in (m.value, m.low, m.high) if v is not None]
    low, high = min(0.0, *ends), max(0.0, *ends)
    room = 0.08 * (high - low or 1.0)
    scale = _Scale(low - room, high + room, len(columns))
    parts = [*_axes(scale, columns, band), *(piece for mark in marks for piece in _mark(scale, mark))]
    return Markup(
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="group" aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


@dataclass(frozen=True)
class _Scale:
    low: float
    high: float
    num_columns: int

    def x(self, column: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (column + 0.5) / max(1, self.num_columns)

    def y(self, value: float) -> float:
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (self.high - value) / (self.high - self.low)

    def ticks(self) -> list[float]:
        raw = (self.high - self.low) / 5
        step = 10 ** math.floor(math.log10(raw))
        step *= next(factor for factor in (1, 2, 5, 10) if step * factor >= raw)
        return [step * i for i in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]


def _axes(scale: _Scale, columns: Sequence[str], band: float) -> Iterator[str]:
    right = _WIDTH - _RIGHT
    if band:
        top, bottom = scale.y(min(band, scale.high)), scale.y(max(-band, scale.low))
        yield f'<rect class="band" x="{_LEFT}" y="{top:.1f}" width="{right - _LEFT}" height="{bottom - top:.1f}"/>'
    for tick in scale.ticks():
        y = scale.y(tick)
        yield f'<line class="{"zero" if not tick else "grid"}" x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_tick(tick)}</text>'
    widest = max(map(len, columns), default=0) * _CHARACTER + 2 * _CHARACTER
    every = max(1, math.ceil(len(columns) * widest / (right - _LEFT)))
    for i in range(0, len(columns), every):
        yield f'<text x="{scale.x(i):.1f}" y="{_HEIGHT - 10}" text-anchor="middle">{escape(columns[i])}</text>'


def _tick(value: float) -> str:
    return f"{value:+g} %" if value else "0 %"


def _mark(scale: _Scale, mark: Mark) -> Iterator[str]:
    x, y = scale.x(mark.column), scale.y(mark.value)
    title = escape(mark.title)
    opened = f'<a href="{escape(mark.href)}">' if mark.href else '<g tabindex="0">'
    yield f'{opened}<title>{title}</title><g class="mark kind-{mark.kind % len(MARKS)}">'
    if mark.low is not None and mark.high is not None:
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{scale.y(mark.high):.1f}" y2="{scale.y(mark.low):.1f}"/>'
    yield f"{_shape(mark.kind, x, y)}</g>{'</a>' if mark.href else '</g>'}"


def _shape(kind: int, x: float, y: float) -> str:
    shape = MARKS[(kind + kind // len(MARKS)) % len(MARKS)]
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5"/>'
    points = {
        "square": ((-4.5, -4.5), (4.5, -4.5), (4.5, 4.5), (-4.5, 4.5)),
        "triangle": ((0, -6), (5.5, 4.5), (-5.5, 4.5)),
        "diamond": ((0, -6), (6, 0), (0, 6), (-6, 0)),
    }[shape]
    return f'<polygon points="{" ".join(f"{x + a:.1f},{y + b:.1f}" for a, b in points)}"/>'


def legend(names: Sequence[str]) -> Markup:
    """Which mark is which name; behind KINDS of them marks come again."""
    items = (
        f'<li><svg viewBox="0 0 14 14" width="14" height="14" aria-hidden="true"><g class="mark kind-{i % len(MARKS)}">'
        f"{_shape(i, 7, 7)}</g></svg> {escape(name)}</li>"
        for i, name in enumerate(names[:KINDS])
    )
    more = f"<li>{len(names) - KINDS} more, drawn like those</li>" if len(names) > KINDS else ""
    return Markup(f'<ul class="legend">{"".join(items)}{more}</ul>')
