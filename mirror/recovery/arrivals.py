"""Whether applications have arrived at the cluster that is active now.

Main functions: `ends` and `sums`, noted before they could write and read there, and
`first_write` and `standing`, which look what has changed since. A group with nothing to
read does not move, so one with members has arrived as well.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from mirror.clusters.admin import group_offsets, groups, topic_admin
from mirror.records.reading import TopicReader

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mirror.clusters.admin.group_offsets import CommittedOffset
    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition


ENDS = "ends"
SUMS = "sums"
_MOST_READ = 100
"""Partitions in which the first new record is read."""
_FETCH_BYTES = 64 << 10


def ends(cluster: Cluster, topics: Collection[str]) -> dict[str, list[int]]:
    """Where the partitions of these topics end, in their order; -1: not known. A topic
    that does not exist has none.
    """
    there = cluster.topics()
    keys = [
        (name, number)
        for name in topics
        if name in there
        for number in range(there[name].partitions)
    ]
    found = topic_admin.list_offsets(
        cluster, keys, timestamp=topic_admin.LATEST, committed=False, topics=there
    )
    by_topic: dict[str, list[int]] = {name: [] for name in topics}
    for key in keys:
        by_topic[key[0]].append(found.get(key, -1))
    return by_topic


def first_write(cluster: Cluster, before: Mapping[str, list[int]]) -> float | None:
    """When the first record came after these ends, by its own timestamp, epoch seconds;
    None if none has come. Partitions that did not exist then are in no list; of those
    without a leader then nothing can be said.
    """
    grown = {
        (name, number): (start, end)
        for name, now in ends(cluster, before).items()
        for number, end in enumerate(now)
        for start in [dict(enumerate(before[name])).get(number, 0)]
        if end > start >= 0
    }
    read = dict(islice(grown.items(), _MOST_READ))
    # Retention may have removed what came first.
    kept = topic_admin.list_offsets(cluster, [*read], timestamp=topic_admin.EARLIEST)
    times = [
        _time_at(cluster, key, max(start, kept[key]), end)
        for key, (start, end) in read.items()
        if key in kept
    ]
    return min(times, default=None)


def _time_at(cluster: Cluster, key: TopicPartition, offset: int, end: int) -> float:
    """Of the first record between these offsets; infinite: there is none any more, or
    there are markers only.
    """
    if offset >= end:
        return float("inf")
    from mirror.records import scan  # noqa: PLC0415  loads kernels

    reader = TopicReader(
        cluster, key[0], partition=key[1], position=offset, committed=False,
        fetch_bytes=_FETCH_BYTES,
    )  # fmt: skip
    for _, rows in reader.batches(offset + 1):
        if len(rows):
            return float(rows[0, scan.BASE_TIME]) / 1000
    return float("inf")


def sums(
    groups_offsets: Mapping[str, Mapping[TopicPartition, CommittedOffset]],
) -> dict[str, int]:
    """By group, the sum of its offsets: it changes when the group goes on."""
    return {
        group: sum(place.offset for place in places.values())
        for group, places in groups_offsets.items()
    }


def standing(
    cluster: Cluster, before: Mapping[str, int]
) -> tuple[list[str], list[str]]:
    """The groups that have not moved since these sums, and those of them that have no
    members, so that they have not arrived.
    """
    now = sums(group_offsets.fetch(cluster, before).groups)
    still = sorted(name for name, at in before.items() if now.get(name, at) == at)
    there = groups.list_groups(cluster) if still else {}
    return still, [name for name in still if name not in there or there[name].idle]
