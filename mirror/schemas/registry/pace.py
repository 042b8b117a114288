"""Keeps the requests to a registry below a rate.

Main type: `RequestPace`, called before each request. It lets a second's worth of them
through at once, then waits.
"""

from __future__ import annotations

import time


class RequestPace:
    """A limit of requests per second. Not thread-safe."""

    def __init__(self, per_second: float) -> None:
        self._seconds = 1.0 / per_second
        self._next = time.monotonic() - 1.0
        """When the next one would be due without the second's worth."""

    def __call__(self) -> None:
        """Wait until another request may be sent."""
        now = time.monotonic()
        self._next = max(self._next, now - 1.0) + self._seconds
        if self._next > now:
            time.sleep(self._next - now)
