"""Explains records that are no equal pairs, and names what nothing explains.

`sorted_out` does what needs no further reading: losses, and what retention took.
`explained_by_keys` applies the rule of compaction. What is left becomes findings:
`findings` recognises records that are not where they should be by their marks: moved,
doubled, or unknown to the offset map; `findings_by_content` does so for records that
were matched without a map. All pure.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
import itertools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from mirror.offsets.runs import UPSTREAM
from mirror.proofs.account import Account, FindingKind, ProofFinding, span_of, widened
from mirror.proofs.comparing import NO_MISMATCHES
from mirror.proofs.ranges import covered
from mirror.records import alignment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mirror.proofs.account import CopiedPartition, Span
    from mirror.proofs.comparing import Compared
    from mirror.proofs.log_stream import Damage
    from mirror.proofs.ranges import Longs, Mismatches


Mask = npt.NDArray[np.bool_]
_NOT_MAPPED = (
    "a copy is there, but the offset map has lost the part that named it; use "
    "--by content"
)
_FIELDS = {alignment.KEY: "key", alignment.VALUE: "value"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeOutcome:
    """What records come to: those of a range, or those that ranges left open."""

    account: Account
    findings: tuple[ProofFinding, ...] = ()
    spans: Mapping[str, Span] = field(default_factory=dict)
    """Where the copy has what its source does not have."""
    open: Mismatches = field(default_factory=lambda: NO_MISMATCHES, repr=False)
    """Rows that are not explained yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastOfKeys:
    """The last record of each key that was looked for on one side, sorted by key."""

    keys: Longs = field(default_factory=lambda: np.empty(0, np.int64))
    """Marks of keys, ascending."""
    offsets: Longs = field(default_factory=lambda: np.empty(0, np.int64))
    """-1: none."""
    deleted_at: Longs = field(default_factory=lambda: np.empty(0, np.int64))
    """The time of that record if it is a tombstone, else -1."""

    def of(self, keys: Longs) -> tuple[Longs, Longs]:
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
class NotCopied:
    """What the target keeps about a partition's records that were not copied."""

    lost: tuple[tuple[int, int], ...] = ()
    """Ranges of offsets in the loss ledger, without their ends."""
    dead_letters: frozenset[int] = frozenset()
    """Offsets of records in the dead-letter topic."""


ALL_COPIED = NotCopied()


def sorted_out(compared: Compared, not_copied: NotCopied) -> RangeOutcome:
    """Account for one range."""
    mismatches, work = compared.mismatches, compared.range
    what = mismatches[:, alignment.WHAT]
    source, target = mismatches[:, alignment.SOURCE], mismatches[:, alignment.TARGET]
    missing, strange = what == alignment.ONLY_SOURCE, what == alignment.ONLY_TARGET
    left = np.ones(len(mismatches), np.bool_)

    def take(mask: Mask) -> int:
        mask = mask & left
        left[mask] = False
        return int(mask.sum())

    dead = take(missing & np.isin(source, sorted(not_copied.dead_letters)))
    in_ledger = take(missing & _within(source, not_copied.lost))
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
    return RangeOutcome(
        account=compared.account
        + Account(
            dead_letters=dead, lost=in_ledger, expired=expired, wrong=damaged,
            expired_source=expired_source,
        ),
        findings=tuple(_of_range(compared)),
        spans=spans,
        open=mismatches[left],
    )  # fmt: skip


def of_another_tool(rows: Mismatches, stamped_from: int) -> Mask:
    """Which copies are equal but for our stamp, and precede all that have it: they were
    there before the flow was, as with `mirror adopt`.
    """
    return without_stamp(rows) & (rows[:, alignment.SOURCE] < stamped_from)


def without_stamp(rows: Mismatches) -> Mask:
    """Which copies only lack our stamp."""
    found: Mask = (
        (rows[:, alignment.WHAT] == alignment.UNEQUAL)
        & (rows[:, alignment.FIELD] == alignment.STAMP)
        & (rows[:, alignment.BYTE] == alignment.NO_STAMP)
    )
    return found


def may_be_compacted(rows: Mismatches, what: int) -> Mask:
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
    rows: Mismatches,
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


