"""Moves the positions of a flow on purpose.

Main functions: `plan`, which only shows what would change, and `apply`, which fences a
running flow and writes the new positions in one transaction. A running service picks
them up by itself. Skipped offsets go to the loss ledger.
"""

from __future__ import annotations

from dataclasses import dataclass
import re
import time
from typing import TYPE_CHECKING

from mirror.copying.gaps import remade
from mirror.offsets import progress, starting
from mirror.pairs.losses import Cause, Loss
from mirror.service.ownership import make_topics, rewrite_progress
from mirror.service.rewriting import Rewriting

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig
    from mirror.offsets.progress import Position
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


def plan(
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
    name = progress.topic_name(flow.source)
    shown = target.topics([name])[name]
    known = {} if shown.error else progress.read(target, name).positions
    return _moves(source, tuple(topics), place, known)


def apply(
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
    copied = _ids(of_flow).keys()
    make_topics(flow, target)

    def decide(known: Mapping[TopicPartition, Position]) -> Rewriting:
        nonlocal made
        made = _moves(source, chosen, place, known)
        return Rewriting(
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
    found = starting.find(source, _ids(topics), place)
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


def _ids(topics: Iterable[MirroredTopic]) -> dict[TopicPartition, str]:
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
