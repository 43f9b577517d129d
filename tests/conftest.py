"""How the suite is divided between processes: what starts Ray is one group and comes first, every other file another.

`make test` runs `--dist loadgroup`: two Rays never start beside each other, a module's fixtures are made once, and the
longest group does not begin last. Each test keeps its store, locks and servers below its own temporary folder.
"""

from __future__ import annotations

import signal

import pytest


def pytest_configure() -> None:
    """A shell that starts the tests in the background makes its children ignore ctrl-C, which some tests press."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        ray = item.get_closest_marker("ray")
        item.add_marker(pytest.mark.xdist_group("ray" if ray else str(item.path)))
    items.sort(key=lambda item: item.get_closest_marker("ray") is None)
