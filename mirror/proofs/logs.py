"""Where the logs of both sides begin and end when a proof begins.

Main type: `Logs`, which says what there is to prove of each partition, or why nothing
can be compared. It looks at the copies first, and waits for open transactions there.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING
import uuid

from mirror.clusters import codes
from mirror.clusters.admin import topic_admin
from mirror.errors import NoLeaderError, UnreachableError
from mirror.offsets.progress import NO_ID
from mirror.proofs.copied_partition import CopiedPartition
from mirror.retry import patiently

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic, TopicPartition
    from mirror.config.schema import FlowConfig
    from mirror.offsets.progress import Position
    from mirror.pairs.proofs import Proof
    from mirror.topics.topics import MirroredTopic


PATIENCE_SECONDS = 10.0
_LOOK_AGAIN_SECONDS = 0.05


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
        since: int | None,
    ) -> None:
        there = [
            (topic.target_topic, partition)
            for topic in chosen
            for partition in copies[topic.target_topic].leaders
        ]
        self.copies = copies
        """By name."""
        self._starts = _offsets(target, there, topic_admin.EARLIEST)
        self._ends, self._open = settled_ends(target, there)
        here = [(each.topic, n) for each in chosen for n in range(each.partitions)]
        self._source_starts = _offsets(source, here, topic_admin.EARLIEST)
        self._firsts = (
            self._source_starts
            if since in (None, topic_admin.EARLIEST)
            else _offsets(source, here, since)
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
        *,
        copy_id: uuid.UUID,
        position: Position | None,
        proof: Proof | None,
        began: int,
        by_content: bool,
    ) -> CopiedPartition:
        """What there is to prove of one partition; `began`: where the flow began."""
        where = (topic.target_topic, partition)
        start, end = self._starts[where], self._ends[where]
        here = (topic.topic, partition)
        only_copy = partition >= topic.partitions
        first = 0 if only_copy else self._firsts[here]
        # Without a position of its own nothing was copied yet, by this flow.
        copied = max(first if position is None else position.offset, 0)
        if by_content:  # what is there says how far it is
            copied = max(copied, self._source_ends.get(here, 0))
        if first < 0:  # no record is so new
            first = copied
        continues, proven = False, (0, 0)
        if (
            proof is not None
            and _same(proof.topic_id, topic)
            and (NO_ID in (proof.copy_id, copy_id) or proof.copy_id == copy_id)
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
    mine = uuid.UUID(topic.topic_id)
    return NO_ID in (topic_id, mine) or topic_id == mine


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
