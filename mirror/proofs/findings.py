"""Names what is wrong with records and copies that nothing explains.

Main function: `findings`, which is pure. Records that are not where they should be are
recognised by their marks: moved, doubled, or unknown to the offset map.
"""

from __future__ import annotations

from dataclasses import replace
import itertools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mirror.proofs.account import FindingKind, ProofFinding
from mirror.records import alignment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mirror.proofs.content.matching import Odd
    from mirror.proofs.copied_partition import CopiedPartition

_NOT_MAPPED = (
    "a copy is there, but the offset map has lost the part that named it; use "
    "--by content"
)
_FIELDS = {alignment.KEY: "key", alignment.VALUE: "value"}


class Paired(NamedTuple):
    """Which rows belong together, by their marks."""

    pairs: list[tuple[int, int]]
    """Rows of records with the rows in which their copies stand, in order of the
    source."""
    lone: list[int]
    """Rows whose copies are of none of these."""


def unexpected_marks(rows: Odd, paired: Paired) -> Odd:
    """Marks of copies that are no copy of any of these rows' records: to be looked for
    on the source.
    """
    return np.unique(rows[paired.lone, alignment.TARGET_MARK])


def findings(
    of: CopiedPartition, rows: Odd, paired: Paired, originals: Mapping[int, int]
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


def paired(rows: Odd) -> Paired:
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


def _displaced(
    of: CopiedPartition, rows: Odd, pairs: list[tuple[int, int]]
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
            odd_ones = np.searchsorted(taken, high) - np.searchsorted(taken, low + 1)
            between = high - low - 1 - int(odd_ones)
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
    of: CopiedPartition, row: Odd, originals: Mapping[int, int]
) -> ProofFinding:
    source = originals[int(row[alignment.TARGET_MARK])]
    return finding(
        of, row, FindingKind.DOUBLED, source=source, target=int(row[alignment.TARGET]),
        detail="a further copy, unknown to the offset map",
    )  # fmt: skip


def different(of: CopiedPartition, row: Odd) -> ProofFinding:
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


def missing(of: CopiedPartition, row: Odd) -> ProofFinding:
    return finding(
        of, row, FindingKind.MISSING, source=int(row[alignment.SOURCE]), target=None,
        detail="a transaction that does not end hides what is there in the copy"
        if of.has_open_end and row[alignment.TARGET] >= of.target_end - 1
        else "no ledger entry, dead letter or compaction explains it",
    )  # fmt: skip


def _unexpected(of: CopiedPartition, row: Odd) -> ProofFinding:
    claimed = int(row[alignment.SOURCE])
    return finding(
        of, row, FindingKind.UNEXPECTED, source=None, target=int(row[alignment.TARGET]),
        detail="no record's copy" if claimed == alignment.NOWHERE
        else f"the offset map says it is the copy of {claimed}, which is not there",
    )  # fmt: skip


def finding(
    of: CopiedPartition, row: Odd, kind: FindingKind, *,
    source: int | None, target: int | None, detail: str,
) -> ProofFinding:  # fmt: skip
    key_size, value_size = (
        int(row[alignment.KEY_SIZE]),
        int(row[alignment.VALUE_SIZE]),
    )
    return ProofFinding(
        kind=kind,
        topic=of.topic,
        partition=of.partition,
        target_topic=of.target_topic,
        source=source,
        target=target,
        detail=detail,
        time=int(row[alignment.TIME]),
        key_size=None if key_size < 0 else key_size,
        value_size=None if value_size < 0 else value_size,
    )


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
