"""Becoming the only writer of a flow: the driver's side of fencing.

Main function: `take_ownership`, before the first lease of a driver run. It writes a
new generation to the progress topic, then fences every transactional id that an
earlier run may hold. A task of an earlier run is thereafter either fenced, or reads
the new generation when it takes over, and stops: there is no third case.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
import json
from typing import TYPE_CHECKING
import uuid

from mirror.clusters import admin
from mirror.clusters.transactions import Producer
from mirror.clusters.write import Write
from mirror.errors import SupersededError
from mirror.offsets import progress, runs
from mirror.relay.target import transactional_ids

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.produce import EncodedBatch
    from mirror.config.schema import FlowConfig
    from mirror.offsets.progress import Position

TopicPartition = tuple[str, int]


def take_ownership(
    flow: FlowConfig, source: Cluster, target: Cluster, *, slots: int,
    partitions: Mapping[TopicPartition, str],
) -> str:  # fmt: skip
    """Return the new generation; nobody else writes for this flow from here on.

    `partitions` maps the source partitions to their topic ids in hex: with
    `start: latest` a flow begins, the very first time, at their present ends, which
    are written down here, before anything is copied.

    Raises:
        SupersededError: another run began meanwhile.
    """
    topic = progress.topic_name(flow.source)
    own = {
        runs.topic_name(flow.source, flow.separator): runs.TOPIC_CONFIGS,
        topic: progress.TOPIC_CONFIGS,
    }
    for name, configs in own.items():
        admin.create_topic(
            target,
            name,
            partitions=1,
            replication_factor=flow.replication_factor,
            configs=configs,
        )
        target.wait_for_topic(name)
    earlier = _Generation.parse(
        progress.read(target, topic, committed=False).generation
    )
    # Who died between writing this and fencing has fenced nobody: never fewer slots.
    made = _Generation(
        slots=max(slots, earlier.slots),
        begun=earlier.begun or flow.start == "earliest",
    )
    generation = made.text()
    _write(target, topic, [progress.encode_generation(generation)])
    ids = [i for slot in range(made.slots) for i in transactional_ids(flow.name, slot)]
    holders = [
        Producer(
            target,
            transactional_id=transactional_id,
            transaction_timeout_ms=int(flow.transaction_timeout_seconds * 1000),
        )
        for transactional_id in ids
        if flow.exactly_once
    ]
    for holder in holders:
        holder.take_over()
    if made.begun:
        return generation

    # Once only, so under a fenced id: of two first starts at a time one must fail.
    if progress.read(target, topic).generation != generation:
        raise SupersededError(f"flow {flow.name}: a newer run of the flow is at work")
    generation = replace(made, begun=True).text()
    batches = [progress.encode_generation(generation)]
    if ends := _ends(source, partitions):
        batches.insert(0, progress.encode(ends))
    if not holders:
        _write(target, topic, batches)
        return generation
    _write(target, topic, batches, holders[0])
    holders[0].commit()
    return generation


@dataclass(frozen=True, slots=True, kw_only=True)
class _Generation:
    """What a generation's text says besides being unique."""

    slots: int = 0
    """How many slots this and earlier runs may hold the ids of."""
    begun: bool = False
    """Whether it is known where partitions begin that existed at the very first
    start; those found later begin at their first record."""

    @classmethod
    def parse(cls, text: str) -> _Generation:
        if not text:
            return cls()
        fields = json.loads(text)
        return cls(slots=fields["slots"], begun=fields["begun"])

    def text(self) -> str:
        return json.dumps({"id": uuid.uuid4().hex, **asdict(self)})


def _ends(
    source: Cluster, partitions: Mapping[TopicPartition, str]
) -> dict[TopicPartition, Position]:
    found = admin.list_offsets(source, partitions, timestamp=admin.LATEST)
    return {
        key: progress.Position(offset=offset, topic_id=uuid.UUID(partitions[key]))
        for key, offset in found.items()
    }


def _write(
    target: Cluster,
    topic: str,
    batches: Sequence[EncodedBatch],
    producer: Producer | None = None,
) -> None:
    """Write to the progress topic; in a transaction of `producer` if one is given."""
    if producer is None:
        producer = Producer(target, transactional_id=None, transaction_timeout_ms=0)
        producer.take_over()
    elif not producer.v2:
        producer.add_partitions([(topic, 0)])
    Write(target, producer, {(topic, 0): batches}, target.topics([topic])).finish()
