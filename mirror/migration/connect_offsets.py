"""MirrorMaker 2's own source positions, in Kafka Connect's offsets topic.

Main type: `KeptPositions`, what a connector has written for one source cluster, as
`read` finds it; `encode` and `write` are for the way back. A record's key is JSON, the
connector's name and the source partition; its value is the offset of the last record
copied, so copying continues at the next one. A null value removes a position. Connect
compares keys byte for byte.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import json
from typing import TYPE_CHECKING

from mirror.clusters.admin import topic_admin
from mirror.clusters.transactions import Producer
from mirror.clusters.wire.produce import partition_of
from mirror.clusters.wire.write import Write
from mirror.errors import MALFORMED, MirrorError
from mirror.records import listing, records, scan, to_columns
from mirror.records.batch import TRANSACTIONAL
from mirror.records.reading import TopicReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.clusters.wire.produce import EncodedBatch
    from mirror.records.batch import Buffer


CONNECTOR = "MirrorSourceConnector"
"""Its name in dedicated mode; on a Connect cluster the user names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPositions:
    """Positions of one connector and source, by source topic and partition."""

    connector: str
    source: str
    """Its alias."""
    last: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The offset of the last record copied."""
    places: Mapping[TopicPartition, tuple[int, bytes]] = field(default_factory=dict)
    """The partition of the topic and the key of each position."""
    exact: frozenset[TopicPartition] = frozenset()
    """Whose positions were written in one transaction with the records."""

    def key_of(self, partition: TopicPartition) -> bytes:
        """The key of a position, as it is there, or as MirrorMaker 2 would write it."""
        if (known := self.places.get(partition)) is not None:
            return known[1]
        return encode_key(self.connector, self.source, *partition)


def read(
    cluster: Cluster, topic: str, *, connector: str, source_alias: str
) -> KeptPositions:
    """The current positions, without those of transactions that are still open.

    Raises:
        MirrorError: there is no such topic, or it cannot be read.
    """
    shown = cluster.topic(topic)
    if shown is None:
        raise MirrorError(
            f"cluster {cluster.alias} has no topic {topic}, where MirrorMaker 2 would "
            "keep its positions: pass the value of Connect's offset.storage.topic "
            "with --offsets-topic"
        )
    last: dict[TopicPartition, int] = {}
    places: dict[TopicPartition, tuple[int, bytes]] = {}
    exact: set[TopicPartition] = set()
    wanted = [(topic, number) for number in range(shown.partitions)]
    firsts = topic_admin.list_offsets(cluster, wanted, timestamp=topic_admin.EARLIEST)
    ends = topic_admin.list_offsets(cluster, wanted, timestamp=topic_admin.LATEST)
    if missing := [number for _, number in wanted if (topic, number) not in ends]:
        raise MirrorError(
            f"cluster {cluster.alias}: {topic} has no leader of {missing[0]}, so that "
            "positions would be missing"
        )
    for _, number in wanted:
        where = (topic, number)
        first = firsts.get(where, 0)
        for key, value, in_transaction in _pairs(cluster, where, first, ends[where]):
            partition = parse_key(key, connector=connector, source_alias=source_alias)
            if partition is None:
                continue
            places[partition] = (number, key)
            (exact.add if in_transaction else exact.discard)(partition)
            if value is None:
                last.pop(partition, None)
            else:
                last[partition] = parse_value(value)
    return KeptPositions(
        connector=connector, source=source_alias, last=last, places=places,
        exact=frozenset(exact),
    )  # fmt: skip


def write(
    cluster: Cluster,
    topic: str,
    kept: KeptPositions,
    positions: Mapping[TopicPartition, int],
) -> None:
    """Have a connector continue at these offsets when it is next started.

    Raises:
        MirrorError: not all of them were written: write all of them again.
    """
    count = cluster.topics([topic])[topic].partitions
    parts: dict[TopicPartition, list[tuple[bytes, bytes]]] = {}
    for partition, offset in positions.items():
        key = kept.key_of(partition)
        # Into the same partition as before: the order across partitions is undefined.
        known = kept.places.get(partition)
        number = known[0] if known else partition_of(key, count)
        value = encode_value(offset)
        parts.setdefault((topic, number), []).append((key, value))
    batches: dict[TopicPartition, list[EncodedBatch]] = {
        where: records.encode_all(pairs) for where, pairs in parts.items()
    }
    producer = Producer(cluster, transactional_id=None, transaction_timeout_ms=0)
    producer.take_over()
    Write(cluster, producer, batches, cluster.topics([topic])).finish()


def encode_key(connector: str, source_alias: str, topic: str, partition: int) -> bytes:
    """As MirrorMaker 2 writes it, byte for byte."""
    where = {"cluster": source_alias, "partition": partition, "topic": topic}
    return json.dumps(
        [connector, where], separators=(",", ":"), ensure_ascii=False
    ).encode()


def encode_value(position: int) -> bytes:
    """The value that makes the record at `position` the next one to copy."""
    return json.dumps({"offset": position - 1}, separators=(",", ":")).encode()


def parse_key(
    key: bytes, *, connector: str, source_alias: str
) -> TopicPartition | None:
    """The source partition; None for another connector's, or another cluster's."""
    try:
        name, where = json.loads(key)
        if name != connector or where["cluster"] != source_alias:
            return None
        return str(where["topic"]), int(where["partition"])
    except MALFORMED:
        return None  # connectors of other kinds name their partitions otherwise


def parse_value(value: bytes) -> int:
    """The offset of the last record copied.

    Raises:
        MirrorError: it is not a position of MirrorMaker 2.
    """
    try:
        return int(json.loads(value)["offset"])
    except MALFORMED as error:
        raise MirrorError(
            f"a position of MirrorMaker 2 is {value[:100]!r} instead of "
            '{"offset": N}: does it belong to another connector?'
        ) from error


def _pairs(
    cluster: Cluster, where: TopicPartition, first: int, end: int
) -> Iterator[tuple[bytes, bytes | None, bool]]:
    """Key, value, and whether a transaction wrote them."""
    reader = TopicReader(cluster, where[0], partition=where[1], position=first)
    for buffer, rows in reader.batches(end):
        for row in rows:
            in_transaction = bool(row[scan.ATTRIBUTES] & TRANSACTIONAL)
            for source, places, *_ in listing.listed(buffer, row[None], position=first):
                for place in places[places[:, to_columns.OFFSET] < end].tolist():
                    key = _bytes(source, place, to_columns.KEY_AT, to_columns.KEY_SIZE)
                    value = _bytes(
                        source, place, to_columns.VALUE_AT, to_columns.VALUE_SIZE
                    )
                    if key is not None:
                        yield key, value, in_transaction


def _bytes(source: Buffer, place: list[int], at: int, size: int) -> bytes | None:
    if place[size] < 0:
        return None
    return bytes(source.data[place[at] : place[at] + place[size]])
