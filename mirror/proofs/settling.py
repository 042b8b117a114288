"""Settles what ranges left open: reads further, and names what nothing explains.

Main type: `Settling`, which asks for tasks that look through a log: for later records
of the same keys where a topic is compacted, and for the originals of unexpected copies.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
import time
from typing import TYPE_CHECKING

import numpy as np

from mirror.clusters.admin import configs, topic_admin
from mirror.errors import BrokerError, NoLeaderError, UnreachableError
from mirror.proofs import explaining, findings, locating
from mirror.proofs.account import Account, FindingKind, ProofFinding, span_of
from mirror.proofs.comparing import compare
from mirror.proofs.content import content_findings
from mirror.proofs.explaining import LastOfKeys
from mirror.proofs.log_stream import Stretch
from mirror.proofs.packed_runs import PackedRuns
from mirror.proofs.ranges import Range
from mirror.records import alignment
from mirror.retry import patiently

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.errors import ClusterError
    from mirror.proofs.account import Span
    from mirror.proofs.content.matching import Longs, Odd
    from mirror.proofs.copied_partition import CopiedPartition
    from mirror.proofs.explaining import Mask
    from mirror.proofs.runner import Runner
    from mirror.proofs.sides import ProofTerms


_DELETE_RETENTION_MS = 86_400_000
_NO_TOPIC = "UNKNOWN_TOPIC_OR_PARTITION"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The outcome for rows of one partition."""

    account: Account
    findings: tuple[ProofFinding, ...]
    spans: Mapping[str, Span]
    """Where the copy has what its source does not have."""


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
        self, of: CopiedPartition, rows: Odd, *, timed: bool, stamped_from: int
    ) -> Settled:
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
            asked = content_findings.strange_marks(rows)
            originals = self._originals(of, asked, timed=timed)
            rows = self._compared(of, rows, originals, sure=True)
        compacted = self._compacted(of, rows, alignment.ONLY_SOURCE)
        on_source = self._compacted(of, rows, alignment.ONLY_TARGET)
        spans = span_of("compacted_source", rows[on_source, alignment.TARGET])
        rows = _without(rows, compacted | on_source)
        foreign = 0
        if self._terms.by_content:
            marks = np.setdiff1d(content_findings.strange_marks(rows), asked)
            originals |= self._originals(of, marks, timed=timed)
            rows = self._compared(of, rows, originals)
            others = content_findings.foreign(rows, originals)
            foreign = int(others.sum())
            spans |= span_of("foreign", rows[others, alignment.TARGET])
            rows = rows[~others]
            found = [*content_findings.findings(of, rows, originals)]
        else:
            paired = findings.paired(rows)
            marks = findings.unexpected_marks(rows, paired)
            originals = self._originals(of, marks, timed=timed)
            found = [*findings.findings(of, rows, paired, originals)]
        repeats = 0
        if not self._terms.exactly_once:
            repeats = sum(
                each.count for each in found if each.kind is FindingKind.DOUBLED
            )
            found = [each for each in found if each.kind is not FindingKind.DOUBLED]
        of_source = rows[:, alignment.WHAT] != alignment.ONLY_TARGET
        return Settled(
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

    def _filtered(self, of: CopiedPartition, rows: Odd) -> Mask:
        """Which rows are about records that the flow left out while it stamped copies:
        one that does so now does not list them.
        """
        found = rows[:, alignment.WHAT] == alignment.ONLY_SOURCE
        if self._terms.stamped or not found.any():
            return np.zeros(len(rows), np.bool_)
        offsets = np.unique(rows[found, alignment.SOURCE])
        stretch = replace(
            self._stretch(of, on_source=True),
            first=int(offsets[0]), end=int(offsets[-1]) + 1,
        )  # fmt: skip
        (looped,) = self._runner.results(
            [partial(locating.filtered, self._terms, stretch, offsets)]
        )
        mask: Mask = found & np.isin(rows[:, alignment.SOURCE], looped)
        return mask

    def _compared(
        self,
        of: CopiedPartition,
        rows: Odd,
        originals: Mapping[int, int],
        *,
        sure: bool = False,
    ) -> Odd:
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
        self, of: CopiedPartition, marks: Odd, *, timed: bool
    ) -> dict[int, int]:
        if not len(marks) or of.only_copy:
            return {}
        (found,) = self._runner.results(
            [
                partial(
                    locating.originals, self._terms,
                    self._stretch(of, on_source=True), marks, timed=timed,
                )
            ]
        )  # fmt: skip
        return dict(found)

    def _compacted(self, of: CopiedPartition, rows: Odd, what: int) -> Mask:
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
        self, of: CopiedPartition, rows: Odd, column: int, *, on_source: bool
    ) -> LastOfKeys:
        stretch = self._stretch(of, on_source=on_source)
        first = max(stretch.first, int(rows[:, column].min()))
        found: LastOfKeys
        (found,) = self._runner.results(
            [
                partial(
                    locating.last_of_keys, self._terms,
                    replace(stretch, first=first),
                    np.unique(rows[:, alignment.KEY_MARK]), on_source=on_source,
                )
            ]
        )  # fmt: skip
        return found

    def _stretch(self, of: CopiedPartition, *, on_source: bool) -> Stretch:
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
        return Stretch(
            topic=key[0], partition=of.partition,
            topic_id=of.topic_id if on_source else of.copy_id,
            first=first, end=end,
        )  # fmt: skip

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