def _within(offsets: Longs, spans: Iterable[tuple[int, int]]) -> Mask:
    found = np.zeros(len(offsets), np.bool_)
    for first, end in spans:
        found |= (offsets >= first) & (offsets < end)
    return found


def _of_range(compared: Compared) -> Iterator[ProofFinding]:
    work = compared.range
    for damages, on_source in (
        (compared.source_damages, True),
        (compared.target_damages, False),
    ):
        for each in damages:
            yield work.of.finding(
                FindingKind.DAMAGED, source=each.first if on_source else None,
                target=None if on_source else each.first,
                count=each.end - each.first, detail=each.reason,
            )  # fmt: skip
    if compared.failure:
        yield work.of.finding(
            FindingKind.UNPROVEN, source=work.source_first, target=work.target_first,
            count=work.source_end - work.source_first, detail=compared.failure,
        )  # fmt: skip


# ---- findings by the offset map ----


class Paired(NamedTuple):
    """Which rows belong together, by their marks."""

    pairs: list[tuple[int, int]]
    """Rows of records with the rows in which their copies stand, in order of the
    source."""
    lone: list[int]
    """Rows whose copies are of none of these."""


def paired(rows: Mismatches) -> Paired:
    """Find the records whose copies stand elsewhere, among these rows."""
    what = rows[:, alignment.WHAT]
    # Only our stamp differs: it is where it belongs.
    in_place = (what == alignment.UNEQUAL) & (
        rows[:, alignment.SOURCE_MARK] == rows[:, alignment.TARGET_MARK]
    )
    ups: dict[int, list[int]] = {}
    for row in np.flatnonzero((what != alignment.ONLY_TARGET) & ~in_place).tolist():
        ups.setdefault(int(rows[row, alignment.SOURCE_MARK]), []).append(row)
    pairs: list[tuple[int, int]] = []
    lone: list[int] = []
    for mine in ups.values():
        mine.reverse()
    for row in np.flatnonzero((what != alignment.ONLY_SOURCE) & ~in_place).tolist():
        mine = ups.get(int(rows[row, alignment.TARGET_MARK]), [])
        if mine:
            pairs.append((mine.pop(), row))
        else:
            lone.append(row)
    pairs.sort(key=lambda pair: int(rows[pair[0], alignment.SOURCE]))
    return Paired(pairs, lone)


def unexpected_marks(rows: Mismatches, paired: Paired) -> Longs:
    """Marks of copies that are no copy of any of these rows' records: to be looked for
    on the source.
    """
    return np.unique(rows[paired.lone, alignment.TARGET_MARK])


def findings(
    of: CopiedPartition, rows: Mismatches, paired: Paired, originals: Mapping[int, int]
) -> Iterator[ProofFinding]:
    """What is wrong, by source offset; `originals`: the source offsets of the marks
    that were found there.
    """
    pairs, lone = paired
    made = [*_displaced(of, rows, pairs)]
    doubled = [
        row for row in lone if int(rows[row, alignment.TARGET_MARK]) in originals
    ]
    moved = {up for up, _ in pairs}
    filled = {down for _, down in pairs}
    made += [_doubled(of, rows[row], originals) for row in doubled]
    filled |= set(doubled)
    for row, each in enumerate(rows):
        what = each[alignment.WHAT]
        if what == alignment.UNEQUAL and row not in moved and row not in filled:
            made.append(different(of, each))
        elif what != alignment.ONLY_TARGET and row not in moved:
            made.append(missing(of, each))
        elif what != alignment.ONLY_SOURCE and row not in filled:
            made.append(_unexpected(of, each))
    yield from in_order(made)


