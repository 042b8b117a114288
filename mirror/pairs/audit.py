"""The audit topic: what commands changed, and what services noticed, for a year or so.

A topic of one partition on the cluster that `service.audit_topic` names; its retention
says how long an event is kept. Layout: key = who wrote it (user@host of a command,
host:pid of a service), value = JSON, an event as at `/events` with `version` and `by`.
Main types: `AuditWriter`, whose thread writes what `put` takes without waiting, and
`AuditReader`.
"""

from __future__ import annotations

from collections import deque
import contextlib
import json
import threading
from typing import TYPE_CHECKING, Any

import structlog

from mirror import retry
from mirror.clusters.admin import topic_admin
from mirror.clusters.cluster import Cluster
from mirror.config import own_topics
from mirror.errors import MALFORMED, ClusterError, MirrorError
from mirror.log import LogThrottle
from mirror.records.reading import TopicReader
from mirror.records.writing import TopicWriter, ensure_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirror.config.schema import MirrorConfig
    from mirror.status.events import Event, Trail

VERSION = 1
MOST_WAITING = 1_000
"""Events that may wait for the cluster; further ones are lost."""
_MOST_BYTES = 512 << 10
"""Of one event: brokers refuse records above 1 MiB by default."""
_AT_ONCE = 100
_LAST_SECONDS = 2.0
"""How long a service that ends waits for the cluster."""

log = structlog.get_logger()


def record(event: Event, by: str) -> tuple[bytes, bytes]:
    """Key and value."""
    told: dict[str, Any] = {"version": VERSION, "by": by, **event.document()}
    value = _encoded(told)
    if len(value) > _MOST_BYTES:
        value = _encoded({**told, "details": {"left_out_bytes": len(value)}})
    return by.encode(), value


def _encoded(told: dict[str, Any]) -> bytes:
    return json.dumps(told, ensure_ascii=False, default=str).encode(errors="replace")


class AuditWriter:
    """Writes events one after another, in a thread of its own."""

    def __init__(
        self, config: Callable[[], MirrorConfig], alias: str, topic: str, *, by: str
    ) -> None:
        """`by`: who writes. It connects when there is something to write, as `config`
        says at that time, and to no other cluster than before.
        """
        self._config = config
        self._alias = alias
        self._cluster_id = ""
        self._topic = topic
        self._by = by
        self._changed = threading.Condition()
        self._waiting: deque[Event] = deque()
        self._lost = 0
        self._closing = False
        self._reason = ""
        self._throttle = LogThrottle()
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def put(self, event: Event) -> None:
        """Take an event; never waits. While the cluster does not answer and
        `MOST_WAITING` events wait, it is lost, and counted.
        """
        with self._changed:
            if len(self._waiting) < MOST_WAITING:
                self._waiting.append(event)
                self._changed.notify()
            else:
                self._lost += 1

    def close(self, seconds: float, *, last: Event | None = None) -> str:
        """Write what waits and this last event, for so long at most; returns why not
        all of it was written, empty if it was.
        """
        with self._changed:
            if last is not None:
                self.put(last)
            self._closing = True
            self._changed.notify()
        self._thread.join(seconds)
        with self._changed:
            if not self._waiting and not self._lost:
                return ""
            late = f"cluster {self._alias} does not answer within {seconds:g} s"
            return self._reason or late

    def _run(self) -> None:
        with contextlib.ExitStack() as stack:
            writer: TopicWriter | None = None
            pause = 0.0
            while batch := self._next(pause):
                try:
                    if writer is None:
                        writer = self._connect(stack)
                    writer.write([record(event, self._by) for event in batch])
                except MirrorError as error:
                    stack.close()
                    writer = None
                    pause = retry.RUN.after(pause)
                    if not self._goes_on(str(error)):
                        return
                else:
                    pause = 0.0
                    self._wrote(len(batch))

    def _connect(self, stack: contextlib.ExitStack) -> TopicWriter:
        cluster = Cluster(
            self._config().clusters[self._alias],
            client_id="mirror.audit",
            cluster_id=self._cluster_id,
        )
        stack.callback(cluster.close)
        cluster.connect()
        self._cluster_id = cluster.cluster_id
        replicas = cluster.own_replicas
        ensure_topic(
            cluster, own_topics.AUDIT, self._topic, replication_factor=replicas
        )
        return TopicWriter(cluster, self._topic)

    def _next(self, pause: float) -> list[Event]:
        """The events to write next; none: it is closed and all are written."""
        with self._changed:
            if pause:
                self._changed.wait_for(lambda: self._closing, pause)
            self._changed.wait_for(lambda: self._waiting or self._closing)
            return list(self._waiting)[:_AT_ONCE]

    def _wrote(self, count: int) -> None:
        with self._changed:
            for _ in range(count):
                self._waiting.popleft()
            lost, self._lost = self._lost, 0
            self._reason = ""
        self._throttle.clear()
        if lost:
            log.error("audit topic: events were lost", topic=self._topic, events=lost)

    def _goes_on(self, reason: str) -> bool:
        with self._changed:
            self._reason = reason
            if self._closing:
                return False
        if self._throttle.due(reason):
            log.warning("audit topic cannot be written", reason=reason)
        return True


