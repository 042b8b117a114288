"""When the ends of partitions were seen, and what follows for what is not copied.

Main type: `Sightings`. A record that is not copied was accepted after the last moment
at which the end was seen that is copied now. This needs no times of records, which
producers choose. Pure; times are epoch seconds.
"""

from __future__ import annotations

TopicPartition = tuple[str, int]

_MOST = 32
"""Sightings of one partition to remember, fewer of the middle if it is far behind."""


class Sightings:
    """The ends of a flow's partitions over time."""

    def __init__(self) -> None:
        self._seen: dict[TopicPartition, list[tuple[float, int]]] = {}

    def recall(self, key: TopicPartition, at: float, end: int) -> None:
        """Note an end that was seen before, from the oldest on."""
        self._seen.setdefault(key, []).append((at, end))

    def since(
        self, key: TopicPartition, position: int, end: int, at: float
    ) -> float | None:
        """Note that the end was seen now; returns since when records may be missing, as
        all is copied that the source accepted before that. None: not known.
        """
        seen = self._seen.setdefault(key, [])
        if seen and seen[-1][1] > end:
            seen.clear()  # another topic, or a log that lost its end
        if seen and seen[-1][1] == end:
            seen[-1] = (at, end)
        else:
            seen.append((at, end))
        while len(seen) > 1 and seen[1][1] <= position:
            del seen[0]
        if len(seen) > _MOST:
            del seen[1:-1:2]
        return seen[0][0] if seen[0][1] <= position else None

    def keep_only(self, keys: set[TopicPartition]) -> None:
        """Forget all other partitions."""
        for key in self._seen.keys() - keys:
            del self._seen[key]
