"""Moves the positions of a flow on purpose.

Main functions: `plan_reset`, which only shows what would change, and `reset`, which
fences a running flow and writes the new positions in one transaction; `pass_copies`, by
which a switch moves a flow back behind the copies that it would leave out anyway. A
running service picks new positions up by itself. Offsets that a reset skips go to the
loss ledger.
"""

from __future__ import annotations

from dataclasses import dataclass
import re
import time
from types import MappingProxyType
from typing import TYPE_CHECKING

from mirror.copying.gaps import remade
from mirror.errors import MirrorError
from mirror.offsets import progress, starting
from mirror.offsets.progress import NO_ID, Position, Progress
from mirror.offsets.reverse_start import find_starts
from mirror.pairs.losses import Cause, Loss
from mirror.service.ownership import (
    PositionUpdate,
    make_topics,
    rewrite_progress,
)
from mirror.topics.merging import Merging
from mirror.topics.topics import select

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.offsets.starting import StartPoint
    from mirror.topics.topics import MirroredTopic


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionMove:
    """The position of one partition, before and after."""

    topic: str
    partition: int
    target_topic: str
    old: Position | None
    """None if nothing was copied yet."""
    new: Position

    @property
    def again(self) -> int:
        """How many offsets will be copied again."""
        return max(-self._ahead, 0)

    @property
    def skipped(self) -> int:
        """How many offsets will not be copied."""
        return max(self._ahead, 0)

    @property
    def _ahead(self) -> int:
        """How far `new` is ahead of `old`; 0 if they belong to different logs."""
        if self.old is None or remade(self.new.topic_id, self.old):
            return 0
        return self.new.offset - self.old.offset


def plan_reset(
    flow: FlowConfig,
    source: Cluster,
    target: Cluster,
    topics: Iterable[MirroredTopic],
    place: StartPoint,
) -> tuple[PositionMove, ...]:
    """What would move; a partition whose leader does not answer is left out.

    Raises:
        ClusterError: a cluster does not answer.
    """
    topics = tuple(topics)
    name = progress.topic_name(flow.source)
    shown = target.topics([name])[name]
    known = Progress() if shown.error else progress.read(target, name)
    _require_movable(flow, target, topics, known)
    return _moves(source, topics, place, known.positions)


def _require_movable(
    flow: FlowConfig,
    target: Cluster,
    topics: Iterable[MirroredTopic],
    known: Progress,
) -> None:
    """
    Raises:
        MirrorError: a copy has the source's offsets: its end is the position.
        ClusterError: the target does not answer.
    """
    noted = {e.target_topic: e.topic for e in topics if e.topic in known.terms}
    shown = target.topics(noted) if noted else {}
    if found := sorted(
        topic
        for copy, topic in noted.items()
        if shown[copy].topic_id.hex == known.terms[topic].copy_id
    ):
        raise MirrorError(
            f"flow {flow.name}: no position can be moved for {', '.join(found)}: the "
            "copy has the source's offsets (offsets: same), so it is copied from where "
            "it ends; `mirror repair rebuild` copies a topic again"
        )


def reset(
    flow: FlowConfig,
    source: Cluster,
    target: Cluster,
    topics: Iterable[MirroredTopic],
    place: StartPoint,
    *,
    of_flow: Iterable[MirroredTopic],
) -> tuple[PositionMove, ...]:
    """Move the positions from where they are after running tasks were fenced. `of_flow`
    are all topics that the flow copies from this source, including those to move.

    Raises:
        FencedError: a run of the flow started meanwhile; nothing was written.
        ClusterError: a cluster does not answer, or refuses.
    """
    chosen = tuple(topics)
    made: tuple[PositionMove, ...] = ()
    copied = topic_ids(of_flow).keys()
    make_topics(flow, target)
    known = progress.read(target, progress.topic_name(flow.source), wait=False)
    _require_movable(flow, target, chosen, known)

    def decide(known: Mapping[TopicPartition, Position]) -> PositionUpdate:
        nonlocal made
        made = _moves(source, chosen, place, known)
        return PositionUpdate(
            positions={(move.topic, move.partition): move.new for move in made},
            losses=[_loss(flow, move) for move in made if move.skipped],
            copied=copied,
            accepts_cut=True,
        )

    rewrite_progress(flow, target, decide, source_id=source.cluster_id)
    return made


def matching(topics: Iterable[MirroredTopic], pattern: str) -> list[MirroredTopic]:
    """The topics whose whole name matches."""
    wanted = re.compile(pattern)
    return [topic for topic in topics if wanted.fullmatch(topic.topic)]


