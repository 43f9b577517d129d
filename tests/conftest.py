"""How the suite is divided between processes: a file stays together, and files that start a Ray come first.

`make test` runs `--dist loadfile`: a module's fixtures are made once, and the longest files do not begin last. Each
test keeps its store, locks and servers below its own temporary folder, so that processes need not know each other.
"""

from __future__ import annotations

import signal

import pytest


def pytest_configure() -> None:
    """A shell in the background makes its children ignore ctrl-C, and nohup a hang-up; some tests send either."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("ray") is None)
