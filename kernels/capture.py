"""CUDA graphs that cannot be broken by chance: the one place where launches are captured.

While a stream captures, the driver refuses whatever would destroy a graph, and what it refuses invalidates the capture
(CUDA Runtime API, "Stream Capture": cudaErrorStreamCaptureInvalidated). Python destroys at any moment: its collector
runs inside the captured work, and the last reference to an older graph may be dropped there. So

- the collector is off while a capture runs, and what waited for it was collected before;
- a graph that is given up while a capture runs, by whomever, is kept until that capture has ended;
- the mode is `thread_local`: what other threads do concerns their captures and not this one.

Knows no operators and no models.
"""

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

T = TypeVar("T")

_RUNNING = threading.Lock()
_GIVEN_UP: list[torch.cuda.CUDAGraph] = []


class Graph:
    """Captured work. Its memory on the device is given back by `release`, or when nobody knows the graph any more."""

    def __init__(self) -> None:
        self._graph = torch.cuda.CUDAGraph()
        self._finalizer = weakref.finalize(self, _destroy, self._graph)

    def replay(self) -> None:
        assert self._finalizer.alive, "a replay of a graph that was released"
        self._graph.replay()

    def release(self) -> None:
        self._finalizer()


def capture(work: Callable[[], T]) -> tuple[Graph, T]:
    """Launches of `work` on the current device as a graph, and what `work` returned: tensors that a replay fills.

    `work` must have run before, so that libraries are loaded. It is not run again, and nothing is computed yet.
    """
    gc.collect()
    graph = Graph()
    try:
        with _undisturbed(), torch.cuda.graph(graph._graph, capture_error_mode="thread_local"):
            outputs = work()
    except BaseException:
        graph.release()  # Not later: the traceback would keep it until the collector comes.
        raise
    return graph, outputs


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Nothing of CUDA is destroyed inside by this thread. Captures of several threads follow one another."""
    try:
        with _RUNNING:
            collects = gc.isenabled()
            gc.disable()
            try:
                yield
            finally:
                if collects:
                    gc.enable()
    finally:
        while _GIVEN_UP:
            _GIVEN_UP.pop().reset()


def _destroy(graph: torch.cuda.CUDAGraph) -> None:
    # A capture that begins in another thread behind this question does not mind: see the mode.
    if _RUNNING.locked():
        _GIVEN_UP.append(graph)
    else:
        graph.reset()
