"""Appends missing records to copies: reads them, takes over the flow, and writes them.

Main functions: `begin`, before a proof; `prepare`, after it, which says which records
cannot be appended; and `append`, which writes the others with their runs and a note of
the repair in one transaction of the flow's owner. A running service is fenced, and
begins again by itself. Dying at any point leaves all of it in the copies, or nothing.
`remedies` says what can be done about each finding.
"""

from __future__ import annotations

from collections import Counter
import contextlib
from dataclasses import dataclass, field, replace
from enum import StrEnum
import time
from typing import TYPE_CHECKING

import numpy as np

from mirror.clusters.admin import topic_admin
from mirror.clusters.cluster import Cluster
from mirror.clusters.wire.write import Write
from mirror.config import own_topics
from mirror.errors import ClusterError, MirrorError, NoLeaderError, RecreatedError
from mirror.offsets import runs
from mirror.offsets.offset_map import OffsetMap
from mirror.offsets.runs import COUNT, DOWNSTREAM, UPSTREAM, Block, between
from mirror.offsets.translation import Exactness
from mirror.pairs import control
from mirror.pairs.control import PausesReader, Repair
from mirror.proofs import explaining, missing_records
from mirror.proofs.account import FindingKind, Scope
from mirror.proofs.log_stream import OffsetRange
from mirror.proofs.ranges import LAST_OFFSET
from mirror.proofs.survey import settled_ends
from mirror.proofs.verification import terms_of
from mirror.records import codecs, records
from mirror.records.writing import ensure_topic, write
from mirror.service import ownership
from mirror.topics.merging import Merging

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from mirror.clusters.topics import TopicPartition
    from mirror.clusters.transactions import Producer
    from mirror.clusters.wire.write import Placed
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.offsets.runs import RunArray
    from mirror.proofs.account import CopiedPartition, ProofFinding
    from mirror.proofs.missing_records import MissingRecord
    from mirror.proofs.sides import ProofTerms
    from mirror.proofs.verification import PartitionProof, Proven


_IN_THE_LOG = "a log cannot be changed: `mirror repair rebuild` copies the topic again"


class Obstacle(StrEnum):
    """Why a missing record is not appended."""

    LATER_KEY = "the copy has later records of the key; --although-order appends it"
    GONE = "the source does not have it any more"
    FAILS = "the flow's function fails on it"
    HIDDEN = (
        "a transaction is open in the copy, and may hide it: the service ends what "
        "it left open"
    )
    COPIED = "it was copied, or became visible, after the proof: prove it again"


@dataclass(slots=True, kw_only=True)
class Work:
    """What is to be appended to one copy."""

    proof: PartitionProof
    left: list[MissingRecord]
    """In the order of the source."""
    obstacles: dict[int, Obstacle]
    """By source offset: why it is not in `left`."""
    looked_to: int = 0
    """The copy's keys are known up to here."""

    @property
    def of(self) -> CopiedPartition:
        return self.proof.of

    @property
    def copy(self) -> TopicPartition:
        return self.of.target_topic, self.of.partition

    def drop(self, offsets: Iterable[int], why: Obstacle) -> None:
        """Leave these records out."""
        self.obstacles |= dict.fromkeys(offsets, why)
        self.left = [each for each in self.left if each.offset not in self.obstacles]


@dataclass(slots=True, kw_only=True)
class Repairing:
    """A repair of one flow, open until `close`."""

    flow: FlowConfig
    terms: ProofTerms
    source: Cluster
    target: Cluster
    known: OffsetMap
    although_order: bool
    work: list[Work] = field(default_factory=list)
    closing: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def obstacles(self) -> Mapping[TopicPartition, Mapping[int, Obstacle]]:
        """By partition and source offset: why missing records are not appended."""
        return {each.of.key: each.obstacles for each in self.work}

    @property
    def counts(self) -> dict[str, int]:
        """By source topic: how many records are, or were, appended."""
        found: Counter[str] = Counter()
        for each in self.work:
            if each.left:
                found[each.of.topic] += len(each.left)
        return dict(found)

    def close(self) -> None:
        self.closing.close()


