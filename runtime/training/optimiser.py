"""Muon for the matrices inside the layers, Adam for everything else, under one learning-rate factor.

Muon (K. Jordan, 2024) takes the momentum of a matrix and replaces its singular values by roughly one, with five
Newton-Schulz steps of an odd quintic. Matrices of one shape are treated together. Embeddings, codebooks, norms,
convolutions and decay parameters are Adam's (Kingma and Ba, 2015). Whatever changes from step to step lies on the
device, so that a captured step stays right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_STEPS = 5
_MOMENTUM = 0.95
_DECAY = 0.01
_BETAS = (0.9, 0.95)
_EPSILON = 1e-8
_MOST_NORM = 1.0
_ADAM_NAMES = ("embed_tokens", "codebook", "lm_head")


def orthogonal(matrices: Tensor) -> Tensor:
    """Matrices [n, rows, columns] with their singular values moved close to one."""
    a, b, c = _COEFFICIENTS
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(_STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


class Optimiser:
    """`rate` is Adam's peak; Muon's is `muon_ratio` times that. `factor` scales both; set it before a step."""

    def __init__(self, leaves: Mapping[str, Tensor], rate: float, muon_ratio: float = 8.0) -> None:
        self._leaves = list(leaves.values())
        muon = [leaf for name, leaf in leaves.items() if _is_inner_matrix(name, leaf)]
        others = [leaf for name, leaf in leaves.items() if not _is_inner_matrix(name, leaf)]
        self.factor = torch.zeros((), device=self._leaves[0].device)
        self._muon, self._adam = Muon(muon, rate * muon_ratio), Adam(others, rate)

    @torch.no_grad()
    def step(self) -> None:
        """Clip, update, and forget the gradients."""
        torch.nn.utils.clip_grad_norm_(self._leaves, _MOST_NORM, foreach=True)
        self._adam.step(self.factor)
        self._muon.step(self.factor)
        for leaf in self._leaves:
            leaf.grad = None

    def state_dict(self) -> dict[str, Any]:
        return {"adam": self._adam.state, "muon": self._muon.state}

    def load_state_dict(self, state: Mapping[str, Sequence[Tensor]]) -> None:
        for own, saved in zip(self._adam.state + self._muon.state, [*state["adam"], *state["muon"]], strict=True):
            own.copy_(saved)


class Adam:
    def __init__(self, leaves: Sequence[Tensor], rate: float) -> None:
        self._leaves, self._rate = leaves, rate
        self._count = torch.zeros((), device=leaves[0].device)
        self._first, self._second = ([torch.zeros_like(leaf) for leaf in leaves] for _ in range(2))

    @property
    def state(self) -> list[Tensor]:
        return [self._count, *self._first, *self._second]

    def step(self, factor: Tensor) -> None:
        gradients = [leaf.grad for leaf in self._leaves]
        self._count += 1
        torch._foreach_lerp_(self._first, gradients, 1 - _BETAS[0])
        torch._foreach_mul_(self._second, _BETAS[1])
        torch._foreach_addcmul_(self._second, gradients, gradients, 1 - _BETAS[1])
        spread = torch._foreach_sqrt(self._second)
        torch._foreach_div_(spread, (1 - _BETAS[1] ** self._count).sqrt())
        torch._foreach_add_(spread, _EPSILON)
        updates = torch._foreach_div(self._first, spread)
        torch._foreach_mul_(updates, factor * self._rate / (1 - _BETAS[0] ** self._count))
        torch._foreach_sub_(self._leaves, updates)


class Muon:
    def __init__(self, leaves: Sequence[Tensor], rate: float) -> None:
        self._leaves, self._rate = leaves, rate
        self.state = [torch.zeros_like(leaf) for leaf in leaves]
        shapes = dict.fromkeys(leaf.shape for leaf in leaves)
        self._alike = [[i for i, leaf in enumerate(leaves) if leaf.shape == shape] for shape in shapes]

    def step(self, factor: Tensor) -> None:
        gradients, rate = [leaf.grad for leaf in self._leaves], factor * self._rate
        torch._foreach_mul_(self.state, _MOMENTUM)
        torch._foreach_add_(self.state, gradients)
        looked_ahead = torch._foreach_add(gradients, self.state, alpha=_MOMENTUM)
        torch._foreach_mul_(self._leaves, 1 - rate * _DECAY)
        for chosen in self._alike:
            rows, columns = self._leaves[chosen[0]].shape
            updates = orthogonal(torch.stack([looked_ahead[i] for i in chosen]))
            updates = updates * (rate * max(1.0, rows / columns) ** 0.5)
            torch._foreach_sub_([self._leaves[i] for i in chosen], list(updates.unbind()))


def _is_inner_matrix(name: str, leaf: Tensor) -> bool:
    return leaf.ndim == 2 and not any(part in name for part in _ADAM_NAMES)
