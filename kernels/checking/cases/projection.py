"""Projection problems: odd widths, every weight format, padded rows of x, and the 27B target's shapes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from kernels.checking.cases.trial import Case, Draw, Outputs, Trial
from kernels.checking.compare import inside_poison
from kernels.projection import OP, DenseWeight, Weight, fp8, problem_of
from kernels.projection.nvfp4 import E4M3_MAX, Nvfp4Weight, padded, quantise
from kernels.registry import Schedule

# (n, k) of the fused projections of the 27B target on one rank, by tensor-parallel degree.
TARGET = {
    1: ((16480, 5120), (14336, 5120), (34816, 5120), (5120, 6144), (5120, 17408)),
    2: ((8240, 5120), (7168, 5120), (17408, 5120), (5120, 3072), (5120, 8704)),
    4: ((4120, 5120), (3584, 5120), (8704, 5120), (5120, 1536), (5120, 4352)),
}
PADDING = 32


def weight_of(draw: Draw, n: int, k: int, form: str) -> Weight:
    """A random weight in `form`; NVFP4 weights of any width come padded to 32 physical columns."""
    if form == "fp8":
        made = fp8.quantise(draw.normal(n, k, scale=k**-0.5) * (1 + draw.integers(0, 9, n, 1)))
        return replace(made, codes=inside_poison(made.codes), scales=inside_poison(made.scales))
    if form != "nvfp4":
        return DenseWeight(draw.normal(n, k, dtype=getattr(torch, form), scale=k**-0.5))
    if n * k < 1 << 20:
        made = padded(quantise(draw.normal(n, k)), PADDING)
        return replace(made, packed=inside_poison(made.packed), scales=inside_poison(made.scales))
    packed = draw.integers(0, 256, n, k // 2).byte()
    scales = (draw.normal(n, k // 16).abs() * 64).clamp(max=E4M3_MAX).to(torch.float8_e4m3fn)
    return padded(Nvfp4Weight(packed, scales, 1000.0, n), PADDING)


class ProjectionTrial(Trial):
    states = ("live", "zeros", "changed", "restored")

    wide = False

    def __init__(self, m: int, n: int, k: int, dtype: str, form: str, pad: int, device: str) -> None:
        draw = Draw(m * 1_000_003 + n * 1_009 + k, device)
        self.weight = weight_of(draw, n, k, form)
        values = draw.normal(m, k, dtype=getattr(torch, dtype))
        self.values = {"live": values, "restored": values, "zeros": values * 0, "changed": values.flip(0) * 3}
        self.x = inside_poison(values, pad)
        self.problem = problem_of(self.x, self.weight, self.wide)

    def set_state(self, state: str) -> None:
        self.x.copy_(self.values[state])

    def launch(self, schedule: Schedule) -> Tensor:
        return schedule.run(self.x, self.weight)

    def run(self, schedule: Schedule) -> Outputs:
        return {"y": self.launch(schedule)}

    def expected(self) -> Outputs:
        return {"y": OP.reference(self.x, self.weight)}


class WideTrial(ProjectionTrial):
    """FP32 outputs: a 4-bit head's logits, a rank's partial sums."""

    wide = True

    def launch(self, schedule: Schedule) -> Tensor:
        if schedule.refusal(self.problem):  # a parent that rounds: its error bounds theirs
            return schedule.run(self.x, self.weight).float()
        return schedule.run(self.x, self.weight, True)


def case(
    m: int, n: int, k: int, dtype: str = "float32", form: str = "float32", pad: int = 0, device: str = "cpu",
    made: type[ProjectionTrial] = ProjectionTrial,
) -> Case:  # fmt: skip
    name = f"m{m}-n{n}-k{k}-{dtype}-{form}" + (f"-pad{pad}" if pad else "") + ("-wide" if made.wide else "")
    return Case(name, partial(made, m, n, k, dtype, form, pad), device)


HEAD = (62080, 5120)  # a quarter of the 27B target's: the FP64 reference of all of it takes 15 GB
CPU = (
    *(case(m, n, k) for m in range(1, 9) for n, k in ((1, 1), (33, 17), (257, 64), (100, 250))),
    case(16, 512, 256),
    case(8, 384, 2048, pad=3),
    case(3, 31, 33000),
    case(2, 64, 48, form="nvfp4"),  # no padding behind the last column
    *(case(m, 101, 1072, dtype, form, pad=8) for m, dtype, form in (
        (1, "float32", "bfloat16"), (8, "float16", "float16"), (5, "bfloat16", "bfloat16"), (7, "float32", "nvfp4"),
        (8, "float16", "nvfp4"), (1, "bfloat16", "nvfp4"), (7, "float32", "fp8"), (8, "float16", "fp8"),
        (1, "bfloat16", "fp8"),
    )),
    *(case(m, 101, 1072, dtype, form, 8, "cpu", WideTrial) for m, dtype, form in (
        (8, "float16", "nvfp4"), (3, "bfloat16", "bfloat16"), (1, "float16", "float16"), (8, "float16", "fp8"),
    )),
)  # fmt: skip
NARROW = case(8, 544, 1024, "float16", "nvfp4", 8, "cuda", WideTrial)
WIDEST = case(8, *HEAD, "float16", "nvfp4", 0, "cuda", WideTrial)
CUDA = (
    *(case(m, 544, 1024, "float16", "nvfp4", pad=8, device="cuda") for m in range(1, 9)),
    *(case(8, n, k, "float16", "nvfp4", device="cuda") for shapes in TARGET.values() for n, k in shapes),
    case(8, 4120, 5120, "bfloat16", "nvfp4", device="cuda"),
    *(case(m, 544, 1024, "float16", "nvfp4", 8, "cuda", WideTrial) for m in (1, 7)),
    NARROW,
    WIDEST,
    *(case(m, 545, 1024, "float16", "fp8", pad=8, device="cuda") for m in range(1, 9)),
    *(case(8, n, k, "float16", "fp8", device="cuda") for n, k in (*TARGET[1], *TARGET[4])),
    case(3, 545, 1024, "bfloat16", "fp8", device="cuda"),
    *(case(m, 545, 1024, "float16", "fp8", 8, "cuda", WideTrial) for m in (1, 8)),
)
FP8 = case(8, 545, 1024, "float16", "fp8", pad=8, device="cuda")
CASES = CPU + CUDA
SANITIZED = (
    CUDA[0],
    CUDA[4],
    CUDA[7],
    NARROW,
    FP8,
    *(case(8, n, k, "float16", "nvfp4", device="cuda") for n, k in TARGET[4]),
)
HAMMERED = (
    CUDA[7],
    NARROW,
    WIDEST,
    FP8,
    *(case(8, n, k, "float16", "fp8", device="cuda") for n, k in ((5120, 6144), (16480, 5120), (5120, 1536))),
    *(case(8, n, k, "float16", "nvfp4", device="cuda") for n, k in (*TARGET[1], (5120, 1536))),
)

# What one pass over a model's layers costs: (problem, distinct layers) by device.
WORKING_SETS = {
    "cpu": ((case(8, 512, 256), 16), (case(8, 512, 256, "float32", "nvfp4"), 16)),
    "cuda": tuple((case(8, 34816, 5120, "float16", form, device="cuda"), 8) for form in ("nvfp4", "fp8")),
}
