"""Gated projections of many rows: the problems of `gated`, longer, and the 27B target's widest shape."""

from __future__ import annotations

from kernels.checking.cases.gated import case

CPU = (
    case(17, 66, 64),
    case(40, 200, 512, "float16", "nvfp4", pad=8),
    case(33, 130, 250, "bfloat16", "bfloat16"),
)
CUDA = (
    *(case(m, 544, 1024, "float16", "nvfp4", pad=8, device="cuda") for m in (17, 64, 333)),
    case(64, 1088, 512, "bfloat16", "bfloat16", device="cuda"),
    case(19, 432, 512, "float16", "float16", device="cuda"),  # one piece more than two blocks have
)
CASES = CPU + CUDA
SANITIZED = CUDA[:1]
HAMMERED = CUDA[1:2]
WORKING_SETS = {
    "cpu": ((case(64, 512, 256), 4),),
    "cuda": ((case(3296, 34816, 5120, "float16", "nvfp4", device="cuda"), 4),),
}
