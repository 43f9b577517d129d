"""Shadow mode: a second schedule of one operator runs beside the live one and every bit is compared.

During generation the candidate gets copies of the same live operands, in its own buffers; outputs and written operands
are compared; only the control's results are used. Off in timed runs. Knows no operator by name and no model.
"""

import dataclasses
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from kernels.checking.compare import first_difference
from kernels.registry import Op, select
from kernels.routes import Routes


@dataclass
class Site:
    """What was seen at one call site. `first` names the first differing call, tensor, coordinate and values."""

    calls: int = 0
    differing: int = 0
    first: str | None = None


@dataclass
class Shadow:
    """Runs `candidate` of operator `op_name` beside whatever drives generation; install as `Operators.observer`."""

    op_name: str
    candidate: str
    sites: dict[str, Site] = field(default_factory=dict)
    refusals: dict[str, int] = field(default_factory=dict)

    def run(self, routes: Routes, site: str, op: Op, problem: Any, operands: tuple[Any, ...]) -> Any:
        if op.name != self.op_name:
            return routes.run(op, problem, *operands)
        chosen = select(op, problem, self.candidate)
        if chosen.refusals:
            reason = chosen.refusals[0][1].reason
            self.refusals[reason] = self.refusals.get(reason, 0) + 1
            return routes.run(op, problem, *operands)
        copies = isolated(operands)
        theirs = chosen.schedule.run(*copies)
        mine = routes.run(op, problem, *operands)
        self._record(site, difference((mine, operands), (theirs, copies)))
        return mine

    def range(self, name: str) -> AbstractContextManager[Any]:
        return nullcontext()

    def _record(self, site: str, found: str | None) -> None:
        seen = self.sites.setdefault(site, Site())
        seen.calls += 1
        if found:
            seen.differing += 1
            seen.first = seen.first or f"call {seen.calls - 1}, {found}"

    def lines(self) -> Iterator[dict[str, Any]]:
        """One object per site and a summary; a shadow that saw nothing has not passed."""
        for site, seen in self.sites.items():
            yield {"kind": "shadow-site", "site": site} | dataclasses.asdict(seen)
        calls, differing = (sum(getattr(s, name) for s in self.sites.values()) for name in ("calls", "differing"))
        yield {
            "kind": "shadow",
            "operator": self.op_name,
            "candidate": self.candidate,
            "sites": len(self.sites),
            "calls": calls,
            "differing": differing,
            "refusals": self.refusals,
            "passed": calls > 0 and differing == 0,
        }


def isolated(value: Any) -> Any:
    """A deep copy in which every tensor has its own memory, with the layout (strides) of the original."""
    if isinstance(value, Tensor):
        copy = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
        return copy.copy_(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {f.name: isolated(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
        return dataclasses.replace(value, **parts)
    if isinstance(value, tuple):
        copies = [isolated(part) for part in value]
        return type(value)(*copies) if hasattr(value, "_fields") else tuple(copies)
    return value


def tensors(value: Any, path: str) -> Iterator[tuple[str, Tensor]]:
    """Every tensor inside operands or results, with a readable path."""
    if isinstance(value, Tensor):
        yield path, value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for f in dataclasses.fields(value):
            yield from tensors(getattr(value, f.name), f"{path}.{f.name}")
    elif isinstance(value, tuple | list):
        for i, part in enumerate(value):
            yield from tensors(part, f"{path}[{i}]")


def difference(control: tuple[Any, Any], candidate: tuple[Any, Any]) -> str | None:
    """Which tensor of (outputs, operands) differs first, where and by what; None where every bit agrees."""
    for name, mine, theirs in zip(("out", "operands"), control, candidate, strict=True):
        for (path, want), (_, got) in zip(tensors(mine, name), tensors(theirs, name), strict=True):
            found = first_difference(got, want)
            if found:
                return f"{path}: {found}"
    return None
