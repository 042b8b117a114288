"""What a slot learns when it takes over, once it has fenced earlier owners.

Main type: `Survey`, which asks both clusters, has transactions ended that brokers left
open (`clusters.hanging`), and refuses a slot of an earlier run. `Found` is what the
clusters say, `Standing` what follows for each partition: frozen values, which the slot
hands to those that read, rewrite and write.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror.clusters.admin import topic_admin
from mirror.errors import SupersededError
from mirror.offsets import progress
from mirror.relay.faults import obstacle
from mirror.relay.gaps import remade

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    import uuid

    import structlog

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic
    from mirror.config.schema import FlowConfig
    from mirror.offsets.progress import Position, Progress
    from mirror.relay.lease import Assignment, Lease
    from mirror.relay.target import TargetWriter
    from mirror.relay.transaction_records import TransactionRecords

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What follows for the partitions that a slot would copy."""

    read: Mapping[TopicPartition, Position]
    """Those that can be copied, and where each is read on."""
    obstacles: Mapping[TopicPartition, str]
    """Why each of the others cannot be copied now."""
    first: Mapping[TopicPartition, Position]
    """Those read that have to commit their position even if there is no record: asked
    for again, it would be another one."""
    doubtful: Mapping[TopicPartition, Position]
    """Those read of which the source shows another topic, or an older leader, than was
    copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the clusters say to a slot that takes over."""

    progress: Progress
    source_topics: Mapping[str, Topic]
    target_topics: Mapping[str, Topic]
    limits: Mapping[str, int]
    """The largest batch of each target topic in bytes."""
    closed: Mapping[TopicPartition, str]
    """Partitions of the target that nothing may be written to, and why."""
    dead_letter_partitions: int

    @property
    def ids(self) -> dict[str, uuid.UUID]:
        """Of the source topics."""
        return {name: topic.topic_id for name, topic in self.source_topics.items()}

    def standing(
        self,
        wanted: Mapping[TopicPartition, Assignment],
        positions: Mapping[TopicPartition, Position],
    ) -> Standing:
        """What follows for these partitions, with the position of each that has one."""
        reasons = {
            key: self._obstacle(assignment, positions.get(key))
            for key, assignment in wanted.items()
        }
        read = {key: positions[key] for key, reason in reasons.items() if not reason}
        known, unsettled = self.progress.positions, self.progress.unsettled
        return Standing(
            read=read,
            obstacles={key: reason for key, reason in reasons.items() if reason},
            first={
                key: position
                for key, position in read.items()
                if key not in known and key in unsettled
            },
            doubtful={
                key: position
                for key, position in read.items()
                if self._is_doubtful(key, position)
            },
        )

    def _obstacle(self, wanted: Assignment, position: Position | None) -> str:
        copy = (wanted.target_topic, wanted.partition)
        return self.closed.get(copy) or obstacle(
            wanted,
            source=self.source_topics[wanted.topic],
            target=self.target_topics[wanted.target_topic],
            position=position,
        )

    def _is_doubtful(self, key: TopicPartition, position: Position) -> bool:
        topic = self.source_topics[key[0]]
        older = topic.leaders[key[1]].epoch < position.leader_epoch
        return older or remade(topic.topic_id, position)


class Survey:
    """Asks the clusters of one slot, at each of its take-overs."""

    def __init__(
        self,
        flow: FlowConfig,
        source: Cluster,
        target: Cluster,
        writer: TargetWriter,
        records: TransactionRecords,
        *,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        self._flow = flow
        self._source = source
        self._target = target
        self._writer = writer
        self._records = records
        self._log = log
        self._closed: dict[TopicPartition, str] = {}

    def find(self, lease: Lease, wanted: Collection[Assignment]) -> Found:
        """What these partitions of the lease begin with; the slot's ids are ours.

        Raises:
            SupersededError: a newer run of the flow is at work.
            MirrorError: a cluster does not answer, or refuses.
        """
        names = {each.target_topic for each in wanted}
        partitions = {(each.target_topic, each.partition) for each in wanted}
        partitions.update(self._records.partitions)
        if (dead := self._flow.dead_letter_topic) is not None:
            names.add(dead)
        target_topics = self._target.topics({*names, *self._records.topics})
        dead_letters = set()
        if dead is not None:
            dead_letters = {(dead, number) for number in target_topics[dead].leaders}
        self._complete_transactions(target_topics, partitions | dead_letters)
        known = progress.read_proven(self._target, self._records.progress[0])
        if known.generation != lease.generation:
            raise SupersededError(
                f"flow {self._flow.name}: a newer run of the flow is active"
            )
        return Found(
            progress=known,
            target_topics=target_topics,
            limits=topic_admin.max_message_bytes(self._target, names),
            source_topics=self._source.topics({each.topic for each in wanted}),
            closed=self._closed,
            dead_letter_partitions=len(dead_letters),
        )

    def _complete_transactions(
        self, topics: Mapping[str, Topic], partitions: Iterable[TopicPartition]
    ) -> None:
        """What partitions missed the end of an earlier transaction get it now."""
        looked = self._writer.complete(topics, partitions)
        known, self._closed = set(self._closed.values()), dict(looked.unseen)
        for each in looked.hanging:
            if each.text not in known:
                self._log.warning("transaction left open", what=each.text)
            if not each.ended:
                # The next end of a transaction would decide on what is open there.
                self._closed |= dict.fromkeys(each.partitions, each.text)
