"""Follows one record over all clusters: to where it was written, then to all copies.

Main function: `trace`, a search over places; what clusters and flows know about a place
comes from a `TraceKnowledge`, so this module is pure. Each place is looked at once, so
a ring of flows, or two that copy both ways, come to an end. Main types: `RecordPlace`,
and `Row`, one line of the answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from mirror.status.states import PartitionState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class RecordPlace(NamedTuple):
    """Where a record is."""

    cluster: str
    """Alias."""
    topic: str
    partition: int
    offset: int


class How(StrEnum):
    """What a row says about the record at its place."""

    ORIGIN = "ORIGIN"
    """Written there by a producer, not by a flow."""
    COPIED = "COPIED"
    """A copy, and it is not known of what."""
    EXACT = "EXACT"
    """A copy, exactly where the offset map says."""
    REPEAT = "REPEAT"
    """A further copy that the map knows: the flow copied the record again."""
    FILTERED = "FILTERED"
    """Not copied there: it came through that cluster before."""
    REMOVED = "REMOVED"
    """Not copied: the flow's function leaves it out."""
    DEAD_LETTER = "DEAD_LETTER"
    """Not copied: the flow's function fails on it."""
    LOST = "LOST"
    """Not copied: the loss ledger names it."""
    COMPACTED = "COMPACTED"
    """Was there; a later record of its key is, or the key was deleted."""
    EXPIRED = "EXPIRED"
    """Was there; the log begins after it."""
    BEFORE = "BEFORE"
    """Not copied: the flow began after it."""
    BEHIND = "BEHIND"
    """Not copied yet."""
    PAUSED = PartitionState.PAUSED.value
    """Not copied yet: somebody paused the topic."""
    FAULTED = PartitionState.FAULTED.value
    """Not copied yet: the partition is set aside."""
    REFUSED = "REFUSED"
    """Not copied: the topic's copy cannot have the name that the policy gives it."""
    EARLIER = "EARLIER"
    """Copied by MirrorMaker 2: the map does not know where, one by one."""
    ELSEWHERE = "ELSEWHERE"
    """Came from a cluster that no flow of the configuration copies from."""
    NO_RECORD = "NO_RECORD"
    """The offset holds no record."""
    MISSING = "MISSING"
    """It should be there, and nothing explains why it is not."""
    UNKNOWN = "UNKNOWN"
    """It cannot be found out, for the reason given."""


class Sameness(StrEnum):
    """What a copy's bytes say."""

    SAME = "same"
    TRANSFORMED = "transformed"
    """Not the same, but what the flow's function makes of the record."""
    DIFFERENT = "differ"
    UNSEEN = ""
    """One of the two is not there to be compared."""


_NO_LONGER = "a copy by a flow that does not copy its topic to there any more"
_WRONG = frozenset({How.MISSING, How.UNKNOWN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The record at one place, or why it is not there."""

    cluster: str
    topic: str
    """Empty if it is not known; so are partition and offset, with -1."""
    partition: int
    offset: int = -1
    """With COMPACTED and EXPIRED: where it was."""
    time: int = -1
    """Epoch ms; -1 if there is no record to read it from."""
    flow: str = ""
    """The flow that brought it there, or should have."""
    how: How
    sameness: Sameness = Sameness.UNSEEN
    """As the record at the flow's source."""
    detail: str = ""

    @property
    def place(self) -> RecordPlace | None:
        """Where it is, or was."""
        if self.offset < 0:
            return None
        return RecordPlace(self.cluster, self.topic, self.partition, self.offset)

    def says(
        self, how: How, detail: str = "", sameness: Sameness = Sameness.UNSEEN
    ) -> Row:
        """The row, with what is to be said about its place."""
        return replace(self, how=how, detail=detail, sameness=sameness)

    @property
    def right(self) -> bool:
        """Whether the record is as it should be, or a rule explains why not."""
        return self.how not in _WRONG and self.sameness is not Sameness.DIFFERENT


class Origins(NamedTuple):
    """Where the record at one place was copied from."""

    places: Sequence[RecordPlace]
    """More than one only if several flows claim to have written it."""
    unknown: Sequence[Row] = ()
    """Without places: it was copied, but from where is not known, and why."""


class TraceKnowledge(Protocol):
    """What clusters and flows know."""

    def written(self, place: RecordPlace) -> Row:
        """The record at a place to which no flow copied it."""

    def origins(self, place: RecordPlace) -> Origins:
        """Where flows copied the record from."""

    def copies(self, place: RecordPlace) -> Iterable[Row]:
        """What each flow out of the cluster did with the record: a row for each copy,
        or one that says why there is none.
        """


def trace(start: RecordPlace, knowing: TraceKnowledge) -> list[Row]:
    """All places of the record at `start`: first where it was written, then each copy,
    followed by its own copies.
    """
    rows: list[Row] = []
    roots = _roots(start, knowing)
    for unknown in roots.values():
        rows += unknown
    seen: set[RecordPlace] = set()
    # A copy that its origin's flows do not know of is traced on its own.
    for root in (*roots, start):
        if root not in seen:
            seen.add(root)
            rows.append(_written(root, knowing, roots))
            _descend(root, knowing, rows, seen)
    return rows


def _roots(
    start: RecordPlace, knowing: TraceKnowledge
) -> dict[RecordPlace, Sequence[Row]]:
    """The places that no flow is known to have copied the record to, each with what is
    not known about that.
    """
    roots: dict[RecordPlace, Sequence[Row]] = {}
    seen = {start}
    waiting = [start]
    while waiting:
        place = waiting.pop()
        origins = knowing.origins(place)
        if not origins.places:
            roots[place] = origins.unknown
        for origin in origins.places:
            if origin not in seen:
                seen.add(origin)
                waiting.append(origin)
    return roots


def _written(
    root: RecordPlace,
    knowing: TraceKnowledge,
    roots: Mapping[RecordPlace, Sequence[Row]],
) -> Row:
    row = knowing.written(root)
    if row.how is How.ORIGIN:
        if root not in roots:
            return replace(row, how=How.COPIED, detail=_NO_LONGER)
        if any(each.how is not How.UNKNOWN for each in roots[root]):
            return replace(row, how=How.COPIED)
    return row


def _descend(
    root: RecordPlace, knowing: TraceKnowledge, rows: list[Row], seen: set[RecordPlace]
) -> None:
    waiting = [iter(knowing.copies(root))]
    while waiting:
        row = next(waiting[-1], None)
        if row is None:
            waiting.pop()
            continue
        if (place := row.place) in seen:
            continue
        rows.append(row)
        if place is not None:
            seen.add(place)
            waiting.append(iter(knowing.copies(place)))