def _displaced(
    of: CopiedPartition, rows: Mismatches, pairs: list[tuple[int, int]]
) -> Iterator[ProofFinding]:
    """Copies that stand elsewhere than the map says: if they are in order, the map is
    wrong, or has lost its oldest part, which named them.
    """
    if not pairs:
        return
    stand = np.array([rows[down, alignment.TARGET] for _, down in pairs])
    highest = np.maximum.accumulate(stand)
    lowest = np.minimum.accumulate(stand[::-1])[::-1]
    ascending = (highest == stand) & (lowest == stand)
    taken = np.sort(
        rows[rows[:, alignment.WHAT] != alignment.ONLY_SOURCE, alignment.TARGET]
    )
    for index, (up, down) in enumerate(pairs):
        offset, at = rows[up, alignment.SOURCE], int(stand[index])
        expected = int(rows[up, alignment.TARGET])
        between = 0
        if expected != alignment.NOWHERE:
            low, high = min(expected, at), max(expected, at)
            others_between = np.searchsorted(taken, high) - np.searchsorted(
                taken, low + 1
            )
            between = high - low - 1 - int(others_between)
        in_order = bool(ascending[index]) and between <= 0
        kind = FindingKind.DIFFERENT if in_order else FindingKind.SWAPPED
        belongs = int(rows[down, alignment.SOURCE])
        if not in_order:
            detail = "out of order"
            if belongs != alignment.NOWHERE:
                detail += f": the copy of {belongs} belongs there"
        elif expected == alignment.NOWHERE and offset < of.mapped_from:
            kind, detail = FindingKind.UNPROVEN, _NOT_MAPPED
        elif expected == alignment.NOWHERE:
            detail = "the copy is right, but not in the offset map"
        else:
            side = "after" if expected > at else "before"
            detail = f"the copy is right; the map says {abs(expected - at)} {side} it"
        yield finding(
            of, rows[up], kind, source=int(offset), target=at, detail=detail
        )  # fmt: skip


def _doubled(
    of: CopiedPartition, row: Mismatches, originals: Mapping[int, int]
) -> ProofFinding:
    source = originals[int(row[alignment.TARGET_MARK])]
    return finding(
        of, row, FindingKind.DOUBLED, source=source, target=int(row[alignment.TARGET]),
        detail="a further copy, unknown to the offset map",
    )  # fmt: skip


def different(of: CopiedPartition, row: Mismatches) -> ProofFinding:
    which, at, size = (
        int(row[column]) for column in (alignment.FIELD, alignment.BYTE, alignment.OF)
    )
    if which == alignment.STAMP:
        detail = "the header mirror.via is missing or wrong"
    elif which == alignment.TIMESTAMP:
        detail = f"the timestamp differs by {at:+} ms"
    elif which == alignment.HEADERS:
        detail = f"headers differ from number {at + 1} of {size}"
    elif size < 0:
        detail = f"{_FIELDS[which]} is null on the source"
    else:
        detail = f"{_FIELDS[which]} differs from byte {at} of {size}"
    return finding(
        of, row, FindingKind.DIFFERENT, source=int(row[alignment.SOURCE]),
        target=int(row[alignment.TARGET]), detail=detail,
    )  # fmt: skip


def missing(of: CopiedPartition, row: Mismatches) -> ProofFinding:
    return finding(
        of, row, FindingKind.MISSING, source=int(row[alignment.SOURCE]), target=None,
        detail="a transaction that does not end hides what is there in the copy"
        if of.has_open_end and row[alignment.TARGET] >= of.target_end - 1
        else "no ledger entry, dead letter or compaction explains it",
    )  # fmt: skip


def _unexpected(of: CopiedPartition, row: Mismatches) -> ProofFinding:
    claimed = int(row[alignment.SOURCE])
    return finding(
        of, row, FindingKind.UNEXPECTED, source=None, target=int(row[alignment.TARGET]),
        detail="no record's copy" if claimed == alignment.NOWHERE
        else f"the offset map says it is the copy of {claimed}, which is not there",
    )  # fmt: skip


def finding(
    of: CopiedPartition, row: Mismatches, kind: FindingKind, *,
    source: int | None, target: int | None, detail: str,
) -> ProofFinding:  # fmt: skip
    sizes = row[[alignment.KEY_SIZE, alignment.VALUE_SIZE]].tolist()
    key_size, value_size = (None if size < 0 else size for size in sizes)
    return of.finding(
        kind, source=source, target=target, detail=detail,
        time=int(row[alignment.TIME]), key_size=key_size, value_size=value_size,
    )  # fmt: skip


def in_order(found: Iterable[ProofFinding]) -> Iterator[ProofFinding]:
    """By source offset; records in a row with the same fate are one finding."""
    ordered = sorted(found, key=lambda each: (_order(each.source), _order(each.target)))
    for _, group in itertools.groupby(enumerate(ordered), key=_row_of):
        each = [finding for _, finding in group]
        yield replace(each[0], count=sum(one.count for one in each))


