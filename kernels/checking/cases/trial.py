"""What every operator's trials have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kernels.registry import Schedule

Outputs = dict[str, Tensor]


class Trial(ABC):
    """One problem with live operands. `states` are values the operands can be set to; the last restores the first."""

    problem: Any
    states: tuple[str, ...] = ("live", "changed", "restored")
    # Those in which a launch reads and writes other places: what a sanitizer has to see.
    places: tuple[str, ...] = ("live",)
    # Whether a launch changes what the next one starts from.
    keeps_state = False

    @property
    def device(self) -> str:
        return self.problem.device

    @abstractmethod
    def set_state(self, state: str) -> None:
        """Change operand values in place; also undo what a run wrote."""

    @abstractmethod
    def launch(self, schedule: Schedule) -> Any:
        """The bare call on the operands as they are: what is timed."""

    @abstractmethod
    def run(self, schedule: Schedule) -> Outputs:
        """Undo what an earlier run wrote, launch, and give every tensor the schedule wrote, by name."""

    @abstractmethod
    def expected(self) -> Outputs:
        """FP64 of what a run from the present state must give, for the names an error is measured on."""

    def least_equal(self, state: str) -> float | None:
        """Least share of 16-bit outputs that must be `expected`, rounded once to nearest even; None asks for nothing.

        An error bound sees neither a rounding too few nor ties that go up: both hide within other roundings.
        """
        return None

    def untouched(self, outputs: Outputs) -> str | None:
        """What changed that must not have, or None."""
        return None


@dataclass(frozen=True)
class Case:
    """A named problem and how to make its trial on a device."""

    id: str
    make: Callable[[str], Trial]
    device: str = "cpu"
    length: int | None = None


class Draw:
    """Random operands that depend on the seed alone, on any device."""

    def __init__(self, seed: int, device: str) -> None:
        self.device = device
        self.generator = torch.Generator(device).manual_seed(seed)

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> Tensor:
        values = torch.randn(*shape, generator=self.generator, device=self.device) * scale
        return values.to(dtype)

    def permutation(self, n: int) -> Tensor:
        return torch.randperm(n, generator=self.generator, device=self.device)

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=self.generator, device=self.device)
