"""Committed offsets of groups: read for many groups at once, set for idle ones.

Main type: `CommittedOffset`. One request asks a coordinator for many groups. A group
that cannot be read or set is reported by name and does not hold up the others. Callers
decide what to commit for which group.

A share group commits nothing: its start offsets stand for that, with `SHARE_GROUP` as
their metadata. So checkpoints, too, say what kind of group they are of.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import struct
import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kafka.protocol.consumer import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
)

from mirror.clusters import codes
from mirror.clusters.admin import share_groups
from mirror.clusters.admin.groups import by_coordinator
from mirror.clusters.cluster import in_parts
from mirror.clusters.wire.fields import Fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.clusters.wire.connection import Connection
    from mirror.clusters.wire.pending_response import Pending


_MANY_GROUPS = 8
"""The version that can ask for many groups; newer ones require topic ids."""
_PATIENCE_SECONDS = 10.0
_PAUSE_SECONDS = 0.05
"""Before a coordinator that is moving is asked again."""
_IN_FLIGHT = 32
_COMMIT_BYTES = 256 << 10
_OVERHEAD = 64
"""The most bytes that a coordinator's record takes besides names and metadata."""


SHARE_GROUP = "start offset of a share group"
"""The metadata of its offsets. No group of another kind may have it."""


class CommittedOffset(NamedTuple):
    """What a group has committed for one partition."""

    offset: int
    metadata: str = ""


class HasMetadata(Protocol):
    """An offset of a group, here or in a checkpoint."""

    @property
    def metadata(self) -> str: ...