def _order(offset: int | None) -> float:
    return float("inf") if offset is None else offset


def _row_of(place: tuple[int, ProofFinding]) -> tuple[object, ...]:
    number, each = place
    return (
        each.kind,
        each.detail,
        None if each.source is None else each.source - number,
        None if each.target is None else each.target - number,
    )


# ---- findings without a map ----
#
# A mark that only one record and one copy have says that the copy moved. Where several
# have it, nothing says which belong together: these are unproven.


def strange_marks(rows: Mismatches) -> Longs:
    """Marks of copies that no row's record has: to be looked for on the source."""
    alone = rows[:, alignment.WHAT] == alignment.ONLY_TARGET
    of_source = rows[:, alignment.WHAT] == alignment.ONLY_SOURCE
    return np.setdiff1d(
        rows[alone, alignment.TARGET_MARK], rows[of_source, alignment.SOURCE_MARK]
    )


def foreign(rows: Mismatches, originals: Mapping[int, int]) -> Mask:
    """Which rows are about records of other writers: they do not claim to come from the
    source, and say nothing that it says.
    """
    strange = np.isin(rows[:, alignment.TARGET_MARK], strange_marks(rows))
    found = np.isin(rows[:, alignment.TARGET_MARK], list(originals))
    others: Mask = (
        (rows[:, alignment.WHAT] == alignment.ONLY_TARGET)
        & (rows[:, alignment.FIELD] != alignment.STAMP)
        & strange
        & ~found
    )
    return others


def findings_by_content(
    of: CopiedPartition, rows: Mismatches, originals: Mapping[int, int]
) -> Iterator[ProofFinding]:
    """What is wrong, by source offset; `rows` without those of other writers.
    `originals`: the source offsets of the `strange_marks` that were found there.
    """
    what = rows[:, alignment.WHAT]
    ups = rows[what == alignment.ONLY_SOURCE]
    downs = rows[what == alignment.ONLY_TARGET]
    made = [different(of, row) for row in rows[what == alignment.UNEQUAL]]
    mine = Counter(ups[:, alignment.SOURCE_MARK].tolist())
    theirs = Counter(downs[:, alignment.TARGET_MARK].tolist())
    copies = {int(row[alignment.TARGET_MARK]): row for row in downs}
    for row in ups:
        mark = int(row[alignment.SOURCE_MARK])
        if mark not in theirs:
            made.append(missing(of, row))
        elif mine[mark] == theirs[mark] == 1:
            made.append(_swapped(of, row, int(copies[mark][alignment.TARGET])))
        else:
            made.append(_unclear(of, row, mine[mark], theirs[mark]))
    for row in downs:
        if int(row[alignment.TARGET_MARK]) in mine:
            continue
        original = originals.get(int(row[alignment.TARGET_MARK]))
        target = int(row[alignment.TARGET])
        made.append(
            finding(
                of, row, FindingKind.UNEXPECTED, source=None, target=target,
                detail="no record's copy",
            )
            if original is None
            else finding(
                of, row, FindingKind.DOUBLED, source=original, target=target,
                detail="a further copy",
            )
        )  # fmt: skip
    yield from in_order(made)


def not_expired(of: CopiedPartition, expired: int, lost: int) -> Iterator[ProofFinding]:
    """For records that seem to have expired, but are more than the offsets that the
    copy's log has lost: some of them were never there, and nothing says which.
    """
    if expired > lost:
        yield of.finding(
            FindingKind.UNPROVEN, source=of.source_first, target=None,
            count=expired - lost,
            detail=f"{expired} records from here on have no copies, and the copy's log "
            f"has lost no more than {lost}: the others were never copied",
        )  # fmt: skip


def _swapped(of: CopiedPartition, row: Mismatches, target: int) -> ProofFinding:
    return finding(
        of, row, FindingKind.SWAPPED, source=int(row[alignment.SOURCE]), target=target,
        detail="out of order",
    )  # fmt: skip


def _unclear(
    of: CopiedPartition, row: Mismatches, here: int, there: int
) -> ProofFinding:
    """Alike records are one finding if they are neighbours, so the detail is alike."""
    made = missing(of, row)
    return replace(
        made,
        kind=FindingKind.UNPROVEN,
        detail=f"{here} records are alike, and {there} copies: which belong together?",
    )
