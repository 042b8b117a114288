"""Proves the copies of a flow: hands out ranges, adds up, and settles what is unclear.

Main type: `Verification`. It runs in the driver; a `Runner` carries out tasks, in this
process or on Spark. What tasks found odd waits until its partition is through, or there
is too much of it, since some of it can only be explained by what comes later.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
import hashlib
from typing import TYPE_CHECKING

import numpy as np
import structlog

from mirror.errors import ClusterError, MirrorError
from mirror.proofs import explaining, sides
from mirror.proofs.account import Account, FindingKind, ProofFinding, widened
from mirror.proofs.comparing import NEVER, compare
from mirror.proofs.content.aligning import aligned
from mirror.proofs.content.content_findings import not_expired
from mirror.proofs.explaining import NO_EXCUSES
from mirror.proofs.log_stream import Stretch
from mirror.proofs.out_of_reach import OutOfReach
from mirror.proofs.ranges import narrowed, ranges_of
from mirror.proofs.settling import Settling
from mirror.records import to_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig
    from mirror.proofs.account import Span
    from mirror.proofs.comparing import Compared
    from mirror.proofs.content.matching import Odd
    from mirror.proofs.copied_partition import CopiedPartition
    from mirror.proofs.explaining import Excuses
    from mirror.proofs.ranges import Range
    from mirror.proofs.run_files import RunFiles
    from mirror.proofs.runner import Runner
    from mirror.proofs.sides import ProofTerms
    from mirror.proofs.survey import ProofSurvey


# ---- reads the keys of the records that findings are about ----
#
# Main function: `with_keys`. Comparisons only keep marks of keys, since most
# records that have no equal copy are explained later; those that findings name are
# read once more.


_MOST_BYTES = 256
"""Of a key; a report says its size as well."""
_FAR = 20_000
"""Offsets between two records from which it is faster to ask for each."""


def with_keys(
    terms: ProofTerms,
    runner: Runner,
    of: CopiedPartition,
    findings: Iterable[ProofFinding],
) -> Iterator[ProofFinding]:
    """The same findings, with the key of the first record of each."""
    findings = list(findings)
    tasks = []
    for on_source in (True, False):
        wanted = {place[1] for place in map(_place, findings) if place[0] is on_source}
        if wanted:
            tasks.append(partial(_read, terms, of, sorted(wanted), on_source=on_source))
    keys: dict[tuple[bool | None, int], str] = {}
    try:
        for each in runner.results(tasks):
            keys |= each
    except MirrorError as error:
        log.warning("findings are without keys", topic=of.topic, reason=str(error))
    for each in findings:
        yield replace(each, key=keys.get(_place(each)))


def _place(finding: ProofFinding) -> tuple[bool | None, int]:
    """Whether its record is on the source, and where; (None, -1): it has no key."""
    if finding.key_size is None:
        return None, -1
    if finding.source is not None:
        return True, finding.source
    return (None, -1) if finding.target is None else (False, finding.target)


def _read(
    terms: ProofTerms, of: CopiedPartition, offsets: list[int], *, on_source: bool
) -> dict[tuple[bool | None, int], str]:
    name, topic_id = (
        (of.topic, of.topic_id) if on_source else (of.target_topic, of.copy_id)
    )
    wanted = np.array(offsets, np.int64)
    found: dict[tuple[bool | None, int], str] = {}
    with terms.connected(on_source=on_source) as cluster:
        for near in np.split(wanted, np.flatnonzero(np.diff(wanted) > _FAR) + 1):
            stretch = Stretch(
                topic=name, partition=of.partition, topic_id=topic_id,
                first=int(near[0]), end=int(near[-1]) + 1,
            )  # fmt: skip
            stream = sides.stream(terms, cluster, stretch, on_source=on_source)
            for part in stream.listed():
                rows = np.isin(part.places[:, to_columns.OFFSET], near)
                for place in part.places[rows].tolist():
                    at, size = place[to_columns.KEY_AT], place[to_columns.KEY_SIZE]
                    data = part.buffer[at : at + min(size, _MOST_BYTES)].tobytes()
                    offset = place[to_columns.OFFSET]
                    found[on_source, offset] = data.decode(errors="backslashreplace")
    return found


log = structlog.get_logger()


_MOST_OPEN_ROWS = 1_000_000
"""Odd records that wait to be explained, over all partitions: some 100 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProof:
    """What was proven of one partition."""

    of: CopiedPartition
    target_end: int
    """The next target offset to prove."""
    account: Account
    findings: int
    root: str
    """SHA-256 over the digests of its ranges, in order, in hex."""
    whole: bool
    """Whether all of it was compared."""
    spans: Mapping[str, Span] = field(default_factory=dict)
    """By field of the account: where the copy has what its source does not have."""
    kept: bool = False
    """Whether it is on the target already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """The outcome."""

    flow: str
    source_id: str
    """The id of the cluster."""
    target_id: str
    at: float
    """When it began, epoch seconds: what was copied by then is proven."""
    partitions: tuple[PartitionProof, ...]
    findings: tuple[ProofFinding, ...]
    by_content: bool = False
    """Whether records and copies were matched without the map."""
    own_times: Mapping[str, bool] = field(default_factory=dict)
    """By topic. Off: its copy uses LogAppendTime, so times were not compared."""


@dataclass(frozen=True, slots=True)
class VerifiedSoFar:
    """How far it is."""

    fetched_bytes: int
    """From both sides."""
    expected_bytes: int
    """What that will be at the end, by what came so far."""


@dataclass(slots=True)
class _ProvenPartition:
    """One partition while it is being proven."""

    of: CopiedPartition
    target_end: int
    waiting: int
    """Ranges without a result."""
    account: Account = field(default_factory=Account)
    findings: list[ProofFinding] = field(default_factory=list)
    spans: dict[str, Span] = field(default_factory=dict)
    first_equal: int = NEVER
    own_times: bool = True
    target_start: int = 0
    """Where the copy's log began when a task read it last."""
    whole: bool = True
    kept: bool = False
    digests: dict[tuple[bool, int, int], bytes] = field(default_factory=dict)
    """By whether ranges are late, and where they begin on both sides."""
    open: list[Odd] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(map(len, self.open))

    def proof(self) -> PartitionProof:
        root = hashlib.sha256()
        for _, digest in sorted(self.digests.items()):
            root.update(digest)
        return PartitionProof(
            of=self.of,
            target_end=self.target_end,
            account=self.account,
            findings=len(self.findings),
            root=root.hexdigest(),
            whole=self.whole,
            spans=self.spans,
            kept=self.kept,
        )


