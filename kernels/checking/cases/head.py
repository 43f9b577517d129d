"""Head problems: 16-bit rows against dense and NVFP4 weights, and widths of the 27B target's vocabulary."""

from __future__ import annotations

from functools import partial

from kernels.checking.cases.projection import ProjectionTrial
from kernels.checking.cases.trial import Case

VOCABULARY, HIDDEN = 248320, 5120


def case(m: int, n: int, k: int, dtype: str, form: str, pad: int = 0, device: str = "cpu") -> Case:
    name = f"m{m}-n{n}-k{k}-{dtype}-{form}" + (f"-pad{pad}" if pad else "")
    return Case(name, partial(ProjectionTrial, m, n, k, dtype, form, pad), device)


CPU = (
    case(8, 8200, 64, "float16", "float16", pad=8),
    case(3, 101, 250, "bfloat16", "bfloat16"),
    case(8, 9001, 128, "float16", "nvfp4"),
    case(1, 31, 1072, "bfloat16", "nvfp4", pad=3),
)
CUDA = (
    *(case(m, 544, 1024, "float16", "nvfp4", pad=8, device="cuda") for m in range(1, 9)),
    case(8, 4120, HIDDEN, "float16", "nvfp4", device="cuda"),
    case(8, VOCABULARY, HIDDEN, "float16", "nvfp4", device="cuda"),
    case(8, VOCABULARY // 4, HIDDEN, "bfloat16", "bfloat16", device="cuda"),
)
CASES = CPU + CUDA
SANITIZED = (CUDA[0], CUDA[4], CUDA[7], CUDA[8])
HAMMERED = (CUDA[7], CUDA[8], CUDA[9])
WORKING_SETS = {"cpu": ((CPU[0], 8),), "cuda": ((CUDA[9], 2),)}
