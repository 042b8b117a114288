"""Groups of a model's cluster: what they have committed, and who is a member.

Handlers fill in the answer and return whether it is to be sent now. Offsets are set
from outside of a group, which its coordinator refuses while it has members. With a
topic go the offsets that groups have in it. Source: Kafka's `GroupCoordinator` and
`OffsetMetadataManager`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.simulation.requests import not_coordinator

if TYPE_CHECKING:
    from tests.simulation.requests import Request

TopicPartition = tuple[str, int]
UNKNOWN_TOPIC, UNKNOWN_MEMBER = 3, 25


@dataclass(eq=False)
class Group:
    """One group."""

    offsets: dict[TopicPartition, tuple[int, str]] = field(default_factory=dict)
    """With their metadata."""
    members: int = 0


def list_groups(request: Request) -> bool:
    """Those that this broker coordinates, or believes that it does."""
    broker, cluster = request.broker, request.cluster
    known = broker.old_groups if broker.isolated else cluster.groups
    request.answer.error_code = 0
    request.answer.groups = [
        request.kind.ListedGroup(
            group_id=name, protocol_type="consumer", group_type="classic",
            group_state="Stable" if group.members else "Empty",
        )
        for name, group in known.items()
        if coordinates(request, name)
    ]  # fmt: skip
    return True


def coordinates(request: Request, name: str) -> bool:
    """Whether this broker coordinates a group, or believes that it does."""
    broker = request.broker
    if broker.isolated:
        return broker.old_coordinators.get(name) == broker.node
    return request.cluster.coordinator(name) == broker.node


def fetch_offsets(request: Request) -> bool:
    """All offsets of each group; one that is cut off answers from what it had."""
    entry = request.kind.OffsetFetchResponseGroup
    broker, cluster = request.broker, request.cluster
    known = broker.old_groups if broker.isolated else cluster.groups
    found = []
    for asked in request.body.groups:
        group_id = asked.group_id
        error = 0
        if not coordinates(request, group_id):
            error = not_coordinator(request, group_id)
        group = Group() if error else known.get(group_id, Group())
        by_topic: dict[str, list[tuple[int, int, str]]] = {}
        for (topic, number), (offset, metadata) in group.offsets.items():
            by_topic.setdefault(topic, []).append((number, offset, metadata))
        topics = entry.OffsetFetchResponseTopics
        found.append(
            entry(
                group_id=group_id,
                error_code=error,
                topics=[
                    topics(
                        name=name,
                        partitions=[
                            topics.OffsetFetchResponsePartitions(
                                partition_index=number, committed_offset=offset,
                                committed_leader_epoch=-1, metadata=metadata,
                                error_code=0,
                            )
                            for number, offset, metadata in places
                        ],
                    )
                    for name, places in by_topic.items()
                ],
            )
        )  # fmt: skip
    request.answer.groups = found
    return True


def commit_offsets(request: Request) -> bool:
    """From outside of the group; a broker that is cut off cannot replicate it."""
    body, cluster = request.body, request.cluster
    entry = request.kind.OffsetCommitResponseTopic
    error = not_coordinator(request, body.group_id)
    group = cluster.groups.get(body.group_id)
    if not error and group is not None and group.members:
        error = UNKNOWN_MEMBER
    request.answer.topics = [
        entry(
            name=topic.name,
            partitions=[
                entry.OffsetCommitResponsePartition(
                    partition_index=part.partition_index,
                    error_code=error or _set(request, topic.name, part),
                )
                for part in topic.partitions
            ],
        )
        for topic in body.topics
    ]
    return True


def _set(request: Request, topic: str, part: object) -> int:
    cluster, body = request.cluster, request.body
    where = (topic, part.partition_index)
    if cluster.partition(where) is None:
        return UNKNOWN_TOPIC
    known = cluster.groups.setdefault(body.group_id, Group())
    known.offsets[where] = (part.committed_offset, part.committed_metadata or "")
    cluster.group_moved(body.group_id, where)
    return 0
