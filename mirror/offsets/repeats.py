"""How many records groups read again after they move, before they do.

Main function: `predict`, one pass over the map of the flow there, and one over that of
the flow back. Answers come from `joint_map`; this counts what the group has read on its
side and stands at its answer or behind it on the other one.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from mirror.batches.reading import TopicReader
from mirror.clusters import codes
from mirror.offsets import runs
from mirror.offsets.joint import again, again_born
from mirror.offsets.progress import NO_ID
from mirror.offsets.runs import COUNT, DOWNSTREAM, UPSTREAM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig
    from mirror.offsets.runs import Block, RunArray


class OffsetMove(NamedTuple):
    """A group's offset in one partition, and where it goes on."""

    group: str
    topic: str
    """On its side."""
    partition: int
    offset: int
    copy: str
    """The topic on the other side."""
    answer: int


def predict(
    flow: FlowConfig,
    back: FlowConfig | None,
    source: Cluster,
    target: Cluster,
    moves: Sequence[OffsetMove],
) -> dict[OffsetMove, int]:
    """For each move along `flow` the number of records that come again: exactly so
    many, unless compaction has removed some of them, or records were copied twice. What
    the group has read and is not copied yet comes on top. `back`: the flow that copies
    the copies back, if there is one.

    Raises:
        ClusterError: a cluster does not answer.
    """
    found = dict.fromkeys(moves, 0)
    by_topic: dict[TopicPartition, list[OffsetMove]] = defaultdict(list)
    by_copy: dict[TopicPartition, list[OffsetMove]] = defaultdict(list)
    for move in moves:
        by_topic[move.topic, move.partition].append(move)
        by_copy[move.copy, move.partition].append(move)
    _add(found, by_topic, _blocks(flow, target, by_topic), DOWNSTREAM, again)
    if back is not None:
        _add(found, by_copy, _blocks(back, source, by_copy), UPSTREAM, again_born)
    return found


def _add(
    found: dict[OffsetMove, int],
    by_key: dict[TopicPartition, list[OffsetMove]],
    blocks: Iterator[Block],
    column: int,
    count: Callable[..., int],
) -> None:
    """`column` is that of the log in which the groups go on."""
    least = {key: min(move.answer for move in of) for key, of in by_key.items()}
    for block in blocks:
        key = (block.topic, block.partition)
        if key in least and _end(block.runs, column) > least[key]:
            for move in by_key[key]:
                found[move] += count(block.runs, read=move.offset, answer=move.answer)


def _end(found: RunArray, column: int) -> int:
    return int((found[:, column] + found[:, COUNT]).max())


def _blocks(
    flow: FlowConfig, cluster: Cluster, wanted: dict[TopicPartition, list[OffsetMove]]
) -> Iterator[Block]:
    """What the flow's map says of these source partitions and the present copies."""
    name = runs.topic_name(flow.source, flow.separator)
    if cluster.topics([name])[name].error == codes.UNKNOWN_TOPIC_OR_PARTITION:
        return
    only = {topic for topic, _ in wanted}.__contains__
    there = {}
    for _, late, value in TopicReader(cluster, name).read():
        for part in filter(None, (value, late)):
            for block in runs.decode(part, only=only):
                copy = block.target_topic
                if copy not in there:
                    there[copy] = cluster.topics([copy])[copy].topic_id
                if NO_ID in (there[copy], block.copy_id) or (
                    there[copy] == block.copy_id
                ):
                    yield block
