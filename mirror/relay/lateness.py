"""How late a partition's copy is, in time: its lag in seconds.

Main type: `Lateness`, what one slot knows about one source partition. A complete copy
is not late at all, however old its newest record is; an incomplete one is as late as
the oldest record it misses. Record times are epoch seconds; the times of the source's
answers are monotonic seconds, so that setting the clock hides nothing. Callers pass in
both; this module knows no records or connections.
"""

from __future__ import annotations

from dataclasses import dataclass
import time
from typing import NamedTuple

_SILENCE_SECONDS = 3.0
"""How long a leader's last answer is trusted; it answers every half second."""


class Now(NamedTuple):
    """A moment on both clocks of the host."""

    of_day: float
    """Epoch seconds, by the clock that can be set."""
    running: float
    """Monotonic seconds."""

    @classmethod
    def read(cls) -> Now:
        return cls(time.time(), time.monotonic())


@dataclass(slots=True)
class Lateness:
    """What the source has reported, and how much of that is copied."""

    end_offset: int = -1
    """The source's last stable offset as last reported, -1 while unknown."""
    _told_at: float = 0.0
    _waiting: float = -1.0
    """The time of the oldest record that is fetched but not committed."""
    _newest: float = -1.0
    """The time of the newest record that is committed."""
    _complete: float = -1.0
    """When the copy was last complete, monotonic."""

    def told(self, end_offset: int, now: float) -> None:
        """Note where the leader says that its log ends; `now` is monotonic."""
        self.end_offset = end_offset
        self._told_at = now

    def fetched(self, oldest: float) -> None:
        """Note the time of the first of the records just fetched."""
        if self._waiting < 0:
            self._waiting = oldest

    def committed(self, position: int, newest: float, now: float) -> None:
        """Note that all before `position` is copied. `newest`: the time of the newest
        record committed. `now`: the time of day.
        """
        self._waiting = -1.0
        # Producers choose the times of records: one in the future proves nothing.
        self._newest = max(self._newest, min(newest, now))
        if 0 <= self.end_offset <= position:
            self._complete = max(self._complete, self._told_at)

    def seconds(self, position: int, *, answered: float, now: Now) -> float | None:
        """The lag, None while unknown.

        `answered`: when the partition's leader last answered, with or without news, in
        monotonic seconds; 0 if it has not answered or is not read. A silent leader may
        have new records: the copy is as late as that leader's last answer.

        A record not yet copied is no older than the newest copied one, and no older
        than the moment when the copy was last complete. So the result is the age of
        the oldest missing record if that was fetched, otherwise the smallest known
        upper bound for it.
        """
        if self.end_offset < 0 or position < 0:
            return None
        if position >= self.end_offset:
            self._complete = max(self._complete, self._told_at, answered)
            late = now.running - self._complete
            return late if late > _SILENCE_SECONDS else 0.0
        ages = [now.of_day - at for at in (self._waiting, self._newest) if at >= 0]
        if self._complete >= 0:
            ages.append(now.running - self._complete)
        # A record from the future may be waiting for any time.
        return min((age for age in ages if age >= 0), default=None)
