"""Fills buffers with bytes from a line.

Main type: `Incoming`. It waits for missing bytes, or takes only those that have
arrived, so that a broker need not stop sending while we are busy. For a large response
the kernel wakes us per mebibyte instead of per packet (SO_RCVLOWAT), which saves work
on both sides. It does not interpret the bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirror.clusters.wire.line import Line

_LARGE = 64 << 10
_PIECE = 1 << 20


class Incoming:
    """The bytes that arrive over a line."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._wakes_at = 1
        self.taken = 0
        """How many bytes of the current view are filled."""

    def fill(self, view: memoryview, *, wait: bool) -> bool:
        """Continue to fill a view; returns whether it is full. Without `wait`, takes
        only what is there. Pass the same view until it is full.

        Raises:
            TimeoutError: nothing came within the line's timeout.
            ConnectionError: the peer closed the connection.
            OSError: the connection failed in another way.
        """
        waited_in_vain = False
        while self.taken < len(view):
            came = self._line.read(view[self.taken :])
            if came == 0:
                raise ConnectionError("the broker closed the connection")
            if came is not None:
                self.taken += came
                waited_in_vain = False
                continue
            # Only after one more read: a few bytes may have come without waking us.
            if waited_in_vain:
                raise TimeoutError
            self._wake_for(len(view) - self.taken)
            if not wait:
                return False
            waited_in_vain = not self._line.wait_to_read()
        self.taken = 0
        self._wake_for(1)
        return True

    def _wake_for(self, left: int) -> None:
        """Have the kernel wake us per piece of a large rest, else for any byte."""
        wakes_at = min(left, _PIECE) if left >= _LARGE else 1
        if wakes_at != self._wakes_at:
            self._line.wake_at(wakes_at)
            self._wakes_at = wakes_at
