"""Captures against everything that Python may destroy meanwhile, with a driver that refuses as CUDA's does."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
import torch

from kernels import capture as module
from kernels.capture import Graph, capture

REFUSED = "operation not permitted when stream is capturing"


class Driver:
    """What the CUDA Runtime API says of stream capture, `thread_local`: the capturing thread may destroy no graph."""

    def __init__(self) -> None:
        self.capturing: int | None = None
        self.valid, self.alive = True, 0

    def destroy(self) -> None:
        if self.capturing == threading.get_ident():
            self.valid = False
            raise RuntimeError(REFUSED)
        self.alive -= 1


class SimulatedGraph:
    of: Driver

    def __init__(self) -> None:
        self.driver, self.exists = self.of, True
        self.driver.alive += 1

    def replay(self) -> None:
        assert self.exists

    def reset(self) -> None:
        if self.exists:
            self.driver.destroy()
            self.exists = False

    def __del__(self) -> None:
        with contextlib.suppress(RuntimeError):  # torch warns: "(function reset)"
            self.reset()


class SimulatedCapture:
    def __init__(self, graph: SimulatedGraph, capture_error_mode: str = "global") -> None:
        assert capture_error_mode == "thread_local"
        self.driver = graph.driver

    def __enter__(self) -> None:
        assert self.driver.capturing is None
        self.driver.capturing, self.driver.valid = threading.get_ident(), True

    def __exit__(self, *_: object) -> None:
        self.driver.capturing = None
        if not self.driver.valid:
            raise RuntimeError("cudaErrorStreamCaptureInvalidated")


@pytest.fixture(scope="module", autouse=True)
def small_heap() -> Iterator[None]:
    """What the process has loaded need not be walked at each of the collections here."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    found = Driver()
    monkeypatch.setattr(SimulatedGraph, "of", found, raising=False)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", SimulatedGraph)
    monkeypatch.setattr(torch.cuda, "graph", SimulatedCapture)
    yield found
    gc.collect()


@pytest.fixture(params=["simulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def work(request: pytest.FixtureRequest) -> Callable[[], object]:
    """Something to capture, on a device that minds."""
    if request.param == "simulated":
        request.getfixturevalue("driver")
        return lambda: None
    values = torch.zeros(64, device="cuda")
    return lambda: values.add_(1)


@pytest.fixture
def eager_collector() -> Iterator[None]:
    """Python's collector at every allocation, so that no luck is needed."""
    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    yield
    gc.set_threshold(*before)


def leave_cycle(graph: object) -> None:
    knot = SimpleNamespace(graph=graph)
    knot.itself = knot


def test_a_hundred_captures_while_graphs_are_dropped(work: Callable[[], object], eager_collector: None) -> None:
    """By the last reference, by the collector that comes by itself, and by one that is called; then all replay."""
    work()
    kept, last = [], capture(work)[0]
    for _ in range(100):
        held = [capture(work)[0]]
        leave_cycle(held[0])
        held.append(last)

        def busy(held: list[Graph] = held) -> list[object]:
            garbage = [SimpleNamespace(value=work()) for _ in range(20)]
            held.clear()
            gc.collect()
            return garbage

        last = capture(busy)[0]
        kept.append(last)
    for graph in kept:
        graph.replay()


@pytest.mark.parametrize("how", ["reference", "collector"])
def test_the_driver_refuses_what_this_module_prevents(driver: Driver, how: str) -> None:
    held = [SimulatedGraph()]

    def drop() -> None:
        if how == "collector":
            leave_cycle(held[0])
        held.clear()
        gc.collect()

    with pytest.raises(RuntimeError, match="Invalidated"), SimulatedCapture(SimulatedGraph(), "thread_local"):
        drop()


def test_what_waited_is_collected_before_a_capture_and_not_in_it(driver: Driver) -> None:
    leave_cycle(capture(lambda: None)[0])
    assert driver.alive == 1
    seen = []
    graph, _ = capture(lambda: seen.append((driver.alive, gc.isenabled())))
    assert seen == [(1, False)], "the old graph is gone, the new one exists, nothing collects"
    assert gc.isenabled()
    graph.release()
    assert driver.alive == 0


def test_a_graph_given_up_in_a_capture_is_destroyed_behind_it(driver: Driver) -> None:
    old, _ = capture(lambda: None)
    seen = []

    def give_up() -> None:
        old.release()
        seen.append(driver.alive)

    new, _ = capture(give_up)
    assert seen == [2] and driver.alive == 1
    new.replay()
    with pytest.raises(AssertionError, match="released"):
        old.replay()


@pytest.mark.parametrize("collects", [True, False])
def test_failing_work_leaves_nothing_behind(driver: Driver, collects: bool) -> None:
    old, _ = capture(lambda: None)

    def fail() -> None:
        old.release()
        raise ValueError("the work's own words")

    if not collects:
        gc.disable()
    try:
        with pytest.raises(ValueError, match="own words") as told:
            capture(fail)
        assert gc.isenabled() == collects
    finally:
        gc.enable()
    assert told.tb is not None, "whoever keeps the error keeps its frames, and not the graph"
    assert driver.alive == 0 and not module._GIVEN_UP and not module._RUNNING.locked()


def test_captures_of_two_threads_follow_one_another(driver: Driver) -> None:
    """What another thread destroys meanwhile is kept as well, and the collector is as it was when both have ended."""
    inside, proceed, graphs = threading.Event(), threading.Event(), []
    waits = threading.Event()

    def second_capture() -> None:
        waits.set()
        graphs.append(capture(lambda: None)[0])

    def slow() -> None:
        inside.set()
        proceed.wait(60)

    first = threading.Thread(target=lambda: graphs.append(capture(slow)[0]))
    first.start()
    inside.wait(60)
    second = threading.Thread(target=second_capture)
    second.start()
    waits.wait(60)
    leave_cycle(Graph())
    while not module._GIVEN_UP:
        gc.collect()  # does nothing while the other thread's collection is under way
    while driver.alive < 3:
        time.sleep(0.001)  # until the second waits for its turn
    proceed.set()
    first.join(60)
    second.join(60)
    assert len(graphs) == 2 and driver.alive == 2 and gc.isenabled()
