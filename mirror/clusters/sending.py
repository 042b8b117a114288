"""Bytes on their way into a socket, as many at a time as it takes.

Main type: `Outgoing`. It never waits, so that the next request can be made while the
last one leaves; whoever owns it sends on when the socket has room. TLS wants the same
bytes again after half a write, so there they are cut into pieces beforehand.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
import os
import ssl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    import socket

_BUFFERS_AT_ONCE = 64
"""The kernel takes 1024 at most."""
_TLS_PIECE = 64 << 10
_TLS_SMALL = 4 << 10
"""What is smaller is put together: each piece is a record of its own at least."""


class Outgoing:
    """What is still to be sent through a socket with a timeout, in order. Empty is
    false.
    """

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._tls = isinstance(connected, ssl.SSLSocket)
        self._buffers: deque[memoryview] = deque()

    def __bool__(self) -> bool:
        return bool(self._buffers)

    def put(self, buffers: Iterable[bytes | memoryview]) -> None:
        """These come next; they must not change before they are sent."""
        views = (memoryview(buffer) for buffer in buffers)
        self._buffers += _pieces(views) if self._tls else views

    def clear(self) -> None:
        self._buffers.clear()

    def send(self) -> int:
        """Send what the socket takes now: how many bytes that was.

        Raises:
            OSError: the connection failed.
        """
        return self._send_tls() if self._tls else self._send_plain()

    def _send_plain(self) -> int:
        descriptor = self._socket.fileno()
        total = 0
        while self._buffers:
            part = list(islice(self._buffers, _BUFFERS_AT_ONCE))
            try:
                sent = os.writev(descriptor, part)
            except BlockingIOError:
                break
            total += sent
            for buffer in part:
                if sent < len(buffer):
                    self._buffers[0] = buffer[sent:]
                    return total
                sent -= len(buffer)
                self._buffers.popleft()
        return total

    def _send_tls(self) -> int:
        timeout = self._socket.gettimeout()
        self._socket.settimeout(0)
        total = 0
        try:
            while self._buffers:
                # All of it or, as far as we are told, nothing.
                total += self._socket.send(self._buffers[0])
                self._buffers.popleft()
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            pass
        finally:
            self._socket.settimeout(timeout)
        return total


def _pieces(views: Iterable[memoryview]) -> Iterator[memoryview]:
    small: list[memoryview] = []
    for view in views:
        if len(view) < _TLS_SMALL:
            small.append(view)
            continue
        if small:
            yield memoryview(b"".join(small))
            small = []
        for at in range(0, len(view), _TLS_PIECE):
            yield view[at : at + _TLS_PIECE]
    if small:
        yield memoryview(b"".join(small))
