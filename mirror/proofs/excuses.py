"""Reads what the target keeps about records that were not copied.

Main function: `read`: the loss ledger, and for flows with a function the dead-letter
topic, which `dead_letters` goes through. `explaining` holds them against records
without a copy.
"""

from __future__ import annotations

from collections import defaultdict
import re
from typing import TYPE_CHECKING, NamedTuple

from mirror.clusters.admin import topic_admin
from mirror.copying.dead_letters import PREFIX
from mirror.pairs import losses
from mirror.proofs.explaining import Excuses
from mirror.records import to_columns
from mirror.records.listing import headers_of, listed
from mirror.records.reading import TopicReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig


_PARTITION, _OFFSET = re.compile(r"[0-9]{1,9}"), re.compile(r"[0-9]{1,18}")
"""Anybody may have written the headers; longer numbers are none of ours."""


class DeadLetter(NamedTuple):
    """One dead letter."""

    key: TopicPartition
    """Where the record stood on the source."""
    offset: int
    partition: int
    """Of the dead-letter topic."""
    at: int
    """Its offset there."""


def read(
    flow: FlowConfig, target: Cluster, topic_ids: Mapping[str, str]
) -> dict[TopicPartition, Excuses]:
    """By source partition, for the source topics with these ids (hex).

    Raises:
        ClusterError: the target does not answer, or a topic cannot be read.
    """
    lost: dict[TopicPartition, list[tuple[int, int]]] = defaultdict(list)
    dead: dict[TopicPartition, set[int]] = defaultdict(set)
    for loss in losses.read(target, flow.source):
        topic_id = topic_ids.get(loss.topic)
        if topic_id is None or not loss.is_of(topic_id):
            continue
        if loss.flow == flow.name and loss.last is not None:
            lost[loss.topic, loss.partition].append((loss.first, loss.last + 1))
    if flow.transform is not None and flow.dead_letter_topic is not None:
        for letter in dead_letters(target, flow.dead_letter_topic, flow.source):
            dead[letter.key].add(letter.offset)
    return {
        key: Excuses(
            lost=tuple(lost.get(key, ())), dead_letters=frozenset(dead.get(key, ()))
        )
        for key in lost.keys() | dead.keys()
    }


def dead_letters(
    target: Cluster, topic: str, source_alias: str
) -> Iterator[DeadLetter]:
    """The dead letters of a source; none if there is no such topic.

    Raises:
        ClusterError: the target does not answer, or the topic cannot be read.
    """
    if (shown := target.topic(topic)) is None:
        return
    keys = [(topic, partition) for partition in shown.leaders]
    firsts = topic_admin.list_offsets(target, keys, timestamp=topic_admin.EARLIEST)
    ends = topic_admin.list_offsets(target, keys, timestamp=topic_admin.LATEST)
    for _, partition in keys:
        first, end = firsts[topic, partition], ends[topic, partition]
        reader = TopicReader(target, topic, partition=partition, position=first)
        for buffer, rows in reader.batches(end):
            for part in listed(buffer, rows, first, end):
                for place in part.places:
                    told = dict(headers_of(part.buffer, place))
                    if (stood := origin(told, source_alias)) is not None:
                        at = int(place[to_columns.OFFSET])
                        yield DeadLetter(*stood, partition, at)


def origin(
    told: Mapping[bytes, bytes | None], source_alias: str
) -> tuple[TopicPartition, int] | None:
    """Where a dead letter stood on the source, by its headers; None if it is of another
    source, or of somebody else.
    """
    cluster, topic, partition, offset = (
        (told.get(f"{PREFIX}{name}".encode()) or b"").decode(errors="replace")
        for name in ("cluster", "topic", "partition", "offset")
    )
    if cluster != source_alias or not (
        _PARTITION.fullmatch(partition) and _OFFSET.fullmatch(offset)
    ):
        return None
    return (topic, int(partition)), int(offset)