def begin(config: MirrorConfig, flow: FlowConfig) -> None:
    """Clear the way for a proof: end what a repair that was killed has left open, since
    it hides what was copied after it.

    Raises:
        MirrorError: repairs of this flow are not possible, a copy is being rebuilt, or
            the target refuses.
    """
    refuse(config, flow, ())
    with contextlib.closing(Cluster(config.clusters[flow.target])) as target:
        ownership.abort_own(flow, target.connect())
        reader = PausesReader(target, flow)
        reader.read()
        reader.refuse_other_rebuilds()


def refuse(
    config: MirrorConfig,
    flow: FlowConfig,
    topics: Iterable[str],
    *,
    appends: bool = True,
) -> None:
    """Check that a repair of these source topics is possible at all. `appends`: whether
    records are appended, by us; else the flow copies them again.

    Raises:
        MirrorError: it is not, for the reason given.
    """
    if not flow.exactly_once:
        raise MirrorError(
            f"flow {flow.name} is not exactly_once, so a running service cannot be "
            "fenced, and might write beside a repair: set exactly_once"
        )
    if appends and flow.translates_ids:
        raise MirrorError(
            f"flow {flow.name} has schemas_ids: translate, and appended records would "
            "keep the source's ids of schemas: mirror repair rebuild copies a topic "
            "again, with the target's"
        )
    others = (each for each in config.enabled_flows if each.name != flow.name)
    merging = Merging([*others, flow])
    shared = [topic for topic in topics if not merging.is_alone(flow, topic)]
    if shared:
        raise MirrorError(
            f"flow {flow.name}: other flows write the copies of {', '.join(shared)}, "
            "too: a repair of them is not possible"
        )


def prepare(
    config: MirrorConfig, flow: FlowConfig, proven: Proven, *, although_order: bool
) -> Repairing:
    """Read the records that a proof found missing, and decide which can be appended.
    `although_order`: also those whose keys have later records in the copy.

    Raises:
        MirrorError: a repair is not possible, or a cluster does not answer.
    """
    wanted: dict[TopicPartition, list[int]] = {}
    for each in proven.findings:
        if each.kind is FindingKind.MISSING and each.source is not None:
            offsets = range(each.source, each.source + each.count)
            wanted.setdefault((each.topic, each.partition), []).extend(offsets)
    refuse(config, flow, dict.fromkeys(topic for topic, _ in wanted))
    with contextlib.ExitStack() as stack:
        source, target, of_map = (
            stack.enter_context(
                contextlib.closing(Cluster(config.clusters[alias]).connect())
            )
            for alias in (flow.source, flow.target, flow.target)
        )
        made = Repairing(
            flow=flow,
            terms=terms_of(config, flow, source, target, Scope()),
            source=source,
            target=target,
            known=OffsetMap.of(flow, of_map),
            although_order=although_order,
        )
        size = 0
        for proof in proven.partitions:
            key = proof.of.key
            if key in wanted:
                named = np.array(sorted(wanted[key]), np.int64)
                found = missing_records.read(source, made.terms, proof.of, named)
                size += found.size
                if size > missing_records.MOST_BYTES:
                    raise missing_records.too_much(flow.name)
                gone = set(wanted[key]) - {each.offset for each in found.found}
                made.work.append(
                    Work(
                        proof=proof,
                        left=list(found.found),
                        obstacles=dict.fromkeys(gone, Obstacle.GONE)
                        | dict.fromkeys(found.failing, Obstacle.FAILS),
                    )
                )
        _drop_unfit_of_all(made)
        made.closing = stack.pop_all()
    return made


def append(repairing: Repairing) -> None:
    """Take over the flow, look again at what changed meanwhile, and append.

    Raises:
        FencedError: a run of the flow, or another repair, began meanwhile; nothing was
            written.
        MirrorError: nothing was written, or the answer to the commit was lost. What is
            left open ends with `begin`, or the service's next run.
    """
    flow, target = repairing.flow, repairing.target
    topic = control.topic_name(flow.source)
    ensure_topic(
        target,
        own_topics.CONTROL,
        topic,
        replication_factor=flow.replication_factor,
    )
    owner = ownership.take_over(flow, target)
    _drop_unfit_of_all(repairing)
    work = [each for each in repairing.work if each.left]
    if not work:
        return
    limits = topic_admin.max_message_bytes(target, {each.copy[0] for each in work})
    codec = codecs.BY_NAME.get(flow.compression)
    batches = {
        each.copy: list(
            missing_records.batches(
                each.left,
                codec=codecs.NONE if codec is None else codec,
                max_bytes=limits[each.copy[0]],
            )
        )
        for each in work
    }
    topics = target.topics({topic for topic, _ in batches})
    if not owner.v2:
        owner.add_partitions(batches)
    writing = Write(target, owner, batches, topics)
    writing.finish()
    for each in work:  # or it was written to another topic of the same name
        check_copy(target, each)
    own = _of_the_map(repairing, work, writing.placed)
    note = Repair(
        flow=flow.name, at=time.time(), kind=control.APPEND, topics=repairing.counts
    )
    _finish(
        target,
        owner,
        data=batches,
        own={
            runs.topic_name(flow.source, flow.separator): own,
            topic: [note.record()],
        },
    )


