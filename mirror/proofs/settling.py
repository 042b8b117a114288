"""Settles what ranges left open: reads further, and names what nothing explains.

Main type: `Settling`, which runs in the driver and asks for tasks that look through a
log: `last_of_keys` where a topic is compacted, `originals` of unexpected copies,
`differences` of changed ones. Marks only locate: that a record is equal to its copy is
decided byte by byte, in `comparing`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import partial
import time
from typing import TYPE_CHECKING

import numpy as np

from mirror.clusters.admin import configs, topic_admin
from mirror.errors import BrokerError, NoLeaderError, UnreachableError
from mirror.proofs import explaining, sides
from mirror.proofs.account import Account, FindingKind, span_of
from mirror.proofs.comparing import NO_MISMATCHES, compare
from mirror.proofs.explaining import LastOfKeys, RangeOutcome
from mirror.proofs.log_stream import OffsetRange
from mirror.proofs.ranges import PackedRuns, Range
from mirror.records import alignment, to_columns
from mirror.records.listing import NO_LOOPS, Loops, listed
from mirror.retry import patiently

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.errors import ClusterError
    from mirror.proofs.account import CopiedPartition
    from mirror.proofs.explaining import Mask
    from mirror.proofs.ranges import Longs, Mismatches
    from mirror.proofs.runners import Runner
    from mirror.proofs.sides import ProofTerms
    from mirror.records.batch import Rows
    from mirror.records.listing import Listed


_DELETE_RETENTION_MS = 86_400_000
_NO_TOPIC = "UNKNOWN_TOPIC_OR_PARTITION"
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
        bare = explaining.of_another_tool(rows, stamped_from)
        rows = _without(rows, bare)
        filtered = self._filtered(of, rows)
        rows = _without(rows, filtered)
        originals: dict[int, int] = {}
        asked = np.empty(0, np.int64)
        if self._terms.by_content:
            # Before compaction is asked, which would explain a changed copy and its
            # record apart.
            asked = explaining.strange_marks(rows)
            originals = self._originals(of, asked, timed=timed)
            rows = self._compared(of, rows, originals, sure=True)
        compacted = self._compacted(of, rows, alignment.ONLY_SOURCE)
        on_source = self._compacted(of, rows, alignment.ONLY_TARGET)
        spans = span_of("compacted_source", rows[on_source, alignment.TARGET])
        rows = _without(rows, compacted | on_source)
        foreign = 0
        if self._terms.by_content:
            marks = np.setdiff1d(explaining.strange_marks(rows), asked)
            originals |= self._originals(of, marks, timed=timed)
            rows = self._compared(of, rows, originals)
            others = explaining.foreign(rows, originals)
            foreign = int(others.sum())
            spans |= span_of("foreign", rows[others, alignment.TARGET])
            rows = rows[~others]
            found = [*explaining.findings_by_content(of, rows, originals)]
        else:
            paired = explaining.paired(rows)
            marks = explaining.unexpected_marks(rows, paired)
            originals = self._originals(of, marks, timed=timed)
            found = [*explaining.findings(of, rows, paired, originals)]
        repeats = 0
        if not self._terms.exactly_once:
            repeats = sum(
                each.count for each in found if each.kind is FindingKind.DOUBLED
            )
            found = [each for each in found if each.kind is not FindingKind.DOUBLED]
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
        if self._terms.stamped or not found.any():
            return np.zeros(len(rows), np.bool_)
        offsets = np.unique(rows[found, alignment.SOURCE])
        wanted = OffsetRange.of(
            of, int(offsets[0]), int(offsets[-1]) + 1, on_source=True
        )
        (looped,) = self._runner.results(
            [partial(filtered, self._terms, wanted, offsets)]
        )
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
        places = np.stack(
            [
                rows[pairs[:, 0], alignment.SOURCE],
                rows[pairs[:, 1], alignment.TARGET],
            ],
            axis=1,
        )
        (unequal,) = self._runner.results(
            [partial(differences, self._terms, of, places)]
        )
        told = {
            (int(row[alignment.SOURCE]), int(row[alignment.TARGET])) for row in unequal
        }
        done = pairs[[tuple(each) in told for each in places.tolist()]]
        return np.concatenate([np.delete(rows, done.ravel(), axis=0), unequal])

    def _originals(
        self, of: CopiedPartition, marks: Longs, *, timed: bool
    ) -> dict[int, int]:
        if not len(marks) or of.only_copy:
            return {}
        (found,) = self._runner.results(
            [
                partial(
                    originals, self._terms,
                    self._whole_log(of, on_source=True), marks, timed=timed,
                )
            ]
        )  # fmt: skip
        return dict(found)

    def _compacted(self, of: CopiedPartition, rows: Mismatches, what: int) -> Mask:
        """Which rows compaction explains."""
        mask = explaining.may_be_compacted(rows, what)
        on_source = what == alignment.ONLY_TARGET
        topic = of.topic if on_source else of.target_topic
        compaction = self._compaction[on_source, topic]
        if compaction is None or not mask.any():
            return np.zeros(len(rows), np.bool_)
        before = int(time.time() * 1000) - compaction
        here = alignment.SOURCE if on_source else alignment.TARGET
        there = alignment.TARGET if on_source else alignment.SOURCE
        without = self._last_of_keys(of, rows[mask], here, on_source=on_source)
        found = explaining.explained_by_keys(
            rows, what, without, LastOfKeys(), deleted_before=before
        )
        if (left := mask & ~found).any():
            having = self._last_of_keys(of, rows[left], there, on_source=not on_source)
            found |= explaining.explained_by_keys(
                rows, what, without, having, deleted_before=before
            )
        return found

    def _last_of_keys(
        self, of: CopiedPartition, rows: Mismatches, column: int, *, on_source: bool
    ) -> LastOfKeys:
        wanted = self._whole_log(of, on_source=on_source)
        first = max(wanted.first, int(rows[:, column].min()))
        found: LastOfKeys
        (found,) = self._runner.results(
            [
                partial(
                    last_of_keys, self._terms,
                    replace(wanted, first=first),
                    np.unique(rows[:, alignment.KEY_MARK]), on_source=on_source,
                )
            ]
        )  # fmt: skip
        return found

    def _whole_log(self, of: CopiedPartition, *, on_source: bool) -> OffsetRange:
        """All of a log, with what came after the proof began."""
        cluster = self._source if on_source else self._target
        key = (of.topic if on_source else of.target_topic, of.partition)

        def ask(timestamp: int) -> int:
            found = topic_admin.list_offsets(cluster, [key], timestamp=timestamp)
            if not found:
                raise NoLeaderError(f"cluster {cluster.alias}: {key[0]} has no leader")
            return found[key]

        first, end = (
            patiently(partial(ask, each), also=UnreachableError)
            for each in (topic_admin.EARLIEST, topic_admin.LATEST)
        )
        return OffsetRange.of(of, first, end, on_source=on_source)

    def _compacting(
        self, partitions: Collection[CopiedPartition]
    ) -> dict[tuple[bool, str], int | None]:
        """By side and topic: for how long tombstones stay, in ms; None: the topic is
        not compacted.
        """
        found: dict[tuple[bool, str], int | None] = {}
        for on_source, cluster in ((True, self._source), (False, self._target)):
            names = {of.topic if on_source else of.target_topic for of in partitions}
            described_topics = patiently(
                partial(configs.describe, cluster, names), also=UnreachableError
            )
            for name, described in described_topics.items():
                if _is_deleted(described.error):
                    found[on_source, name] = None
                    continue
                if described.error is not None:
                    raise described.error
                # Services leave out configs that they do not have.
                policy, stay = (
                    each.value if (each := described.configs.get(key)) else None
                    for key in ("cleanup.policy", "delete.retention.ms")
                )
                found[on_source, name] = (
                    int(stay or _DELETE_RETENTION_MS)
                    if "compact" in (policy or "")
                    else None
                )
        return found


def _is_deleted(error: ClusterError | None) -> bool:
    return isinstance(error, BrokerError) and error.name == _NO_TOPIC


def _without(rows: Mismatches, mask: Mask) -> Mismatches:
    """The other rows; not as a copy if that is all of them, for there may be many."""
    return rows[~mask] if mask.any() else rows


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
                packed=PackedRuns.of(runs),
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
        lister = partial(listed, loops=known, most_unpacked=terms.most_unpacked)
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
            wanted = OffsetRange.of(
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
