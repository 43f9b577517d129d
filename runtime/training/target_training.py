"""Training the target: next-token cross-entropy over the assistant's tokens, one cosine.

Weights are FP32 leaves; each step casts them to the compute type and assembles the runtime's own decoder from them, so
what is trained is what is served.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels.routes import Routes
from runtime.config import TargetConfig
from runtime.models.shapes import Shapes
from runtime.models.target import Target
from runtime.operators import Operators
from runtime.training.optimiser import Optimiser
from runtime.training.packed import PackedStep
from runtime.training.presets import Schedule
from runtime.training.replay import Replay
from runtime.training.text import IGNORED, Batch

Leaves = dict[str, Tensor]
Report = Callable[[int, Tensor], None]


def initial_leaves(shapes: Shapes, num_layers: int, zero_centred: bool, seed: int, device: torch.device) -> Leaves:
    """Fresh FP32 leaves; outputs of sub-blocks start small. `zero_centred` norms scale by 1 + weight."""
    generator = torch.Generator().manual_seed(seed)
    leaves = {}
    for name, shape in shapes.items():
        if name.endswith("norm.weight"):
            zero = zero_centred and not name.endswith("linear_attn.norm.weight")
            value = torch.zeros(shape) if zero else torch.ones(shape)
        else:
            value = _initial(name, shape, num_layers, generator)
        leaves[name] = value.to(device).requires_grad_(True)
    return leaves


def _initial(name: str, shape: tuple[int, ...], num_layers: int, generator: torch.Generator) -> Tensor:
    if name.endswith("A_log"):
        return torch.empty(shape).uniform_(1.0, 8.0, generator=generator).log()
    if name.endswith("dt_bias"):
        step = torch.empty(shape).uniform_(math.log(1e-3), math.log(1e-1), generator=generator).exp()
        return step + torch.log(-torch.expm1(-step))
    if name.endswith("conv1d.weight"):
        return torch.empty(shape).uniform_(-0.5, 0.5, generator=generator)
    if name.endswith("base_kernel"):
        kernel = torch.zeros(shape)
        kernel[:, 0] = 1.0
        return kernel
    if name.endswith("kernel_projection.weight"):
        return torch.zeros(shape)
    spread = 0.02 if "embed" in name else shape[-1] ** -0.5
    if "codebook" in name:
        spread = 0.1
    if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")):
        spread /= math.sqrt(2 * num_layers)
    return torch.empty(shape).normal_(0.0, spread, generator=generator)


def rate_factor(step: int, schedule: Schedule) -> float:
    """Linear warm-up to 1, then half a cosine down to a fiftieth."""
    if step < schedule.warm_up:
        return (step + 1) / schedule.warm_up
    progress = (step - schedule.warm_up) / max(1, schedule.steps - schedule.warm_up)
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def assemble(
    config: TargetConfig, leaves: Mapping[str, Tensor], dtype: torch.dtype, aux: tuple[int, ...] = ()
) -> Target:
    cast = {name: leaf if name.endswith(("A_log", "dt_bias")) else leaf.to(dtype) for name, leaf in leaves.items()}
    return Target(config, cast, Operators(Routes.differentiable()), aux)


def target_loss(model: Target, batch: Batch) -> Tensor:
    """Mean cross-entropy over counted tokens."""
    hidden = model.sequence(batch.ids, PackedStep(model.rotary, batch.rows)).hidden
    return F.cross_entropy(logits_of(model, hidden).flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORED)


def logits_of(model: Target, hidden: Tensor) -> Tensor:
    """FP32 logits. The served head's mixed product on CUDA has no derivative; this one has."""
    return F.linear(hidden.float(), model.head.weight.float())


class TargetTrainer:
    """The state of one run; `state` and `resume` make it continue where it stopped."""

    def __init__(self, config: TargetConfig, leaves: Leaves, schedule: Schedule, dtype: torch.dtype) -> None:
        self.config, self.leaves, self.schedule, self.dtype = config, leaves, schedule, dtype
        self.optimiser = Optimiser(leaves, schedule.rate)
        self.step = 0
        self._replay = Replay(self._update)

    def run(self, batches: Iterable[Batch], report: Report) -> None:
        for batch in batches:
            if self.step >= self.schedule.steps:
                return
            self.optimiser.factor.fill_(rate_factor(self.step, self.schedule))
            report(self.step, self._replay(batch.ids, batch.targets, batch.rows).clone())
            self.step += 1

    def _update(self, ids: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
        loss = target_loss(assemble(self.config, self.leaves, self.dtype), Batch(ids, targets, rows))
        loss.backward()
        self.optimiser.step()
        return loss.detach()
