"""What a flow has copied, as both clusters say: what there is to prove.

Main function: `survey`. It looks at progress first, then at the copies, which have what
progress names, then at the source and at the map, which have what copies have: the flow
may go on meanwhile. `Logs` says what there is to prove of each partition, or why
nothing can be compared; `read_not_copied` what the target keeps about records that were
not copied.
"""

from __future__ import annotations

from collections import defaultdict
import contextlib
from dataclasses import dataclass, field, replace
import re
import time
from typing import TYPE_CHECKING, NamedTuple
import uuid

import numpy as np

from mirror.clusters import codes
from mirror.clusters.admin import topic_admin
from mirror.clusters.topics import same_topic
from mirror.copying.dead_letters import PREFIX
from mirror.errors import (
    ClusterError,
    MirrorError,
    NoLeaderError,
    NothingChosenError,
    UnreachableError,
)
from mirror.offsets import progress, runs
from mirror.offsets.index import LateRuns
from mirror.offsets.progress import NO_ID, Progress
from mirror.offsets.runs import COUNT, DOWNSTREAM, UPSTREAM, gather
from mirror.pairs import losses
from mirror.proofs.account import CopiedPartition
from mirror.proofs.explaining import NotCopied
from mirror.proofs.ranges import MOST_OFFSETS, NO_RUNS, ranges_of
from mirror.records import to_columns
from mirror.records.listing import headers_of, listed
from mirror.records.reading import TopicReader
from mirror.retry import patiently
from mirror.topics.topics import select

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic, TopicPartition
    from mirror.config.schema import FlowConfig
    from mirror.offsets.progress import Position
    from mirror.offsets.runs import RunArray
    from mirror.offsets.translation import OffsetMap
    from mirror.pairs.proofs import Proof
    from mirror.proofs.account import Scope
    from mirror.proofs.ranges import Range, RunFiles
    from mirror.topics.topics import MirroredTopic


