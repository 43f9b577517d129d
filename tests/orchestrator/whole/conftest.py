"""Three nodes on this machine, shared by the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.namespaces import Fleet, fleet, refusal


@pytest.fixture(scope="module")
def nodes() -> Iterator[Fleet]:
    """Three nodes of eight GPUs that are not there."""
    if told := refusal():
        pytest.skip(told)
    with fleet((8, 8, 8)) as made:
        yield made
