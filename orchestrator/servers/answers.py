"""What the servers of one startup say when they are asked, as one answer: one server or two, one after the other.

Knows running servers by their addresses and processes; nothing of leases, arms and the store.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

from campaigns.errors import IdentityMismatch
from campaigns.plan import Fixture
from orchestrator.hosts.mapped import mapped_code
from orchestrator.servers.adapters import Adapter, discover
from orchestrator.servers.serving import RunningServer


def identity_of(adapter: Adapter, servers: Sequence[RunningServer]) -> dict[str, Any]:
    """One identity of all servers: lists joined; a value in which two servers differ names both."""
    merged: dict[str, Any] = {}
    for server in servers:
        for name, value in adapter.identity(server.base_url).items():
            if name not in merged:
                merged[name] = value
            elif isinstance(value, list):
                merged[name] = [*merged[name], *(entry for entry in value if entry not in merged[name])]
            elif value != merged[name]:
                merged[name] = f"{merged[name]} | {value}"
    return _mapped(adapter, servers) | merged


def _mapped(adapter: Adapter, servers: Sequence[RunningServer]) -> dict[str, Any]:
    """Of a server that does not say it itself, what its processes run from."""
    if "libraries" in adapter.tells:
        return {}
    files: dict[str, str] = {}
    for server in servers:
        files |= mapped_code([process.pid for process in server.processes()], server.began_s)
    libraries = [{"path": path, "sha256": sha256} for path, sha256 in files.items()]
    return {"libraries": libraries, "libraries_host": socket.gethostname()} if files else {}


def lacks(adapter: Adapter, servers: Sequence[RunningServer], fixture: Fixture) -> list[str]:
    """Optional routes that the servers do not offer, for the report."""
    found = [discover(adapter, server.base_url, fixture, server.model) for server in servers]
    return sorted({name for capabilities in found for name in capabilities.missing()})


def ids_of(adapter: Adapter, servers: Sequence[RunningServer], fixture: Fixture) -> tuple[int, ...] | None:
    """The prompt's token ids; None where a server does not tell them. Raises IdentityMismatch where two differ."""
    answers = [adapter.tokenize(server.base_url, fixture, server.model) for server in servers]
    if any(ids != answers[0] for ids in answers):
        raise IdentityMismatch(f"fixture {fixture.id}: the two servers do not give the same token ids")
    return answers[0]


def capacity_of(adapter: Adapter, servers: Sequence[RunningServer]) -> int | None:
    """Tokens of prompt and answer together, the least of what they tell."""
    lengths = [adapter.max_model_len(server.base_url) for server in servers]
    return min((length for length in lengths if length is not None), default=None)
