"""What earlier startups of the same host and build say of equal arms: the noise floor of a headline, and bands.

A band is a level that whole startups fall into (where the memory of a process landed, which cores it got). Few startups
that share one look like an effect with a tight interval, and no interval from them can know better; earlier ones can.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from campaigns.judging.decision import null_floor
from campaigns.judging.statistics import Interval, NoiseFloor

MIN_PAST = 3  # startups that lend a floor
MIN_BANDS = 8  # startups in which bands can be told from chance
MIN_APART = 0.0025  # half the margin of equivalence: closer bands change no word that matters
FEW = 5  # startups below which one band can hold them all


@dataclass(frozen=True)
class Past:
    """Of one fixture, or of the mean over fixtures. Effects and levels are logarithms."""

    aa: tuple[float, ...] = ()  # startup medians of A/A campaigns
    ab: tuple[float, ...] = ()  # of earlier A/B campaigns, less their campaign's mean
    levels: tuple[float, ...] = ()  # of the same control arm in earlier startups

    @property
    def startups(self) -> tuple[float, ...]:
        return self.aa + self.ab

    def bands(self, levels_now: Sequence[float]) -> float | None:
        """How far apart the levels lie that startups were seen to fall into; None where they fall into one."""
        found = [bands(self.startups), bands((*self.levels, *levels_now))]
        return max((distance for distance in found if distance is not None), default=None)


NO_PAST = Past()


def centred(medians: Sequence[float]) -> tuple[float, ...]:
    """Startup effects less their mean, stretched by what the mean took of their spread; nothing below two."""
    n = len(medians)
    if n < 2:
        return ()
    mean = math.fsum(medians) / n
    return tuple((m - mean) * math.sqrt(n / (n - 1)) for m in medians)


def bands(values: Sequence[float]) -> float | None:
    """The distance of the two groups that the widest gap parts, where it is wide against the spread inside them.

    The limit 1 + 24/n lets 5 % or less of normal samples of n values pass for bands (simulated, n = 8 … 60).
    """
    n = len(values)
    if n < MIN_BANDS:
        return None
    ordered = np.sort(np.asarray(values, dtype=float))
    at = int(np.argmax(np.diff(ordered))) + 1
    low, high = ordered[:at], ordered[at:]
    inside = float(((low - low.mean()) ** 2).sum() + ((high - high.mean()) ** 2).sum()) / (n - 2)
    apart = float(high.mean() - low.mean())
    wide = high[0] - low[-1] > (1 + 24 / n) * math.sqrt(inside)
    return apart if wide and apart > MIN_APART else None


def noise_floor(
    past: Past, n_startups: int, own: Interval | None, resolution: float | None, apart: float | None
) -> NoiseFloor | None:
    """What the headline of `n_startups` equal startups reaches; None below three startups.

    From earlier startups, drawn as often as this campaign has them; without any, the campaign's own half width. Never
    below the client's resolution, and below five startups never below the distance of known bands.
    """
    if own is None:
        return None
    value, source = own.half_width, "no A/A"
    if len(past.startups) >= MIN_PAST:
        value = float(null_floor(np.asarray(past.startups), n_startups))
        source = "; ".join(f"{name}, {len(m)} startups" for name, m in (("A/A", past.aa), ("A/B", past.ab)) if m)
    if apart is not None and n_startups < FEW and apart > value:
        value, source = apart, f"{source}; bands of startups are {100 * math.expm1(apart):.2f} % apart"
    return NoiseFloor(max(value, resolution or 0.0), source)
