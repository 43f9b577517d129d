"""An open connection whose arrivals the kernel stamps. Standard library only: the recording process uses it."""

from __future__ import annotations

import socket
import struct
from typing import Any

RECV_BYTES = 1 << 16  # below malloc's threshold for mappings: 256 KiB cost 30 us more for each recv
SO_TIMESTAMPNS = 35  # <asm-generic/socket.h>; the socket module has no name for it
_TICK_S = 1.0  # how often silence comes back to its caller

_MOST_HEAD = 1 << 16

Peer = tuple[str, int, bool, str]  # host, port, TLS, proxy (HOST:PORT, or empty)


def opened(peer: Peer, timeout_s: float) -> socket.socket:
    """To the peer, or a tunnel through its proxy (CONNECT, RFC 9110, 9.3.6). OSError where there is none."""
    host, port, _, proxy = peer
    if not proxy:
        return socket.create_connection((host, port), timeout=timeout_s)
    name, _, number = proxy.rpartition(":")
    tunnel = socket.create_connection((name.strip("[]"), int(number)), timeout=timeout_s)
    try:
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        tunnel.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        said = _head(tunnel)
        if not said.partition(b" ")[2].startswith(b"2"):
            raise ConnectionError(f"the proxy {proxy} opens no tunnel: {said.splitlines()[0].decode(errors='replace')}")
    except BaseException:
        tunnel.close()
        raise
    return tunnel


def _head(tunnel: socket.socket) -> bytes:
    """Byte by byte: what follows the empty line is the server's."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        part = tunnel.recv(1)
        if not part or len(head) > _MOST_HEAD:
            raise ConnectionError("the proxy ended the connection before it opened a tunnel")
        head += part
    return head


class Connection:
    """An open connection that stamps arrivals: TCP, or TLS over it where the peer asks for that."""

    def __init__(self, peer: Peer, timeout_s: float) -> None:
        host, _, tls, _ = peer
        self.socket = opened(peer, timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.tls: Any = None
        if tls:
            try:
                self._shake_hands(host)
            except BaseException:
                self.socket.close()
                raise
        self.socket.settimeout(None)

    def _shake_hands(self, host: str) -> None:
        """TLS works on buffers, so that the bytes still come by `recvmsg` and bring their stamp."""
        import ssl

        self._encrypted, self._unsent = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context()
        self.tls = context.wrap_bio(self._encrypted, self._unsent, server_hostname=host)
        while True:
            try:
                self.tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                self.socket.sendall(self._unsent.read())
                self._encrypted.write(self.socket.recv(RECV_BYTES) or _closed())
            finally:
                self.socket.sendall(self._unsent.read())

    def expect(self, timeout_s: float) -> None:
        """How long a recv or a send may take before it comes back empty-handed."""
        tick = min(_TICK_S, timeout_s)
        timeval = struct.pack("ll", int(tick), int(tick % 1 * 1e6))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(timeout_s) + 1, 0))

    def send(self, request: bytes) -> None:
        if self.tls is not None:
            self.tls.write(request)
            request = self._unsent.read()
        self.socket.sendall(request)

    def plain(self, data: bytes) -> bytes:
        """What was received, decrypted; empty while a record is incomplete."""
        if self.tls is None:
            return data
        import ssl

        self._encrypted.write(data)
        parts = []
        try:
            while part := self.tls.read(RECV_BYTES):
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        return b"".join(parts)

    def stale(self) -> bool:
        """Whether an idle connection was closed by the server (or holds bytes that belong to no request)."""
        try:
            return self.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) is not None
        except BlockingIOError:
            return False
        except OSError:
            return True


def _closed() -> bytes:
    raise ConnectionError("the server closed the connection during the TLS handshake")
