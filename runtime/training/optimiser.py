"""Muon for the matrices inside the layers, AdamW for everything else, under one learning-rate factor.

Muon (K. Jordan, 2024) takes the momentum of a matrix and replaces its singular values by roughly one, with five
Newton-Schulz steps of an odd quintic. Matrices of one shape are treated together. Embeddings, codebooks, norms,
convolutions and decay parameters are AdamW's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_STEPS = 5
_MOMENTUM = 0.95
_DECAY = 0.01
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
    """`rate` is AdamW's peak; Muon's is `muon_ratio` times that. `step(factor)` scales both."""

    def __init__(self, leaves: Mapping[str, Tensor], rate: float, muon_ratio: float = 8.0) -> None:
        self._muon = [leaf for name, leaf in leaves.items() if _is_inner_matrix(name, leaf)]
        others = [leaf for name, leaf in leaves.items() if not _is_inner_matrix(name, leaf)]
        self._rate, self._muon_rate = rate, rate * muon_ratio
        self._adam = torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0, foreach=True)
        self._momentum = [torch.zeros_like(leaf) for leaf in self._muon]
        self._leaves = list(leaves.values())

    def step(self, factor: float) -> None:
        """Clip, update, and forget the gradients."""
        torch.nn.utils.clip_grad_norm_(self._leaves, 1.0, foreach=True)
        self._adam.param_groups[0]["lr"] = self._rate * factor
        self._adam.step()
        self._muon_step(self._muon_rate * factor)
        for leaf in self._leaves:
            leaf.grad = None

    @torch.no_grad()
    def _muon_step(self, rate: float) -> None:
        gradients = [leaf.grad for leaf in self._muon]
        torch._foreach_mul_(self._momentum, _MOMENTUM)
        torch._foreach_add_(self._momentum, gradients)
        looked_ahead = torch._foreach_add(gradients, self._momentum, alpha=_MOMENTUM)
        torch._foreach_mul_(self._muon, 1 - rate * _DECAY)
        for shape in {leaf.shape for leaf in self._muon}:
            chosen = [i for i, leaf in enumerate(self._muon) if leaf.shape == shape]
            updates = orthogonal(torch.stack([looked_ahead[i] for i in chosen]))
            scale = -rate * max(1.0, shape[0] / shape[1]) ** 0.5
            torch._foreach_add_([self._muon[i] for i in chosen], list(updates.unbind()), alpha=scale)

    def state_dict(self) -> dict[str, Any]:
        return {"adam": self._adam.state_dict(), "momentum": self._momentum}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._adam.load_state_dict(state["adam"])
        for own, saved in zip(self._momentum, state["momentum"], strict=True):
            own.copy_(saved)


def _is_inner_matrix(name: str, leaf: Tensor) -> bool:
    return leaf.ndim == 2 and not any(part in name for part in _ADAM_NAMES)
