"""One proof of one flow, from its configuration to the proofs kept on the target.

Main functions: `prove` connects, surveys, compares, and writes how far partitions
without findings are proven: there the next one goes on. `keep` does so for the others.
Main type: `Verification`, which runs in the driver, hands out ranges, adds up, and
settles what is unclear; a `Runner` carries out tasks, in this process or on Spark. What
tasks found unequal waits until its partition is through, or there is too much of it,
since some of it can only be explained by what comes later.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from functools import partial
import hashlib
import time
from typing import TYPE_CHECKING

import numpy as np
import structlog

from mirror.clusters.cluster import Cluster
from mirror.config.schema import for_tasks
from mirror.errors import ClusterError, MirrorError, UnreachableError
from mirror.offsets import progress
from mirror.pairs import proofs
from mirror.pairs.proofs import Proof
from mirror.proofs import explaining
from mirror.proofs.account import Account, FindingKind, ProofFinding, widened
from mirror.proofs.by_content import aligned
from mirror.proofs.comparing import compare
from mirror.proofs.explaining import ALL_COPIED, Settling, keys_of, not_expired
from mirror.proofs.ranges import LAST_OFFSET, RunFiles, narrowed, ranges_of
from mirror.proofs.runners import OutOfReach
from mirror.proofs.sides import ProofTerms, connected
from mirror.proofs.survey import survey
from mirror.retry import patiently
from mirror.service.ownership import Generation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mirror.clusters.topics import TopicPartition
    from mirror.config.cluster_settings import ClusterConfig
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.offsets.progress import Progress
    from mirror.proofs.account import CopiedPartition, Scope, Span
    from mirror.proofs.comparing import Compared
    from mirror.proofs.explaining import NotCopied, RangeOutcome
    from mirror.proofs.ranges import Mismatches, Range
    from mirror.proofs.runners import Runner
    from mirror.proofs.survey import ProofSurvey
    from mirror.proofs.translated_ids import TranslatedIds


log = structlog.get_logger()
_MOST_OPEN_ROWS = 1_000_000
"""Records that wait to be explained, over all partitions: some 100 MB."""


@dataclass(slots=True, kw_only=True)
class PartitionProof:
    """What was proven of one partition."""

    of: CopiedPartition
    target_end: int
    """The next target offset to prove."""
    ranges: tuple[Range, ...] = field(default=(), repr=False)
    """What was compared, if it was chosen; empty: all."""
    account: Account = field(default_factory=Account)
    findings: tuple[ProofFinding, ...] = ()
    spans: Mapping[str, Span] = field(default_factory=dict)
    """By field of the account: where the copy has what its source does not have."""
    root: str = ""
    """SHA-256 over the digests of its ranges, in order, in hex."""
    whole: bool = True
    """Whether all of it was compared."""
    own_times: bool = True
    """Off: the copy uses LogAppendTime, so times were not compared."""
    kept: bool = False
    """Whether it is on the target already."""

    def add(self, outcome: RangeOutcome) -> None:
        """Take note of what some records come to."""
        self.account += outcome.account
        self.findings += outcome.findings
        self.spans = widened(self.spans, outcome.spans)

    @property
    def wrong(self) -> tuple[ProofFinding, ...]:
        """Findings about what was compared."""
        return tuple(f for f in self.findings if f.kind is not FindingKind.UNPROVEN)

    @property
    def unproven(self) -> int:
        """Offsets that could not be compared."""
        return sum(f.count for f in self.findings if f.kind is FindingKind.UNPROVEN)

    @property
    def failure(self) -> str:
        """Why some of it could not be compared; empty if all was."""
        if self.whole:
            return ""
        for each in self.findings:
            if each.kind is FindingKind.UNPROVEN:
                return each.detail
        if self.of.has_open_end:
            return "an open transaction hides a part of the copy"
        return "it was not compared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """What was proven of a flow."""

    flow: str
    source_id: str
    """The id of the cluster."""
    target_id: str
    at: float
    """When it began, epoch seconds: what was copied by then is proven."""
    partitions: tuple[PartitionProof, ...]
    findings: tuple[ProofFinding, ...]
    """Of all partitions, and topics of which nothing could be compared."""
    by_content: bool = False
    """Whether records and copies were matched without the map."""

    @property
    def own_times(self) -> dict[str, bool]:
        """By topic. Off: its copy uses LogAppendTime, so times were not compared."""
        found: dict[str, bool] = {}
        for each in self.partitions:
            found[each.of.topic] = found.get(each.of.topic, True) and each.own_times
        return found


def prove(
    config: MirrorConfig,
    flow: FlowConfig,
    runner: Runner,
    scope: Scope,
    *,
    show: Callable[[int, int], None],
    after: Proven | None = None,
) -> Proven:
    """Prove the topics of the scope, and keep on the target how far those partitions
    are proven in which nothing was found. `show` is called as it goes on. `after`: only
    prove what came since this proof of the same topics.

    Raises:
        MirrorError: the flow never ran, nothing matches, or a cluster does not
            answer.
    """
    at = time.time()
    with contextlib.ExitStack() as stack:
        source, target = stack.enter_context(connected(config, flow))

        def look() -> ProofSurvey:
            files = stack.enter_context(RunFiles())
            ended: Mapping[TopicPartition, Proof] = {}
            if after is not None:
                ended = {
                    each.of.key: _proof(each, after.at, by_content=after.by_content)
                    for each in after.partitions
                }
            elif scope.since is None:
                ended = proofs.read(target, flow.source)
            return survey(flow, source, target, files, scope, proofs=ended)

        found = patiently(look, also=UnreachableError)
        terms = terms_of(config, flow, source, target, scope)

        def write(proof: PartitionProof) -> None:
            kept = _proof(proof, at, by_content=scope.by_content)
            patiently(
                partial(proofs.write, target, flow, [kept]), also=UnreachableError
            )

        verification = Verification(
            terms, source, target, runner,
            show=show, keep=write if scope.is_kept else None,
        )  # fmt: skip
        return verification.prove(found, at=at)


def terms_of(
    config: MirrorConfig,
    flow: FlowConfig,
    source: Cluster,
    target: Cluster,
    scope: Scope,
) -> ProofTerms:
    """What all comparisons of a flow go by; both clusters are connected. Ask for it
    after a survey: the records that this found may have ids that are new.
    """
    ends = (flow.target, flow.source)
    back = next((f for f in config.enabled_flows if (f.source, f.target) == ends), None)
    reads, writes = for_tasks(config, flow)
    noted = progress.read_existing(target, progress.topic_name(flow.source))
    return ProofTerms(
        source=reads,
        target=writes,
        source_id=source.cluster_id,
        target_id=target.cluster_id,
        flow=flow,
        scope=scope,
        ids=_ids(flow, target, (reads, writes), scope) if flow.translates_ids else None,
        former_sources=_former(noted, source),
        former_targets=()
        if back is None
        else _former(
            progress.read_existing(source, progress.topic_name(back.source)), target
        ),
        same_copies=frozenset(each.copy_id for each in noted.terms.values()),
    )


def _ids(
    flow: FlowConfig,
    target: Cluster,
    registries: tuple[ClusterConfig, ClusterConfig],
    scope: Scope,
) -> TranslatedIds:
    # Proofs of other flows need neither its compiled loops nor those of slots.
    from mirror.proofs.translated_ids import TranslatedIds  # noqa: PLC0415

    found = TranslatedIds.noted(flow, target, registries)
    if not scope.by_content:
        return found  # tasks ask for more where ids differ
    try:
        return found.asked()
    except MirrorError as error:
        log.warning("ids are compared by the map alone", reason=str(error))
        return found


def _former(noted: Progress, source: Cluster) -> tuple[str, ...]:
    """Ids of a flow's source before it was rebuilt, by the flow's progress."""
    found = Generation.parse(noted.generation)
    return tuple(each for each in found.source_ids if each != source.cluster_id)


def keep(config: MirrorConfig, flow: FlowConfig, proven: Proven) -> None:
    """Keep on the target how far partitions with findings are proven, once somebody has
    seen these: the next proof begins there. For scopes that are kept.

    Raises:
        MirrorError: the target does not answer, or refuses.
    """
    kept = [
        _proof(each, proven.at, by_content=proven.by_content)
        for each in proven.partitions
        if each.whole and not each.kept
    ]
    with contextlib.closing(Cluster(config.clusters[flow.target])) as target:
        proofs.write(target.connect(), flow, kept)


def _proof(each: PartitionProof, at: float, *, by_content: bool) -> Proof:
    return Proof(
        topic=each.of.topic,
        partition=each.of.partition,
        topic_id=each.of.topic_id,
        source_offset=each.of.source_end,
        target_offset=each.target_end,
        at=at,
        records=each.account.records,
        findings=len(each.findings),
        root=each.root,
        mode=proofs.BY_CONTENT if by_content else proofs.BY_MAP,
        copy_id=each.of.copy_id,
    )


@dataclass(slots=True)
class _InProgress:
    """One partition while it is being proven."""

    proof: PartitionProof
    """So far."""
    waiting: int
    """Ranges without a result."""
    first_equal: int = LAST_OFFSET
    target_start: int = 0
    """Where the copy's log began when a task read it last."""
    digests: dict[tuple[bool, int, int], bytes] = field(default_factory=dict)
    """By whether ranges are late, and where they begin on both sides."""
    open: list[Mismatches] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(map(len, self.open))


