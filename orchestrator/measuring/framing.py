"""Where an HTTP/1.1 response ends, found while its bytes arrive. Standard library only, for the recording process."""

from __future__ import annotations

from collections.abc import Callable


class Framing:
    """Finds the end of one HTTP/1.1 response in a growing buffer (RFC 9112, section 6). ValueError where it cannot."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.until_close = False
        self.reusable = True
        self._at = 0  # start of the part that is still to be framed
        self._step: Callable[[Framing], bool] = Framing._head  # unbound: a bound one would be a reference cycle

    def feed(self, data: bytes) -> bool:
        """Take what one recv brought; True once the response is complete."""
        self.buffer += data
        while True:
            before = self._at
            if self._step(self):
                self.reusable = self.reusable and self._at == len(self.buffer)
                return True
            if self._at == before or self._at > len(self.buffer):
                return False

    def _head(self) -> bool:
        end = self.buffer.find(b"\r\n\r\n", self._at)
        if end < 0:
            return False
        status_line, *lines = bytes(self.buffer[self._at : end]).split(b"\r\n")
        self._at = end + 4
        status = int(status_line.split(b" ", 2)[1])
        if 100 <= status < 200:
            return False
        headers = {name.strip().lower(): value.strip().lower() for name, _, value in (s.partition(b":") for s in lines)}
        self.reusable = status_line.startswith(b"HTTP/1.1") and headers.get(b"connection") != b"close"
        return self._body(status, headers)

    def _body(self, status: int, headers: dict[bytes, bytes]) -> bool:
        if status in (204, 304):
            return True
        if headers.get(b"transfer-encoding", b"").endswith(b"chunked"):
            self._step = Framing._chunk
        elif b"content-length" in headers:
            self._at += int(headers[b"content-length"])
            self._step = Framing._length
            return self._length()
        else:
            self._step = Framing._close
            self.until_close, self.reusable = True, False
        return False

    def _chunk(self) -> bool:
        end = self.buffer.find(b"\r\n", self._at)
        if end < 0:
            return False
        size_bytes = int(bytes(self.buffer[self._at : end]).split(b";")[0], 16)
        if size_bytes == 0:
            self._step = Framing._trailer
            self._at = end  # the trailer starts with the end of this line, so that an empty one ends in CRLF CRLF too
            return self._trailer()
        self._at = end + 2 + size_bytes + 2
        return False

    def _trailer(self) -> bool:
        end = self.buffer.find(b"\r\n\r\n", self._at)
        if end >= 0:
            self._at = end + 4
        return end >= 0

    def _length(self) -> bool:
        return len(self.buffer) >= self._at

    def _close(self) -> bool:
        return False
