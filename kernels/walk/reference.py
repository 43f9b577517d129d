"""The numerical contract of the walk, in Python's FP64: softmax of a row's scores at the temperature, then a race.

The token is the argmax of `law / exponential(token)` (the first of equals), or the first of the largest scores where
the walk is greedy, whose law is a point mass.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kernels import plain_noise as noise

if TYPE_CHECKING:
    import torch

    from kernels.walk.problem import Draws


def walk(scores: torch.Tensor, candidates: torch.Tensor, draws: Draws) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens [n] int64 and q [n, K] FP64 of finite `scores` [n, K, K]."""
    edges, ids = scores.double().tolist(), candidates.tolist()
    seed, start, temperature = int(draws.seed), int(draws.start), float(draws.temperature)
    tokens, laws, place = [], [], 0
    for row, names in enumerate(ids):
        top, values = max(edges[row][place]), edges[row][place]
        if draws.greedy:
            place = values.index(top)
            law = [float(i == place) for i in range(len(values))]
        else:
            weights = [math.exp((value - top) / temperature) for value in values]
            law = [weight / math.fsum(weights) for weight in weights]
            waits = [noise.exponential(noise.DRAFT, seed, start + 1 + row, name) for name in names]
            races = [p / wait for p, wait in zip(law, waits, strict=True)]
            place = races.index(max(races))
        tokens.append(names[place])
        laws.append(law)
    return candidates.new_tensor(tokens), scores.double().new_tensor(laws)
