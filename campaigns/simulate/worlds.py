"""Campaigns of known truth: the pairs of thousands at once, before anybody judges them.

A pair's effect is its fixture's truth, plus what the startup does to the candidate (sd `between`, half of its variance
shared by the fixtures), plus pair noise (sd `within`), plus or minus half the order effect, all relative. Bands are
startups that fall into one of two levels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from campaigns.judging.decision import Floats
from campaigns.judging.statistics import PairEffect

NORMAL, AR1 = "normal", "AR(1)"  # pair noise; lag-one correlation a half
TWO_VALUED, ONE_IN_FIVE = "two-valued", "one in five"  # startup effects in bands
_SHARED = 0.5  # of the variance between startups: common to the fixtures


@dataclass(frozen=True)
class Model:
    startups: int
    pairs: int = 6
    between: float = 0.003  # of bands: half their distance
    within: float = 0.005
    truth: float | tuple[float, ...] = 0.0  # of all fixtures, or of each
    fixtures: int = 1
    order: float = 0.0  # how much larger an effect is told with the control first than with the candidate first
    noise: str = NORMAL
    shape: str = NORMAL

    @property
    def control_first(self) -> NDArray[np.bool_]:
        """(startups, pairs): flips from pair to pair and from startup to startup."""
        return np.asarray((np.arange(self.startups)[:, None] + np.arange(self.pairs)) % 2 == 0)

    def draw(self, rng: np.random.Generator, n: int) -> Floats:
        """Effects of n campaigns: (n, fixtures, startups, pairs)."""
        shape = (n, self.fixtures, self.startups, self.pairs)
        truth = np.broadcast_to(np.asarray(self.truth), (self.fixtures,))[:, None, None]
        order = np.where(self.control_first, self.order / 2, -self.order / 2)
        return truth + order + self._startups(rng, n)[..., None] + self.within * _noise(rng, shape, self.noise)

    def _startups(self, rng: np.random.Generator, n: int) -> Floats:
        each = (n, self.fixtures, self.startups)
        if self.shape == TWO_VALUED:  # a band is the process's: all fixtures are in it
            return self.between * np.broadcast_to(rng.choice([-1.0, 1.0], (n, 1, self.startups)), each)
        if self.shape == ONE_IN_FIVE:
            hit = rng.random((n, 1, self.startups)) < 0.2
            return 2 * self.between * np.broadcast_to(hit - 0.2, each)
        common = rng.standard_normal((n, 1, self.startups))
        own = rng.standard_normal(each)
        return self.between * (math.sqrt(_SHARED) * common + math.sqrt(1 - _SHARED) * own)

    def campaign(self, rng: np.random.Generator) -> list[PairEffect]:
        """The pairs of one campaign of one fixture, in the order in which they would run."""
        return pair_effects(self.draw(rng, 1)[0, 0], self.control_first)


def pair_effects(deltas: Floats, control_first: NDArray[np.bool_]) -> list[PairEffect]:
    """(startups, pairs) as a report would read them."""
    return [
        PairEffect(s, float(deltas[s, k]), bool(control_first[s, k]))
        for s in range(deltas.shape[0])
        for k in range(deltas.shape[1])
    ]


def _noise(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> Floats:
    noise = rng.standard_normal(shape)
    if kind == AR1:
        for k in range(1, shape[-1]):
            noise[..., k] = 0.5 * noise[..., k - 1] + math.sqrt(0.75) * noise[..., k]
    return noise
