"""How much of the spread of startups lies between the devices (or hosts) that they ran on.

One-way random effects, unbalanced, by the analysis of variance (Searle, Casella & McCulloch, Variance Components, 1992,
section 3.6). Knows numbers and labels, nothing of devices.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Component:
    """Standard deviations in the unit of the values. `between` is 0 where the groups differ less than their members."""

    n_groups: int
    n: int
    between: float
    within: float
    p: float  # of the F test of no difference between the groups


def component(values: Mapping[int, float], group_of: Mapping[int, str]) -> Component | None:
    """None where it cannot be told: fewer than two groups, or no group with two values."""
    from scipy.special import fdtrc  # a third of a second that most commands need not pay

    groups: dict[str, list[float]] = {}
    for key, value in values.items():
        if key in group_of:
            groups.setdefault(group_of[key], []).append(value)
    sizes = np.array([len(group) for group in groups.values()], dtype=float)
    n, n_groups = int(sizes.sum()), len(groups)
    if n_groups < 2 or n == n_groups:
        return None
    means = np.array([np.mean(group) for group in groups.values()])
    whole = float((sizes * means).sum() / n)
    within_ms = sum(float(((np.array(g) - np.mean(g)) ** 2).sum()) for g in groups.values()) / (n - n_groups)
    between_ms = float((sizes * (means - whole) ** 2).sum()) / (n_groups - 1)
    size = (n - float((sizes**2).sum()) / n) / (n_groups - 1)  # n0: the size that a balanced design would have
    ratio = between_ms / within_ms if within_ms > 0 else (math.inf if between_ms > 0 else 0.0)
    return Component(
        n_groups=n_groups,
        n=n,
        between=math.sqrt(max(0.0, (between_ms - within_ms) / size)),
        within=math.sqrt(within_ms),
        p=float(fdtrc(n_groups - 1, n - n_groups, ratio)),
    )
