"""The CPU schedules against each other: `python -m benchmarks.kernels_cpu [--pairs N] [--out FILE]`.

Every figure is a ratio of two schedules that alternated in this one run, with the 95 % interval of its median; the
milliseconds beside it are of this host and compare with nothing else. Shapes are those of the shipped checkpoints'
verification (eight rows), and larger ones. The last table is the sampler's distribution with selection in front of it:
where the cut at k splits no tie, nothing of the vocabulary is copied or sorted; where it does, all of it is.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kernels_cpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--pairs", type=int, default=41, help="of every two schedules (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="torch's threads; native schedules use one")
    parser.add_argument("--out", type=Path, help="also write one JSON line a figure")
    return parser.parse_args()


OPTIONS = parse() if __name__ == "__main__" else None  # before torch is loaded: --help answers at once

import torch

from kernels import bench
from kernels.accept.laws import Distribution, distribution, shortlisted
from kernels.checking.cases import attention, gated, gdn, projection, selection
from kernels.checking.cases.trial import Case
from kernels.operators import operator
from runtime.speculation.sampling import SamplingParams

ROWS = 8


@dataclass(frozen=True)
class Pairing:
    """`layers` distinct buffers of one problem, run by both schedules."""

    operator: str
    control: str
    candidate: str
    case: Case
    layers: int


def projections(shapes: tuple[tuple[int, int], ...], form: str = "float32") -> list[Case]:
    return [projection.case(ROWS, n, k, "float32", form) for n, k in shapes]


# (N, K) of one layer's fused projections and the head: hidden 64 and hidden 192.
FIRST = ((320, 64), (64, 160), (208, 64), (640, 64))
NANO = ((1024, 192), (192, 512), (528, 192), (2560, 192))
ATTENTION = (attention.Shape(8, 200, 8, 4, 32), attention.Shape(8, 1000, 8, 4, 32))
FP8 = attention.Shape(8, 1000, 6, 1, 256, kv_dtype="float8_e4m3fn")
GDN = (gdn.Shape(8, 4, 8, 32, 32), gdn.Shape(8, 4, 12, 128, 128))


def pairings() -> Iterator[Pairing]:
    for case in projections(FIRST + NANO):
        yield Pairing("projection", "columns-32", "columns-128", case, 4)
    for case in [*projections(FIRST + NANO), *projections(NANO, "nvfp4")]:
        yield Pairing("projection", "cpu-dot", "cpu-tile", case, 8)
    for form in ("float32", "nvfp4"):
        for control, candidate in (("cpu-dot", "cpu-tile"), ("cpu-tile", "cpu-pair"), ("separate", "cpu-tile")):
            yield Pairing("gated", control, candidate, gated.case(ROWS, *NANO[0], "float32", form), 8)
    for shape in (*ATTENTION, FP8):
        yield Pairing("attention", "cpu-scalar", "cpu-grouped", attention.case(shape), 4)
    for shape in GDN:
        yield Pairing("gdn", "cpu-bv2", "cpu-bv8", gdn.case(shape), 6)
        yield Pairing("gdn", "cpu-bv8", "cpu-bv32", gdn.case(shape), 6)
        yield Pairing("gdn", "sequential", "cpu-bv32", gdn.case(shape), 6)
    for vocab in (2560, 248320):
        yield Pairing("selection", "cpu-scan", "cpu-scan32", selection.case(ROWS, vocab, 20), 2)
        yield Pairing("selection", "sort", "keys", selection.case(ROWS, vocab, 20), 2)
        yield Pairing("selection", "keys", "cpu-scan32", selection.case(ROWS, vocab, 20), 2)


def measure(pairing: Pairing, pairs: int) -> bench.Comparison | None:
    op = operator(pairing.operator)
    control, candidate = (op.schedule(name) for name in (pairing.control, pairing.candidate))
    problem = pairing.case.make("cpu").problem
    if control.refusal(problem) or candidate.refusal(problem):
        return None
    return bench.compare(pairing.case, pairing.layers, control, candidate, pairs)


def timed_ms(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        begin = time.perf_counter_ns()
        work()
        times.append((time.perf_counter_ns() - begin) / 1e6)
    return median(times)


def fallback(vocab: int, k: int, repeats: int) -> dict[str, float | int]:
    """What the sampler pays for the split-tie test when it finds nothing, and when one row has a tie at the cut."""
    run, params = operator("selection").schedule("cpu-scan32").run, SamplingParams(top_k=k, top_p=0.95)
    plain = torch.randn(ROWS, vocab, generator=torch.Generator().manual_seed(1))
    tied = plain.clone()
    tied[3, :2] = run(plain, k).values[3, k - 1]  # the cut at k now splits a tie in row 3

    def sample(logits: torch.Tensor) -> Distribution:
        found = shortlisted(*run(logits, k), params, vocab)
        return distribution(logits, params) if bool(found.cut_tie) else found

    assert [sample(logits).ids.shape[-1] for logits in (plain, tied)] == [k + 1, vocab]
    return {
        "vocab": vocab,
        "selection_ms": timed_ms(lambda: run(plain, k), repeats),
        "no_split_ms": timed_ms(lambda: sample(plain), repeats),
        "one_split_ms": timed_ms(lambda: sample(tied), max(3, repeats // 10)),
        "always_whole_ms": timed_ms(lambda: distribution(plain, params), max(3, repeats // 10)),
    }


def main(options: argparse.Namespace) -> None:
    torch.set_num_threads(options.threads)
    found = [(p.operator, c) for p in pairings() if (c := measure(p, options.pairs))]
    slow = [fallback(vocab, 20, options.pairs) for vocab in (2560, 248320)]
    print("| operator | problem | control | candidate | control ms | candidate ms | candidate / control |")
    print("|---|---|---|---|---:|---:|---|")
    for name, c in found:
        ratio = f"{c.ratio:.3f} [{c.ratio_low:.3f}, {c.ratio_high:.3f}]"
        times = f"{c.control_ms:.3f} | {c.candidate_ms:.3f}"
        print(f"| {name} | {c.layers} x {c.problem} | {c.control} | {c.candidate} | {times} | {ratio} |")
    print("\n| vocabulary | selection alone | distribution, no tie split | one tie split | whole vocabulary always |")
    print("|---:|---:|---:|---:|---:|")
    for row in slow:
        figures = (f"{value:.3f} ms" if isinstance(value, float) else str(value) for value in row.values())
        print(f"| {' | '.join(figures)} |")
    if options.out:
        lines = [json.dumps({"operator": name, **asdict(c)}) for name, c in found] + [json.dumps(row) for row in slow]
        options.out.write_text("\n".join(lines) + "\n")


if OPTIONS is not None:
    main(OPTIONS)
