"""Where to begin: turns a place such as `earliest` into offsets of partitions.

Main type: `StartPoint`, the first record there is, the end, a moment, or an offset.
Only the source is asked; `ownership` and `reset` write the answers as progress.
Partitions that do not answer at a flow's very first start (`begin`) get a mark instead,
by which their position is found once they do (`find_late`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
import time
from typing import TYPE_CHECKING
import uuid

from mirror.clusters.admin import topic_admin
from mirror.offsets.progress import UNSETTLED, Position
from mirror.records.reading import has_records

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig

_PATIENCE_SECONDS = 5.0
_PAUSE_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPoint:
    """Where partitions begin; an offset is moved into the existing range."""

    timestamp: int = topic_admin.EARLIEST
    """Epoch milliseconds, `topic_admin.EARLIEST` or `topic_admin.LATEST`."""
    offset: int | None = None
    """Instead of the timestamp."""


def start_point(start: str | int) -> StartPoint:
    """The start point that the setting `start` names."""
    words = {"earliest": topic_admin.EARLIEST, "latest": topic_admin.LATEST}
    return StartPoint(timestamp=words[start] if isinstance(start, str) else start)


def find(
    source: Cluster, partitions: Mapping[TopicPartition, str], place: StartPoint
) -> dict[TopicPartition, Position]:
    """The positions of partitions, given with their topic ids in hex. One that does
    not answer now is left out.

    Raises:
        ClusterError: the source does not answer.
    """
    found = (
        topic_admin.list_offsets(source, partitions, timestamp=place.timestamp)
        if place.offset is None
        else _within(source, partitions, place.offset)
    )
    if late := [key for key, offset in found.items() if offset < 0]:
        # No record is that new: begin with the next one.
        found |= topic_admin.list_offsets(source, late, timestamp=topic_admin.LATEST)
    return {
        key: Position(offset=offset, topic_id=uuid.UUID(partitions[key]))
        for key, offset in found.items()
    }


def filled(
    flow: FlowConfig, target: Cluster, copies: Iterable[TopicPartition]
) -> frozenset[TopicPartition]:
    """Those of a flow's copies that have committed records. Heartbeats are left out:
    any service may have written them.

    Raises:
        ClusterError: the target does not answer.
    """
    asked = [each for each in copies if not flow.is_heartbeats(each[0])]
    firsts = topic_admin.list_offsets(target, asked, timestamp=topic_admin.EARLIEST)
    ends = topic_admin.list_offsets(target, firsts, timestamp=topic_admin.LATEST)
    return frozenset(
        key for key, end in ends.items() if has_records(target, key, firsts[key], end)
    )


def begin(
    source: Cluster,
    partitions: Mapping[TopicPartition, str],
    place: StartPoint,
    *,
    later: Collection[TopicPartition] = (),
) -> dict[TopicPartition, Position]:
    """As `find`, for every partition; those that do not answer get an unsettled one,
    as do those that begin `later`.

    Partitions with a leader are retried for some seconds; it may be a new one.

    Raises:
        ClusterError: the source does not answer.
    """
    # Ask for the leaders first: the end of a later one's epoch would be too late.
    topics = source.topics({topic for topic, _ in partitions})
    wanted = {key: each for key, each in partitions.items() if key not in later}
    found = find(source, wanted, place)
    patience = time.monotonic() + _PATIENCE_SECONDS
    while missing := {k: v for k, v in wanted.items() if k not in found}:
        if not _led(source, missing) or time.monotonic() > patience:
            break
        time.sleep(_PAUSE_SECONDS)
        found |= find(source, missing, place)
    missing |= {key: partitions[key] for key in later if key in partitions}
    for key, topic_id in missing.items():
        leader = topics[key[0]].leaders.get(key[1])
        found[key] = Position(
            offset=UNSETTLED,
            leader_epoch=-1 if leader is None else leader.epoch,
            topic_id=uuid.UUID(topic_id),
        )
    return found


def find_late(
    source: Cluster, unsettled: Mapping[TopicPartition, Position], place: StartPoint
) -> dict[TopicPartition, Position]:
    """The positions of partitions that did not answer at first; one that does not
    answer now either is left out.

    With `latest`, that is the end of the epoch of the leader at that time: a partition
    without a leader accepts no records, so later epochs have those that came since.

    Raises:
        ClusterError: the source does not answer.
    """
    ids = {key: each.topic_id.hex for key, each in unsettled.items()}
    found = find(source, ids, place)
    if place.timestamp != topic_admin.LATEST:
        return found
    # Ask after `find`: a log that knows no epoch even now had no records then.
    then = {k: e.leader_epoch for k, e in unsettled.items() if e.leader_epoch >= 0}
    topics = source.topics({topic for topic, _ in then})
    ends = topic_admin.epoch_ends(source, then, topics)
    for key in then.keys() & found.keys():
        if key not in ends:
            del found[key]
        elif ends[key].offset >= 0:
            found[key] = replace(found[key], offset=ends[key].offset)
    return found


def _led(source: Cluster, partitions: Iterable[TopicPartition]) -> bool:
    """Whether any of them has a leader."""
    partitions = list(partitions)
    topics = source.topics({topic for topic, _ in partitions})
    return any(
        (leader := topics[topic].leaders.get(partition)) is not None
        and leader.node >= 0
        for topic, partition in partitions
    )


def _within(
    source: Cluster, partitions: Iterable[TopicPartition], offset: int
) -> dict[TopicPartition, int]:
    first = topic_admin.list_offsets(source, partitions, timestamp=topic_admin.EARLIEST)
    last = topic_admin.list_offsets(source, first, timestamp=topic_admin.LATEST)
    return {key: min(max(offset, first[key]), end) for key, end in last.items()}
