"""Which TCP sockets some processes listen on, from /proc alone."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_LISTEN = "0A"


@dataclass(frozen=True, order=True)
class Listener:
    address: str
    port: int

    @property
    def is_local(self) -> bool:
        return ipaddress.ip_address(self.address).is_loopback

    def __str__(self) -> str:
        host = "*" if ipaddress.ip_address(self.address).is_unspecified else self.address
        return f"{host}:{self.port}"


def listening(pids: Iterable[int]) -> set[Listener]:
    inodes = {inode for pid in pids for inode in _socket_inodes(pid)}
    return {listener for inode, listener in _listeners() if inode in inodes}


def _socket_inodes(pid: int) -> Iterable[str]:
    with suppress(OSError):
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                target = str(fd.readlink())
                if target.startswith("socket:["):
                    yield target[8:-1]


def _listeners() -> Iterable[tuple[str, Listener]]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTEN:
                    address, port = fields[1].split(":")
                    yield fields[9], Listener(_address(address), int(port, 16))


def _address(text: str) -> str:
    """The kernel prints addresses as 32-bit words in the host's byte order."""
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    packed = struct.pack(f"={len(words)}I", *words)
    address = ipaddress.ip_address(packed)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
