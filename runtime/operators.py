"""The one door from the models to `kernels`: every operator call passes here with the name of its site.

Routes choose and count the schedule; an observer (an audit, a profiler) may watch the same live operands. Knows no
shapes.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, TypeVar

from kernels.registry import Op
from kernels.routes import Routes

T = TypeVar("T")
Runs = Counter[tuple[Op, Any]]
"""How often each (operator, problem) ran."""


class Observer(Protocol):
    """Sees what runs. Of an operator call it runs the control exactly once and returns what the control returned."""

    def run(self, routes: Routes, site: str, op: Op, problem: Any, operands: tuple[Any, ...]) -> Any: ...

    def range(self, name: str) -> AbstractContextManager[Any]:
        """Round what runs under this name: a round, or a piece of one."""


class Operators:
    """Runs operators through `routes`; `observer` is None unless an audit or a profiler watches."""

    def __init__(self, routes: Routes) -> None:
        self.routes = routes
        self.observer: Observer | None = None
        self._recorded: Runs | None = None

    def run(self, site: str, op: Op, problem: Any, *operands: Any) -> Any:
        if self._recorded is not None:
            self._recorded[op, problem] += 1
        if self.observer is None:
            return self.routes.run(op, problem, *operands)
        return self.observer.run(self.routes, site, op, problem, operands)

    def within(self, name: str, work: Callable[..., T], *inputs: Any) -> T:
        """Run `work` in the observer's range of that name."""
        if self.observer is None:
            return work(*inputs)
        with self.observer.range(name):
            return work(*inputs)

    @contextmanager
    def recording(self) -> Iterator[Runs]:
        """Notes which operators run inside, so that a replay of the same work can be counted by `replayed`."""
        self._recorded = Counter()
        try:
            yield self._recorded
        finally:
            self._recorded = None

    def replayed(self, runs: Runs) -> None:
        """Count a replay of recorded work under the schedules that it contains."""
        for (op, problem), hits in runs.items():
            self.routes.count(op.name, self.routes.selection(op, problem), hits)
