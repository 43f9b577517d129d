"""CUDA graphs of a round's pieces, so that the host's launches do not hide what the device takes.

A piece is a function of device tensors that reads everything else (memory, tables, lengths) at fixed addresses. Its
first call runs eagerly (libraries build and load), its second is captured, every later one is replayed. Graphs belong
to the schedules that were enabled at capture and to the shapes of their inputs; when there are many, further pieces run
as they are. Knows no model; off the GPU, and under an observer, pieces just run.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor

from kernels.capture import Graph, capture
from runtime.operators import Operators, Runs

Piece = Callable[..., Any]
MOST = 64  # Each keeps memory of its own: clients with ever new settings must not fill the device.


@dataclass
class Captured:
    """One graph with the buffers it reads its inputs from and leaves its outputs in."""

    graph: Graph
    inputs: tuple[Tensor, ...]
    outputs: Any
    runs: Runs
    replays: int = 0


@dataclass
class Graphs:
    """Runs pieces by key. Outputs of a replay are overwritten by the next replay of the same key."""

    operators: Operators
    enabled: bool
    _warm: set[Hashable] = field(default_factory=set)
    _captured: dict[Hashable, Captured] = field(default_factory=dict)

    @property
    def replaying(self) -> bool:
        """Whether pieces are captured and replayed; under an observer they run as they are."""
        return self.enabled and self.operators.observer is None

    def run(self, key: Hashable, piece: Piece, *inputs: Tensor) -> Any:
        if not self.replaying:
            return self.operators.within(_name(key), piece, *inputs)
        shapes = tuple(value.shape for value in inputs)
        key = (key, shapes, frozenset(self.operators.routes.enabled.items()))
        if key not in self._captured:
            if len(self._captured) >= MOST:
                return piece(*inputs)
            if key not in self._warm:
                self._warm.add(key)
                return piece(*inputs)
            self._captured[key] = self._capture(piece, inputs)
        return self._replay(self._captured[key], inputs)

    def release(self) -> None:
        """Give back the memory of all graphs; pieces are captured anew when they come again."""
        for captured in self._captured.values():
            captured.graph.release()
        self._captured.clear()

    def _capture(self, piece: Piece, inputs: tuple[Tensor, ...]) -> Captured:
        static = tuple(value.clone() for value in inputs)
        # Each has its own memory pool: in a shared one, a graph captured later would keep its outputs where an
        # earlier one has its temporaries, and the next replay of the earlier one would overwrite them.
        with self.operators.recording() as runs:
            graph, outputs = capture(partial(piece, *static))
        return Captured(graph, static, outputs, runs)

    def _replay(self, captured: Captured, inputs: tuple[Tensor, ...]) -> Any:
        for static, value in zip(captured.inputs, inputs, strict=True):
            static.copy_(value)
        captured.graph.replay()
        # The capture itself counted the runs of the first replay.
        if captured.replays:
            self.operators.replayed(captured.runs)
        captured.replays += 1
        return captured.outputs


def _name(key: Hashable) -> str:
    """`verify` of `("verify", 0, True)`."""
    return str(key[0] if isinstance(key, tuple) else key)
