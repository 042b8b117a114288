"""Sends buffers over a line, as many bytes at a time as it accepts.

Main type: `Outgoing`. It never waits, so that the next request can be built while the
last one is sent; its owner calls `send` again when the line has room.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.clusters.wire.line import Line

_BUFFERS_AT_ONCE = 64
"""The kernel accepts 1024 at most."""


class Outgoing:
    """The unsent buffers of a line, in order. False when empty."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._buffers: deque[memoryview] = deque()

    def __bool__(self) -> bool:
        return bool(self._buffers) or self._line.unsent

    def put(self, buffers: Iterable[bytes | memoryview]) -> None:
        """Append buffers; they must not change before they are sent."""
        self._buffers += map(memoryview, buffers)

    def clear(self) -> None:
        self._buffers.clear()

    def send(self) -> int:
        """Send what the line accepts now; returns the number of bytes.

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