_NOTED_SECONDS = 5.0
"""Slots note once a second how far copies with the source's offsets are."""
PATIENCE_SECONDS = 10.0
_LOOK_AGAIN_SECONDS = 0.05
_PARTITION, _OFFSET = re.compile(r"[0-9]{1,9}"), re.compile(r"[0-9]{1,18}")
"""Anybody may have written the headers; longer numbers are none of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapKnowledge:
    """What the offset map says, without the runs that hold."""

    older: Mapping[TopicPartition, RunArray] = field(default_factory=dict)
    """Where copies of deleted topics with the same names stand, on the target alone."""
    late: LateRuns = field(default_factory=LateRuns)
    """Records that repairs appended; see `offsets.offset_map`."""
    firsts: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The first source offsets that were ever copied, to deleted copies too."""
    whole: bool = True
    """Off: the oldest part of the offset map is gone."""
    has_runs: bool = True
    """Off: the runs are not in the files, but in the map that was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofSurvey:
    """What there is to prove."""

    partitions: tuple[CopiedPartition, ...]
    files: RunFiles = field(repr=False)
    """The runs of the offset map, if `known.has_runs`."""
    fenced: bool = True
    """As for `ranges_of`."""
    known: MapKnowledge = field(default_factory=MapKnowledge)
    not_copied: Mapping[TopicPartition, NotCopied] = field(default_factory=dict)
    unproven: Mapping[str, str] = field(default_factory=dict)
    """Topics of which nothing can be compared, and why."""

    def ranges(
        self,
        of: CopiedPartition,
        *,
        most: int = MOST_OFFSETS,
        picked: Callable[[], bool] = lambda: True,
    ) -> Iterator[Range]:
        """Those of one partition by the map, as `ranges_of` cuts them."""
        known = self.known
        return ranges_of(
            of, self.files.runs_of(of.key), known.older.get(of.key, NO_RUNS),
            late=known.late.runs_of(of.key, of.topic_id, of.copy_id),
            fenced=self.fenced, whole=known.whole, most=most, picked=picked,
        )  # fmt: skip


def survey(
    flow: FlowConfig,
    source: Cluster,
    target: Cluster,
    files: RunFiles,
    scope: Scope,
    *,
    proofs: Mapping[TopicPartition, Proof],
    offset_map: OffsetMap | None = None,
) -> ProofSurvey:
    """Look at the topics of the scope. Their runs go to `files`, except by content:
    then the flow need not have run.

    `proofs`: where earlier proofs ended. `offset_map`: the flow's, for who needs few of
    its runs. It is read on, and if all that it says ascends, it keeps its runs.

    Raises:
        NothingChosenError: no topic matches.
        MirrorError: the flow never ran, or a cluster does not answer.
    """
    chosen = [
        topic
        for topic in select(source, flow).topics
        if re.fullmatch(scope.pattern, topic.topic)
    ]
    if not chosen:
        raise NothingChosenError(
            [f"--topic: flow {flow.name} copies no topic that matches {scope.pattern}"]
        )
    if scope.since is not None:
        proofs = {}
    copies = target.topics({topic.target_topic for topic in chosen})
    noted = Progress()
    name = progress.topic_name(flow.source)
    if target.topic(name) is not None:
        noted = progress.read(target, name)
    elif not scope.by_content:
        raise MirrorError(
            f"flow {flow.name} has never run: there is no {name} on {flow.target}"
        )
    logs = Logs(flow, chosen, copies, source, target, scope=scope)
    positions = _noted_up_to(logs, chosen, noted, target, name)
    known = MapKnowledge()
    if not scope.by_content:
        known = _know(offset_map, chosen) or _read_map(
            flow, target, chosen, logs, files
        )
    found = []
    unproven: dict[str, str] = {}
    for topic in chosen:
        for partition in range(topic.partitions):
            key = (topic.topic, partition)
            position = positions.get(key)
            if reason := logs.obstacle(topic, partition, position):
                unproven[topic.topic] = reason
                continue
            proof = proofs.get(key)
            began = 0
            began_late = flow.start != "earliest" and proof is None
            if began_late and position is not None and not scope.by_content:
                began = known.firsts.get(key, position.offset)
            of = logs.to_prove(topic, partition, position, proof, began=began)
            begins = began_late and scope.by_content
            mapped = 0 if known.whole else known.firsts.get(key, of.source_end)
            found.append(replace(of, begins_with_copies=begins, mapped_from=mapped))
        found += (
            logs.to_prove(topic, number, None, proofs.get((topic.topic, number)))
            for number in logs.only_copies(topic)
        )
    return ProofSurvey(
        partitions=tuple(found),
        files=files,
        fenced=flow.exactly_once,
        known=known,
        not_copied=read_not_copied(flow, target, {t.topic: t.topic_id for t in chosen}),
        unproven=unproven,
    )


def _noted_up_to(
    logs: Logs,
    chosen: list[MirroredTopic],
    noted: Progress,
    target: Cluster,
    name: str,
) -> dict[TopicPartition, Position]:
    """The positions, once they name all that copies with the source's offsets have:
    slots note that later, with its part of the map. They never come to name what others
    have written, so this gives up after a while.
    """
    positions = {**noted.positions}
    late = {
        (topic.topic, number): end
        for topic in chosen
        if (note := noted.terms.get(topic.topic)) is not None
        and note.ended is None
        and note.copy_id == logs.copies[topic.target_topic].topic_id.hex
        for number in range(topic.partitions)
        for _, end in [logs.of_copy(topic, number)]
        if (topic.topic, number) in positions
        and positions[topic.topic, number].offset < end
    }
    reader = progress.reader(target, name)
    deadline = time.monotonic() + _NOTED_SECONDS
    while late and time.monotonic() < deadline:
        time.sleep(_LOOK_AGAIN_SECONDS)
        now = reader.read(wait=False).positions
        for key, end in [*late.items()]:
            at = now.get(key)
            if at is not None and at.offset >= end:
                positions[key] = replace(at, offset=end)
                del late[key]
    return positions


def _know(
    offset_map: OffsetMap | None, chosen: list[MirroredTopic]
) -> MapKnowledge | None:
    """What the map says besides its runs; None if only all of these say it."""
    if offset_map is None:
        return None
    offset_map.refresh()
    copies = offset_map.partitions()
    firsts: dict[TopicPartition, int] = {}
    for topic in chosen:
        topic_id = uuid.UUID(topic.topic_id)
        for key in ((topic.topic, number) for number in range(topic.partitions)):
            if key not in copies:
                continue
            oldest = offset_map.oldest(*key)
            if (
                oldest is None
                or copies[key] != topic.target_topic
                or topic_id not in (NO_ID, offset_map.source_id(*key))
                or not offset_map.ascends(*key)
            ):
                return None
            firsts[key], _ = oldest
    return MapKnowledge(firsts=firsts, whole=offset_map.is_whole, has_runs=False)


def _read_map(
    flow: FlowConfig,
    target: Cluster,
    chosen: list[MirroredTopic],
    logs: Logs,
    files: RunFiles,
) -> MapKnowledge:
    """Put the runs of these topics and copies into `files`; returns all else."""
    name = runs.topic_name(flow.source, flow.separator)
    if target.topic(name) is None:
        return MapKnowledge()
    if settled_ends(target, [(name, 0)])[1]:
        raise ClusterError(
            f"cluster {target.alias}: a transaction in {name} is open for over "
            f"{PATIENCE_SECONDS:.0f} s: try again when the flow goes on"
        )
    topics = {topic.topic: topic for topic in chosen}
    older: dict[TopicPartition, list[RunArray]] = {}
    late = LateRuns()
    firsts: dict[TopicPartition, int] = {}
    reader = TopicReader(target, name)
    for _, block, is_late in gather(reader.answers(), only=topics.__contains__):
        if is_late:
            late.add(block)
            continue
        if flow.exactly_once:
            late.truncate_from(block)
        topic = topics[block.topic]
        key = (block.topic, block.partition)
        same = uuid.UUID(topic.topic_id) in (NO_ID, block.topic_id)
        if same and block.target_topic == topic.target_topic:
            first = int(block.runs[0, UPSTREAM])
            firsts[key] = min(first, firsts.get(key, first))
        if not block.is_of(logs.copies[topic.target_topic]):
            continue
        if same:
            files.add(key, block.runs)
        else:
            # Where they stand is all that counts, whatever holes their source had,
            # and only what the copy still has.
            there = runs.joined(block.runs[:, [DOWNSTREAM, DOWNSTREAM, COUNT]])
            log = logs.of_copy(topic, block.partition)
            there = runs.between(there, *log, DOWNSTREAM)
            if len(there):
                older.setdefault(key, []).append(there)
    return MapKnowledge(
        older={key: np.concatenate(each) for key, each in older.items()},
        late=late,
        firsts=firsts,
        whole=reader.start == 0,
    )


# ---- where the logs of both sides begin and end ----


class Logs:
    """The ends of the logs on both sides, those of the copies first."""

    def __init__(
        self,
        flow: FlowConfig,
        chosen: list[MirroredTopic],
        copies: Mapping[str, Topic],
        source: Cluster,
        target: Cluster,
        *,
        scope: Scope,
    ) -> None:
        there = [
            (topic.target_topic, partition)
            for topic in chosen
            for partition in copies[topic.target_topic].leaders
        ]
        self.copies = copies
        """By name."""
        self._by_content = scope.by_content
        self._starts = _offsets(target, there, topic_admin.EARLIEST)
        self._ends, self._open = settled_ends(target, there)
        here = [(each.topic, n) for each in chosen for n in range(each.partitions)]
        self._source_starts = _offsets(source, here, topic_admin.EARLIEST)
        self._firsts = (
            self._source_starts
            if scope.since in (None, topic_admin.EARLIEST)
            else _offsets(source, here, scope.since)
        )
        committed = flow.isolation_level == "read_committed"
        self._source_ends = _offsets(
            source, here, topic_admin.LATEST, committed=committed
        )

    def obstacle(
        self, topic: MirroredTopic, partition: int, position: Position | None
    ) -> str:
        """Why a partition cannot be compared; empty if it can."""
        where = (topic.target_topic, partition)
        code = self.copies[topic.target_topic].error
        if code == codes.UNKNOWN_TOPIC_OR_PARTITION:
            return f"its copy {topic.target_topic} does not exist"
        if code:
            return str(codes.error_for(code, f"its copy {topic.target_topic}"))
        if where not in self._ends.keys() & self._starts.keys():
            return "a partition of the copy has no leader that answers"
        here = (topic.topic, partition)
        if here not in self._firsts.keys() & self._source_ends.keys():
            return "a partition of it has no leader that answers"
        if position is not None and not _same(position.topic_id, topic):
            return "re-created on the source, and not copied from there yet"
        return ""

    def of_copy(self, topic: MirroredTopic, partition: int) -> tuple[int, int]:
        """Where a copy's log begins and ends; it is empty if no leader answers."""
        where = (topic.target_topic, partition)
        return self._starts.get(where, 0), self._ends.get(where, 0)

    def only_copies(self, topic: MirroredTopic) -> list[int]:
        """Partitions that the copy alone has: nothing in them may claim our source."""
        there = self._ends.keys() & self._starts.keys()
        return sorted(
            partition
            for name, partition in there
            if name == topic.target_topic and partition >= topic.partitions
        )

    def to_prove(
        self,
        topic: MirroredTopic,
        partition: int,
        position: Position | None,
        proof: Proof | None,
        *,
        began: int = 0,
    ) -> CopiedPartition:
        """What there is to prove of one partition; `began`: where the flow began."""
        where = (topic.target_topic, partition)
        copy_id = self.copies[topic.target_topic].topic_id
        start, end = self._starts[where], self._ends[where]
        here = (topic.topic, partition)
        only_copy = partition >= topic.partitions
        first = 0 if only_copy else self._firsts[here]
        # Without a position of its own nothing was copied yet, by this flow.
        copied = max(first if position is None else position.offset, 0)
        if self._by_content:  # what is there says how far it is
            copied = max(copied, self._source_ends.get(here, 0))
        if first < 0:  # no record is so new
            first = copied
        continues, proven = False, (0, 0)
        if (
            proof is not None
            and _same(proof.topic_id, topic)
            and same_topic(proof.copy_id, copy_id)
            and proof.target_offset <= end  # else the copy has lost its end since
        ):
            first = max(first, min(proof.source_offset, copied))
            start = max(start, proof.target_offset)
            continues, proven = True, (proof.source_offset, proof.target_offset)
        first = max(first, began)
        source_start = self._source_starts.get(here, 0)
        return CopiedPartition(
            topic=topic.topic,
            partition=partition,
            target_topic=topic.target_topic,
            topic_id=uuid.UUID(topic.topic_id),
            copy_id=copy_id,
            source_first=first,
            source_end=max(copied, first),
            target_first=start,
            target_end=max(end, start),
            continues=continues,
            source_start=source_start,
            target_start=self._starts[where],
            source_lost=max(source_start - proven[0], 0),
            target_lost=max(self._starts[where] - proven[1], 0),
            has_open_end=where in self._open,
            copied_to=-1 if position is None else position.offset,
            only_copy=only_copy,
        )


