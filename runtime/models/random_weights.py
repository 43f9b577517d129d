"""Weights that are made, not read: of a sensible scale, on demand, the same values for a name and a seed."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from runtime.models.shapes import FP32_NAMES, Shapes


def random_weights(
    shapes: Shapes, seed: int, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> "RandomWeights":
    """Weights of a sensible scale made on demand on `device`; the same values for a (name, seed) at every access."""
    return RandomWeights(shapes, seed, torch.device(device), dtype)


class RandomWeights(Mapping[str, Tensor]):
    def __init__(self, shapes: Shapes, seed: int, device: torch.device, dtype: torch.dtype) -> None:
        self.shapes, self.seed, self.device, self.dtype = shapes, seed, device, dtype
        self.order = {name: i for i, name in enumerate(shapes)}

    def __getitem__(self, name: str) -> Tensor:
        shape = self.shapes[name]
        generator = torch.Generator(self.device).manual_seed(self.seed * 1_000_003 + self.order[name])
        value = _initial(name, shape, generator, self.device)
        return value if name.endswith(FP32_NAMES) else value.to(self.dtype)

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)


def _initial(name: str, shape: tuple[int, ...], generator: torch.Generator, device: torch.device) -> Tensor:
    """A random starting value: slow decays, base kernels near the identity tap, matrices by fan-in."""
    noise = torch.empty(shape, device=device)
    if name.endswith("A_log"):
        return noise.uniform_(0.01, 1, generator=generator).log()
    noise.normal_(generator=generator)
    if name.endswith("base_kernel"):
        noise.mul_(0.1)[:, 0].add_(1)
        return noise
    if name.endswith(("dt_bias", "linear_attn.norm.weight")):
        return noise.mul_(0.1).add_(1)
    if name.endswith("norm.weight") or len(shape) == 1:
        return noise.mul_(0.1)
    return noise.mul_(1.0 if "codebook" in name else shape[-1] ** -0.5)
