"""Bytes on their way into a socket, as many at a time as it takes.

Main type: `Outgoing`. It never waits, so that the next request can be made while the
last one leaves; whoever owns it sends on when the socket has room. For plain sockets
that do not block: TLS wants the same bytes again after half a write.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_BUFFERS_AT_ONCE = 64
"""The kernel takes 1024 at most."""


class Outgoing:
    """What is still to be sent, in order. Empty is false."""

    def __init__(self) -> None:
        self._buffers: deque[memoryview] = deque()

    def __bool__(self) -> bool:
        return bool(self._buffers)

    def put(self, buffers: Iterable[bytes | memoryview]) -> None:
        """These come next; they must not change before they are sent."""
        self._buffers += map(memoryview, buffers)

    def clear(self) -> None:
        self._buffers.clear()

    def send(self, descriptor: int) -> int:
        """Send what the socket takes now: how many bytes that was.

        Raises:
            OSError: the connection failed.
        """
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