def _same(topic_id: uuid.UUID, topic: MirroredTopic) -> bool:
    """Whether it is this topic's id, as far as brokers have any."""
    return same_topic(topic_id, uuid.UUID(topic.topic_id))


def _offsets(
    cluster: Cluster,
    partitions: list[TopicPartition],
    timestamp: int,
    *,
    committed: bool = True,
) -> dict[TopicPartition, int]:
    """The offsets at a timestamp, without partitions that have no leader for long."""
    found: dict[TopicPartition, int] = {}

    def ask() -> None:
        missing = [key for key in partitions if key not in found]
        found.update(
            topic_admin.list_offsets(
                cluster, missing, timestamp=timestamp, committed=committed
            )
        )
        if len(found) < len(partitions):
            raise NoLeaderError(f"cluster {cluster.alias}: partitions have no leader")

    with contextlib.suppress(NoLeaderError):
        patiently(ask, seconds=PATIENCE_SECONDS, also=UnreachableError)
    return found


def settled_ends(
    cluster: Cluster, partitions: list[TopicPartition]
) -> tuple[dict[TopicPartition, int], set[TopicPartition]]:
    """Last stable offsets after all transactions that are open now, since brokers show
    the parts of one transaction at different moments; and where they do not end soon.
    """
    written = _offsets(cluster, partitions, topic_admin.LATEST, committed=False)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        ends = _offsets(cluster, partitions, topic_admin.LATEST)
        late = {key for key, end in written.items() if ends.get(key, end) < end}
        if not late or time.monotonic() > deadline:
            return ends, late
        time.sleep(_LOOK_AGAIN_SECONDS)


