from __future__ import annotations

from collections.abc import Iterator

import pytest

from orchestrator.measuring.client import Client


@pytest.fixture(scope="session")
def client() -> Iterator[Client]:
    with Client() as client:
        yield client