def _without(rows: Odd, mask: Mask) -> Odd:
    """The other rows; not as a copy if that is all of them, for there may be many."""
    return rows[~mask] if mask.any() else rows


# ---- copies that say something else than their records, where there is no map ----
#
# Main functions: `pair_changed`, which is pure, says which lone record and lone copy
# stand in the same gap between pairs, and have the same key or time; `differences`
# is the task that compares these byte by byte.


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


def pair_changed(rows: Odd, originals: Collection[int], *, sure: bool = False) -> Longs:
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


def differences(terms: ProofTerms, of: CopiedPartition, pairs: Longs) -> Odd:
    """A row for each pair of offsets, ascending on the source, that is not equal."""
    found = [np.empty((0, alignment.ODD_COLUMNS), np.int64)]
    far = (np.abs(np.diff(pairs, axis=0)) > _FAR).any(axis=1)
    for near in np.split(pairs, np.flatnonzero(far) + 1):
        runs = np.concatenate([near, np.ones((len(near), 1), np.int64)], axis=1)
        (up, down), (last_up, last_down) = near.min(axis=0), near.max(axis=0)
        odd = compare(
            terms,
            Range(
                of=of, source_first=int(up), source_end=int(last_up) + 1,
                target_first=int(down), target_end=int(last_down) + 1,
                packed=PackedRuns.of(runs),
            ),
        ).odd  # fmt: skip
        found.append(odd[odd[:, alignment.WHAT] == alignment.UNEQUAL])
    return np.concatenate(found)


def _grouped(
    rows: Odd, numbers: Longs, gaps: Longs, columns: list[int]
) -> dict[tuple[int, ...], list[int]]:
    groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
    if alignment.TIME not in columns:  # that both have no key says nothing
        keyed = rows[numbers, alignment.KEY_SIZE] >= 0
        numbers, gaps = numbers[keyed], gaps[keyed]
    told = np.concatenate([gaps[:, None], rows[numbers][:, columns]], axis=1)
    for number, identity in zip(numbers.tolist(), told.tolist(), strict=True):
        groups[tuple(identity)].append(number)
    return groups


def _in_one_gap(rows: Odd, ups: list[int], downs: list[int]) -> bool:
    """Whether no pair stands between these records and these copies: a place is the
    last one before the next pair.
    """
    return bool(
        rows[ups, alignment.SOURCE].max() <= rows[downs, alignment.SOURCE].min()
        and rows[downs, alignment.TARGET].max() <= rows[ups, alignment.TARGET].min()
    )
