"""What MirrorMaker 2 has on the clusters: its own positions, and signs that it runs.

`look` reports members of its Connect group and logs that grow; `shut_out` fences the
producers of its exactly-once tasks, so that one that was believed dead can no longer
write. Heartbeats prove nothing: another connector writes them, and so does mirror.

`KeptPositions` is what a connector has written for one source cluster to Kafka
Connect's offsets topic, as `read_positions` finds it; `write_positions` is for the way
back. A record's key is JSON, the connector's name and the source partition; its value
is the offset of the last record copied, so copying continues at the next one. A null
value removes a position. Connect compares keys byte for byte.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import json
import re
import time
from typing import TYPE_CHECKING

from mirror.clusters.admin import groups, topic_admin, transactions
from mirror.clusters.admin.groups import Group, GroupKind
from mirror.clusters.transactions import Producer
from mirror.clusters.wire.produce import partition_of
from mirror.clusters.wire.write import Write
from mirror.errors import (
    MALFORMED,
    AuthorizationError,
    MirrorError,
    UnsupportedBrokerError,
)
from mirror.records import listing, records, scan, to_columns
from mirror.records.batch import TRANSACTIONAL
from mirror.records.reading import TopicReader, has_records
from mirror.status.wording import named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mirror.clusters.admin.groups import Member
    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.clusters.wire.produce import EncodedBatch
    from mirror.records.batch import Buffer


CONNECTOR = "MirrorSourceConnector"
"""Its name in dedicated mode; on a Connect cluster the user names it."""
_WATCH_SECONDS = 3.0
_SESSION_SECONDS = 15.0
"""A killed worker stays a member for 10 s (Connect's session.timeout.ms)."""
_PAUSE_SECONDS = 0.5


# ---- whether it runs ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Signs that something still copies."""

    group: str = ""
    workers: tuple[str, ...] = ()
    """The hosts of the group's members."""
    growing: tuple[str, ...] = ()
    """Topics that grew while they were watched."""


def connect_group(source_alias: str) -> str:
    """The group of Connect workers in dedicated mode, on the target."""
    return f"{source_alias}-mm2"


def look(
    target: Cluster,
    *,
    group: str | None,
    watched: Iterable[TopicPartition],
    tell: Callable[[str], None],
) -> Activity:
    """Look for a few seconds; longer while there are members, which may be dead.

    `group`: that of the Connect workers, None if they also do other work.

    Raises:
        ClusterError: the target does not answer.
    """
    workers: tuple[str, ...] = ()
    if group is not None:
        workers = _workers(target, group)
        if workers:
            tell(
                f"group {group} has members ({', '.join(workers)}): waiting up to "
                f"{_SESSION_SECONDS:.0f} s, in case they were killed"
            )
        deadline = time.monotonic() + _SESSION_SECONDS
        while workers and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)
            workers = _workers(target, group)
    if workers:
        return Activity(group=group or "", workers=workers)
    partitions = list(watched)
    before = _ends(target, partitions)
    time.sleep(_WATCH_SECONDS)
    after = _ends(target, partitions)
    growing = {
        key[0]
        for key, end in after.items()
        if end > (first := before.get(key, end))
        and has_records(target, key, first, end, committed=False)
    }
    return Activity(growing=tuple(sorted(growing)))


def require_rest(activity: Activity, *, source_alias: str) -> None:
    """Raises MirrorError if something still copies."""
    if activity.workers:
        raise MirrorError(
            f"MirrorMaker 2 is running: its group {activity.group} has members on "
            f"{', '.join(activity.workers)}; stop it first"
        )
    if activity.growing:
        raise MirrorError(
            f"something writes to {named(activity.growing)}: "
            f"stop what copies {source_alias} there; if other producers write to "
            "these topics, pass --although-written"
        )


def producers(
    target: Cluster, connector: str, group: str | None, *, tell: Callable[[str], None]
) -> tuple[str, ...]:
    """The transactional ids of a connector's tasks; none if we may not ask."""
    owner = ".+" if group is None else re.escape(group)
    try:
        return transactions.find_ids(target, rf"{owner}-{re.escape(connector)}-\d+")
    except UnsupportedBrokerError:
        tell(
            f"warning: the brokers of {target.alias}, before Kafka 3.0, do not list "
            "transactional ids, so MirrorMaker 2 is not fenced: make sure it stopped"
        )
        return ()
    except AuthorizationError:
        return ()


def shut_out(
    target: Cluster, ids: Iterable[str], *, tell: Callable[[str], None]
) -> None:
    """Fence producers, which also aborts their open transactions.

    Raises:
        ClusterError: the target does not answer.
    """
    for transactional_id in ids:
        try:
            transactions.fence(target, transactional_id)
        except AuthorizationError as error:
            tell(
                f"warning: {transactional_id} is not fenced ({error}); its open "
                "transaction times out by itself within a minute or so"
            )


def members_of(target: Cluster, group: str) -> Sequence[Member]:
    """The members of a classic group.

    Raises:
        ClusterError: the target does not answer.
    """
    # Asked by name: a list would leave out a group that we may not describe.
    asked = Group(group=group, kind=GroupKind.CLASSIC, state="")
    return groups.members(target, [asked]).get(group, ())


def _workers(target: Cluster, group: str) -> tuple[str, ...]:
    return tuple(sorted({member.host for member in members_of(target, group)}))


def _ends(
    cluster: Cluster, partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    return topic_admin.list_offsets(
        cluster, partitions, timestamp=topic_admin.LATEST, committed=False
    )


# ---- its positions ----


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


def read_positions(
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


def write_positions(
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
