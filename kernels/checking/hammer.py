"""Thousands of launches in a row without waiting for the host: what a race needs to show itself. CUDA only.

Operands change between launches by copies on the device, and every launch's outputs are compared there with what a
launch on its own gave for those operands, so that no synchronisation hides an order that is only usually kept:

    eager    operands change before each launch
    chain    several launches back to back on the same operands, then the next operands (schedules that keep no state)
    graph    both of these in one captured graph, replayed

Knows trials and schedules; knows no file format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from kernels.capture import capture
from kernels.checking.cases.trial import Outputs, Trial
from kernels.checking.checks import Finding
from kernels.checking.compare import as_bytes
from kernels.registry import Schedule

CHAIN = 4  # launches back to back


def alone(trial: Trial, schedule: Schedule) -> dict[str, Outputs]:
    """Every state's outputs, each launch waited for."""
    found = {}
    for state in trial.states:
        trial.set_state(state)
        torch.cuda.synchronize()
        found[state] = {name: tensor.clone() for name, tensor in trial.run(schedule).items()}
        torch.cuda.synchronize()
    return found


def count_into(wrong: Tensor, outputs: Outputs, want: Outputs) -> None:
    """Add the number of bytes that differ; nothing leaves the device."""
    for name, tensor in outputs.items():
        wrong += (as_bytes(tensor) != as_bytes(want[name])).sum()


def one_each(trial: Trial, schedule: Schedule, want: dict[str, Outputs], wrong: Tensor) -> int:
    """One launch per state."""
    for state in trial.states:
        trial.set_state(state)
        count_into(wrong, trial.run(schedule), want[state])
    return len(trial.states)


def chained(trial: Trial, schedule: Schedule, want: dict[str, Outputs], wrong: Tensor) -> int:
    """`CHAIN` launches per state with nothing in between."""
    for state in trial.states:
        trial.set_state(state)
        for outputs in [trial.run(schedule) for _ in range(CHAIN)]:
            count_into(wrong, outputs, want[state])
    return CHAIN * len(trial.states)


def replayed(
    trial: Trial, schedule: Schedule, want: dict[str, Outputs], wrong: Tensor, turns: tuple
) -> Callable[[], int]:
    """The turns captured as one graph."""
    torch.cuda.synchronize()
    graph, launches = capture(lambda: sum(turn(trial, schedule, want, wrong) for turn in turns))

    def replay() -> int:
        graph.replay()
        return launches

    return replay


def until(launches: int, turn: Callable[[], int]) -> int:
    """Repeat a turn until at least so many launches were made."""
    made = 0
    while made < launches:
        made += turn()
    return made


def findings(schedule: Schedule, trial: Trial, launches: int) -> Iterator[Finding]:
    """One finding for each way, over at least `launches` launches of it."""
    want = alone(trial, schedule)
    turns = (one_each,) if trial.keeps_state else (one_each, chained)
    wrong = torch.zeros(1, dtype=torch.int64, device=trial.device)
    names = {one_each: "eager", chained: "chain"}
    ways = [(names[turn], lambda turn=turn: turn(trial, schedule, want, wrong)) for turn in turns]
    ways.append(("graph", replayed(trial, schedule, want, wrong, turns)))
    for name, turn in ways:
        wrong.zero_()
        made = until(launches, turn)
        count = int(wrong)
        told = f"{count} bytes differ in {made} launches" if count else ""
        yield Finding(f"hammer/{name}", count == 0, told, {"launches": made, "wrong_bytes": count})