class Verification:
    """One proof of one flow."""

    def __init__(
        self,
        flow: FlowConfig,
        terms: ProofTerms,
        source: Cluster,
        target: Cluster,
        runner: Runner,
        *,
        show: Callable[[VerifiedSoFar], None] = lambda _: None,
        keep: Callable[[PartitionProof], None] | None = None,
    ) -> None:
        """`show` is called with each result, `keep` with each partition in which
        nothing was found, as soon as it is proven; others wait until somebody has seen
        what was found.
        """
        self._flow = flow
        self._terms = terms
        self._source, self._target = source, target
        self._runner = runner
        self._show = show
        self._keep = keep
        self._partitions: dict[TopicPartition, _ProvenPartition] = {}
        self._total = self._offsets = self._fetched = 0
        self._lost = OutOfReach(source, target)

    def prove(
        self,
        found: ProofSurvey,
        files: RunFiles,
        *,
        at: float,
        chosen: Mapping[TopicPartition, Sequence[Range]] | None = None,
    ) -> Proven:
        """Compare all that the survey found, or the ranges that are `chosen`.

        Raises:
            ClusterError: a cluster does not answer about configs or offsets.
        """
        self._counts_expired = self._terms.by_content or not found.whole_map
        self._settling = Settling(
            self._terms, self._source, self._target, self._runner, found.partitions
        )
        self._total = sum(of.source_end - of.source_first for of in found.partitions)
        if self._terms.by_content:
            self._total *= 2  # matched, then compared
        work = self._ranges(found, files) if chosen is None else self._given(chosen)
        tasks = (partial(compare, self._terms, self._tried(each)) for each in work)
        for compared in self._runner.results(tasks):
            of = compared.range.of
            if compared.failure and not compared.range.unknown:
                self._lost.note(of, compared.failure)
            excuses = found.excuses.get((of.topic, of.partition), NO_EXCUSES)
            self._take(compared, excuses)
            offsets = compared.range.source_end - compared.range.source_first
            self._count(offsets, compared.fetched_bytes)
        own_times: dict[str, bool] = defaultdict(lambda: True)
        for part in self._partitions.values():
            own_times[part.of.topic] &= part.own_times
        findings = [_unproven(*each) for each in found.unproven.items()]
        for part in self._partitions.values():
            findings += part.findings
        return Proven(
            flow=self._flow.name,
            source_id=self._terms.source_id,
            target_id=self._terms.target_id,
            at=at,
            partitions=tuple(part.proof() for part in self._partitions.values()),
            findings=tuple(
                sorted(findings, key=lambda each: (each.topic, each.partition))
            ),
            by_content=self._terms.by_content,
            own_times=dict(own_times),
        )

    def _tried(self, work: Range) -> Range:
        """The range, or why to leave it."""
        return replace(work, unknown=work.unknown or self._lost.reason(work.of))

    def _count(self, offsets: int, fetched: int) -> None:
        self._offsets += offsets
        self._fetched += fetched
        expected = self._fetched * self._total // max(self._offsets, 1)
        self._show(VerifiedSoFar(self._fetched, expected))

    def _ranges(self, found: ProofSurvey, files: RunFiles) -> Iterator[Range]:
        """One partition after the other: a map may have millions of runs."""
        if self._terms.by_content:
            yield from self._ranges_by_content(found)
            return
        for of in found.partitions:
            key = (of.topic, of.partition)
            older = found.older.get(key, np.empty((0, 3), np.int64))
            fenced = self._flow.exactly_once
            late = found.late.get(key, np.empty((0, 3), np.int64))
            ranges = ranges_of(
                of, files.of(key), older, late=late, fenced=fenced,
                whole=found.whole_map,
            )  # fmt: skip
            yield from self._one_by_one(of, ranges)

    def _one_by_one(
        self, of: CopiedPartition, ranges: Iterator[Range]
    ) -> Iterator[Range]:
        """A partition waits for a range before the one in front of it can have ended:
        so it is not through before its last one is.
        """
        work = next(ranges)
        part = self._begin(of, [work])
        for following in ranges:
            part.waiting += 1
            yield work
            work = following
            part.target_end = work.target_end
        yield work

    def _given(
        self, chosen: Mapping[TopicPartition, Sequence[Range]]
    ) -> Iterator[Range]:
        for ranges in chosen.values():
            if ranges:
                self._begin(ranges[0].of, ranges)
                yield from ranges

    def _ranges_by_content(self, found: ProofSurvey) -> Iterator[Range]:
        for each in aligned(self._terms, self._runner, found.partitions, self._lost):
            whole = ranges_of(each.of, each.runs, unknown_as=each.failure)
            ranges = [part for one in whole for part in narrowed(one)]
            self._begin(each.of, ranges).findings += each.findings
            self._count(each.offsets, each.fetched_bytes)
            yield from ranges

    def _begin(self, of: CopiedPartition, ranges: Sequence[Range]) -> _ProvenPartition:
        part = _ProvenPartition(
            of, target_end=ranges[-1].target_end, waiting=len(ranges)
        )
        self._partitions[of.topic, of.partition] = part
        return part

    def _take(self, compared: Compared, excuses: Excuses) -> None:
        of = compared.range.of
        part = self._partitions[of.topic, of.partition]
        sorted_out = explaining.sorted_out(compared, excuses)
        part.waiting -= 1
        part.account += sorted_out.account
        if not compared.range.is_late:  # a repair stamps what it appends
            part.first_equal = min(part.first_equal, compared.first_equal)
        part.own_times &= compared.own_times
        part.target_start = max(part.target_start, compared.target_start)
        part.whole &= not compared.failure
        work = compared.range
        begins = (work.is_late, work.source_first, work.target_first)
        part.digests[begins] = compared.digest
        part.findings += sorted_out.findings
        part.spans = widened(part.spans, sorted_out.spans)
        if len(sorted_out.open):
            part.open.append(sorted_out.open)
        if part.open and not part.waiting:
            self._settle(part)
        elif (
            len(sorted_out.open)
            and sum(each.rows for each in self._partitions.values()) > _MOST_OPEN_ROWS
        ):
            self._settle(max(self._partitions.values(), key=lambda each: each.rows))
        if not part.waiting:
            self._end(part)

    def _end(self, part: _ProvenPartition) -> None:
        """All of a partition is compared and explained."""
        if self._counts_expired:
            of = part.of
            meanwhile = max(part.target_start - of.target_first, 0)
            # Without a map, only what was lost since the last proof counts.
            lost = of.target_lost if self._terms.by_content else of.target_start
            lost += meanwhile
            part.findings += not_expired(of, part.account.expired, lost)
        if part.of.has_open_end and part.findings:
            part.whole = False  # what is hidden is there to be compared later
        if part.findings and self._terms.keys:
            part.findings = list(
                with_keys(self._terms, self._runner, part.of, part.findings)
            )
        if self._keep is not None and part.whole and not part.findings:
            try:
                self._keep(part.proof())
            except ClusterError as error:
                # `of_flow.keep` tries again at the end.
                log.warning("a proof is not kept yet", reason=str(error))
            else:
                part.kept = True

    def _settle(self, part: _ProvenPartition) -> None:
        """Explain the odd records of a partition, or make findings of them."""
        rows = np.concatenate(part.open)
        part.open.clear()
        try:
            settled = self._settling.explain(
                part.of, rows, timed=part.own_times, stamped_from=part.first_equal
            )
        except ClusterError as error:
            reason = f"{len(rows)} records cannot be explained: {error}"
            part.findings.append(_unproven(part.of.topic, reason))
            part.whole = False
            return
        part.account += settled.account
        part.spans = widened(part.spans, settled.spans)
        part.findings += settled.findings


def _unproven(topic: str, reason: str) -> ProofFinding:
    return ProofFinding(
        kind=FindingKind.UNPROVEN, topic=topic, partition=-1, target_topic="",
        source=None, target=None, count=0, detail=f"{topic}: {reason}",
    )  # fmt: skip
