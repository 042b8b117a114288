"""Explains records that are no equal pairs, and names what nothing explains.

`sorted_out`, which is pure, does what needs no further reading: losses, and what
retention took. Main type: `Settling`, for what ranges left open. It runs in the driver
and asks for tasks that look through a log: `last_of_keys` where a topic is compacted,
`originals` of unexpected copies, `differences` of changed ones. What is left becomes
findings: `findings` recognises records that are not where they should be by their
marks: moved, doubled, or unknown to the offset map; `findings_by_content` does so for
records that were matched without a map. Marks only locate: that a record is equal to
its copy is decided byte by byte, in `comparing`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
import itertools
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mirror.clusters.admin import configs, topic_admin
from mirror.errors import NoLeaderError, UnreachableError
from mirror.offsets.runs import UPSTREAM
from mirror.proofs import sides
from mirror.proofs.account import Account, FindingKind, ProofFinding, span_of, widened
from mirror.proofs.comparing import NO_MISMATCHES, compare
from mirror.proofs.log_stream import OffsetRange
from mirror.proofs.ranges import PackedRuns, Range, covered
from mirror.records import alignment, to_columns
from mirror.records.listing import NO_LOOPS, Loops, listed
from mirror.retry import patiently

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.proofs.account import CopiedPartition, Span
    from mirror.proofs.comparing import Compared
    from mirror.proofs.log_stream import Damage
    from mirror.proofs.ranges import Longs, Mismatches
    from mirror.proofs.runners import Runner
    from mirror.proofs.sides import ProofTerms
    from mirror.records.batch import Rows
    from mirror.records.listing import Listed


Mask = npt.NDArray[np.bool_]
_NOT_MAPPED = (
    "a copy is there, but the offset map has lost the part that named it; use "
    "--by content"
)
_FIELDS = {alignment.KEY: "key", alignment.VALUE: "value"}
_DELETE_RETENTION_MS = 86_400_000
MOST = 10_000
"""Pairs that are compared in one go; the others count as missing and unexpected."""
_FAR = 1_000
"""Offsets between pairs that are read apart."""
_IDENTITIES = (
    [alignment.KEY_MARK, alignment.KEY_SIZE, alignment.TIME],
    [alignment.KEY_MARK, alignment.KEY_SIZE],
    [alignment.TIME],
)
"""What makes a copy the record's, from the surest on."""
_MOST_KEY_BYTES = 256
"""Of a key; a report says its size as well."""
_FAR_RECORDS = 20_000
"""Offsets between two records from which it is faster to ask for each."""
NO_STAMP = np.empty(0, np.uint8)


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


