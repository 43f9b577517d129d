"""The one door from the models to `kernels`: every operator call passes here with the name of its site.

Routes choose and count the schedule; an observer (audit mode) may watch the same live operands. Knows no shapes.
"""

from typing import Any, Protocol

from kernels.registry import Op, Routes


class Observer(Protocol):
    """Sees one operator call. It runs the control exactly once and returns what the control returned."""

    def run(self, routes: Routes, site: str, op: Op, problem: Any, operands: tuple[Any, ...]) -> Any: ...


class Operators:
    """Runs operators through `routes`; `observer` is None outside audit mode."""

    def __init__(self, routes: Routes) -> None:
        self.routes = routes
        self.observer: Observer | None = None

    def run(self, site: str, op: Op, problem: Any, *operands: Any) -> Any:
        if self.observer is None:
            return self.routes.run(op, problem, *operands)
        return self.observer.run(self.routes, site, op, problem, operands)
