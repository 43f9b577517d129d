"""How the suite is divided between processes, and what is left out while editing.

`make test` runs `--dist loadfile`: a file stays together, so that a module's fixtures are made once; the contract's
cases on a GPU, which need none, go one by one. A failure is named when it happens, whoever ends the run. Files that
start a Ray come first, then those that took longest when they last ran here: the longest do not begin last. Each test
keeps its store, locks and servers below its own temporary folder, so that processes need not know each other.

How long a test takes is kept in pytest's cache, as its `--last-failed` is, and so is how long it takes to make what
tests share (a server, an oracle's answers). `slow` marks a test that took more than `SLOW_S` the last time, or needs
something shared that took more than `SHARED_SLOW_S`; where nothing has run yet nothing is slow.

What was imported and collected lives as long as the process: the collector rests until then, and never looks at it.
"""

from __future__ import annotations

import gc
import signal
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any

import pytest

SLOW_S, SHARED_SLOW_S = 0.2, 1.0
WORTH_KEEPING_S = 0.02
KEY = "campaigns/seconds"
MADE = "seconds to make "


class Seconds:
    """Of every test that ran here, by its id, and of every fixture that outlives a test, by its place and name."""

    def __init__(self, config: pytest.Config) -> None:
        self.cache = config.cache if config.pluginmanager.hasplugin("cacheprovider") else None
        self.writes = not hasattr(config, "workerinput")  # each process of xdist reads, and the first one writes
        self.known: dict[str, float] = self.cache.get(KEY, {}) if self.cache else {}
        self.made: list[tuple[str, float]] = []  # since the last test, for its report: a process of xdist has no other

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        begun = time.perf_counter()
        try:
            return (yield)
        finally:
            if fixturedef.scope != "function":
                name = f"{MADE}{fixturedef.baseid}::{fixturedef.argname}"
                self.made.append((name, round(time.perf_counter() - begun, 2)))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> None:
        item.user_properties += self.made
        self.made.clear()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self.known[report.nodeid] = round(report.duration, 2)
            self.known |= {str(name): float(s) for name, s in report.user_properties if str(name).startswith(MADE)}

    def pytest_sessionfinish(self) -> None:
        if self.cache and self.writes:
            self.cache.set(KEY, {name: s for name, s in self.known.items() if s >= WORTH_KEEPING_S})

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        of_files = Counter[str]()
        for name, seconds in self.known.items():
            of_files[name.removeprefix(MADE).partition("::")[0]] += seconds
        made = (n.removeprefix(MADE) for n, s in self.known.items() if n.startswith(MADE) and s > SHARED_SLOW_S)
        shared = [name.rpartition("::") for name in made]
        for item in items:
            needs = any(item.nodeid.startswith(place) and name in item.fixturenames for place, _, name in shared)
            if needs or self.known.get(item.nodeid, 0.0) > SLOW_S:
                item.add_marker("slow")
        items.sort(key=lambda item: (item.get_closest_marker("ray") is None, -of_files[item.nodeid.partition("::")[0]]))


class Told:
    """Names what fails when it fails: a run that is cut has no summary."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self.config.pluginmanager.getplugin("terminalreporter")
        if report.failed and terminal and not hasattr(self.config, "workerinput"):
            crash = getattr(report.longrepr, "reprcrash", None)
            said = str(getattr(crash, "message", report.longrepr)).strip().partition("\n")[0]
            terminal.write_line(f"\n{report.when} failed: {report.nodeid}: {said[:300]}", flush=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object | None:
    """As `--dist loadfile`, but for the GPU's contract cases: one file, and most of the time of `-m gpu`."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file, _, rest = nodeid.partition("::")
            return nodeid if rest.startswith("test_on_a_gpu[") else file

    return ByFile(config, log)


_FRESH: list[str] = []  # the statements that make an empty file a store


@pytest.fixture(scope="module")
def fresh_stores_remembered() -> Iterator[None]:
    """What all migrations make of an empty file is always the same: they run once in a process.

    For tests of rooms that use stores; those of the migrations (`tests/results/store/test_migrations.py`) run each.
    """
    from results.store import migrate

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrate, "_run_alembic", partial(_remembered, migrate._run_alembic))
        yield


def _remembered(run: Callable[..., None], connection: Any, revision: str = "head") -> None:
    raw = connection.connection.driver_connection
    empty = raw.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    if revision != "head" or not empty or not _FRESH:
        run(connection, revision)
        if revision == "head" and empty:
            _FRESH.extend(line for line in raw.iterdump() if line not in ("BEGIN TRANSACTION;", "COMMIT;"))
        return
    for statement in _FRESH:
        connection.exec_driver_sql(statement)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """A tenth of the suite's time went into walks over the same million objects, and a fifth of the collection's."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    """A shell in the background makes its children ignore ctrl-C, and nohup a hang-up; some tests send either."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    config.pluginmanager.register(Seconds(config))
    config.pluginmanager.register(Told(config))
