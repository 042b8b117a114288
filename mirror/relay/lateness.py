"""How late a partition's copy is, in time: its lag in seconds.

Main type: `Lateness`, what one slot knows about one source partition. A copy that has
everything is not late at all, however old its newest record is; one that lacks
something is as late as the oldest record it lacks. Records' times are epoch seconds;
when the source told something is told in monotonic ones, so that a clock that is set
hides nothing. Both are passed in; records and connections are not known here.
"""

from __future__ import annotations

from dataclasses import dataclass
import time
from typing import NamedTuple

_SILENCE_SECONDS = 3.0
"""A leader answers every half second. For so long its word holds."""


class Now(NamedTuple):
    """A moment by both clocks of the machine."""

    of_day: float
    """Epoch seconds, by the clock that people set."""
    running: float
    """Monotonic seconds."""

    @classmethod
    def read(cls) -> Now:
        return cls(time.time(), time.monotonic())


@dataclass(slots=True)
class Lateness:
    """What the source told, and what of that is copied."""

    end_offset: int = -1
    """The source's last stable offset as last told, -1 while not known."""
    _told_at: float = 0.0
    _waiting: float = -1.0
    """The time of the oldest record that was fetched and is not committed."""
    _newest: float = -1.0
    """The time of the newest record that is committed."""
    _complete: float = -1.0
    """When the copy last had everything, monotonic."""

    def told(self, end_offset: int, now: float) -> None:
        """The source's leader says where its log ends; `now` is monotonic."""
        self.end_offset = end_offset
        self._told_at = now

    def fetched(self, oldest: float) -> None:
        """Records were fetched, the first of them of this time."""
        if self._waiting < 0:
            self._waiting = oldest

    def committed(self, position: int, newest: float, now: float) -> None:
        """All before `position` is copied; `newest` is the time of a record of it, and
        `now` the time of day.
        """
        self._waiting = -1.0
        # Producers choose their records' times: one of next year proves nothing.
        self._newest = max(self._newest, min(newest, now))
        if 0 <= self.end_offset <= position:
            self._complete = max(self._complete, self._told_at)

    def seconds(self, position: int, *, answered: float, now: Now) -> float | None:
        """The lag, None while not known.

        `answered`: when the partition's leader last answered, with or without news, in
        monotonic seconds; 0 if it has not, or if it is not read. Nobody knows what a
        leader has got that is silent: the copy is as late as its last answer.

        A record that is not copied yet is no older than the newest copied one, and no
        older than the moment in which the copy had everything: so this is the age of
        the oldest record that it lacks where that was fetched, and else the least
        that is certain to cover it.
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
        return max(min(ages), 0.0) if ages else None
