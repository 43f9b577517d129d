"""Two projections of an MLP in one launch against two launches that overlap: a trial on one H200, no schedule.

    python benchmarks/persistent_mlp.py [--layers 12] [--library FOLDER]

Compiles `persistent_mlp.cu` for several counts of stages (or takes `FOLDER/mlp-STAGES-BEFORE.so`), checks that bytes
are those of `gated` and `projection` `nvfp4-stream-alone`, and times chains of distinct layers in turns.
"""

import argparse
import ctypes
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

VERSIONS = ((5, 3), (8, 5), (8, 8), (10, 5))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--library", type=Path, help="a folder of compiled versions")
    parser.add_argument("--compile", type=Path, help="only compile all versions into this folder")
    return parser.parse_args()


OPTIONS = parse() if __name__ == "__main__" else None  # before torch is loaded: --help answers at once

import torch

from benchmarks import timing
from benchmarks.kernels_h200 import ROWS, random_weight
from kernels.gated.cuda import SCHEDULES as GATED
from kernels.native import toolkit
from kernels.native.device import multiprocessors
from kernels.operators import operator
from kernels.projection import packing

HERE = Path(__file__).resolve().parent
HIDDEN, INNER = 5120, 17408
HALVES = 2**13


def compiled(folder: Path) -> None:
    """`folder/mlp-STAGES-BEFORE.so` of every version."""
    csrc, nvcc = HERE.parent / "kernels" / "csrc", toolkit.toolkit_for("cuda", "sm_90a")
    assert nvcc, "no nvcc that knows sm_90a"
    for stages, before in VERSIONS:
        flags = ("-DSCHEDULE=trial_mlp", f"-DSTREAM_STAGES={stages}", "-DSTREAM_EXCHANGE=1", f"-DSTREAM_ALONE={before}")
        includes = ("-I", csrc, "-I", csrc / "include")
        command = (nvcc.path, "-arch=sm_90a", "-O3", "-std=c++17", "-shared", "-Xcompiler", "-fPIC", *flags, *includes)
        target = folder / f"mlp-{stages}-{before}.so"
        subprocess.run([*map(str, command), "-o", str(target), str(HERE / "persistent_mlp.cu")], check=True)


def entry_of(path: Path):
    entry = ctypes.CDLL(str(path)).trial_mlp_both
    pointer, number = ctypes.c_void_p, ctypes.c_int
    entry.argtypes = (*(pointer,) * 8, *(number,) * 6, ctypes.c_float, ctypes.c_float, number, pointer)
    return entry


def main(options: argparse.Namespace) -> int:
    torch.manual_seed(0)
    folder = options.library or Path(tempfile.mkdtemp())
    if not options.library:
        compiled(folder)
    gated = next(s for s in GATED if s.name == "nvfp4-stream-alone")
    project = operator("projection").schedule("nvfp4-stream-alone")
    layers = [(random_weight(2 * INNER, HIDDEN), random_weight(HIDDEN, INNER)) for _ in range(options.layers)]
    x = torch.randn(ROWS, HIDDEN, device="cuda", dtype=torch.float16) * 0.1
    hidden, y = (torch.empty(ROWS, n, device="cuda", dtype=torch.float16) for n in (INNER, HIDDEN))
    blocks = multiprocessors(x.device.index)
    spaces = [torch.zeros((blocks + rows) * HALVES + 4096, dtype=torch.uint8, device="cuda") for rows in (136, 20)]
    met = torch.zeros(1, dtype=torch.int32, device="cuda")
    want = [project.run(gated.run(x, up), down).clone() for up, down in layers]
    chains = {"two launches": lambda: [project.run(gated.run(x, up), down) for up, down in layers]}
    for stages, before in VERSIONS:
        entry = entry_of(folder / f"mlp-{stages}-{before}.so")

        def one(up, down, entry=entry) -> None:
            units = (up.layout("nvfp4-stream-gated", packing.gated_layout), down.layout("nvfp4-stream", packing.layout))
            operands = (*units, x, hidden, y, *spaces, met)
            shape = (ROWS, HIDDEN, INNER, HIDDEN, *(part.shape[0] for part in units))
            scales = (1.0 / up.global_scale, 1.0 / down.global_scale)
            stream = torch.cuda.current_stream().cuda_stream
            status = entry(*(operand.data_ptr() for operand in operands), *shape, *scales, blocks, stream)
            assert status == 0, f"launch failed with {status}"

        wrong = 0
        for _ in range(20):
            for (up, down), right in zip(layers, want, strict=True):
                one(up, down)
                wrong += int((y != right).sum())
        print(json.dumps({"stages": stages, "before": before, "wrong": wrong}), flush=True)
        if not wrong:
            chains[f"one launch, {stages} stages, {before} before"] = lambda one=one: [one(*pair) for pair in layers]
    graphs = {name: timing.captured(work) for name, work in chains.items()}
    found: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(5):
        for name, graph in graphs.items():
            found[name].append(median(timing.times_ms(graph.replay, 15)) / len(layers) * 1e3)
    for name, us in found.items():
        print(
            json.dumps({"what": name, "us_a_layer": round(median(us), 2), "of": [round(u, 2) for u in us]}), flush=True
        )
    return 0


if OPTIONS is not None:
    if OPTIONS.compile:
        compiled(OPTIONS.compile)
        sys.exit(0)
    sys.exit(main(OPTIONS))
