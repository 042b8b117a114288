"""Ends what earlier runs of a flow hold: their transactional ids and transactions.

Main functions: `fence_slots`, which takes over every id that an earlier run may hold,
and `complete_transactions`, which ends what these left open. `ownership` calls them, in
the order that makes a run the only writer.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mirror.clusters import codes, hanging
from mirror.clusters.transactions import Producer
from mirror.errors import UnreachableError
from mirror.recovery import pauses
from mirror.relay.target import transactional_ids
from mirror.relay.transaction_records import TransactionRecords

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig
    from mirror.driver.generation import Generation

TopicPartition = tuple[str, int]

_PATIENCE_SECONDS = 10.0
_GONE = codes.UNKNOWN_TOPIC_OR_PARTITION
_PAUSE_SECONDS = 0.2


def fence_slots(
    flow: FlowConfig,
    target: Cluster,
    made: Generation,
    owner: Producer | None,
    copied: Iterable[TopicPartition],
) -> dict[int, str]:
    """Take over every id that a run of the flow may hold; without exactly-once there is
    no `owner`, and nothing to fence. `copied`: source partitions. Returns the producer
    ids, with their transactional ids.

    Raises:
        ClusterError: the target does not answer, or refuses.
    """
    if owner is None:
        return {}
    fenced = [
        take_over_id(flow, target, transactional_id)
        for slot in range(made.slots)
        for transactional_id in transactional_ids(flow.name, slot)
    ]
    # The owner writes to copies as well, for repairs.
    complete_transactions(flow, target, [owner, *fenced], copied)
    return {pid: str(each.transactional_id) for each in fenced for pid in each.ids}


def complete_transactions(
    flow: FlowConfig,
    target: Cluster,
    producers: Sequence[Producer],
    copied: Iterable[TopicPartition] = (),
) -> None:
    """End what earlier transactions left open, right after fencing: the cluster forgets
    how the last transaction of a fenced id ended. A copy that is not there is left out.

    Raises:
        UnreachableError: something may be open where the flow keeps its state.
    """
    name = flow.replication_policy.target_topic
    own = TransactionRecords.of(flow.source, flow.separator)
    others: set[TopicPartition] = set()
    if (dead := flow.dead_letter_topic) is not None:
        others |= {(dead, n) for n in target.topics([dead])[dead].leaders}
    control = pauses.topic_name(flow.source)  # there once something was paused
    others |= {(control, n) for n in target.topics([control])[control].leaders}
    copies = {(name(topic), n) for topic, n in copied}
    partitions = others | copies | set(own.partitions)
    search = own.search(target, others)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        topics = target.topics({topic for topic, _ in partitions})
        partitions = {each for each in partitions if topics[each[0]].error != _GONE}
        looked = hanging.complete(target, producers, topics, partitions, search=search)
        for each in looked.hanging:
            import structlog  # noqa: PLC0415  a switch need not wait for it

            log = structlog.get_logger()
            log.warning("transaction left open", flow=flow.name, what=each.text)
        # Leaders move as brokers come back; slots check what is left once more.
        partitions &= looked.unseen.keys()
        if not partitions:
            return
        if time.monotonic() > deadline:
            for key in partitions.intersection(own.partitions):
                raise UnreachableError(looked.unseen[key])
            return
        time.sleep(_PAUSE_SECONDS)


def take_over_id(flow: FlowConfig, target: Cluster, transactional_id: str) -> Producer:
    producer = Producer(
        target,
        transactional_id=transactional_id,
        transaction_timeout_ms=int(flow.transaction_timeout_seconds * 1000),
    )
    producer.take_over()
    return producer