# ---- records that were not copied: the loss ledger, and dead letters ----


class DeadLetter(NamedTuple):
    """One dead letter."""

    key: TopicPartition
    """Where the record stood on the source."""
    offset: int
    partition: int
    """Of the dead-letter topic."""
    at: int
    """Its offset there."""


def read_not_copied(
    flow: FlowConfig, target: Cluster, topic_ids: Mapping[str, str]
) -> dict[TopicPartition, NotCopied]:
    """By source partition, for the source topics with these ids (hex).

    Raises:
        ClusterError: the target does not answer, or a topic cannot be read.
    """
    lost: dict[TopicPartition, list[tuple[int, int]]] = defaultdict(list)
    dead: dict[TopicPartition, set[int]] = defaultdict(set)
    for loss in losses.read(target, flow.source):
        topic_id = topic_ids.get(loss.topic)
        if topic_id is None or not loss.is_of(topic_id):
            continue
        if loss.flow == flow.name and loss.last is not None:
            lost[loss.topic, loss.partition].append((loss.first, loss.last + 1))
    if flow.transform is not None and flow.dead_letter_topic is not None:
        for letter in dead_letters(target, flow.dead_letter_topic, flow.source):
            dead[letter.key].add(letter.offset)
    return {
        key: NotCopied(
            lost=tuple(lost.get(key, ())), dead_letters=frozenset(dead.get(key, ()))
        )
        for key in lost.keys() | dead.keys()
    }


