"""The result of translating an offset.

Main types: `Translated`, and `Translator`, the protocol that callers use.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from mirror.clusters.topics import TopicPartition


class Exactness(StrEnum):
    """How an answer was found. Only BEFORE and EARLIER may make a consumer read
    records again.
    """

    EXACT = "EXACT"
    """Exactly the next record, or the first one after a hole without copies."""
    TIP = "TIP"
    """The end of the copy: everything up to the position was copied or had no copy."""
    BEHIND = "BEHIND"
    """The same place as TIP for an offset that is not copied yet."""
    BEFORE = "BEFORE"
    """Older than everything known about the current copy: the copy's start."""
    EARLIER = "EARLIER"
    """Copied by MirrorMaker 2, whose copies are only partly known: the last known one
    at or before the record. Or, on the way back, a record that a repair appended behind
    records that follow it."""
    UNKNOWN = "UNKNOWN"
    """Nothing of the partition was ever copied: there is no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Translated:
    """An offset on the other side; -1 if it is UNKNOWN."""

    offset: int
    exactness: Exactness
    renewed: bool = False
    """The copy was re-created or lost its end: larger answers from before, for the
    same source offset or a lower one, are no longer valid."""
    joint: bool = False
    """Found in the maps of all flows that write the copy: a larger answer from before
    may be that of one map alone."""


UNKNOWN = Translated(offset=-1, exactness=Exactness.UNKNOWN)


class Translator(Protocol):
    """Answers for the partitions of one flow, named as on the source."""

    def translate(self, topic: str, partition: int, offset: int) -> Translated:
        """The target's offset for a source's: of the next record to read."""

    def reverse(self, topic: str, partition: int, offset: int) -> Translated:
        """The source's offset for a target's: of the next record to read that came
        from the source.
        """

    def translate_all(
        self, questions: Mapping[TopicPartition, AbstractSet[int]]
    ) -> Mapping[TopicPartition, Mapping[int, Translated]]:
        """As `translate`, for many offsets of each partition."""

    def position(self, topic: str, partition: int) -> int:
        """The next source offset to copy, -1 while not known."""
