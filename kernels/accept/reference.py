"""The numerical contract of the verdict, in Python's FP64.

A row's law: weights exp((x - top) / T) where top-k (with all ties of the k-th) and min-p keep them, normalised, cut to
the shortest prefix whose mass reaches top-p, normalised again; at temperature 0 a point mass on the first. Draft i is
accepted while u q(draft) < p(draft). The token is drawn from relu(p - q) of the first rejected row, from p where
nothing of it remains or every draft was accepted (Leviathan et al. 2023, Chen et al. 2023).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kernels import plain_noise as noise

if TYPE_CHECKING:
    import torch

    from kernels.accept.problem import Best, Chain, Rule


def judge(best: Best, chain: Chain, bonus: torch.Tensor, rule: Rule) -> torch.Tensor:
    """`packed` int64 [4 + n]."""
    values, ids, drafts = best.values.double().tolist(), best.ids.tolist(), chain.tokens.tolist()
    of_draft = [dict(zip(*pair, strict=True)) for pair in zip(chain.ids.tolist(), chain.q.tolist(), strict=True)]
    _, start, seed = bonus.tolist()
    laws = [dict(zip(names, law(row, rule), strict=True)) for names, row in zip(ids, values, strict=True)]
    accepted = 0
    for i, draft in enumerate(drafts):
        if not noise.uniform(noise.ACCEPT, seed, start + 1 + i) * of_draft[i].get(draft, 0) < laws[i].get(draft, 0):
            break
        accepted += 1
    p, q = laws[accepted], of_draft[accepted] if accepted < len(drafts) else {}
    rest = {name: max(mass - q.get(name, 0), 0.0) for name, mass in p.items()}
    weights = rest if any(rest.values()) else p
    position = start + 1 + accepted
    race = {name: mass / noise.exponential(noise.TARGET, seed, position, name) for name, mass in weights.items()}
    token = max(race, key=lambda name: race[name])
    broken = any(not x > -math.inf for x in best.largest.tolist())
    cut = any(ties(row, rule) for row in values)
    return chain.tokens.new_tensor([broken, cut, accepted, token, *drafts])


def law(row: list[float], rule: Rule) -> list[float]:
    """Probabilities of sorted logits."""
    if rule.greedy:
        return [float(i == 0) for i in range(len(row))]
    least = row[rule.top_k - 1] if 0 < rule.top_k < len(row) else -math.inf
    weights = [math.exp((x - row[0]) / rule.temperature) if x != row[0] else 1.0 for x in row]
    kept = [w if x >= least and w >= rule.min_p else 0.0 for w, x in zip(weights, row, strict=True)]
    p = [w / math.fsum(kept) for w in kept]
    if rule.top_p < 1:
        p = [mass if math.fsum(p[:i]) < rule.top_p else 0.0 for i, mass in enumerate(p)]
    return [mass / math.fsum(p) for mass in p]


def ties(row: list[float], rule: Rule) -> bool:
    """Whether the support may have cut a value off that equals the k-th."""
    cuts = not rule.greedy and not rule.complete and 0 < rule.top_k < len(row)
    return cuts and row[-1] == row[rule.top_k - 1]
