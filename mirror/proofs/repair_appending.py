"""Appends missing records to copies: reads them, takes over the flow, and writes them.

Main functions: `begin`, before a proof, and `prepare`, after it, which says which
records cannot be appended. Its `Repairing` writes the others with their runs and a note
of the repair in one transaction of the flow's owner. A running service is fenced, and
begins again by itself. Dying at any point leaves all of it in the copies, or nothing.
`remedies` says what can be done about each finding.
"""

from __future__ import annotations

from collections import Counter
import contextlib
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
import time
from typing import TYPE_CHECKING

import numpy as np

from mirror.clusters.admin import topic_admin
from mirror.clusters.cluster import Cluster
from mirror.clusters.wire.produce import HEADER_SIZE, EncodedBatch
from mirror.clusters.wire.write import Write
from mirror.config import own_topics
from mirror.errors import ClusterError, MirrorError, NoLeaderError, RecreatedError
from mirror.offsets import runs
from mirror.offsets.runs import DOWNSTREAM, UPSTREAM, Block, between
from mirror.offsets.translation import Exactness, OffsetMap
from mirror.pairs import control
from mirror.pairs.control import PausesReader, Repair
from mirror.proofs import sides
from mirror.proofs.account import FindingKind, Scope
from mirror.proofs.explaining import NO_STAMP, last_of_keys
from mirror.proofs.function_results import LETTER, Results
from mirror.proofs.log_stream import OffsetRange
from mirror.proofs.ranges import LAST_OFFSET, covered
from mirror.proofs.survey import settled_ends
from mirror.proofs.verification import terms_of
from mirror.records import alignment, codecs, records, to_columns
from mirror.records.listing import headers_of, listed
from mirror.records.writing import ensure_topic, write
from mirror.service import ownership
from mirror.topics.merging import Merging

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from mirror.clusters.topics import TopicPartition
    from mirror.clusters.wire.write import Placed
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.offsets.runs import RunArray
    from mirror.proofs.account import CopiedPartition, ProofFinding
    from mirror.proofs.log_stream import Lister
    from mirror.proofs.ranges import Longs
    from mirror.proofs.sides import ProofTerms
    from mirror.proofs.verification import PartitionProof, Proven
    from mirror.records.batch import Buffer, Rows