def _moves(
    source: Cluster,
    topics: Iterable[MirroredTopic],
    place: StartPoint,
    known: Mapping[TopicPartition, Position],
) -> tuple[PositionMove, ...]:
    topics = tuple(topics)
    copies = {topic.topic: topic.target_topic for topic in topics}
    found = starting.find(source, topic_ids(topics), place)
    return tuple(
        PositionMove(
            topic=key[0],
            partition=key[1],
            target_topic=copies[key[0]],
            old=known.get(key),
            new=new,
        )
        for key, new in sorted(found.items())
    )


def topic_ids(topics: Iterable[MirroredTopic]) -> dict[TopicPartition, str]:
    """The topics' partitions, each with the id of its topic."""
    return {
        (topic.topic, partition): topic.topic_id
        for topic in topics
        for partition in range(topic.partitions)
    }


def _loss(flow: FlowConfig, move: PositionMove) -> Loss:
    assert move.old is not None
    return Loss(
        at=time.time(),
        flow=flow.name,
        topic=move.topic,
        partition=move.partition,
        target_topic=move.target_topic,
        cause=Cause.SKIPPED,
        first=move.old.offset,
        last=move.new.offset - 1,
        topic_id=move.new.topic_id.hex,
    )


# ---- a flow back starts behind the copies that it would leave out anyway ----
#
# Where both flows of a pair write one topic, the flow back finds there what the other
# flow copied; the map explains that, so it need not be read. Positions only move
# forward, and never past a record that was born there, so this may be done at any time,
# and again.


def pass_copies(
    config: MirrorConfig,
    flow: FlowConfig,
    reverse: FlowConfig,
    source: Cluster,
    target: Cluster,
    *,
    renewed: bool,
    fresh: Mapping[TopicPartition, Position] = MappingProxyType({}),
) -> bool:
    """Move the flow back, `reverse`, to the first record of each partition that `flow`
    did not copy there, or to the end. Whether there was something to move: then earlier
    runs of the flow back are fenced.

    `source` and `target` are those of the flow back. `renewed`: also where its position
    is in an earlier topic of the name; else `on_recreated_topic` decides about these.
    `fresh`: where it begins with partitions that have no position.

    Raises:
        FencedError: a run of the flow back started meanwhile; nothing was written.
        ClusterError: a cluster refuses, or there is no map. Nothing was written, or
            everything.
    """
    copies = both_write(config, flow, reverse, target)
    if not (copies or fresh):
        return False

    def decide(known: Mapping[TopicPartition, Position]) -> PositionUpdate:
        moved = behind_copies(flow, source, copies, known, renewed=renewed)
        begun = {key: each for key, each in fresh.items() if key not in known}
        return PositionUpdate(positions=moved | begun)

    rewrite_progress(reverse, target, decide)
    return True


def both_write(
    config: MirrorConfig, flow: FlowConfig, reverse: FlowConfig, source: Cluster
) -> dict[TopicPartition, TopicPartition]:
    """The partitions of copies that are copied back under the same name, with those
    that the flow reads on its source. What further flows write there counts as written
    there.

    Raises:
        ClusterError: the source does not answer.
    """
    writers = Merging(config.enabled_flows, pair=(flow.name, reverse.name))
    return {
        (topic.target_topic, number): (topic.topic, number)
        for topic in select(source, flow).topics
        if writers.back(flow, topic.topic) is not None
        for number in range(topic.partitions)
    }


def behind_copies(
    flow: FlowConfig,
    source: Cluster,
    copies: Mapping[TopicPartition, TopicPartition],
    known: Mapping[TopicPartition, Position],
    *,
    renewed: bool = True,
) -> dict[TopicPartition, Position]:
    """Where the flow back moves on to, given its positions: past what `flow` copied to
    the flow back's source. Raises as `pass_copies`.
    """
    ids = {name: each.topic_id for name, each in source.topics().items()}
    # A position in an earlier topic of this name says nothing.
    ours = {key: each for key, each in known.items() if key in copies}
    before = {
        key: each.offset
        for key, each in ours.items()
        if each.topic_id == NO_ID or each.topic_id == ids.get(key[0])
    }
    other = ours.keys() - before
    asked = copies if renewed else {k: copies[k] for k in copies.keys() - other}
    starts = find_starts(flow, source, asked, before)
    return {
        key: Position(offset=start.offset, topic_id=ids[key[0]])
        for key, start in starts.items()
        if start.offset > before.get(key, 0) or key in other
    }