class Settling:
    """For the partitions of one flow."""

    def __init__(
        self,
        terms: ProofTerms,
        source: Cluster,
        target: Cluster,
        runner: Runner,
        partitions: Collection[CopiedPartition],
    ) -> None:
        """`partitions`: all that may be settled.

        Raises:
            ClusterError: a cluster does not tell the configs of its topics.
        """
        self._terms = terms
        self._source, self._target = source, target
        self._runner = runner
        self._compaction = self._compacting(partitions)

    def explain(
        self, of: CopiedPartition, rows: Mismatches, *, timed: bool, stamped_from: int
    ) -> RangeOutcome:
        """Explain rows, or make findings of them; `timed`: their marks have times.
        `stamped_from`: the first source offset whose copy is as it must be.

        Raises:
            ClusterError: a log cannot be read.
        """
        bare = of_another_tool(rows, stamped_from)
        rows = _without(rows, bare)
        filtered = self._filtered(of, rows)
        rows = _without(rows, filtered)
        found_at = partial(self._originals, of, timed=timed)
        originals: dict[int, int] = {}
        asked = np.empty(0, np.int64)
        if self._terms.scope.by_content:
            # Before compaction is asked, which would explain a changed copy and its
            # record apart.
            asked = strange_marks(rows)
            originals = found_at(asked)
            rows = self._compared(of, rows, originals, sure=True)
        compacted = self._compacted(of, rows, alignment.ONLY_SOURCE)
        on_source = self._compacted(of, rows, alignment.ONLY_TARGET)
        spans = span_of("compacted_source", rows[on_source, alignment.TARGET])
        rows = _without(rows, compacted | on_source)
        foreign = 0
        if self._terms.scope.by_content:
            marks = np.setdiff1d(strange_marks(rows), asked)
            originals |= found_at(marks)
            rows = self._compared(of, rows, originals)
            others = of_other_writers(rows, originals)
            foreign = int(others.sum())
            spans |= span_of("foreign", rows[others, alignment.TARGET])
            rows = rows[~others]
            found = [*findings_by_content(of, rows, originals)]
        else:
            found = [*findings(of, rows, found_at)]
        repeats = 0
        if not self._terms.flow.exactly_once:
            repeats = sum(e.count for e in found if e.kind is FindingKind.DOUBLED)
            found = [e for e in found if e.kind is not FindingKind.DOUBLED]
        of_source = rows[:, alignment.WHAT] != alignment.ONLY_TARGET
        return RangeOutcome(
            account=Account(
                equal=int(bare.sum()),
                filtered=int(filtered.sum()),
                compacted=int(compacted.sum()),
                compacted_source=int(on_source.sum()),
                wrong=int(of_source.sum()),
                repeats=repeats,
                foreign=foreign,
            ),
            findings=tuple(found),
            spans=spans,
        )

    def _filtered(self, of: CopiedPartition, rows: Mismatches) -> Mask:
        """Which rows are about records that the flow left out while it stamped copies:
        one that does so now does not list them.
        """
        found = rows[:, alignment.WHAT] == alignment.ONLY_SOURCE
        if self._terms.flow.provenance or not found.any():
            return np.zeros(len(rows), np.bool_)
        offsets = np.unique(rows[found, alignment.SOURCE])
        wanted = OffsetRange.within(
            of, int(offsets[0]), int(offsets[-1]) + 1, on_source=True
        )
        looped = self._ask(filtered, wanted, offsets)
        mask: Mask = found & np.isin(rows[:, alignment.SOURCE], looped)
        return mask

    def _compared(
        self,
        of: CopiedPartition,
        rows: Mismatches,
        originals: Mapping[int, int],
        *,
        sure: bool = False,
    ) -> Mismatches:
        """The rows, with one for each changed copy and its record instead of two."""
        pairs = pair_changed(rows, originals, sure=sure)
        if not len(pairs):
            return rows
        ups, downs = rows[pairs[:, 0]], rows[pairs[:, 1]]
        places = np.stack([ups[:, alignment.SOURCE], downs[:, alignment.TARGET]], 1)
        unequal = self._ask(differences, of, places)
        columns = [alignment.SOURCE, alignment.TARGET]
        told = set(map(tuple, unequal[:, columns].tolist()))
        done = pairs[[tuple(each) in told for each in places.tolist()]]
        return np.concatenate([np.delete(rows, done.ravel(), axis=0), unequal])

    def _originals(
        self, of: CopiedPartition, marks: Longs, *, timed: bool
    ) -> dict[int, int]:
        if not len(marks) or of.only_copy:
            return {}
        log = self._whole_log(of, on_source=True)
        return dict(self._ask(originals, log, marks, timed=timed))

    def _compacted(self, of: CopiedPartition, rows: Mismatches, what: int) -> Mask:
        """Which rows compaction explains."""
        mask = may_be_compacted(rows, what)
        on_source = what == alignment.ONLY_TARGET
        topic, _ = of.log(on_source=on_source)
        compaction = self._compaction[on_source, topic]
        if compaction is None or not mask.any():
            return np.zeros(len(rows), np.bool_)
        before = int(time.time() * 1000) - compaction
        here = alignment.SOURCE if on_source else alignment.TARGET
        there = alignment.TARGET if on_source else alignment.SOURCE
        without = self._last_of_keys(of, rows[mask], here, on_source=on_source)
        found = explained_by_keys(
            rows, what, without, LastOfKeys(), deleted_before=before
        )
        if (left := mask & ~found).any():
            having = self._last_of_keys(of, rows[left], there, on_source=not on_source)
            found |= explained_by_keys(
                rows, what, without, having, deleted_before=before
            )
        return found

    def _last_of_keys(
        self, of: CopiedPartition, rows: Mismatches, column: int, *, on_source: bool
    ) -> LastOfKeys:
        wanted = self._whole_log(of, on_source=on_source)
        wanted = replace(wanted, first=max(wanted.first, int(rows[:, column].min())))
        keys = np.unique(rows[:, alignment.KEY_MARK])
        found: LastOfKeys = self._ask(last_of_keys, wanted, keys, on_source=on_source)
        return found

    def _ask(self, task: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """What one task returns."""
        (found,) = self._runner.results(
            [partial(task, self._terms, *arguments, **options)]
        )
        return found

    def _whole_log(self, of: CopiedPartition, *, on_source: bool) -> OffsetRange:
        """All of a log, with what came after the proof began."""
        cluster = self._source if on_source else self._target
        key = of.log(on_source=on_source)

        def ask(timestamp: int) -> int:
            found = topic_admin.list_offsets(cluster, [key], timestamp=timestamp)
            if not found:
                raise NoLeaderError(f"cluster {cluster.alias}: {key[0]} has no leader")
            return found[key]

        first, end = (
            patiently(partial(ask, each), also=UnreachableError)
            for each in (topic_admin.EARLIEST, topic_admin.LATEST)
        )
        return OffsetRange.within(of, first, end, on_source=on_source)

    def _compacting(
        self, partitions: Collection[CopiedPartition]
    ) -> dict[tuple[bool, str], int | None]:
        """By side and topic: for how long tombstones stay, in ms; None: the topic is
        not compacted.
        """
        found: dict[tuple[bool, str], int | None] = {}
        for on_source, cluster in ((True, self._source), (False, self._target)):
            names = {of.log(on_source=on_source)[0] for of in partitions}
            described_topics = patiently(
                partial(configs.describe, cluster, names), also=UnreachableError
            )
            for name, described in described_topics.items():
                if described.error is not None and not described.missing:
                    raise described.error
                # Services leave out configs that they do not have.
                policy, stay = (
                    each.value if (each := described.configs.get(key)) else None
                    for key in ("cleanup.policy", "delete.retention.ms")
                )
                is_compacted = "compact" in (policy or "")
                tombstones_stay = int(stay or _DELETE_RETENTION_MS)
                found[on_source, name] = tombstones_stay if is_compacted else None
        return found


def _without(rows: Mismatches, mask: Mask) -> Mismatches:
    """The other rows; not as a copy if that is all of them, for there may be many."""
    return rows[~mask] if mask.any() else rows


# ---- what explains a record by itself, or by later ones of its key ----


@dataclass(frozen=True, slots=True, kw_only=True)
class LastOfKeys:
    """The last record of each key that was looked for on one side, sorted by key."""

    keys: Longs = field(default_factory=lambda: np.empty(0, np.int64))
    """Marks of keys, ascending."""
    offsets: Longs = field(default_factory=lambda: np.empty(0, np.int64))
    """-1: none."""
    deleted_at: Longs = field(default_factory=lambda: np.empty(0, np.int64))
    """The time of that record if it is a tombstone, else -1."""

    def look_up(self, keys: Longs) -> tuple[Longs, Longs]:
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
    later, _ = without.look_up(keys)
    last, deleted_at = having.look_up(keys)
    gone = (deleted_at >= 0) & (deleted_at < deleted_before)
    deleted = gone & (last >= rows[:, there]) & (later < 0)
    return may_be_compacted(rows, what) & ((later > rows[:, here]) | deleted)


# ---- findings by the offset map ----


def findings(
    of: CopiedPartition,
    rows: Mismatches,
    found_at: Callable[[Longs], Mapping[int, int]],
) -> Iterator[ProofFinding]:
    """What is wrong, by source offset; `found_at`: looks for marks on the source, and
    says at which offsets they are.
    """
    pairs, lone = _moved(rows)
    # Copies of none of these rows' records.
    originals = found_at(np.unique(rows[lone, alignment.TARGET_MARK]))
    made = [*_displaced(of, rows, pairs)]
    moved = {up for up, _ in pairs}
    filled = {down for _, down in pairs}
    for row in lone:
        mark = int(rows[row, alignment.TARGET_MARK])
        if mark in originals:
            filled.add(row)
            detail = "a further copy, unknown to the offset map"
            made.append(_doubled(of, rows[row], originals[mark], detail))
    for row, each in enumerate(rows):
        what = each[alignment.WHAT]
        if what == alignment.UNEQUAL and row not in moved and row not in filled:
            made.append(different(of, each))
        elif what != alignment.ONLY_TARGET and row not in moved:
            made.append(missing(of, each))
        elif what != alignment.ONLY_SOURCE and row not in filled:
            claimed = int(each[alignment.SOURCE])
            detail = "no record's copy"
            if claimed != alignment.NOWHERE:
                detail = f"the offset map says it is the copy of {claimed}, which is "
                detail += "not there"
            made.append(_unexpected(of, each, detail))
    yield from in_order(made)


def _moved(rows: Mismatches) -> tuple[list[tuple[int, int]], list[int]]:
    """Which rows belong together, by their marks: rows of records with the rows in
    which their copies stand, in order of the source; and rows whose copies are of none
    of these.
    """
    what = rows[:, alignment.WHAT]
    # Only our stamp differs: it is where it belongs.
    in_place = (what == alignment.UNEQUAL) & (
        rows[:, alignment.SOURCE_MARK] == rows[:, alignment.TARGET_MARK]
    )
    ups: dict[int, list[int]] = {}
    for row in np.flatnonzero((what != alignment.ONLY_TARGET) & ~in_place).tolist():
        ups.setdefault(int(rows[row, alignment.SOURCE_MARK]), []).append(row)
    for mine in ups.values():
        mine.reverse()
    pairs: list[tuple[int, int]] = []
    lone: list[int] = []
    for row in np.flatnonzero((what != alignment.ONLY_SOURCE) & ~in_place).tolist():
        if mine := ups.get(int(rows[row, alignment.TARGET_MARK]), []):
            pairs.append((mine.pop(), row))
        else:
            lone.append(row)
    pairs.sort(key=lambda pair: int(rows[pair[0], alignment.SOURCE]))
    return pairs, lone


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
        yield finding(of, rows[up], kind, (int(offset), at), detail)


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
    places = int(row[alignment.SOURCE]), int(row[alignment.TARGET])
    return finding(of, row, FindingKind.DIFFERENT, places, detail)


def missing(of: CopiedPartition, row: Mismatches) -> ProofFinding:
    detail = "no ledger entry, dead letter or compaction explains it"
    if of.has_open_end and row[alignment.TARGET] >= of.target_end - 1:
        detail = "a transaction that does not end hides what is there in the copy"
    places = int(row[alignment.SOURCE]), None
    return finding(of, row, FindingKind.MISSING, places, detail)


def _doubled(
    of: CopiedPartition, row: Mismatches, original: int, detail: str
) -> ProofFinding:
    places = original, int(row[alignment.TARGET])
    return finding(of, row, FindingKind.DOUBLED, places, detail)


def _unexpected(of: CopiedPartition, row: Mismatches, detail: str) -> ProofFinding:
    places = None, int(row[alignment.TARGET])
    return finding(of, row, FindingKind.UNEXPECTED, places, detail)


def finding(
    of: CopiedPartition,
    row: Mismatches,
    kind: FindingKind,
    places: tuple[int | None, int | None],
    detail: str,
) -> ProofFinding:
    """`places`: on the source and in the copy."""
    sizes = row[[alignment.KEY_SIZE, alignment.VALUE_SIZE]].tolist()
    key_size, value_size = (None if size < 0 else size for size in sizes)
    return of.finding(
        kind, source=places[0], target=places[1], detail=detail,
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


def of_other_writers(rows: Mismatches, originals: Mapping[int, int]) -> Mask:
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
    copies = dict(downs[:, [alignment.TARGET_MARK, alignment.TARGET]].tolist())
    for row in ups:
        mark = int(row[alignment.SOURCE_MARK])
        if mark not in theirs:
            made.append(missing(of, row))
        elif mine[mark] == theirs[mark] == 1:
            places = int(row[alignment.SOURCE]), copies[mark]
            made.append(finding(of, row, FindingKind.SWAPPED, places, "out of order"))
        else:
            made.append(
                replace(
                    missing(of, row),
                    kind=FindingKind.UNPROVEN,
                    # Alike records are one finding if they are neighbours.
                    detail=f"{mine[mark]} records are alike, and {theirs[mark]} "
                    "copies: which belong together?",
                )
            )
    for row in downs:
        mark = int(row[alignment.TARGET_MARK])
        if mark in mine:
            continue
        made.append(
            _unexpected(of, row, "no record's copy")
            if mark not in originals
            else _doubled(of, row, originals[mark], "a further copy")
        )
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


# ---- copies that say something else than their records, where there is no map ----
#
# `pair_changed`, which is pure, says which lone record and lone copy stand in the same
# gap between pairs, and have the same key or time; `differences` is the task that
# compares these byte by byte.


def pair_changed(
    rows: Mismatches, originals: Collection[int], *, sure: bool = False
) -> Longs:
    """Pairs of row numbers, at most `MOST`, in order of the source: a record, and what
    stands for it; `originals`: the marks of copies that are another record's. `sure`:
    only those with the same key and time.
    """
    what = rows[:, alignment.WHAT]
    ups = np.flatnonzero(what == alignment.ONLY_SOURCE)
    downs = np.flatnonzero(what == alignment.ONLY_TARGET)
    ups = ups[~np.isin(rows[ups, alignment.SOURCE_MARK],
                       rows[downs, alignment.TARGET_MARK])]  # fmt: skip
    downs = downs[~np.isin(rows[downs, alignment.TARGET_MARK], list(originals))]
    found: list[tuple[int, int]] = []
    if len(ups):
        gaps = np.unique(rows[ups, alignment.TARGET])
        index = np.searchsorted(gaps, rows[downs, alignment.TARGET])
        lowest = np.full(len(gaps) + 1, np.iinfo(np.int64).max)
        places = np.searchsorted(gaps, rows[ups, alignment.TARGET])
        np.minimum.at(lowest, places, rows[ups, alignment.SOURCE])
        near = rows[downs, alignment.SOURCE] >= lowest[index]
        downs, index = downs[near], index[near]
        for columns in _IDENTITIES[:1] if sure else _IDENTITIES:
            mine, theirs = (
                _grouped(rows, each, gap, columns)
                for each, gap in (
                    (ups, rows[ups, alignment.TARGET]),
                    (downs, gaps[index]),
                )
            )
            for identity, here in mine.items():
                there = theirs.get(identity, [])
                if len(here) == len(there) and _in_one_gap(rows, here, there):
                    found += zip(here, there, strict=True)
            pairs = np.array(found, np.int64).reshape(-1, 2)
            ups = np.setdiff1d(ups, pairs[:, 0])
            kept = ~np.isin(downs, pairs[:, 1])
            downs, index = downs[kept], index[kept]
    pairs = np.array(found[:MOST], np.int64).reshape(-1, 2)
    return pairs[np.argsort(rows[pairs[:, 0], alignment.SOURCE])]


def differences(terms: ProofTerms, of: CopiedPartition, pairs: Longs) -> Mismatches:
    """A row for each pair of offsets, ascending on the source, that is not equal."""
    found = [NO_MISMATCHES]
    far = (np.abs(np.diff(pairs, axis=0)) > _FAR).any(axis=1)
    for near in np.split(pairs, np.flatnonzero(far) + 1):
        runs = np.concatenate([near, np.ones((len(near), 1), np.int64)], axis=1)
        (up, down), (last_up, last_down) = near.min(axis=0), near.max(axis=0)
        mismatches = compare(
            terms,
            Range(
                of=of, source_first=int(up), source_end=int(last_up) + 1,
                target_first=int(down), target_end=int(last_down) + 1,
                packed=PackedRuns(runs),
            ),
        ).mismatches  # fmt: skip
        found.append(mismatches[mismatches[:, alignment.WHAT] == alignment.UNEQUAL])
    return np.concatenate(found)


def _grouped(
    rows: Mismatches, numbers: Longs, gaps: Longs, columns: list[int]
) -> dict[tuple[int, ...], list[int]]:
    groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
    if alignment.TIME not in columns:  # that both have no key says nothing
        keyed = rows[numbers, alignment.KEY_SIZE] >= 0
        numbers, gaps = numbers[keyed], gaps[keyed]
    told = np.concatenate([gaps[:, None], rows[numbers][:, columns]], axis=1)
    for number, identity in zip(numbers.tolist(), told.tolist(), strict=True):
        groups[tuple(identity)].append(number)
    return groups


def _in_one_gap(rows: Mismatches, ups: list[int], downs: list[int]) -> bool:
    """Whether no pair stands between these records and these copies: a place is the
    last one before the next pair.
    """
    return bool(
        rows[ups, alignment.SOURCE].max() <= rows[downs, alignment.SOURCE].min()
        and rows[downs, alignment.TARGET].max() <= rows[ups, alignment.TARGET].min()
    )


# ---- tasks that look through a log for certain keys or records ----


def last_of_keys(
    terms: ProofTerms, wanted: OffsetRange, keys: Longs, *, on_source: bool
) -> LastOfKeys:
    """The last record of each key within the range. `keys`: marks of keys, ascending.

    Raises:
        ClusterError: the log cannot be read to its end.
    """
    offsets = np.full(len(keys), -1, np.int64)
    deleted_at = np.full(len(keys), -1, np.int64)
    for part, _, found in _described(terms, wanted, on_source, timed=True):
        index = np.minimum(np.searchsorted(keys, found), len(keys) - 1)
        rows = np.flatnonzero(keys[index] == found)
        places = part.places[rows]
        # Of several assignments to one element, the last one stays.
        offsets[index[rows]] = places[:, to_columns.OFFSET]
        tombstone = places[:, to_columns.VALUE_SIZE] < 0
        deleted_at[index[rows]] = np.where(tombstone, places[:, to_columns.TIME], -1)
    return LastOfKeys(keys=keys, offsets=offsets, deleted_at=deleted_at)


def originals(
    terms: ProofTerms, wanted: OffsetRange, marks: Longs, *, timed: bool = True
) -> dict[int, int]:
    """The first offset of each mark that is in a range of the source; `marks` ascend.

    Raises:
        ClusterError: the log cannot be read to its end.
    """
    first: dict[int, int] = {}
    for part, made, _ in _described(terms, wanted, True, timed=timed):
        index = np.minimum(np.searchsorted(marks, made), len(marks) - 1)
        for row in np.flatnonzero(marks[index] == made).tolist():
            first.setdefault(int(made[row]), int(part.places[row, to_columns.OFFSET]))
    return first


def filtered(terms: ProofTerms, wanted: OffsetRange, offsets: Longs) -> Longs:
    """Which of these records of a source the flow leaves out, by headers or keys.

    Raises:
        ClusterError: the log cannot be read to its end.
    """
    loops = Loops(terms.header.key, terms.header.target_suffix, terms.header.homes)

    def among(cluster: Cluster, known: Loops) -> Longs:
        lister = partial(
            listed, loops=known, most_unpacked=terms.flow.max_unpacked_bytes
        )
        stream = sides.stream(terms, cluster, wanted, on_source=True, lister=lister)
        found = [part.places[:, to_columns.OFFSET] for part in stream.listed()]
        there = np.concatenate([np.empty(0, np.int64), *found])
        return offsets[np.isin(offsets, there)]

    with terms.connected(on_source=True) as cluster:
        return np.setdiff1d(among(cluster, NO_LOOPS), among(cluster, loops))


def _described(
    terms: ProofTerms, wanted: OffsetRange, on_source: bool, *, timed: bool
) -> Iterator[tuple[Listed, Rows, Rows]]:
    """Records with the marks of them and of their keys."""
    with terms.connected(on_source=on_source) as cluster:
        stream = sides.stream(terms, cluster, wanted, on_source=on_source)
        flags = alignment.TIMED if timed else 0
        for part in stream.listed():
            marks = np.empty(len(part.places), np.int64)
            keys = np.empty(len(part.places), np.int64)
            alignment.describe(part.buffer, part.places, NO_STAMP, flags, marks, keys)
            yield part, marks, keys


def keys_of(
    terms: ProofTerms, of: CopiedPartition, offsets: list[int], *, on_source: bool
) -> dict[tuple[bool | None, int], str]:
    """The keys of the records at these offsets, ascending, by side and offset.

    Raises:
        ClusterError: the log cannot be read to its end.
    """
    every = np.array(offsets, np.int64)
    found: dict[tuple[bool | None, int], str] = {}
    with terms.connected(on_source=on_source) as cluster:
        for near in np.split(every, np.flatnonzero(np.diff(every) > _FAR_RECORDS) + 1):
            wanted = OffsetRange.within(
                of, int(near[0]), int(near[-1]) + 1, on_source=on_source
            )
            stream = sides.stream(terms, cluster, wanted, on_source=on_source)
            for part in stream.listed():
                rows = np.isin(part.places[:, to_columns.OFFSET], near)
                for place in part.places[rows].tolist():
                    at, size = place[to_columns.KEY_AT], place[to_columns.KEY_SIZE]
                    data = part.buffer[at : at + min(size, _MOST_KEY_BYTES)].tobytes()
                    offset = place[to_columns.OFFSET]
                    found[on_source, offset] = data.decode(errors="backslashreplace")
    return found