@contextlib.contextmanager
def keeping(
    trail: Trail, config: Callable[[], MirrorConfig], *, by: str
) -> Iterator[None]:
    """Write the events of a service's trail while the block runs, if the configuration
    has an audit topic. `config`: the one in effect.
    """
    if (place := config().service.audit) is None:
        yield
        return
    writer = AuditWriter(config, *place, by=by)
    trail.archive = writer.put
    try:
        yield
    finally:
        if why := writer.close(_LAST_SECONDS):
            log.warning("audit topic: the last events are not written", reason=why)


class AuditReader:
    """Reads the audit topic once, and later only what was added. Not thread-safe, like
    its cluster.
    """

    def __init__(self, cluster: Cluster, topic: str, *, since: int = 0) -> None:
        """`since`: leave out events with ids up to this one, which is in milliseconds
        since 1970.
        """
        self._cluster = cluster
        self._topic = topic
        self._since = since
        self._reader: TopicReader | None = None
        self._seen: set[tuple[str, int]] = set()

    def read(self) -> list[dict[str, Any]]:
        """What was added, as at `/events` with `by`, in the order of ids; nothing while
        there is no topic.

        Raises:
            ClusterError: it cannot be read, or a record is not mirror's.
        """
        if self._reader is None and (self._cluster.topic(self._topic) is None):
            return []
        if self._reader is None:
            self._reader = TopicReader(
                self._cluster, self._topic, position=self._position()
            )
        found = []
        for _, _, value in self._reader.read():
            event = self._decode(value)
            key = (event["by"], event["id"])
            # A write that was not acknowledged was made again.
            if event["id"] > self._since and key not in self._seen:
                self._seen.add(key)
                found.append(event)
        return sorted(found, key=lambda event: int(event["id"]))

    def _position(self) -> int:
        """Where to begin: an event is written after it happened."""
        if not self._since:
            return 0
        where = (self._topic, 0)
        there = topic_admin.list_offsets(self._cluster, [where], timestamp=self._since)
        if (offset := there.get(where, 0)) >= 0:
            return offset
        end = topic_admin.list_offsets(
            self._cluster, [where], timestamp=topic_admin.LATEST
        )
        return end.get(where, 0)

    def _decode(self, value: bytes) -> dict[str, Any]:
        try:
            event = json.loads(value)
            version = event.pop("version")
            if version == VERSION:
                return {**event, "id": int(event["id"]), "by": str(event["by"])}
        except MALFORMED as error:
            where = f"cluster {self._cluster.alias}: {self._topic}"
            raise ClusterError(f"{where}: a record is damaged: {error!r}") from error
        raise ClusterError(
            f"{self._topic} has a record of version {version}; this mirror reads "
            f"{VERSION}: use the newest mirror for this cluster"
        )
