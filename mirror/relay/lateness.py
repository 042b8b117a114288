"""How late a partition's copy is, in time: its lag in seconds.

Main type: `Lateness`, what one slot knows about one source partition. A copy that has
everything is not late at all, however old its newest record is; one that lacks
something is as late as the oldest record it lacks. Times are epoch seconds and are
passed in; records and connections are not known here.
"""

from __future__ import annotations

from dataclasses import dataclass

_SILENCE_SECONDS = 3.0
"""A leader answers every half second. For so long its word holds."""


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
    """When the copy last had everything."""

    def told(self, end_offset: int, now: float) -> None:
        """The source's leader says where its log ends."""
        self.end_offset = end_offset
        self._told_at = now

    def fetched(self, oldest: float) -> None:
        """Records were fetched, the first of them of this time."""
        if self._waiting < 0:
            self._waiting = oldest

    def committed(self, position: int, newest: float, now: float) -> None:
        """All before `position` is copied; `newest` is the time of a record of it."""
        self._waiting = -1.0
        # Producers choose their records' times: one of next year proves nothing.
        self._newest = max(self._newest, min(newest, now))
        if 0 <= self.end_offset <= position:
            self._complete = max(self._complete, self._told_at)

    def seconds(self, position: int, *, answered: float, now: float) -> float | None:
        """The lag, None while not known.

        `answered`: when the partition's leader last answered, with or without news.
        Nobody knows what a leader has got that is silent: the copy is as late as
        its last answer.

        A record that is not copied yet is no older than the newest copied one, and no
        older than the moment in which the copy had everything: so this is the age of
        the oldest record that it lacks where that was fetched, and else the least
        that is certain to cover it.
        """
        if self.end_offset < 0 or position < 0:
            return None
        if position >= self.end_offset:
            self._complete = max(self._complete, answered)
            late = now - self._complete
            if self._complete < 0:
                return None
            return late if late > _SILENCE_SECONDS else 0.0
        known = max(self._waiting, self._newest, self._complete)
        return max(now - known, 0.0) if known >= 0 else None
