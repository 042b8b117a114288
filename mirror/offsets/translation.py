"""What translating an offset answers, whoever knows the runs.

Main types: `Translated`, and `Translator`, which others are written against.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

TopicPartition = tuple[str, int]


class Exactness(StrEnum):
    """How an answer came about. Only BEFORE and EARLIER may make a consumer read
    records again.
    """

    EXACT = "EXACT"
    """The very record, or the first one behind a hole in which no copy stands."""
    TIP = "TIP"
    """Behind the last copy: all up to the position was copied, or nothing to copy."""
    BEHIND = "BEHIND"
    """The same place as TIP for an offset that is not copied yet."""
    BEFORE = "BEFORE"
    """Older than all that is known of the copy that is there: where that begins."""
    EARLIER = "EARLIER"
    """Copied by MirrorMaker 2, of whose copies only some are known: the last one known
    at or before the very record."""
    UNKNOWN = "UNKNOWN"
    """Nothing of the partition was ever copied: there is no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Translated:
    """An offset on the other side; -1 if it is UNKNOWN."""

    offset: int
    exactness: Exactness
    renewed: bool = False
    """The copy was re-created or lost its end: larger offsets that were answered
    before, for the same source offset or a lower one, no longer hold."""


UNKNOWN = Translated(offset=-1, exactness=Exactness.UNKNOWN)


class Translator(Protocol):
    """Answers for the partitions of one flow, named as on the source."""

    def translate(self, topic: str, partition: int, offset: int) -> Translated:
        """The target's offset for a source's: of the next record to read."""

    def reverse(self, topic: str, partition: int, offset: int) -> Translated:
        """The source's offset for a target's: of the next record to read that came
        from the source.
        """


class ManyTranslator(Translator, Protocol):
    """A translator of many offsets at once."""

    def translate_all(
        self, questions: Mapping[TopicPartition, AbstractSet[int]]
    ) -> Mapping[TopicPartition, Mapping[int, Translated]]:
        """As `translate`, for many offsets of each partition."""
