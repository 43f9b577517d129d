"""The checks one schedule must pass on one problem: bytes or bound, FP64 error, the same bytes twice, guards, untouched
state, graph replay.

Every check yields a `Finding`; nothing is raised for a broken contract, so that one failure does not hide the next.
Knows trials and schedules; knows no file format and no sanitizer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from kernels.capture import capture
from kernels.checking.cases.trial import Outputs, Trial
from kernels.checking.compare import Guarded, first_difference, poisoned_allocations, rel_l2
from kernels.registry import Bitwise, Bound, Op, Schedule

# Both errors are sums of many roundings; a candidate may exceed its parent's by this much of it and no more.
ERROR_SLACK = 1.02
# Below this an FP32 error is noise of the last bit, and being second best in it means nothing.
ERROR_FLOOR = 1e-7


@dataclass(frozen=True)
class Finding:
    """One check: `passed`, or what is wrong."""

    check: str
    passed: bool
    message: str = ""
    figures: dict[str, Any] = field(default_factory=dict)


def bound_of(op: Op, schedule: Schedule) -> Bound:
    """The error bound a schedule answers for: its own, or that of the schedule whose bytes it promises."""
    while isinstance(schedule.contract, Bitwise):
        schedule = op.schedule(schedule.contract.parent)
    return schedule.contract


def with_guards(trial: Trial, schedule: Schedule) -> tuple[Outputs, list[Guarded]]:
    with poisoned_allocations() as made:
        outputs = trial.run(schedule)
    return outputs, made


def check_bytes(outputs: Outputs, parent: Outputs, state: str) -> Finding:
    for name, tensor in outputs.items():
        difference = first_difference(tensor, parent[name])
        if difference:
            return Finding(f"bytes/{state}", False, f"{name}: {difference}")
    return Finding(f"bytes/{state}", True)


def errors(outputs: Outputs, expected: Outputs) -> dict[str, float]:
    return {name: rel_l2(outputs[name], want) for name, want in expected.items()}


def limit_of(bound: Bound, tensor: torch.Tensor) -> float:
    return bound.float32 if bound.float32 is not None and tensor.dtype == torch.float32 else bound.rel_l2


def check_bound(bound: Bound, outputs: Outputs, found: dict[str, float], state: str) -> Finding:
    limits = {name: limit_of(bound, outputs[name]) for name in found}
    broken = [f"{n}: relative L2 {found[n]:.3g} above {limits[n]:.3g}" for n in found if found[n] > limits[n]]
    return Finding(f"bound/{state}", not broken, "; ".join(broken), {"rel_l2": found})


def check_roundings(outputs: Outputs, expected: Outputs, least: float, state: str) -> Finding:
    """How many 16-bit outputs are what the reference gives, rounded from FP32, in which schedules sum."""
    told, shares = [], {}
    for name, want in expected.items():
        if outputs[name].element_size() != 2:
            continue
        shares[name] = float((outputs[name] == want.float().to(outputs[name].dtype)).double().mean())
        if shares[name] < least:
            told.append(f"{name}: {shares[name]:.4f} of it is the reference, rounded; at least {least} was asked for")
    return Finding(f"roundings/{state}", not told, "; ".join(told), {"shares": shares})


def check_error(found: dict[str, float], parent: dict[str, float], state: str) -> Finding:
    """FP64 error not above the parent's."""
    for name, error in found.items():
        if error > max(ERROR_SLACK * parent[name], ERROR_FLOOR):
            told = f"{name}: relative L2 {error:.3g}, the parent's is {parent[name]:.3g}"
            return Finding(f"fp64/{state}", False, told, {"rel_l2": found, "parent_rel_l2": parent})
    return Finding(f"fp64/{state}", True, "", {"rel_l2": found, "parent_rel_l2": parent})


def check_guards(made: list[Guarded], state: str) -> Finding:
    broken = [index for index, allocation in enumerate(made) if not allocation.intact()]
    told = f"allocation {broken[0]} of {len(made)} was written beyond its end or before its start" if broken else ""
    return Finding(f"guards/{state}", not broken, told, {"allocations": len(made)})


def check_state(op: Op, schedule: Schedule, trial: Trial, state: str) -> Iterator[Finding]:
    """Everything that one state of the operands can show without a graph."""
    outputs, made = with_guards(trial, schedule)
    yield check_guards(made, state)
    change = trial.untouched(outputs)
    yield Finding(f"untouched/{state}", change is None, change or "")
    expected, bound = trial.expected(), bound_of(op, schedule)
    found = errors(outputs, expected)
    least = trial.least_equal(state)
    if least is None and state == trial.states[0]:
        least = bound.roundings
    if least is not None:
        yield check_roundings(outputs, expected, least, state)
    # Equality is more than a bound, and half a step of a coarse format may be more than the bound.
    loose = {name: error for name, error in found.items() if least != 1.0 or outputs[name].element_size() != 2}
    yield check_bound(bound, outputs, loose, state)
    again = check_bytes(trial.run(schedule), outputs, state)
    yield Finding(f"twice/{state}", again.passed, again.message)
    if schedule.contract.parent is None:
        return
    parent, _ = with_guards(trial, op.schedule(schedule.contract.parent))
    if isinstance(schedule.contract, Bitwise):
        yield check_bytes(outputs, parent, state)
    else:
        yield check_error(found, errors(parent, expected), state)


def eager(op: Op, schedule: Schedule, trial: Trial) -> Iterator[Finding]:
    """Every state in turn, and whether the last brings the first one's bytes back."""
    first: Outputs | None = None
    for state in trial.states:
        trial.set_state(state)
        yield from check_state(op, schedule, trial, state)
        if first is None:
            first = trial.run(schedule)
        elif state == trial.states[-1]:
            yield check_bytes(trial.run(schedule), first, f"{state}-again")


def replay(schedule: Schedule, trial: Trial) -> Iterator[Finding]:
    """One capture, then every state through replays: the bytes of an eager run each time, twice over."""
    trial.set_state(trial.states[0])
    eager_outputs = {}
    for state in trial.states:
        trial.set_state(state)
        eager_outputs[state] = {name: tensor.clone() for name, tensor in trial.run(schedule).items()}
    trial.set_state(trial.states[0])
    torch.cuda.synchronize()
    graph, captured = capture(lambda: trial.run(schedule))
    for state in trial.states:
        trial.set_state(state)
        for turn in ("first", "second"):
            graph.replay()
            torch.cuda.synchronize()
            finding = check_bytes(captured, eager_outputs[state], f"{state}-{turn}")
            yield Finding(f"graph-{finding.check}", finding.passed, finding.message)


def findings(op: Op, schedule: Schedule, trial: Trial) -> Iterator[Finding]:
    yield from eager(op, schedule, trial)
    if trial.problem.device == "cuda":
        yield from replay(schedule, trial)