class Verification:
    """One proof of one flow."""

    def __init__(
        self,
        terms: ProofTerms,
        source: Cluster,
        target: Cluster,
        runner: Runner,
        *,
        show: Callable[[int, int], None] = lambda *_: None,
        keep: Callable[[PartitionProof], None] | None = None,
    ) -> None:
        """`show` is called after each result with the bytes that were fetched so far,
        from both sides, and with what they will be at the end, by what came so far.
        `keep` is called with each partition in which nothing was found, as soon as it
        is proven; others wait until somebody has seen what was found.
        """
        self._terms = terms
        self._source, self._target = source, target
        self._runner = runner
        self._show = show
        self._keep = keep
        self._partitions: dict[TopicPartition, _InProgress] = {}
        self._total = self._offsets = self._fetched = 0
        self._lost = OutOfReach(source, target)

    def prove(
        self,
        found: ProofSurvey,
        *,
        at: float,
        chosen: Mapping[TopicPartition, Sequence[Range]] | None = None,
    ) -> Proven:
        """Compare all that the survey found, or the ranges that are `chosen`.

        Raises:
            ClusterError: a cluster does not answer about configs or offsets.
        """
        self._counts_expired = self._terms.scope.by_content or not found.known.whole
        self._settling = Settling(
            self._terms, self._source, self._target, self._runner, found.partitions
        )
        self._total = sum(of.source_end - of.source_first for of in found.partitions)
        if self._terms.scope.by_content:
            self._total *= 2  # matched, then compared
        work = self._ranges(found, chosen)
        # What is out of reach is not tried.
        tasks = (
            partial(
                compare, self._terms,
                replace(each, unknown=each.unknown or self._lost.reason(each.of)),
            )
            for each in work
        )  # fmt: skip
        for compared in self._runner.results(tasks):
            of = compared.range.of
            if compared.failure and not compared.range.unknown:
                self._lost.note(of, compared.failure)
            self._take(compared, found.not_copied.get(of.key, ALL_COPIED))
            offsets = compared.range.source_end - compared.range.source_first
            self._count(offsets, compared.fetched_bytes)
        partitions = tuple(part.proof for part in self._partitions.values())
        findings = [_unproven(*each) for each in found.unproven.items()]
        for each in partitions:
            findings += each.findings
        findings.sort(key=lambda each: (each.topic, each.partition))
        return Proven(
            flow=self._terms.flow.name,
            source_id=self._terms.source_id,
            target_id=self._terms.target_id,
            at=at,
            partitions=partitions,
            findings=tuple(findings),
            by_content=self._terms.scope.by_content,
        )

    def _count(self, offsets: int, fetched: int) -> None:
        self._offsets += offsets
        self._fetched += fetched
        expected = self._fetched * self._total // max(self._offsets, 1)
        self._show(self._fetched, expected)

    def _ranges(
        self,
        found: ProofSurvey,
        chosen: Mapping[TopicPartition, Sequence[Range]] | None,
    ) -> Iterator[Range]:
        """One partition after the other: a map may have millions of runs."""
        if chosen is not None:
            for ranges in filter(None, chosen.values()):
                part = self._begin(ranges[0].of, ranges)
                part.proof.ranges = tuple(ranges)
                yield from ranges
        elif self._terms.scope.by_content:
            for each in aligned(
                self._terms, self._runner, found.partitions, self._lost
            ):
                whole = ranges_of(each.of, each.runs, unknown_as=each.failure)
                parts = [part for one in whole for part in narrowed(one)]
                self._begin(each.of, parts).proof.findings = each.findings
                self._count(each.offsets, each.fetched_bytes)
                yield from parts
        else:
            for of in found.partitions:
                yield from self._one_by_one(of, found.ranges(of))

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
            part.proof.target_end = work.target_end
        yield work

    def _begin(self, of: CopiedPartition, ranges: Sequence[Range]) -> _InProgress:
        proof = PartitionProof(of=of, target_end=ranges[-1].target_end)
        part = self._partitions[of.key] = _InProgress(proof, waiting=len(ranges))
        return part

    def _take(self, compared: Compared, not_copied: NotCopied) -> None:
        work = compared.range
        part = self._partitions[work.of.key]
        proof = part.proof
        outcome = explaining.sorted_out(compared, not_copied)
        part.waiting -= 1
        proof.add(outcome)
        if len(outcome.open):
            part.open.append(outcome.open)
        if not work.is_late:  # a repair stamps what it appends
            part.first_equal = min(part.first_equal, compared.first_equal)
        part.target_start = max(part.target_start, compared.target_start)
        proof.own_times &= compared.own_times
        proof.whole &= not compared.failure
        begins = (work.is_late, work.source_first, work.target_first)
        part.digests[begins] = compared.digest
        if part.open and not part.waiting:
            self._settle(part)
        elif (
            len(outcome.open)
            and sum(each.rows for each in self._partitions.values()) > _MOST_OPEN_ROWS
        ):
            self._settle(max(self._partitions.values(), key=lambda each: each.rows))
        if not part.waiting:
            self._end(part)

    def _end(self, part: _InProgress) -> None:
        """All of a partition is compared and explained."""
        proof, of = part.proof, part.proof.of
        if self._counts_expired:
            # Without a map, only what was lost since the last proof counts.
            lost = of.target_lost if self._terms.scope.by_content else of.target_start
            lost += max(part.target_start - of.target_first, 0)
            proof.findings += (*not_expired(of, proof.account.expired, lost),)
        if of.has_open_end and proof.findings:
            proof.whole = False  # what is hidden is there to be compared later
        if proof.findings and self._terms.scope.keys:
            named = with_keys(self._terms, self._runner, of, proof.findings)
            proof.findings = tuple(named)
        digests = b"".join(digest for _, digest in sorted(part.digests.items()))
        proof.root = hashlib.sha256(digests).hexdigest()
        if self._keep is not None and proof.whole and not proof.findings:
            try:
                self._keep(proof)
            except ClusterError as error:
                # `keep` tries again at the end.
                log.warning("a proof is not kept yet", reason=str(error))
            else:
                proof.kept = True

    def _settle(self, part: _InProgress) -> None:
        """Explain what is open of a partition, or make findings of it."""
        rows = np.concatenate(part.open)
        part.open.clear()
        proof, of = part.proof, part.proof.of
        try:
            settled = self._settling.explain(
                of, rows, timed=proof.own_times, stamped_from=part.first_equal
            )
        except ClusterError as error:
            reason = f"{len(rows)} records cannot be explained: {error}"
            proof.findings += (_unproven(of.topic, reason),)
            proof.whole = False
        else:
            proof.add(settled)


def _unproven(topic: str, reason: str) -> ProofFinding:
    return ProofFinding(
        kind=FindingKind.UNPROVEN, topic=topic, partition=-1, target_topic="",
        source=None, target=None, count=0, detail=f"{topic}: {reason}",
    )  # fmt: skip


# ---- the keys of the records that findings are about ----
#
# Comparisons only keep marks of keys, since most records that have no equal copy are
# explained later; those that findings name are read once more.


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
            tasks.append(
                partial(keys_of, terms, of, sorted(wanted), on_source=on_source)
            )
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