def are_of_share_group(offsets: Mapping[TopicPartition, HasMetadata]) -> bool:
    """Whether a group with these offsets is a share group."""
    return any(each.metadata == SHARE_GROUP for each in offsets.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffsets:
    """The committed offsets of some groups."""

    groups: Mapping[str, Mapping[TopicPartition, CommittedOffset]]
    """Every group that could be read; one that never committed has no offsets."""
    unstable: frozenset[tuple[str, str, int]] = frozenset()
    """Group, topic and partition where an open transaction will change the offset."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Groups that could not be read, with the reason."""
    waiting: frozenset[str] = frozenset()
    """The refused groups whose coordinator is moving."""


def fetch(
    cluster: Cluster, groups: Iterable[str], *, require_stable: bool = False
) -> GroupOffsets:
    """What groups have committed, for all partitions.

    With `require_stable`, partitions whose offset an open transaction is about to
    change are left out; otherwise they have the offset from before the transaction.

    Raises:
        ClusterError: a coordinator does not answer.
    """
    read = _Read()
    end = time.monotonic() + _PATIENCE_SECONDS
    waiting = list(dict.fromkeys(groups))
    while waiting:
        read.again.clear()
        for node, names in by_coordinator(cluster, waiting):
            answers = _ask(cluster, node, names, require_stable=require_stable)
            for group, answer in answers:
                read.take(group, answer)
            # What has committed nothing may be a share group.
            bare = [name for name in names if read.groups.get(name) == {}]
            connection = cluster.connection(node)
            if bare and share_groups.is_known(connection):
                for answer in share_groups.ask(connection, bare):
                    read.take_share_group(answer)
        waiting = list(read.again)
        if waiting and time.monotonic() > end:
            read.refused.update({g: codes.name_of(c) for g, c in read.again.items()})
            break
        if waiting:
            time.sleep(_PAUSE_SECONDS)
    return GroupOffsets(
        groups=read.groups,
        unstable=frozenset(read.unstable),
        refused=read.refused,
        waiting=frozenset(waiting),
    )


def commit(
    cluster: Cluster, offsets: Mapping[str, Mapping[TopicPartition, CommittedOffset]]
) -> dict[str, dict[TopicPartition, int]]:
    """Set offsets of groups from outside; waits for coordinators that are moving.
    Returns the refused partitions per group, with their error codes: a coordinator
    refuses while a group has members.

    Raises:
        ClusterError: a coordinator does not answer; some offsets may be set.
    """
    refused: dict[str, dict[TopicPartition, int]] = {}
    end = time.monotonic() + _PATIENCE_SECONDS
    waiting = offsets
    while waiting:
        again: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        for group, key, code in _set(cluster, waiting):
            if code in codes.WAIT_AND_ASK_AGAIN and time.monotonic() < end:
                again.setdefault(group, {})[key] = waiting[group][key]
            else:
                refused.setdefault(group, {})[key] = code
        if again:
            time.sleep(_PAUSE_SECONDS)
        waiting = again
    return refused


def _set(
    cluster: Cluster, offsets: Mapping[str, Mapping[TopicPartition, CommittedOffset]]
) -> Iterator[tuple[str, TopicPartition, int]]:
    """What is refused: group, partition and error code."""
    nodes = cluster.group_coordinators(offsets)
    asked = [(name, part) for name in offsets for part in _parts(name, offsets[name])]
    for some in in_parts(asked, _IN_FLIGHT):
        pending: list[tuple[str, dict[TopicPartition, CommittedOffset], Pending]] = []
        for group, part in some:
            connection = cluster.connection(nodes[group])
            if not are_of_share_group(part):
                pending.append((group, part, send(connection, group, part)))
            elif share_groups.is_known(connection):
                starts = {key: each.offset for key, each in part.items()}
                sent = share_groups.send(connection, group, starts)
                pending.append((group, part, sent))
            else:
                yield from ((group, key, codes.UNSUPPORTED_VERSION) for key in part)
        for group, part, each in pending:
            of = share_groups.refused if are_of_share_group(part) else _refused
            yield from ((group, *refused) for refused in of(each.result(), part))


def _refused(
    answer: Any, _: Iterable[TopicPartition]
) -> Iterator[tuple[TopicPartition, int]]:
    for topic in answer.topics:
        for each in topic.partitions:
            if each.error_code != codes.NONE:
                yield (topic.name, each.partition_index), each.error_code


def _parts(
    group: str, offsets: Mapping[TopicPartition, CommittedOffset]
) -> Iterator[dict[TopicPartition, CommittedOffset]]:
    """Offsets per request: a coordinator writes a request as one batch."""
    part: dict[TopicPartition, CommittedOffset] = {}
    size = 0
    for key, committed in offsets.items():
        texts = (group, key[0], committed.metadata)
        more = sum(len(text.encode()) for text in texts) + _OVERHEAD
        if part and size + more > _COMMIT_BYTES:
            yield part
            part, size = {}, 0
        part[key] = committed
        size += more
    if part:
        yield part


def _ask(
    cluster: Cluster, node: int, groups: list[str], *, require_stable: bool
) -> Iterator[tuple[str, Any]]:
    """One coordinator's answer for each group."""
    connection = cluster.connection(node)
    version = connection.version(OffsetFetchRequest, at_most=_MANY_GROUPS)
    if version >= _MANY_GROUPS:
        entry = OffsetFetchRequest.OffsetFetchRequestGroup
        request = OffsetFetchRequest(
            groups=[entry(group_id=group, topics=None) for group in groups],
            require_stable=require_stable,
        )
        for answer in connection.call(request, at_most=version).groups:
            yield answer.group_id, answer
        return
    for group in groups:
        request = OffsetFetchRequest(
            group_id=group, topics=None, require_stable=require_stable
        )
        yield group, connection.call(request, at_most=version)


class _Read:
    """The answers so far."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self.unstable: set[tuple[str, str, int]] = set()
        self.refused: dict[str, str] = {}
        self.again: dict[str, int] = {}
        """Groups whose coordinator is moving, with its error code."""

    def take(self, group: str, answer: Any) -> None:
        error = answer.error_code
        if error in codes.WAIT_AND_ASK_AGAIN:
            self.again[group] = error
            return
        if error not in (codes.NONE, codes.GROUP_ID_NOT_FOUND):
            self.refused[group] = codes.name_of(error)
            return
        found = self.groups[group] = {}
        for topic in answer.topics:
            name = topic.name
            for each in topic.partitions:
                error, offset = each.error_code, each.committed_offset
                key = (name, each.partition_index)
                if error == codes.UNSTABLE_OFFSET_COMMIT:
                    self.unstable.add((group, *key))
                elif error != codes.NONE:
                    text = f"{name}-{key[1]}: {codes.name_of(error)}"
                    self.refused[group] = text
                elif offset >= 0:
                    found[key] = CommittedOffset(offset, each.metadata or "")

    def take_share_group(self, answer: Any) -> None:
        """For a group of any kind that has committed nothing."""
        group = answer.group_id
        places = {
            (topic.topic_name, each.partition_index): each
            for topic in answer.topics
            for each in topic.partitions
        }
        errors = {each.error_code for each in places.values()} | {answer.error_code}
        if again := errors & codes.WAIT_AND_ASK_AGAIN:
            self.again[group] = again.pop()
            del self.groups[group]
            return
        # Share groups may be switched off.
        none = {codes.NONE, codes.GROUP_ID_NOT_FOUND, codes.UNSUPPORTED_VERSION}
        for error in errors - none:
            self.refused[group] = codes.name_of(error)
        self.groups[group] = {
            key: CommittedOffset(each.start_offset, SHARE_GROUP)
            for key, each in places.items()
            if each.error_code == codes.NONE and each.start_offset >= 0
        }


# ---- OffsetCommit requests, laid out field by field ----
#
# Main function: `send`. A failover sets 100,000 offsets: kafka-python's classes
# take four times as much CPU for the same bytes. Answers are kafka-python's.


_AT_MOST = 9
"""Newer ones require topic ids."""
_NO_GENERATION = struct.pack(">i", -1)
_PLACE = struct.Struct(">iqi")
_NO_EPOCH = -1


def send(
    connection: Connection,
    group: str,
    offsets: Mapping[tuple[str, int], tuple[int, str]],
) -> Pending:
    """Set a group's offsets, each with its metadata, by topic and partition, from
    outside of the group.
    """
    version = connection.version(OffsetCommitRequest, at_most=_AT_MOST)
    by_topic: dict[str, list[tuple[int, int, str]]] = {}
    for (topic, partition), (offset, metadata) in offsets.items():
        by_topic.setdefault(topic, []).append((partition, offset, metadata))
    fields = Fields(flexible=True)  # as of version 8, which brokers 2.5 speak
    fields.string(group)
    fields.raw(_NO_GENERATION)
    fields.string("")
    fields.string(None)
    fields.array(len(by_topic))
    for topic, places in by_topic.items():
        fields.string(topic)
        fields.array(len(places))
        for partition, offset, metadata in places:
            fields.raw(_PLACE.pack(partition, offset, _NO_EPOCH))
            fields.string(metadata)
            fields.tags()
        fields.tags()
    fields.tags()
    return fields.send(
        connection, OffsetCommitRequest.API_KEY, version, OffsetCommitResponse
    )
