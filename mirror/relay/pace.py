"""How much a slot reads: at a time, and per second if the flow has a limit.

Main type: `Pace`. What has arrived counts, so that it is exact however large an answer
turns out: after an answer that was more than allowed, nothing is asked until the time
has made up for it. Pure: `source` asks and counts, `filling` says what there is room
for, the driver divides the limit.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_SAVED_SECONDS = 2.0
"""What is not used is kept for this long: over the time between two leases."""
_AT_ONCE_SECONDS = 0.5
"""One answer brings no more than this, so that the rate is even."""
_LEAST_BYTES = 16 << 10


class Pace:
    """What one slot may ask for."""

    def __init__(
        self,
        max_bytes: int,
        partition_max_bytes: int,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """As `ask_for` takes them."""
        self.channels_each = 1
        """Channels per leader. A partition is in one request at a time, so each fetches
        as many times more of it."""
        self._max_bytes = max_bytes
        self._partition_max_bytes = partition_max_bytes
        self._clock = clock
        self._rate = 0.0
        self._saved = 0.0
        """Bytes that may be read now; negative: that were read too early."""
        self._at = clock()

    def allow(self, bytes_per_second: float, *, from_now: bool = False) -> None:
        """From now on, read so much; 0: without a limit. A lower limit makes up for
        what was read too early in the same time as the one before. `from_now`: the time
        since it was last asked does not count.
        """
        if from_now:
            self._at = self._clock()
        self._count()
        if bytes_per_second < self._rate:
            self._saved *= bytes_per_second / self._rate
        self._rate = bytes_per_second

    def ask_for(self, max_bytes: int, partition_max_bytes: int) -> None:
        """Set how much to fetch at a time from a leader, and of one partition."""
        self._max_bytes = max_bytes
        self._partition_max_bytes = partition_max_bytes

    @property
    def most_bytes(self) -> int:
        """The most to ask a leader for at a time."""
        if not self._rate:
            return self._max_bytes
        allowed = max(int(self._rate * _AT_ONCE_SECONDS), _LEAST_BYTES)
        return min(self._max_bytes, allowed)

    @property
    def partition_most_bytes(self) -> int:
        """The most that a broker returns of one partition."""
        return min(self._partition_max_bytes * self.channels_each, self.most_bytes)

    def waits(self, on_the_way: int) -> float:
        """Seconds until more may be asked for; 0: now. `on_the_way`: what has been
        asked for may bring so many bytes.
        """
        if not self._rate:
            return 0.0
        self._count()
        return max((on_the_way - self._saved) / self._rate, 0.0)

    def take(self, size: int) -> None:
        """Count bytes that have arrived."""
        if self._rate:
            self._count()
            self._saved -= size

    def _count(self) -> None:
        now = self._clock()
        most = self._rate * _SAVED_SECONDS
        self._saved = min(self._saved + (now - self._at) * self._rate, most)
        self._at = now
