"""Bytes on their way into a line, as many at a time as it takes.

Main type: `Outgoing`. It never waits, so that the next request can be made while the
last one leaves; whoever owns it sends on when the line has room.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.clusters.wire.line import Line

_BUFFERS_AT_ONCE = 64
"""The kernel takes 1024 at most."""


class Outgoing:
    """What is still to be sent over a line, in order. Empty is false."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._buffers: deque[memoryview] = deque()

    def __bool__(self) -> bool:
        return bool(self._buffers) or self._line.unsent

    def put(self, buffers: Iterable[bytes | memoryview]) -> None:
        """These come next; they must not change before they are sent."""
        self._buffers += map(memoryview, buffers)

    def clear(self) -> None:
        self._buffers.clear()

    def send(self) -> int:
        """Send what the line takes now: how many bytes that was.

        Raises:
            OSError: the connection failed.
        """
        total = 0
        while self:
            part = list(islice(self._buffers, _BUFFERS_AT_ONCE))
            sent = self._line.write(part)
            total += sent
            for buffer in part:
                if sent < len(buffer):
                    self._buffers[0] = buffer[sent:]
                    return total
                sent -= len(buffer)
                self._buffers.popleft()
            if self._line.unsent:
                break
        return total
