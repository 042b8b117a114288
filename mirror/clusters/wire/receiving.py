"""Bytes from a line into buffers, each of them whole.

Main type: `Incoming`. It waits for what is missing, or takes only what has come, so
that a broker need not stop sending while we are at work. Of a large answer the kernel
wakes us for each mebibyte, not for each packet (SO_RCVLOWAT), which spares both sides
work. It knows nothing of what the bytes mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirror.clusters.wire.line import Line

_LARGE = 64 << 10
_PIECE = 1 << 20


class Incoming:
    """What comes over a line."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._wakes_at = 1
        self.taken = 0
        """How many bytes are there of a view that is not whole."""

    def fill(self, view: memoryview, *, wait: bool) -> bool:
        """Go on filling a view: whether it is whole. Without `wait`, only with what is
        there; the next call has to be for the same view, until it is whole.

        Raises:
            TimeoutError: nothing came within the line's timeout.
            ConnectionError: the other side closed it.
            OSError: anything else that is wrong with the connection.
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
            # Only now: less than what the kernel wakes us for may have come in time.
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
        """Have the kernel wake us for a piece of a large rest, or for any byte."""
        wakes_at = min(left, _PIECE) if left >= _LARGE else 1
        if wakes_at != self._wakes_at:
            self._line.wake_at(wakes_at)
            self._wakes_at = wakes_at
