"""Explains records that are no equal pairs, as far as something explains them.

`sorted_out` does what needs no further reading: losses, and what retention took.
`explained_by_keys` applies the rule of compaction. What is left is for `findings`. All
pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mirror.offsets.runs import UPSTREAM
from mirror.proofs.account import Account, FindingKind, ProofFinding, span_of, widened
from mirror.proofs.ranges import covered
from mirror.records import alignment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mirror.proofs.account import Span
    from mirror.proofs.comparing import Compared
    from mirror.proofs.content.matching import Odd
    from mirror.proofs.log_stream import Damage

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedOut:
    """What a range comes to so far."""

    account: Account
    findings: tuple[ProofFinding, ...] = ()
    """Damage, and what could not be proven."""
    spans: Mapping[str, Span] = field(default_factory=dict)
    """Where the copy has what its source does not have."""
    open: Odd = field(repr=False)
    """Rows that are not explained yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastOfKeys:
    """The last record of each key that was looked for on one side, sorted by key."""

    keys: Odd = field(default_factory=lambda: np.empty(0, np.int64))
    """Marks of keys, ascending."""
    offsets: Odd = field(default_factory=lambda: np.empty(0, np.int64))
    """-1: none."""
    deleted_at: Odd = field(default_factory=lambda: np.empty(0, np.int64))
    """The time of that record if it is a tombstone, else -1."""

    def of(self, keys: Odd) -> tuple[Odd, Odd]:
        """Offsets and times for these keys; -1 for those not looked for."""
        if not len(self.keys):
            none = np.full(len(keys), -1, np.int64)
            return none, none
        index = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        known = self.keys[index] == keys
        return (
            np.where(known, self.offsets[index], -1),
            np.where(known, self.deleted_at[index], -1),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Excuses:
    """What the target keeps about one source partition."""

    lost: tuple[tuple[int, int], ...] = ()
    """Ranges of offsets in the loss ledger, without their ends."""
    dead_letters: frozenset[int] = frozenset()
    """Offsets of records in the dead-letter topic."""


NO_EXCUSES = Excuses()


def sorted_out(compared: Compared, excuses: Excuses) -> SortedOut:
    """Account for one range."""
    odd, work = compared.odd, compared.range
    what = odd[:, alignment.WHAT]
    source, target = odd[:, alignment.SOURCE], odd[:, alignment.TARGET]
    missing, strange = what == alignment.ONLY_SOURCE, what == alignment.ONLY_TARGET
    left = np.ones(len(odd), np.bool_)

    def take(mask: Mask) -> int:
        mask = mask & left
        left[mask] = False
        return int(mask.sum())

    dead = take(missing & np.isin(source, sorted(excuses.dead_letters)))
    in_ledger = take(missing & _within(source, excuses.lost))
    damaged = take(missing & _within(target, _spans(compared.target_damages)))
    take(strange & _within(source, _spans(compared.source_damages)))
    nowhere = missing & (target == alignment.NOWHERE)
    # Before the copy's log, by its own map: what it never had is not expired.
    start = max(compared.target_start, work.of.target_start)
    gone = nowhere & covered(source, work.gone, UPSTREAM)
    expired = take(gone | (missing & ~nowhere & (target < start)))
    early = strange & (source != alignment.NOWHERE) & (source < compared.source_start)
    spans = widened(compared.spans, span_of("expired_source", target[early & left]))
    expired_source = take(early)
    return SortedOut(
        account=Account(
            source_bytes=compared.source_bytes,
            records=compared.records,
            equal=compared.equal,
            filtered=compared.looped,
            removed=compared.removed,
            dead_letters=dead,
            lost=in_ledger,
            expired=expired,
            wrong=damaged,
            repeats=compared.repeats,
            older=compared.older,
            foreign=compared.foreign,
            expired_source=expired_source,
        ),
        findings=tuple(_of_range(compared)),
        spans=spans,
        open=odd[left],
    )


def of_another_tool(rows: Odd, stamped_from: int) -> Mask:
    """Which copies are equal but for our stamp, and precede all that have it: they were
    there before the flow was, as with `mirror adopt`.
    """
    return without_stamp(rows) & (rows[:, alignment.SOURCE] < stamped_from)


def without_stamp(rows: Odd) -> Mask:
    """Which copies only lack our stamp."""
    found: Mask = (
        (rows[:, alignment.WHAT] == alignment.UNEQUAL)
        & (rows[:, alignment.FIELD] == alignment.STAMP)
        & (rows[:, alignment.BYTE] == alignment.NO_STAMP)
    )
    return found


def may_be_compacted(rows: Odd, what: int) -> Mask:
    """Which rows have a key, and no record on the other side, whose place there is
    known.
    """
    other = alignment.TARGET if what == alignment.ONLY_SOURCE else alignment.SOURCE
    found: Mask = (
        (rows[:, alignment.WHAT] == what)
        & (rows[:, other] != alignment.NOWHERE)
        & (rows[:, alignment.KEY_SIZE] >= 0)
    )
    return found


def explained_by_keys(
    rows: Odd,
    what: int,
    without: LastOfKeys,
    having: LastOfKeys,
    *,
    deleted_before: int,
) -> Mask:
    """Which rows compaction explains: the side without the record has a later one of
    its key, or the key was deleted and its tombstone is old enough to be gone.

    `without`, `having`: found on the side without the record, and on the other.
    `deleted_before`: tombstones with times before it may be removed; epoch ms.
    """
    here = alignment.TARGET if what == alignment.ONLY_SOURCE else alignment.SOURCE
    there = alignment.SOURCE if what == alignment.ONLY_SOURCE else alignment.TARGET
    keys = rows[:, alignment.KEY_MARK]
    later, _ = without.of(keys)
    last, deleted_at = having.of(keys)
    gone = (deleted_at >= 0) & (deleted_at < deleted_before)
    deleted = gone & (last >= rows[:, there]) & (later < 0)
    return may_be_compacted(rows, what) & ((later > rows[:, here]) | deleted)


def _spans(damages: Iterable[Damage]) -> tuple[tuple[int, int], ...]:
    return tuple((each.first, each.end) for each in damages)


def _within(offsets: Odd, spans: Iterable[tuple[int, int]]) -> Mask:
    found = np.zeros(len(offsets), np.bool_)
    for first, end in spans:
        found |= (offsets >= first) & (offsets < end)
    return found


def _of_range(compared: Compared) -> Iterator[ProofFinding]:
    of = compared.range.of
    where = ProofFinding(
        kind=FindingKind.DAMAGED, topic=of.topic, partition=of.partition,
        target_topic=of.target_topic, source=None, target=None,
    )  # fmt: skip
    for each in compared.source_damages:
        yield replace(
            where, source=each.first, count=each.end - each.first, detail=each.reason
        )
    for each in compared.target_damages:
        yield replace(
            where, target=each.first, count=each.end - each.first, detail=each.reason
        )
    if compared.failure:
        yield replace(
            where,
            kind=FindingKind.UNPROVEN,
            source=compared.range.source_first,
            target=compared.range.target_first,
            count=compared.range.source_end - compared.range.source_first,
            detail=compared.failure,
        )
