"""Successive halving: many candidates against one control, the worse half left out after each round.

Every round gives those that are left twice the startups of the round before, so each round costs about the same
(Karnin, Koren & Somekh, Almost Optimal Exploration in Multi-Armed Bandits, 2013). A round selects and proves nothing:
the winner's effect is biased by having been chosen, and only startups that no round has seen say how large it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Entrant:
    """What one round found of a candidate. `effect` is a logarithm, negative is faster; `fault` leaves it out."""

    name: str
    effect: float | None
    fault: str = ""


def survivors(entrants: Sequence[Entrant]) -> tuple[str, ...]:
    """The faster half, rounded up, in their own order; candidates with a fault or without an effect never stay."""
    sound = [entrant for entrant in entrants if not entrant.fault and entrant.effect is not None]
    best = sorted(sound, key=lambda entrant: (entrant.effect, entrants.index(entrant)))[: (len(entrants) + 1) // 2]
    return tuple(entrant.name for entrant in entrants if entrant in best)


def rounds(n_candidates: int, startups: int) -> tuple[tuple[int, int], ...]:
    """(candidates, startups of each) of every round until one is left, if none falls out by a fault."""
    found = []
    while n_candidates > 1:
        found.append((n_candidates, startups))
        n_candidates, startups = (n_candidates + 1) // 2, 2 * startups
    return tuple(found)
