"""Projections of many rows: the problems of `projection`, longer, and the 27B target's widest shape."""

from __future__ import annotations

from kernels.checking.cases.projection import WideTrial, case

CPU = (
    case(17, 100, 250),
    case(40, 33, 64, "bfloat16", "bfloat16", pad=8),
    case(33, 101, 1072, "float16", "nvfp4", pad=8),
    case(33, 101, 1072, "float16", "fp8", pad=8),
    case(33, 101, 1072, "float16", "nvfp4", 8, "cpu", WideTrial),
)
CUDA = (
    *(case(m, 101, 1072, "float16", "nvfp4", pad=8, device="cuda") for m in (17, 64, 333)),
    case(64, 4120, 5120, "bfloat16", "nvfp4", device="cuda"),
    case(1000, 16480, 5120, "float16", "nvfp4", device="cuda"),
    case(1000, 5120, 8704, "float16", "nvfp4", 8, "cuda", WideTrial),
)
CASES = CPU + CUDA
SANITIZED = CUDA[:1]
HAMMERED = CUDA[1:2]
WORKING_SETS = {
    "cpu": ((case(64, 512, 256, "float32", "nvfp4"), 4),),
    "cuda": ((case(3296, 34816, 5120, "float16", "nvfp4", device="cuda"), 4),),
}
