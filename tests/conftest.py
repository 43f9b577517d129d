"""How the suite is divided between processes, and what is left out while editing.

`make test` runs `--dist loadfile`: a file stays together, so that a module's fixtures are made once. Files that start a
Ray come first, then those that took longest when they last ran here: the longest do not begin last. Each test keeps its
store, locks and servers below its own temporary folder, so that processes need not know each other.

How long a test takes is kept in pytest's cache, as its `--last-failed` is. `slow` marks what took more than `SLOW_S`
the last time; where nothing has run yet nothing is slow. Only the test itself counts: what a module makes once is paid
by whichever test comes first.

What was imported and collected lives as long as the process: the collector is told not to look at it again and again.
"""

from __future__ import annotations

import gc
import signal
from collections import Counter

import pytest

SLOW_S = 0.25
WORTH_KEEPING_S = 0.02
KEY = "campaigns/seconds"


class Seconds:
    """Of every test that ran here, by its id."""

    def __init__(self, config: pytest.Config) -> None:
        self.cache = config.cache if config.pluginmanager.hasplugin("cacheprovider") else None
        self.writes = not hasattr(config, "workerinput")  # each process of xdist reads, and the first one writes
        self.known: dict[str, float] = self.cache.get(KEY, {}) if self.cache else {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self.known[report.nodeid] = round(report.duration, 2)

    def pytest_sessionfinish(self) -> None:
        if self.cache and self.writes:
            self.cache.set(KEY, {name: s for name, s in self.known.items() if s >= WORTH_KEEPING_S})

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        of_files = Counter[str]()
        for name, seconds in self.known.items():
            of_files[name.partition("::")[0]] += seconds
        for item in items:
            if self.known.get(item.nodeid, 0.0) > SLOW_S:
                item.add_marker("slow")
        items.sort(key=lambda item: (item.get_closest_marker("ray") is None, -of_files[item.nodeid.partition("::")[0]]))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """A tenth of the suite's time went into walks over the same million objects."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def pytest_configure(config: pytest.Config) -> None:
    """A shell in the background makes its children ignore ctrl-C, and nohup a hang-up; some tests send either."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    config.pluginmanager.register(Seconds(config))
