"""Partitions set aside: why, since when, and when to try again.

Main type: `Faults`. The first pause is a second, each further one twice as long, up
to a minute; a partition that was copied again starts afresh. Time is passed in.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

TopicPartition = tuple[str, int]

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why a partition is set aside. Times are seconds of the caller's clock."""

    reason: str
    since: float
    pause: float
    retry_at: float


class Faults:
    """The set-aside partitions of one slot."""

    def __init__(self) -> None:
        self._faults: dict[TopicPartition, Fault] = {}

    def set_aside(self, key: TopicPartition, reason: str, now: float) -> None:
        """Set a partition aside, or leave it aside for longer than the last time."""
        known = self._faults.get(key)
        pause = _FIRST_PAUSE_SECONDS
        if known is not None:
            pause = min(known.pause * 2, _LONGEST_PAUSE_SECONDS)
        self._faults[key] = Fault(
            reason=reason,
            since=known.since if known else now,
            pause=pause,
            retry_at=now + pause,
        )

    def aside(self, now: float) -> set[TopicPartition]:
        """Those whose time to be tried again has not come."""
        return {key for key, fault in self._faults.items() if fault.retry_at > now}

    def due(self, now: float) -> bool:
        """Whether any partition is to be tried again."""
        return any(fault.retry_at <= now for fault in self._faults.values())

    def start_retry(self, now: float) -> None:
        """Those that are due get their chance: no second one before the next pause."""
        for key, fault in self._faults.items():
            if fault.retry_at <= now:
                self._faults[key] = replace(fault, retry_at=now + fault.pause)

    def clear(self, key: TopicPartition) -> None:
        """The partition was copied."""
        self._faults.pop(key, None)

    def keep_only(self, keys: set[TopicPartition]) -> None:
        for key in self._faults.keys() - keys:
            del self._faults[key]

    def get(self, key: TopicPartition) -> Fault | None:
        return self._faults.get(key)
