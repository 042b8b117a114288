"""Who is concerned by a tail: groups that have read of it, keys written again since.

Main functions: `groups`, from what groups have committed on the source, and
`conflicts`, from what was born on the target since it became active.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from mirror.clusters.admin import group_offsets, topic_admin
from mirror.clusters.admin.groups import list_groups
from mirror.clusters.wire import fetch
from mirror.copying import provenance
from mirror.policy.selection import GroupFilter
from mirror.proofs.log_stream import LogStream, OffsetRange
from mirror.proofs.settling import NO_STAMP
from mirror.records import alignment, to_columns
from mirror.records.listing import Loops, listed
from mirror.recovery.tails.tail import NO_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig
    from mirror.recovery.tails.tail import Tail


MOST_SHOWN = 10
"""Keys of a topic that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflicts:
    """Keys of one topic's tail that were written on the target since."""

    keys: int
    shown: tuple[str, ...]
    """The first few, in UTF-8."""


def groups(
    source: Cluster, flow: FlowConfig, tail: Tail
) -> dict[str, dict[TopicPartition, int]]:
    """By group and partition, how many records of the tail the group has read.

    Raises:
        ClusterError: the source does not answer.
    """
    wanted = GroupFilter(include=flow.groups, exclude=flow.groups_exclude)
    names = [name for name in list_groups(source) if wanted.matches(name)]
    committed = group_offsets.fetch(source, names).groups
    found: dict[str, dict[TopicPartition, int]] = {}
    for name, offsets in sorted(committed.items()):
        for part in tail.partitions:
            if part.key in offsets:
                read = int(np.searchsorted(part.offsets, offsets[part.key].offset))
                if read:
                    found.setdefault(name, {})[part.key] = read
    return found


def conflicts(
    source: Cluster, target: Cluster, flow: FlowConfig, tail: Tail, *, since: float
) -> dict[str, Conflicts]:
    """By source topic, which keys of its tail were written on the target `since` this
    time, epoch seconds, in the copy or in the topic of the same name.

    Raises:
        ClusterError: the target cannot be read.
    """
    found = {}
    for topic, copies in _copies(tail).items():
        parts = [each for each in tail.partitions if each.topic == topic]
        marks = np.unique(np.concatenate([each.keys for each in parts]))
        marks = marks[marks != NO_KEY]
        keys: dict[int, str] = {}
        if len(marks):
            for name in copies:
                keys |= _born(source, target, flow, name, marks, since)
        shown = tuple(list(keys.values())[:MOST_SHOWN])
        found[topic] = Conflicts(keys=len(keys), shown=shown)
    return found


def _copies(tail: Tail) -> Mapping[str, set[str]]:
    return {
        each.topic: {each.topic, each.target_topic}
        for each in tail.partitions
        if each.records
    }


def _born(  # noqa: PLR0917  both clusters, and what to look for
    source: Cluster,
    target: Cluster,
    flow: FlowConfig,
    name: str,
    marks: np.ndarray,
    since: float,
) -> dict[int, str]:
    """By mark, the keys among these that a topic of the target has of its own."""
    topic = target.topics([name])[name]
    if topic.error:
        return {}
    where = [(name, number) for number in topic.leaders]
    firsts = topic_admin.list_offsets(target, where, timestamp=round(since * 1000))
    ends = topic_admin.list_offsets(target, where, timestamp=topic_admin.LATEST)
    through = provenance.via(
        source_alias=flow.target, source_id=target.cluster_id,
        target_id=source.cluster_id,
    )  # fmt: skip
    found: dict[int, str] = {}
    for key, first in firsts.items():
        if first < 0 or key not in ends:
            continue
        stream = LogStream(
            target,
            OffsetRange(
                topic=name, partition=key[1], topic_id=topic.topic_id,
                first=first, end=ends[key],
            ),
            isolation=fetch.READ_COMMITTED,
            lister=partial(
                listed, loops=Loops(through.key, through.target_suffix),
                most_unpacked=flow.max_unpacked_bytes,
            ),
        )  # fmt: skip
        for part in stream.listed():
            places = np.ascontiguousarray(part.places)
            made, keys = np.empty((2, len(places)), np.int64)
            alignment.describe(part.buffer, places, NO_STAMP, 0, made, keys)
            there = np.isin(keys, marks) & (places[:, to_columns.KEY_SIZE] >= 0)
            for row in np.flatnonzero(there).tolist():
                if int(keys[row]) not in found:
                    at, size = places[row, [to_columns.KEY_AT, to_columns.KEY_SIZE]]
                    text = part.buffer[at : at + size].tobytes()
                    found[int(keys[row])] = text.decode(errors="replace")
    return found