def _finish(
    target: Cluster,
    owner: Producer,
    *,
    data: Iterable[TopicPartition],
    own: Mapping[str, Sequence[tuple[bytes, bytes]]],
) -> None:
    write(target, {topic: records.encode_all(pairs) for topic, pairs in own.items()},
          owner)  # fmt: skip
    ownership.commit(target, owner, [*data, *((topic, 0) for topic in own)])


def _drop_unfit_of_all(repairing: Repairing) -> None:
    """Find out what must not be appended, from what is visible now. A running service
    always has transactions open; what they write counts once they have ended.
    """
    target = repairing.target
    waiting = [each for each in repairing.work if each.left]
    ends, hidden = settled_ends(target, [each.copy for each in waiting])
    repairing.known.refresh()
    for each in waiting:
        if each.copy not in ends:
            raise NoLeaderError(f"cluster {target.alias}: {each.copy[0]} has no leader")
        drop_unfit(
            target,
            repairing.terms,
            repairing.known,
            each,
            None if each.copy in hidden else ends[each.copy],
            although_order=repairing.although_order,
        )


def _of_the_map(
    repairing: Repairing, work: Sequence[Work], placed: Iterable[Placed]
) -> list[tuple[bytes, bytes]]:
    """The records of the map about what was written. Where a copy had lost its end,
    what was copied last follows in order again, as if a slot had copied it.
    """
    written: dict[TopicPartition, list[RunArray]] = {}
    for batch in placed:
        assert batch.batch.runs is not None
        part = batch.batch.runs.copy()
        part[:, DOWNSTREAM] += batch.offset
        written.setdefault(batch.where, []).append(part)
    late: list[Block] = []
    ordered: list[Block] = []
    for each in work:
        whole = runs.joined(np.concatenate(written[each.copy]))
        block = Block(
            topic=each.of.topic,
            partition=each.of.partition,
            target_topic=each.of.target_topic,
            topic_id=each.of.topic_id,
            copy_id=each.of.copy_id,
            runs=whole,
        )
        begins = int(whole[0, DOWNSTREAM])
        lost = repairing.known.reverse(*each.of.key, begins)
        if lost.exactness is Exactness.TIP:
            late.append(block)
            continue
        follows = lost.offset
        if lost.exactness is Exactness.EARLIER:  # late records were lost, too
            follows = LAST_OFFSET
        before = between(whole, 0, follows, UPSTREAM)
        tail = between(whole, follows, LAST_OFFSET, UPSTREAM)
        if len(before):
            late.append(replace(block, runs=before))
            following = repairing.known.position(*each.of.key)
            if len(tail):
                following = int(tail[0, UPSTREAM])
            # A floor: nothing that the map knew behind this place is there any more.
            floor = np.array([[following, begins, 0]], np.int64)
            tail = np.concatenate([floor, tail])
        ordered.append(replace(block, runs=tail))
    # In this order: late records stand behind what the copy lost.
    return [*((b"", value) for value in runs.encode(ordered)), *runs.encode_late(late)]


# ---- which missing records can be appended to a copy now ----
#
# Not what was copied after the proof, or may have been, and not what would seem to be
# the newest value of its key. It is asked before a repair and again while no one else
# writes.


