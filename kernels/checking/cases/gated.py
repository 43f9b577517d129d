"""Gated-projection problems: odd widths, padded rows of x, every weight format, and the 27B target's shapes."""

from __future__ import annotations

from functools import partial

from kernels.checking.cases.projection import ProjectionTrial
from kernels.checking.cases.trial import Case, Outputs
from kernels.gated import OP


class GatedTrial(ProjectionTrial):
    def set_state(self, state: str) -> None:
        # The product of two outputs must stay within FP16.
        self.x.copy_(self.values[state] * 0.1)

    def least_equal(self, state: str) -> float | None:
        # Sums over K in FP32 end on another side of a rounding now and then; one rounding too few shows in a third.
        return 0.9 if state != "zeros" else None

    def expected(self) -> Outputs:
        return {"y": OP.reference(self.x, self.weight)}


def case(
    m: int, n: int, k: int, dtype: str = "float32", form: str = "float32", pad: int = 0, device: str = "cpu"
) -> Case:
    name = f"m{m}-n{n}-k{k}-{dtype}-{form}" + (f"-pad{pad}" if pad else "")
    return Case(name, partial(GatedTrial, m, n, k, dtype, form, pad), device)


CPU = (
    *(case(m, 66, 64) for m in range(1, 9)),
    case(8, 200, 512, "float16", "nvfp4", pad=8),
    case(8, 200, 512, "float16", "fp8", pad=8),
    case(3, 66, 91, "bfloat16", "fp8"),
    case(3, 130, 250, "bfloat16", "bfloat16"),
    case(5, 34, 91, "float16", "float16", pad=4),
    case(2, 6, 13),
)
CUDA = (
    *(case(m, 544, 1024, "float16", "nvfp4", pad=8, device="cuda") for m in range(1, 9)),
    *(case(8, n, 5120, "float16", "nvfp4", device="cuda") for n in (34816, 17408, 8704)),
    case(8, 8704, 5120, "bfloat16", "nvfp4", device="cuda"),
    *(case(m, 546, 1024, "float16", "fp8", pad=8, device="cuda") for m in range(1, 9)),
    *(case(8, n, 5120, "float16", "fp8", device="cuda") for n in (34816, 8704)),
)
CASES = CPU + CUDA
SANITIZED = (CUDA[0], CUDA[4], CUDA[7], CUDA[10], CUDA[19])
HAMMERED = (CUDA[7], CUDA[8], CUDA[10], *CUDA[19:])
WORKING_SETS = {"cpu": ((CPU[8], 16),), "cuda": ((CUDA[8], 16), (CUDA[20], 8))}
