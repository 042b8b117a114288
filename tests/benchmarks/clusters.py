"""The two clusters that peers copy between: near, far away, or through TLS.

Main type: `BenchCluster`, one broker with a listener for each of these. Brokers get
ordinary heaps and the full compiler, so that they do not limit the peer, and delete the
leftovers of a run at once: their data may be in memory (see `storage`).
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
import shutil
import time
from typing import TYPE_CHECKING

from mirror.playground.brokers import class_data_options
from mirror.playground.certificates import CertificateAuthority
from mirror.playground.cluster import START_SECONDS
from mirror.playground.node import (
    JarNode,
    Listener,
    NodePlan,
    broker_settings,
    plain_listeners,
    random_uuid,
)
from mirror.playground.ports import LOOPBACK, free_ports
from tests.benchmarks import load

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

JVM = (
    *("-Xms1g", "-Xmx1g", "-XX:TieredStopAtLevel=4"),
    *("-XX:-UseSerialGC", "-XX:+UseG1GC"),
)
"""Over the playground's, whose brokers start quickly and work slowly."""
_DELETE_AT_ONCE = {
    "log.segment.delete.delay.ms": "100",
    "log.initial.task.delay.ms": "100",
}
# Kafka's default: one pass of compaction for some five million keys.
_CLEANER = {"log.cleaner.dedupe.buffer.size": str(128 << 20)}
_DELETE_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchCluster:
    """One broker; addresses are host:port."""

    node: JarNode
    folder: Path
    near: str
    """Plain: for load and witnesses, and for peers if the scenario says nothing."""
    far: str
    """Where a delaying proxy must listen: clients of `behind` are sent there."""
    behind: str
    """Where that proxy connects to."""
    tls: str
    security: dict[str, str]
    """The settings of a client of `tls`, as in mirror's configuration."""

    @property
    def data(self) -> Path:
        return self.folder / "node-1" / "data"

    def delete_topics(self, names: Iterable[str]) -> None:
        """Returns once the data is gone too: it may occupy memory."""
        wanted = set(names)
        load.delete_topics(self.near, wanted & load.topic_names(self.near))
        until = time.monotonic() + _DELETE_SECONDS
        while self._left_of(wanted) and time.monotonic() < until:
            time.sleep(0.1)

    def _left_of(self, topics: set[str]) -> bool:
        # <topic>-<partition>, and then <topic>-<partition>.<id>-delete
        names = (each.name for each in self.data.iterdir())
        return any(
            name.endswith("-delete") or name.rpartition("-")[0] in topics
            for name in names
        )


@contextmanager
def running(folder: Path, logs: Path) -> Iterator[tuple[BenchCluster, BenchCluster]]:
    """Source and target, with their data in `folder`; `logs` gets their logs."""
    authority = CertificateAuthority()
    clusters = [_cluster(folder / name, authority) for name in ("a", "b")]
    try:
        for each in clusters:
            each.node.spawn()
        for each in clusters:
            each.node.wait(brokers=1, seconds=START_SECONDS)
        yield clusters[0], clusters[1]
    finally:
        for each in clusters:
            each.node.discard()
            shutil.copy(
                each.folder / "node-1" / "broker.log",
                logs / f"broker-{each.folder.name}.log",
            )
            shutil.rmtree(each.folder, ignore_errors=True)


def _cluster(folder: Path, authority: CertificateAuthority) -> BenchCluster:
    folder.mkdir(parents=True)
    near, control, behind, far, tls = (f"{LOOPBACK}:{port}" for port in free_ports(5))
    (folder / "ca.pem").write_text(authority.pem)
    (folder / "broker.pem").write_text(authority.issue("broker").bundle_pem)
    listeners = [
        *plain_listeners(plain=near, control=control),
        Listener(name="FAR", address=behind, advertised=far),
        Listener(name="TLS", address=tls, advertised=tls, protocol="SSL"),
    ]
    settings = {
        **_DELETE_AT_ONCE,
        **_CLEANER,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
    }
    plan = NodePlan(
        number=1,
        folder=folder / "node-1",
        cluster_id=random_uuid(),
        plain_address=near,
        settings=broker_settings(
            node=1, voters={1: control}, listeners=listeners, extra=settings
        ),
        jvm=(*class_data_options(), *JVM),
    )
    return BenchCluster(
        node=JarNode(plan),
        folder=folder,
        near=near,
        far=far,
        behind=behind,
        tls=tls,
        security={"security_protocol": "SSL", "ssl_ca_file": str(folder / "ca.pem")},
    )
