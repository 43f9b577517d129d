"""Startups side by side end as they would have ended one after the other, whoever is first."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from campaigns.errors import ServerFailed
from orchestrator.abreast import abreast
from orchestrator.stopping import NotNeeded, Stopped, Stopping, leave


@dataclass
class World:
    """Startups of some blocks each. `fails` maps a startup to the block at which it fails for good."""

    stopping: Stopping
    fails: dict[int, int] = field(default_factory=dict)
    blocks: int = 4
    pause: Callable[[int], float] = lambda _: 0.0
    done: dict[int, int] = field(default_factory=dict)  # blocks by startup
    begun: list[int] = field(default_factory=list)
    running: set[int] = field(default_factory=set)
    most: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, startup: int) -> None:
        with self.lock:
            self.begun.append(startup)
            self.running.add(startup)
            self.most = max(self.most, len(self.running))
        try:
            for block in range(self.blocks):
                time.sleep(self.pause(startup))
                if self.fails.get(startup) == block:
                    raise ServerFailed(f"startup {startup}")
                self.done[startup] = block + 1
                self.stopping.check(startup, True)
        finally:
            with self.lock:
                self.running.discard(startup)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(Stopping(tmp_path))


def test_they_are_begun_in_order_at_most_so_many_at_once_and_told_in_order(world: World) -> None:
    chance = random.Random(1)
    world.pause = lambda _: chance.random() / 500
    assert list(abreast(range(12), 3, world.run, world.stopping)) == list(range(12))
    # A thread may be slow to say what it has begun: nobody is more than the two others ahead.
    assert sorted(world.begun) == list(range(12)) and world.most == 3 and not world.running
    assert all(startup - place <= 2 for place, startup in enumerate(world.begun))
    assert world.done == dict.fromkeys(range(12), 4)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("width", [1, 2, 5])
def test_what_ends_a_row_ends_it_side_by_side(world: World, seed: int, width: int) -> None:
    """However long each takes: the same error, and all before it are whole."""
    chance = random.Random(seed)
    world.pause = lambda _: chance.random() / 1000
    world.fails = {startup: chance.randrange(4) for startup in chance.sample(range(10), 3)}
    first, told = min(world.fails), []
    with pytest.raises(ServerFailed, match=f"startup {first}$"):
        for startup in abreast(range(10), width, world.run, world.stopping):
            told.append(startup)
    assert told == list(range(first)) and all(world.done[startup] == 4 for startup in told)
    assert not world.running and (width > 1 or world.begun == list(range(first + 1)))


def test_those_behind_a_failure_end_with_their_block_and_those_before_it_go_on(world: World) -> None:
    world.fails, world.pause = {1: 0}, lambda startup: 0.05 if startup != 1 else 0.0
    with pytest.raises(ServerFailed, match="startup 1"):
        list(abreast(range(9), 3, world.run, world.stopping))
    assert world.done[0] == 4 and world.done.get(2, 0) < 4 and max(world.begun) <= 2


def test_who_stops_asking_ends_those_behind(world: World) -> None:
    """As a verdict would that needs no more startups."""
    world.pause = lambda startup: 0.0 if startup <= 5 else 0.05
    for startup in abreast(range(50), 4, world.run, world.stopping):
        if startup == 5:
            break
    assert not world.running and len(world.begun) < 50
    assert all(world.done[startup] == 4 for startup in range(6))


def test_a_person_ends_all_of_them_after_their_block(world: World, tmp_path: Path) -> None:
    world.pause = lambda startup: 0.0 if startup <= 3 else 0.05

    def run(startup: int) -> None:
        if startup == 3:
            leave(tmp_path / "stop-after-block", "lunch")
        world.run(startup)

    with pytest.raises(Stopped, match="lunch"):
        list(abreast(range(50), 4, run, world.stopping))
    assert not world.running and len(world.begun) < 50


def test_the_keyboard_halts_them_and_waits_for_their_end(world: World) -> None:
    ended: list[int] = []
    begun = threading.Barrier(3, timeout=60)

    def run(startup: int) -> None:
        begun.wait()
        if startup == 0:
            raise KeyboardInterrupt
        assert world.stopping.halted.wait(60)
        ended.append(startup)
        raise NotNeeded

    with pytest.raises(KeyboardInterrupt):
        list(abreast(range(3), 3, run, world.stopping))
    assert sorted(ended) == [1, 2]