def drop_unfit(
    target: Cluster,
    terms: ProofTerms,
    known: OffsetMap,
    work: Work,
    end: int | None,
    *,
    although_order: bool,
) -> None:
    """Drop what must not be appended, as far as the copy shows now. `end`: after its
    last record (None: an open transaction hides what comes next); `known`: read after
    that.

    Raises:
        ClusterError: the copy was re-created, lost its end, or cannot be read.
    """
    of = work.of
    check_copy(target, work)
    if end is None:
        work.drop([each.offset for each in work.left], Obstacle.HIDDEN)
        return
    if end < work.proof.target_end:
        raise ClusterError(
            f"cluster {target.alias}: {work.copy[0]} lost its end after the proof: "
            "prove it again"
        )
    places = {
        each.offset: known.translate(*work.of.key, each.offset).offset
        for each in work.left
    }
    # What the proof did not see may be a copy of it: of a transaction that was ended
    # only now, or copied again on purpose.
    proven = work.proof.target_end
    late = known.late(*work.of.key)
    late = late[(late[:, DOWNSTREAM] >= proven) & (late[:, DOWNSTREAM] < end)]
    again = {
        offset
        for offset, at in places.items()
        if proven <= at < end or _is_within(late, offset)
    }
    work.drop(again, Obstacle.COPIED)
    if although_order or not work.left:
        return
    begin = max(work.looked_to, min(places[each.offset] for each in work.left))
    if begin >= end:
        return
    keys = np.unique([each.key_mark for each in work.left])
    lasts = explaining.last_of_keys(
        terms,
        OffsetRange.of(of, begin, end, on_source=False),
        keys,
        on_source=False,
    )  # fmt: skip
    last_of = dict(zip(lasts.keys.tolist(), lasts.offsets.tolist(), strict=True))
    work.drop(
        [
            each.offset
            for each in work.left
            if last_of[each.key_mark] >= places[each.offset]
        ],
        Obstacle.LATER_KEY,
    )
    work.looked_to = end


def check_copy(target: Cluster, work: Work) -> None:
    """Check that the copy is still the one that was proven.

    Raises:
        RecreatedError: it is not.
    """
    (topic,) = target.topics([work.copy[0]]).values()
    if topic.topic_id != work.of.copy_id:
        raise RecreatedError(
            f"cluster {target.alias}: {work.copy[0]} was re-created after the proof"
        )


def _is_within(late: RunArray, offset: int) -> bool:
    into = offset - late[:, UPSTREAM]
    return bool(((into >= 0) & (into < late[:, COUNT])).any())


# ---- what a repair can do about a finding, and what it cannot ----
#
# A log only grows: records that are missing can be appended, if that does not put an
# old value behind a new one of the same key. What stands in the copy stays as it is.
# Pure.


class Remedy(StrEnum):
    """What `mirror repair append` does about a finding."""

    APPEND = "append"
    PARTLY = "append some"
    NONE = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What can be done about one finding."""

    finding: ProofFinding
    remedy: Remedy
    why: str
    """In words; empty if all of it is appended."""


_REASONS = {
    FindingKind.DIFFERENT: _IN_THE_LOG,
    FindingKind.DOUBLED: _IN_THE_LOG,
    FindingKind.SWAPPED: _IN_THE_LOG,
    FindingKind.UNEXPECTED: "a log cannot be changed, and a rebuild refuses, since the "
    "source does not have it: to do without it, delete the copy and reset the flow",
    FindingKind.DAMAGED: "restore the replica from another one",
    FindingKind.UNPROVEN: "remove the reason, and prove it again",
}
_DETAILED = frozenset({FindingKind.DAMAGED, FindingKind.UNPROVEN})
"""Only the finding's own words say what is wrong."""


def remedies(
    findings: Iterable[ProofFinding],
    obstacles: Mapping[TopicPartition, Mapping[int, Obstacle]],
) -> Iterator[Advice]:
    """`obstacles`: by partition and source offset, those of missing records."""
    for each in findings:
        if each.kind is not FindingKind.MISSING:
            why = _REASONS[each.kind]
            if each.kind in _DETAILED:
                why = f"{each.detail}; {why}"
            yield Advice(finding=each, remedy=Remedy.NONE, why=why)
            continue
        assert each.source is not None
        known = obstacles.get((each.topic, each.partition), {})
        offsets = range(each.source, each.source + each.count)
        met = Counter(known[offset] for offset in offsets if offset in known)
        left = each.count - met.total()
        if not met:
            yield Advice(finding=each, remedy=Remedy.APPEND, why="")
            continue
        whys = [
            reason.value if count == each.count else f"{count}: {reason.value}"
            for reason, count in sorted(met.items())
        ]
        yield Advice(
            finding=each,
            remedy=Remedy.PARTLY if left else Remedy.NONE,
            why="; ".join(whys),
        )
