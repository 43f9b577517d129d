"""Timing two schedules of an operator against each other: `python -m kernels.bench [operator[/schedule] …]`.

A *working set* is one pass over distinct layer buffers, as a round makes it; the two schedules alternate, and which
one goes first alternates too (A B, B A, …), so drift of the machine falls on both. The figure is the median of the
pair-wise ratios with its 95 % interval from the order statistics: no shape of the noise is assumed.

A GPU pass is captured once and timed by device events round its replay. A schedule that fails `kernels.gate` on the
same problem has no business here: timings are printed with the check of one pass against the control.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import floor, sqrt
from statistics import median

import torch

from kernels.capture import capture
from kernels.checking.cases import working_sets_of
from kernels.checking.cases.trial import Case, Trial
from kernels.checking.compare import rel_l2
from kernels.operators import OPERATORS, operator
from kernels.registry import Op, Schedule

Z_95 = 1.96


@dataclass(frozen=True)
class Comparison:
    """Milliseconds of one pass over `layers` distinct buffers, medians over `pairs`, and candidate over control."""

    problem: str
    layers: int
    control: str
    candidate: str
    control_ms: float
    candidate_ms: float
    ratio: float
    ratio_low: float
    ratio_high: float
    pairs: int
    rel_l2_to_control: float


def interval_of_median(values: list[float]) -> tuple[float, float]:
    """The 95 % interval of the median by order statistics (normal approximation of the binomial ranks)."""
    ordered, n = sorted(values), len(values)
    reach = Z_95 * sqrt(n) / 2
    low, high = floor(n / 2 - reach), floor(n / 2 + reach)
    return ordered[max(low, 0)], ordered[min(high, n - 1)]


def host_clock(run: Callable[[], None]) -> Callable[[], float]:
    """Times calls of `run` in ms."""

    def once() -> float:
        begin = time.perf_counter_ns()
        run()
        return (time.perf_counter_ns() - begin) / 1e6

    return once


def graph_clock(run: Callable[[], None]) -> Callable[[], float]:
    """Times replays of one capture of `run` in ms, by device events."""
    run()
    torch.cuda.synchronize()
    graph, _ = capture(run)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def once() -> float:
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end))

    return once


def passes(trials: list[Trial], schedule: Schedule) -> Callable[[], None]:
    def run() -> None:
        for trial in trials:
            trial.launch(schedule)

    return run


def compare(case: Case, layers: int, control: Schedule, candidate: Schedule, pairs: int) -> Comparison:
    """Both schedules on the same `layers` trials, in alternating order."""
    trials = [case.make(case.device) for _ in range(layers)]
    for trial in trials:
        trial.set_state(trial.states[0])
    outputs = [trials[0].run(schedule) for schedule in (control, candidate)]
    apart = max(rel_l2(outputs[1][name], want) for name, want in outputs[0].items() if want.is_floating_point())
    clock = graph_clock if case.device == "cuda" else host_clock
    clocks = [clock(passes(trials, schedule)) for schedule in (control, candidate)]
    for once in clocks * 2:
        once()
    times: tuple[list[float], list[float]] = ([], [])
    for pair in range(pairs):
        for arm in (0, 1) if pair % 2 == 0 else (1, 0):
            times[arm].append(clocks[arm]())
    ratios = [new / old for old, new in zip(*times, strict=True)]
    return Comparison(
        case.id, layers, control.name, candidate.name, median(times[0]), median(times[1]),
        median(ratios), *interval_of_median(ratios), pairs, apart,
    )  # fmt: skip


def control_of(op: Op, schedule: Schedule) -> Schedule:
    """What a schedule has to beat: the one whose bytes or error it promises, else the default."""
    return op.parent(schedule) or op.schedule(op.default)


def accepted(op: Op, schedule: Schedule, device: str) -> tuple[Case, int] | None:
    """The first working set that both the schedule and its control take."""
    for case, layers in working_sets_of(op, device):
        problem = case.make(device).problem
        if schedule.refusal(problem) is None and control_of(op, schedule).refusal(problem) is None:
            return case, layers
    return None


def line(found: Comparison) -> str:
    span = f"{found.ratio:.3f} [{found.ratio_low:.3f}, {found.ratio_high:.3f}]"
    times = f"{found.control_ms:9.3f} ms {found.candidate_ms:9.3f} ms"
    return f"{found.candidate:20} {found.control:14} {times}  {span}  {found.layers} x {found.problem}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels.bench", description="Time schedules.")
    parser.add_argument("names", nargs="*", help="operator or operator/schedule; every operator without names")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--pairs", type=int, default=31)
    options = parser.parse_args()
    names = options.names or [op.name for op in OPERATORS]
    print(f"{'candidate':20} {'control':14} {'control':>12} {'candidate':>12}  candidate / control, median and 95 %")
    for op_name, _, schedule_name in (name.partition("/") for name in names):
        op = operator(op_name)
        for schedule in op.schedules if not schedule_name else (op.schedule(schedule_name),):
            work = accepted(op, schedule, options.device) if schedule.name != op.default else None
            if work:
                found = compare(*work, control_of(op, schedule), schedule, options.pairs)
                print(f"{op.name}/{line(found)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
