"""What a flow has copied, as both clusters say: what there is to prove.

Main function: `survey`. It looks at progress first, then at the copies, which have what
progress names, then at the source and at the map, which have what copies have: the flow
may go on meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
import re
from typing import TYPE_CHECKING
import uuid

import numpy as np

from mirror.errors import ClusterError, MirrorError, NothingChosenError
from mirror.offsets import progress, runs
from mirror.offsets.index import LateRuns
from mirror.offsets.progress import NO_ID
from mirror.offsets.runs import COUNT, DOWNSTREAM, UPSTREAM, gather
from mirror.proofs import excuses
from mirror.proofs.logs import PATIENCE_SECONDS, Logs, settled_ends
from mirror.records.reading import TopicReader
from mirror.topics.topics import select

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig
    from mirror.offsets.offset_map import OffsetMap
    from mirror.offsets.progress import Position
    from mirror.offsets.runs import RunArray
    from mirror.pairs.proofs import Proof
    from mirror.proofs.copied_partition import CopiedPartition
    from mirror.proofs.explaining import Excuses
    from mirror.proofs.run_files import RunFiles
    from mirror.proofs.scope import Scope
    from mirror.topics.topics import MirroredTopic


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofSurvey:
    """What there is to prove."""

    partitions: tuple[CopiedPartition, ...]
    older: Mapping[TopicPartition, RunArray]
    """Where copies of deleted topics with the same names stand, on the target alone."""
    excuses: Mapping[TopicPartition, Excuses]
    late: Mapping[TopicPartition, RunArray] = field(default_factory=dict)
    """Records that repairs appended; see `offsets.offset_map`."""
    whole_map: bool = True
    """Off: the oldest part of the offset map is gone."""
    unproven: Mapping[str, str] = field(default_factory=dict)
    """Topics of which nothing can be compared, and why."""
    has_runs: bool = True
    """Off: the runs are not in the files, but in the map that was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _KnownRuns:
    """What the offset map says, without the runs that hold."""

    older: Mapping[TopicPartition, RunArray] = field(default_factory=dict)
    late: LateRuns = field(default_factory=LateRuns)
    firsts: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The first source offsets that were ever copied, to deleted copies too."""
    whole: bool = True
    has_runs: bool = True


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
    copies = target.topics({topic.target_topic for topic in chosen})
    positions = _positions(flow, target, needed=not scope.by_content)
    logs = Logs(flow, chosen, copies, source, target, since=scope.since)
    known = _KnownRuns()
    if not scope.by_content:
        known = _know(offset_map, chosen) or _read_map(
            flow, target, chosen, logs, files
        )
    found = []
    unproven: dict[str, str] = {}
    for topic in chosen:
        copy_id = copies[topic.target_topic].topic_id
        for partition in range(topic.partitions):
            key = (topic.topic, partition)
            position = positions.get(key)
            if reason := logs.obstacle(topic, partition, position):
                unproven[topic.topic] = reason
                continue
            proof = proofs.get(key) if scope.since is None else None
            began = 0
            began_late = flow.start != "earliest" and proof is None
            if began_late and position is not None and not scope.by_content:
                began = known.firsts.get(key, position.offset)
            of = logs.to_prove(
                topic,
                partition,
                copy_id=copy_id,
                position=position,
                proof=proof,
                began=began,
                by_content=scope.by_content,
            )
            begins = began_late and scope.by_content
            mapped = 0 if known.whole else known.firsts.get(key, of.source_end)
            found.append(replace(of, begins_with_copies=begins, mapped_from=mapped))
        for partition in logs.only_copies(topic):
            proof = (
                proofs.get((topic.topic, partition)) if scope.since is None else None
            )
            found.append(
                logs.to_prove(
                    topic, partition, copy_id=copy_id, position=None, proof=proof,
                    began=0, by_content=scope.by_content,
                )
            )  # fmt: skip
    return ProofSurvey(
        partitions=tuple(found),
        older=known.older,
        late={
            (of.topic, of.partition): known.late.of(
                (of.topic, of.partition), of.topic_id, of.copy_id
            )
            for of in found
        },
        whole_map=known.whole,
        has_runs=known.has_runs,
        excuses=excuses.read(flow, target, {t.topic: t.topic_id for t in chosen}),
        unproven=unproven,
    )


def _positions(
    flow: FlowConfig, target: Cluster, *, needed: bool
) -> Mapping[TopicPartition, Position]:
    name = progress.topic_name(flow.source)
    if target.topic(name) is None:
        if not needed:
            return {}
        raise MirrorError(
            f"flow {flow.name} has never run: there is no {name} on {flow.target}"
        )
    return progress.read(target, name).positions


def _know(
    offset_map: OffsetMap | None, chosen: list[MirroredTopic]
) -> _KnownRuns | None:
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
    return _KnownRuns(firsts=firsts, whole=offset_map.is_whole, has_runs=False)


def _read_map(
    flow: FlowConfig,
    target: Cluster,
    chosen: list[MirroredTopic],
    logs: Logs,
    files: RunFiles,
) -> _KnownRuns:
    """Put the runs of these topics and copies into `files`; returns all else."""
    name = runs.topic_name(flow.source, flow.separator)
    if target.topic(name) is None:
        return _KnownRuns()
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
    return _KnownRuns(
        older={key: np.concatenate(each) for key, each in older.items()},
        late=late,
        firsts=firsts,
        whole=reader.start == 0,
    )
