"""What there is to prove, and what a proof says: the values all share.

Main types: `Scope`, as a person or the service asks for it; `CopiedPartition`, one
partition and its copy, as far as a proof goes; `Account`, counts that add up, and
`ProofFinding`, one thing that is wrong, with the coordinates of both sides. The latter
two are what tables, reports and proofs show.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from mirror.clusters.admin import topic_admin

if TYPE_CHECKING:
    from collections.abc import Mapping
    import uuid

    import numpy as np
    import numpy.typing as npt

    from mirror.clusters.topics import TopicPartition


Span = tuple[int, int]
"""The first and the last of some offsets of a copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Of one flow, or of several."""

    pattern: str = ".*"
    """Of the topics' whole names."""
    since: int | None = None
    """Begin with records of this time (epoch ms, or `topic_admin.EARLIEST`); None:
    after the last proof."""
    by_content: bool = False
    """Match records and copies by what they say, without the map."""
    keys: bool = True
    """Whether findings name the keys of their records."""
    remembered: bool = True
    """Whether the target may keep how far this proof came."""

    @property
    def is_kept(self) -> bool:
        """Whether the next proof may begin where this one ends; else something before
        it is unproven.
        """
        return self.remembered and self.since in (None, topic_admin.EARLIEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedPartition:
    """What is to be proven of one partition."""

    topic: str
    partition: int
    target_topic: str
    topic_id: uuid.UUID
    copy_id: uuid.UUID
    source_first: int
    """Where the proof begins on the source."""
    source_end: int
    """The next offset to copy when the proof began."""
    target_first: int
    target_end: int
    """After the last record of the copy that was visible when the proof began."""
    continues: bool = False
    """Whether an earlier proof ended at both firsts. If none did, what the copy has of
    records before `source_first` is left out."""
    source_start: int = 0
    """The first offset of the log when the proof began."""
    target_start: int = 0
    source_lost: int = 0
    """Offsets that the log lost at its beginning; since the earlier proof, if any."""
    target_lost: int = 0
    has_open_end: bool = False
    """Whether a transaction that does not end hides what follows in the copy."""
    begins_with_copies: bool = False
    """Whether what precedes the first record that has a copy is left out."""
    copied_to: int = -1
    """Up to where the flow says it has copied; -1: nothing says."""
    mapped_from: int = 0
    """The first source offset that the map names, if it has lost its oldest part; 0: it
    has not."""
    only_copy: bool = False
    """Whether the source has no such partition."""

    @property
    def key(self) -> TopicPartition:
        """The partition of the source."""
        return self.topic, self.partition

    def log(self, *, on_source: bool) -> TopicPartition:
        """The partition of the source, or of the copy."""
        return (self.topic if on_source else self.target_topic), self.partition

    def finding(
        self, kind: FindingKind, *, source: int | None, target: int | None, **more: Any
    ) -> ProofFinding:
        """A finding in it; `more`: further fields."""
        return ProofFinding(
            kind=kind, topic=self.topic, partition=self.partition,
            target_topic=self.target_topic, source=source, target=target, **more,
        )  # fmt: skip


class FindingKind(StrEnum):
    """What is wrong with a record or its copy."""

    MISSING = "MISSING"
    """Nothing explains why the copy does not have it."""
    DIFFERENT = "DIFFERENT"
    """The copy says something else, or stands elsewhere than the map says."""
    DOUBLED = "DOUBLED"
    """A further copy that the map does not know."""
    SWAPPED = "SWAPPED"
    """Copied, but not in the order of the source."""
    UNEXPECTED = "UNEXPECTED"
    """Claims to come from this source, and is no record's copy."""
    DAMAGED = "DAMAGED"
    """A log cannot be read there."""
    UNPROVEN = "UNPROVEN"
    """Not compared; `detail` says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofFinding:
    """One record, or consecutive ones with the same fate."""

    kind: FindingKind
    topic: str
    partition: int
    target_topic: str
    source: int | None
    """The first source offset."""
    target: int | None
    """The first target offset."""
    count: int = 1
    detail: str = ""
    time: int | None = None
    """Of the first record, epoch ms."""
    key_size: int | None = None
    """In bytes; None: null, or not known."""
    value_size: int | None = None
    key: str | None = None
    """The beginning of it; bytes that are no UTF-8 as `\\xff`. None: as `key_size`, or
    not asked for."""

    def document(self) -> dict[str, Any]:
        """As in reports; without a key if there is none."""
        told = asdict(self)
        if self.key is None:
            del told["key"]
        return told | {"kind": self.kind.value}


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The outcome for each committed record of a source, and what else is in the copy.

    `records` is the sum of `equal` to `wrong`; records that could not be compared are
    not in it.
    """

    source_bytes: int = 0
    """Keys, values and headers of the source's records that were compared."""
    records: int = 0
    equal: int = 0
    filtered: int = 0
    """Came through the target before: the provenance header names it. Or its key's home
    is elsewhere, and the flow leaves such records out."""
    removed: int = 0
    """The flow's function left it out."""
    dead_letters: int = 0
    """The function failed on it, and it is in the dead-letter topic."""
    lost: int = 0
    """Named by the loss ledger."""
    compacted: int = 0
    """The copy has a later record of its key."""
    expired: int = 0
    """The copy's log begins after it."""
    wrong: int = 0
    """Has a finding of its own."""

    repeats: int = 0
    """In the copy: records that were copied again, as the map says, or as may happen
    without exactly-once."""
    older: int = 0
    """In the copy: copies of a deleted topic that had the same name."""
    foreign: int = 0
    """In the copy: records of other writers. If the map is not asked, also what the
    source once had and compacted away or lost, and nothing tells."""
    compacted_source: int = 0
    """In the copy: the source has a later record of its key instead."""
    expired_source: int = 0
    """In the copy: the source's log begins after it."""

    def __add__(self, more: Account) -> Account:
        return Account(
            **{
                each.name: getattr(self, each.name) + getattr(more, each.name)
                for each in fields(self)
            }
        )

    @property
    def explained(self) -> dict[str, int]:
        """Records that are not equal for a known reason, by reason; without zeros."""
        names = ("filtered", "removed", "dead_letters", "lost", "compacted", "expired")
        return {
            name.replace("_", " "): count
            for name in names
            if (count := getattr(self, name))
        }

    def document(self) -> dict[str, int]:
        """As in reports."""
        return asdict(self)


def span_of(name: str, offsets: npt.NDArray[np.int64]) -> dict[str, Span]:
    """Where the copy's records of one field of the account stand; none, no entry."""
    if not len(offsets):
        return {}
    return {name: (int(offsets.min()), int(offsets.max()))}


def widened(spans: Mapping[str, Span], more: Mapping[str, Span]) -> dict[str, Span]:
    """Spans by field of the account, put together."""
    whole = dict(spans)
    for name, (first, last) in more.items():
        begins, ends = whole.get(name, (first, last))
        whole[name] = min(begins, first), max(ends, last)
    return whole
