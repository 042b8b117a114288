"""Commits that were read from the source and whose checkpoints are still due.

Main type: `Followed`. A group's offset in a partition is due at most every other round,
and again while its answer is BEHIND. Each survey of the groups knows what came before
it, so what is left of that is dropped.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from mirror.errors import CorruptBatchError
from mirror.offsets.commit_records import CommitKey, decode_key, decode_value
from mirror.offsets.translation import Exactness

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mirror.clusters.admin.group_offsets import CommittedOffset
    from mirror.clusters.topics import TopicPartition
    from mirror.offsets.groups import GroupsStanding
    from mirror.policy.selection import GroupFilter


_GROUPS = 10_000
"""Whose names the filter has seen lately."""


class Followed:
    """Those of one flow."""

    def __init__(self, wanted: GroupFilter) -> None:
        self.undecodable = 0
        """Records so far that were skipped."""
        self.error = ""
        """What the last of them says."""
        self.of_other_types = 0
        """Records so far that are no commits."""
        self._matches = lru_cache(_GROUPS)(wanted.matches)
        self._due: dict[CommitKey, CommittedOffset] = {}
        self._just: set[CommitKey] = set()
        """Written in the last round."""
        self._seen: set[str] = set()
        self._hidden: set[str] = set()
        """Groups that commit, and that the source does not list to us."""

    def add(
        self, changes: Mapping[bytes, bytes | None], topics: Collection[str]
    ) -> None:
        """Changed records by key; `topics` are those that are copied."""
        for key, value in changes.items():
            try:
                if (found := decode_key(key)) is None:
                    self.of_other_types += 1
                elif found.topic in topics and self._matches(found.group):
                    self._take(found, None if value is None else decode_value(value))
            except CorruptBatchError as error:
                self.undecodable += 1
                self.error = str(error)

    def _take(self, key: CommitKey, committed: CommittedOffset | None) -> None:
        if committed is None:
            self._due.pop(key, None)
        elif key.group not in self._hidden:
            self._due[key] = committed
            self._seen.add(key.group)

    def due(self) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        """By group, as `groups.translated` takes them."""
        just, self._just = self._just, set()
        found: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        for key, committed in self._due.items():
            if key not in just:
                found.setdefault(key.group, {})[key.topic, key.partition] = committed
        return found

    def written(self, standing: GroupsStanding) -> None:
        """What was due has its checkpoints."""
        for group, places in standing.places.items():
            for place in places:
                key = CommitKey(group, place.topic, place.partition)
                self._just.add(key)
                if place.translated.exactness is not Exactness.BEHIND:
                    del self._due[key]

    def surveyed(self, standing: GroupsStanding) -> None:
        """The survey has written the checkpoints of all groups."""
        known = {
            CommitKey(group, place.topic, place.partition): place.upstream
            for group in {key.group for key in self._due}
            for place in standing.places.get(group, ())
        }
        self._due = {
            key: committed
            for key, committed in self._due.items()
            if known.get(key) == committed.offset
        }
        hidden = (self._seen | self._hidden) - standing.groups.keys()
        if len(hidden) > _GROUPS:  # a forgotten one is followed until the next survey
            hidden = self._seen - standing.groups.keys()
        self._hidden = hidden
        self._seen.clear()