def dead_letters(
    target: Cluster, topic: str, source_alias: str
) -> Iterator[DeadLetter]:
    """The dead letters of a source; none if there is no such topic.

    Raises:
        ClusterError: the target does not answer, or the topic cannot be read.
    """
    if (shown := target.topic(topic)) is None:
        return
    keys = [(topic, partition) for partition in shown.leaders]
    firsts = topic_admin.list_offsets(target, keys, timestamp=topic_admin.EARLIEST)
    ends = topic_admin.list_offsets(target, keys, timestamp=topic_admin.LATEST)
    for _, partition in keys:
        first, end = firsts[topic, partition], ends[topic, partition]
        reader = TopicReader(target, topic, partition=partition, position=first)
        for buffer, rows in reader.batches(end):
            for part in listed(buffer, rows, first, end):
                for place in part.places:
                    told = dict(headers_of(part.buffer, place))
                    if (stood := origin(told, source_alias)) is not None:
                        at = int(place[to_columns.OFFSET])
                        yield DeadLetter(*stood, partition, at)


def origin(
    told: Mapping[bytes, bytes | None], source_alias: str
) -> tuple[TopicPartition, int] | None:
    """Where a dead letter stood on the source, by its headers; None if it is of another
    source, or of somebody else.
    """
    cluster, topic, partition, offset = (
        (told.get(f"{PREFIX}{name}".encode()) or b"").decode(errors="replace")
        for name in ("cluster", "topic", "partition", "offset")
    )
    if cluster != source_alias or not (
        _PARTITION.fullmatch(partition) and _OFFSET.fullmatch(offset)
    ):
        return None
    return (topic, int(partition)), int(offset)
