"""Becoming the only writer of a flow: the driver's side of fencing.

Main function: `take_ownership`, before the first lease of a driver run. It writes a
new generation to the progress topic, then fences every transactional id that an
earlier run may hold. A task of an earlier run is thereafter either fenced, or reads
the new generation when it takes over, and stops: there is no third case.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
import uuid

from mirror.clusters import admin
from mirror.clusters.transactions import Producer
from mirror.relay import progress
from mirror.relay.target import transactional_ids

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.produce import EncodedBatch
    from mirror.config.schema import FlowConfig
    from mirror.relay.progress import Position

TopicPartition = tuple[str, int]


def take_ownership(
    flow: FlowConfig, source: Cluster, target: Cluster, *, slots: int,
    partitions: Mapping[TopicPartition, str],
) -> str:  # fmt: skip
    """Return the new generation; nobody else writes for this flow from here on.

    `partitions` maps the source partitions to their topic ids in hex: with
    `start: latest` a flow without any progress begins at their present ends, which
    are written down here, before anything is copied.
    """
    topic = progress.topic_name(flow.source)
    admin.create_topic(
        target,
        topic,
        partitions=1,
        replication_factor=flow.replication_factor,
        configs=progress.TOPIC_CONFIGS,
    )
    target.wait_for_topic(topic)
    earlier_slots = _slots_of(progress.read(target, topic, committed=False).generation)
    generation = json.dumps({"id": uuid.uuid4().hex, "slots": slots})
    _write(target, topic, [progress.encode_generation(generation)])
    if flow.exactly_once:
        for slot in range(max(slots, earlier_slots)):
            for transactional_id in transactional_ids(flow.name, slot):
                Producer(
                    target,
                    transactional_id=transactional_id,
                    transaction_timeout_ms=int(flow.transaction_timeout_seconds * 1000),
                ).take_over()
    if flow.start == "latest" and not progress.read(target, topic).positions:
        ends = _ends(source, partitions)
        if ends:
            _write(target, topic, [progress.encode(ends)])
    return generation


def _ends(
    source: Cluster, partitions: Mapping[TopicPartition, str]
) -> dict[TopicPartition, Position]:
    found = admin.list_offsets(source, partitions, timestamp=admin.LATEST)
    return {
        key: progress.Position(offset=offset, topic_id=uuid.UUID(partitions[key]))
        for key, offset in found.items()
    }


def _write(target: Cluster, topic: str, batches: Iterable[EncodedBatch]) -> None:
    producer = Producer(target, transactional_id=None, transaction_timeout_ms=0)
    producer.take_over()
    producer.write({(topic, 0): list(batches)}, target.topics([topic]))


def _slots_of(generation: str) -> int:
    return int(json.loads(generation)["slots"]) if generation else 0