MOST_BYTES = 256 << 20
"""Of one repair: they are in memory, and in one transaction."""
_NULL = b"\1"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingRecord:
    """One record, to be appended."""

    offset: int
    """On the source."""
    time: int
    key_mark: int
    content: bytes = field(repr=False)
    """Key, value and headers, encoded, with our stamp."""


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
    """A repair of one flow, while both clusters are connected."""

    flow: FlowConfig
    terms: ProofTerms
    source: Cluster
    target: Cluster
    known: OffsetMap
    although_order: bool
    work: list[Work] = field(default_factory=list)

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

    def append(self) -> None:
        """Take over the flow, look again at what changed meanwhile, and append.

        Raises:
            FencedError: a run of the flow, or another repair, began meanwhile; nothing
                was written.
            MirrorError: nothing was written, or the answer to the commit was lost. What
                is left open ends with `begin`, or the service's next run.
        """
        flow, target = self.flow, self.target
        topic = control.topic_name(flow.source)
        ensure_topic(
            target,
            own_topics.CONTROL,
            topic,
            replication_factor=flow.replication_factor,
        )
        owner = ownership.take_over(flow, target)
        self.drop_unfit()
        work = [each for each in self.work if each.left]
        if not work:
            return
        limits = topic_admin.max_message_bytes(target, {each.copy[0] for each in work})
        codec = codecs.BY_NAME.get(flow.compression)
        data = {
            each.copy: list(
                in_batches(
                    each.left,
                    codec=codecs.NONE if codec is None else codec,
                    max_bytes=limits[each.copy[0]],
                )
            )
            for each in work
        }
        topics = target.topics({topic for topic, _ in data})
        if not owner.v2:
            owner.add_partitions(data)
        writing = Write(target, owner, data, topics)
        writing.finish()
        for each in work:  # or it was written to another topic of the same name
            check_copy(target, each)
        note = Repair(
            flow=flow.name, at=time.time(), kind=control.APPEND, topics=self.counts
        )
        own = {
            runs.topic_name(flow.source, flow.separator): _of_the_map(
                self.known, work, writing.placed
            ),
            topic: [note.record()],
        }
        encoded = {name: records.encode_all(pairs) for name, pairs in own.items()}
        write(target, encoded, owner)
        ownership.commit(target, owner, [*data, *((name, 0) for name in own)])

    def drop_unfit(self) -> None:
        """Find out what must not be appended, from what is visible now. A running
        service always has transactions open; what they write counts once they have
        ended.

        Raises:
            ClusterError: a copy was re-created, lost its end, or cannot be read.
        """
        waiting = [each for each in self.work if each.left]
        ends, hidden = settled_ends(self.target, [each.copy for each in waiting])
        self.known.refresh()
        for each in waiting:
            if each.copy not in ends:
                raise NoLeaderError(
                    f"cluster {self.target.alias}: {each.copy[0]} has no leader"
                )
            check_copy(self.target, each)
            if each.copy in hidden:
                each.drop([one.offset for one in each.left], Obstacle.HIDDEN)
            else:
                self._drop_unfit_of(each, ends[each.copy])

    def _drop_unfit_of(self, work: Work, end: int) -> None:
        """`end`: after the copy's last record. Not what was copied after the proof, or
        may have been, and not what would seem to be the newest value of its key.
        """
        of = work.of
        proven = work.proof.target_end
        if end < proven:
            raise ClusterError(
                f"cluster {self.target.alias}: {work.copy[0]} lost its end after the "
                "proof: prove it again"
            )
        places = {
            each.offset: self.known.translate(*of.key, each.offset).offset
            for each in work.left
        }
        # What the proof did not see may be a copy of it: of a transaction that was
        # ended only now, or copied again on purpose.
        late = self.known.late(*of.key)
        late = late[(late[:, DOWNSTREAM] >= proven) & (late[:, DOWNSTREAM] < end)]
        offsets, at = (np.array(list(x), np.int64) for x in (places, places.values()))
        again = (proven <= at) & (at < end) | covered(offsets, late, UPSTREAM)
        work.drop(offsets[again].tolist(), Obstacle.COPIED)
        if self.although_order or not work.left:
            return
        begin = max(work.looked_to, min(places[each.offset] for each in work.left))
        if begin >= end:
            return
        keys = np.unique([each.key_mark for each in work.left])
        wanted = OffsetRange.within(of, begin, end, on_source=False)
        lasts = last_of_keys(self.terms, wanted, keys, on_source=False)
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
    if appends and flow.offsets == "same":
        raise MirrorError(
            f"flow {flow.name} has offsets: same, and appended records would have "
            "other offsets: mirror repair rebuild copies a topic again"
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


@contextlib.contextmanager
def prepare(
    config: MirrorConfig, flow: FlowConfig, proven: Proven, *, although_order: bool
) -> Iterator[Repairing]:
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
    with (
        sides.connected(config, flow) as (source, target),
        contextlib.closing(Cluster(config.clusters[flow.target]).connect()) as of_map,
    ):
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
            if proof.of.key in wanted:
                named = np.array(sorted(wanted[proof.of.key]), np.int64)
                work = _read(source, made.terms, proof, named)
                size += sum(len(each.content) for each in work.left)
                if size > MOST_BYTES:
                    raise _too_much(flow.name)
                made.work.append(work)
        made.drop_unfit()
        yield made


def _read(
    source: Cluster, terms: ProofTerms, proof: PartitionProof, offsets: Longs
) -> Work:
    """Read the records at these offsets, ascending, as far as they are still there.
    With a `transform` they are what the flow's function makes of them.

    Raises:
        MirrorError: there are too many, or the source cannot be read.
    """
    of, seen = proof.of, terms.seen
    lister: Lister = partial(listed, most_unpacked=terms.flow.max_unpacked_bytes)
    if terms.flow.transform is not None:
        lister = Results(terms.flow, of.key, seen).listed
    wanted = OffsetRange.within(
        of, int(offsets[0]), int(offsets[-1]) + 1, on_source=True
    )
    stream = sides.stream(terms, source, wanted, on_source=True, lister=lister)
    found: list[MissingRecord] = []
    obstacles = dict.fromkeys(offsets.tolist(), Obstacle.GONE)
    size = 0
    stamp = seen.stamp.tobytes()
    for part in stream.listed():
        chosen = np.isin(part.places[:, to_columns.OFFSET], offsets)
        places = np.ascontiguousarray(part.places[chosen])
        marks, keys = np.empty((2, len(places)), np.int64)
        alignment.describe(part.buffer, places, NO_STAMP, 0, marks, keys)
        for place, key_mark in zip(places, keys.tolist(), strict=True):
            offset = int(place[to_columns.OFFSET])
            if terms.flow.transform is not None and LETTER in dict(
                headers_of(part.buffer, place)
            ):
                obstacles[offset] = Obstacle.FAILS
                continue
            content = _encoded(part.buffer, place, stamp)
            size += len(content)
            if size > MOST_BYTES:
                raise _too_much(f"{of.topic}-{of.partition}")
            time = int(place[to_columns.TIME])
            found.append(
                MissingRecord(
                    offset=offset, time=time, key_mark=key_mark, content=content
                )
            )
            obstacles.pop(offset, None)
    return Work(proof=proof, left=found, obstacles=obstacles)


def _too_much(where: str) -> MirrorError:
    return MirrorError(
        f"{where}: more than {MOST_BYTES >> 20} MiB are missing, too much to append: "
        "append topic by topic with --topic, or delete the copy and let the flow copy "
        "it again"
    )


# ---- what is written: batches, and records of the map ----


def in_batches(
    missing: Sequence[MissingRecord], *, codec: int, max_bytes: int
) -> Iterator[EncodedBatch]:
    """The records in batches of at most `max_bytes`, unless a single one is larger."""
    part: list[MissingRecord] = []
    size = 0
    for each in missing:
        more = len(each.content) + 24
        if part and size + more > min(max_bytes - HEADER_SIZE, records.BATCH_BYTES):
            yield _packed(part, codec)
            part, size = [], 0
        part.append(each)
        size += more
    if part:
        yield _packed(part, codec)


def _packed(part: list[MissingRecord], codec: int) -> EncodedBatch:
    base = min(each.time for each in part)
    body = bytearray()
    for index, each in enumerate(part):
        head = b"\0" + records.varint(each.time - base) + records.varint(index)
        body += records.varint(len(head) + len(each.content)) + head + each.content
    packed, used = bytes(body), codecs.NONE
    if codec != codecs.NONE:
        smaller = codecs.compress(codec, memoryview(packed))
        if len(smaller) < len(packed):
            packed, used = smaller, codec
    header = records.header(
        size=HEADER_SIZE + len(packed),
        attributes=used,
        count=len(part),
        base_time=base,
        newest=max(each.time for each in part),
    )
    offsets = np.array([each.offset for each in part], np.int64)
    begins = np.flatnonzero(np.diff(offsets, prepend=offsets[0] - 2) != 1)
    counts = np.diff(begins, append=len(offsets))
    runs = np.stack([offsets[begins], begins, counts], axis=1)
    return EncodedBatch(header=header, body=packed, count=len(part), runs=runs)


def _encoded(buffer: Buffer, place: Rows, stamp: bytes) -> bytes:
    """Key, value and headers of one record; `stamp`: an encoded header to append."""
    headers_at, end = int(place[to_columns.HEADERS_AT]), int(place[to_columns.END])
    return b"".join(
        (
            _sized(buffer, place, to_columns.KEY_AT, to_columns.KEY_SIZE),
            _sized(buffer, place, to_columns.VALUE_AT, to_columns.VALUE_SIZE),
            records.varint(int(place[to_columns.HEADERS]) + bool(stamp)),
            buffer[headers_at:end].tobytes(),
            stamp,
        )
    )


def _sized(buffer: Buffer, place: Rows, at: int, size: int) -> bytes:
    length, begin = int(place[size]), int(place[at])
    if length < 0:
        return _NULL
    return records.varint(length) + buffer[begin : begin + length].tobytes()


def _of_the_map(
    known: OffsetMap, work: Sequence[Work], placed: Iterable[Placed]
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
        lost = known.reverse(*each.of.key, begins)
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
            following = known.position(*each.of.key)
            if len(tail):
                following = int(tail[0, UPSTREAM])
            # A floor: nothing that the map knew behind this place is there any more.
            floor = np.array([[following, begins, 0]], np.int64)
            tail = np.concatenate([floor, tail])
        ordered.append(replace(block, runs=tail))
    # In this order: late records stand behind what the copy lost.
    return [*((b"", value) for value in runs.encode(ordered)), *runs.encode_late(late)]


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
