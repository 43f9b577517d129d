"""Servers that can be measured. A new one is a module here, a line below, and a YAML in conf/server/.

An adapter knows its server's command line and routes; it knows no device, no process and no time.
"""

from __future__ import annotations

from campaigns.errors import UsageError
from orchestrator.servers.adapters.attach import AttachedServer
from orchestrator.servers.adapters.command import CommandServer
from orchestrator.servers.adapters.dflash2 import Dflash2Server
from orchestrator.servers.adapters.face import Adapter, Ask, Capabilities, Launch, discover

__all__ = ["Adapter", "Ask", "Capabilities", "Launch", "discover", "open_adapter"]

_ADAPTERS = (Dflash2Server, CommandServer, AttachedServer)


def open_adapter(name: str) -> Adapter:
    for kind in _ADAPTERS:
        if kind.name == name:
            adapter: Adapter = kind()
            return adapter
    raise UsageError(f"server.adapter={name}: use one of {', '.join(kind.name for kind in _ADAPTERS)}")
