"""A training step whose launches are captured once and replayed: a small model's step is all launches otherwise.

Knows no models. Off CUDA the step just runs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from kernels.capture import Graph, capture

_WARM_UP = 3


class Replay:
    """`step` is a function of device tensors with one shape each; it changes what else it owns in place.

    The first calls run as they are (libraries load, kernels compile), the next is captured. The result of a replay is
    overwritten by the next one.
    """

    def __init__(self, step: Callable[..., Tensor]) -> None:
        self._step = step
        self._calls = 0
        self._graph: Graph | None = None
        self._inputs: tuple[Tensor, ...] = ()
        self._output: Tensor | None = None

    def __call__(self, *inputs: Tensor) -> Tensor:
        if not inputs[0].is_cuda:
            return self._step(*inputs)
        if self._graph is None and self._calls < _WARM_UP:
            self._calls += 1
            return self._beside(inputs)
        if self._graph is None:
            self._capture(inputs)
        for own, value in zip(self._inputs, inputs, strict=True):
            own.copy_(value, non_blocking=True)
        assert self._graph is not None and self._output is not None
        self._graph.replay()
        return self._output

    def _beside(self, inputs: tuple[Tensor, ...]) -> Tensor:
        """On a stream of its own, as a capture will run."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            output = self._step(*inputs)
        torch.cuda.current_stream().wait_stream(stream)
        return output

    def _capture(self, inputs: tuple[Tensor, ...]) -> None:
        self._inputs = tuple(value.clone() for value in inputs)
        self._graph, self._output = capture(lambda: self._step(*self._inputs))
