"""Writes small topics of our own: a few records now and then.

Main type: `TopicWriter`, over partition 0 of one topic. It keeps its producer, since
brokers remember each one for a day. `append` writes once, outside transactions; `write`
can also write inside a transaction that the caller commits. `copying` writes what
belongs to the data's transactions.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING

from mirror.clusters import codes
from mirror.clusters.admin import configs, topic_admin
from mirror.clusters.transactions import Producer
from mirror.clusters.wire import produce
from mirror.clusters.wire.write import Write
from mirror.config import own_topics
from mirror.errors import MirrorError, NoLeaderError, UnreachableError
from mirror.records import records
from mirror.retry import patiently

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic
    from mirror.clusters.wire.produce import EncodedBatch
    from mirror.config.own_topics import Kind, OwnTopic
    from mirror.errors import ClusterError

_PROOF_TIMEOUT_MS = 5_000
"""How long a cut-off leader waits for its replicas before we ask another."""
_LEADER_SECONDS = 5.0
"""How long a write waits for a leader, while one is elected or its broker is fenced."""


class TopicWriter:
    """One writer of partition 0 of a topic. Not thread-safe, like its cluster."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._known: tuple[Producer, Mapping[str, Topic]] | None = None

    def write(self, pairs: Sequence[tuple[bytes, bytes]]) -> int:
        """Write (key, value) records, and wait until all replicas have them; returns
        the offset after the last, -1 if there are none. A leader that has moved since
        the last write is asked for, then all records are written again.

        Raises:
            MirrorError: some or all were not written: write all of them again.
        """
        if not pairs:
            return -1
        if self._known is not None:
            with contextlib.suppress(MirrorError):  # what is wrong shows in a moment
                return self._write(pairs, *self._known)
        self._known = None  # until this write has succeeded
        producer = idempotent(self._cluster)
        topics = patiently(
            partial(_led, self._cluster, self._topic), seconds=_LEADER_SECONDS
        )
        end = self._write(pairs, producer, topics)
        self._known = (producer, topics)
        return end

    def _write(
        self,
        pairs: Sequence[tuple[bytes, bytes]],
        producer: Producer,
        topics: Mapping[str, Topic],
    ) -> int:
        batches = records.encode_all(pairs)
        write = Write(self._cluster, producer, {(self._topic, 0): batches}, topics)
        write.finish()
        last = write.placed[-1]
        return last.offset + last.batch.count


def _led(cluster: Cluster, name: str) -> Mapping[str, Topic]:
    shown = cluster.topics([name])
    topic = shown[name]
    where = f"cluster {cluster.alias}: topic {name}"
    if topic.error != codes.NONE:
        raise codes.error_for(topic.error, where)
    leader = topic.leaders.get(0)  # of other partitions, users may have made some
    if leader is None or leader.node < 0:
        raise NoLeaderError(f"{where} has no leader")
    # Metadata names the leader of a new topic before that has made its log.
    if not topic_admin.list_offsets(
        cluster, [(name, 0)], timestamp=topic_admin.LATEST, topics=shown
    ):
        raise NoLeaderError(f"{where}: its leader does not lead it yet")
    return shown


def append(
    cluster: Cluster, topic: str, entries: Sequence[tuple[bytes, bytes]]
) -> None:
    """Write (key, value) records once, in this order.

    Raises:
        MirrorError: they were not acknowledged; some may have been written.
    """
    TopicWriter(cluster, topic).write(entries)


def write(
    target: Cluster,
    batches: Mapping[str, Sequence[EncodedBatch]],
    producer: Producer | None = None,
) -> None:
    """Write batches to partition 0 of topics; with a `producer`, within its
    transaction, which the caller commits.

    Raises:
        MirrorError: they were not acknowledged; some may have been written.
    """
    if producer is None:
        producer = idempotent(target)
    elif not producer.v2:
        producer.add_partitions([(topic, 0) for topic in batches])
    where = {(topic, 0): queue for topic, queue in batches.items()}
    Write(target, producer, where, target.topics(batches)).finish()


def prove_leader(cluster: Cluster, topic: str, key: bytes) -> int:
    """Write a tombstone of this key to partition 0 and return its offset.

    All in-sync replicas have it then, which a leader that is cut off from them cannot
    achieve, unless it is the only in-sync replica. So a leader that shows this offset
    shows everything that was committed before the call.

    Raises:
        MirrorError: the leader does not acknowledge it in time, or refuses it.
    """
    leader = cluster.topics([topic])[topic].leaders.get(0)
    if leader is None or leader.node < 0:
        raise UnreachableError(f"cluster {cluster.alias}: {topic} has no leader")
    tombstone = records.encode([(key, None)])
    tombstone.stamp(-1, -1, -1, transactional=False)
    pending = produce.send(
        cluster.connection(leader.node),
        {(topic, 0): tombstone},
        transactional_id=None,
        version=produce.VERSION_PLAIN,
        timeout_ms=_PROOF_TIMEOUT_MS,
    )
    try:
        done = produce.check(pending.result())
    except MirrorError:
        cluster.doubt(leader.node)
        raise
    if done.throttle_ms:
        # Because of a quota, the broker reads nothing more here for a while.
        pending.connection.close()
    if done.again:
        what = f"cluster {cluster.alias}: writing to {topic}"
        raise codes.error_for(codes.CONCURRENT_TRANSACTIONS, what)
    return done.offsets[topic, 0]


def ensure_topic(
    cluster: Cluster, kind: Kind, topic: str, *, replication_factor: int
) -> None:
    """Create a topic of this kind, unless it exists. Raises as `ensure_topics`."""
    ensure_topics(cluster, [kind.on(cluster.alias, topic, replication_factor)])


def ensure_topics(cluster: Cluster, topics: Sequence[OwnTopic]) -> None:
    """Create those of mirror's topics that do not exist, all with one request: a
    process that dies here leaves none or all of them behind.

    Raises:
        ClusterError: one does not exist and cannot be created.
    """
    shown = cluster.topics([each.name for each in topics])
    missing = []
    for each in topics:
        error = shown[each.name].error
        if error == codes.UNKNOWN_TOPIC_OR_PARTITION:
            missing.append(each)
        elif error != codes.NONE:
            raise codes.error_for(error, f"cluster {cluster.alias}: topic {each.name}")
    new = {
        each.name: topic_admin.NewTopic(
            name=each.name,
            partitions=1,
            replication_factor=each.replicas,
            configs=each.configs,
        )
        for each in missing
    }
    for name, refusal in topic_admin.create_topics(
        cluster, [*new.values()]
    ).refused.items():
        _create_without_tuning(cluster, new[name], refusal)
    for name in new:
        cluster.wait_for_topic(name)
        patiently(partial(_led, cluster, name), seconds=_LEADER_SECONDS)


def _create_without_tuning(
    cluster: Cluster, new: topic_admin.NewTopic, refusal: ClusterError
) -> None:
    needed = new.configs.keys() - own_topics.TUNING
    there, refused = configs.create_accepted(cluster, new, refusal, needed=needed)
    if not there:
        raise refused[0]
    import structlog  # noqa: PLC0415  a switch need not wait for it

    for error in refused:
        structlog.get_logger().warning(
            "topic created without a config", topic=new.name, error=str(error)
        )


def idempotent(cluster: Cluster) -> Producer:
    """A new producer without a transactional id."""
    producer = Producer(cluster, transactional_id=None, transaction_timeout_ms=0)
    producer.take_over()
    return producer
