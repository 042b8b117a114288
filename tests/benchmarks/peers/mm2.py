"""Kafka's MirrorMaker 2 in dedicated mode, from the same jars as the brokers.

Main type: `MirrorMaker2`. Tuned for throughput as its users are advised: large
fetches and batches, several requests in flight, one task per partition, none of the
side jobs (heartbeats, checkpoints, syncs of configs, ACLs and groups).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror.host import require_java
from mirror.playground.jars import kafka_jars
from mirror.playground.ports import free_ports
from tests.benchmarks.bench import PARTITIONS
from tests.benchmarks.processes import Service

if TYPE_CHECKING:
    from tests.benchmarks.peers.peer import Task

# Of the collectors and poll sizes that were tried, these cost MirrorMaker 2 the least
# CPU; its start script's own G1 costs a third more.
_JVM = (
    *("-Xms2g", "-Xmx2g", "-XX:+UseParallelGC", "-Djava.awt.headless=true"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)

# Dedicated mode takes a checkpoint connector that is switched off for an error.
_SIDE_JOBS_OFF = {
    "emit.heartbeats.enabled": "false",
    "emit.checkpoints.interval.seconds": "3600",
    "groups": "no-such-group",
    "refresh.groups.enabled": "false",
    "sync.group.offsets.enabled": "false",
    "sync.topic.configs.enabled": "false",
    "sync.topic.acls.enabled": "false",
    "refresh.topics.interval.seconds": "5",
}
_GROUPS = {
    "emit.checkpoints.interval.seconds": "1",
    "groups": ".*",
    "refresh.groups.enabled": "true",
    "refresh.groups.interval.seconds": "1",
}
_CONSUMER = {
    "fetch.max.bytes": "52428800",
    "max.partition.fetch.bytes": "8388608",
    "max.poll.records": "5000",
    "receive.buffer.bytes": "1048576",
}
_PRODUCER = {
    "batch.size": "1000000",
    "linger.ms": "5",
    "buffer.memory": "134217728",
    "max.request.size": "10485760",
    "max.in.flight.requests.per.connection": "5",
    "enable.idempotence": "true",
    "acks": "all",
    "send.buffer.bytes": "1048576",
}
_REPLICAS = (
    "replication.factor",
    "offset-syncs.topic.replication.factor",
    "checkpoints.topic.replication.factor",
    "heartbeats.topic.replication.factor",
    "offset.storage.replication.factor",
    "status.storage.replication.factor",
    "config.storage.replication.factor",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorMaker2:
    exactly_once: bool
    tuned: bool = True
    """Off: consumer and producer as they are shipped, which is how most run it."""

    @property
    def about(self) -> str:
        how = "exactly once" if self.exactly_once else "at least once"
        settings = "tuned" if self.tuned else "clients as shipped"
        return f"MirrorMaker 2, {how}, {settings}, {PARTITIONS} tasks"

    def missing(self) -> str | None:
        return None

    def prepare(self) -> None:
        kafka_jars("mm2")

    def start(self, task: Task) -> Service:
        properties = task.folder / "mm2.properties"
        properties.write_text(
            "".join(f"{key}={value}\n" for key, value in self._settings(task).items())
        )
        return Service(
            [
                *(require_java(), *_JVM, "-cp", kafka_jars("mm2")),
                *("org.apache.kafka.connect.mirror.MirrorMaker", properties),
            ],
            log=task.folder / "mm2.log",
        )

    def _settings(self, task: Task) -> dict[str, str]:
        source, target = task.alias, "B"
        flow = f"{source}->{target}"
        return {
            "clusters": f"{source},{target}",
            f"{source}.bootstrap.servers": task.source,
            f"{target}.bootstrap.servers": task.target,
            **_prefixed(source, _security(task)),
            **_prefixed(target, _security(task)),
            "tasks.max": str(task.tasks or PARTITIONS),
            **dict.fromkeys(_REPLICAS, str(task.replicas)),
            **_SIDE_JOBS_OFF,
            **(_GROUPS if task.groups else {}),
            f"{flow}.enabled": "true",
            f"{flow}.topics": task.topic,
            f"{target}->{source}.enabled": "false",
            f"{source}.consumer.auto.offset.reset": "earliest",
            **(_prefixed(f"{source}.consumer", _CONSUMER) if self.tuned else {}),
            **(_prefixed(f"{target}.producer", _PRODUCER) if self.tuned else {}),
            f"{target}.producer.compression.type": task.compression,
            **(self._exactly_once(source, target) if self.exactly_once else {}),
        }

    def _exactly_once(self, source: str, target: str) -> dict[str, str]:
        return {
            f"{target}.exactly.once.source.support": "enabled",
            f"{source}.consumer.isolation.level": "read_committed",
            # Without it tasks are not fenced, and exactly once does not start.
            "dedicated.mode.enable.internal.rest": "true",
            "listeners": f"http://127.0.0.1:{free_ports(1)[0]}",
        }


def _security(task: Task) -> dict[str, str]:
    if task.security is None:
        return {}
    return {
        "security.protocol": task.security["security_protocol"],
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": task.security["ssl_ca_file"],
    }


def _prefixed(prefix: str, settings: dict[str, str]) -> dict[str, str]:
    return {f"{prefix}.{key}": value for key, value in settings.items()}
