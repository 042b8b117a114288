"""Clusters of other releases of Kafka, from their own jars, those with ZooKeeper too.

Main function: `release`, a context in which a cluster of one broker of a release runs,
with an authorizer that lets its only listener do everything. `RELEASES` are those that
the tests know.
"""

from __future__ import annotations

from contextlib import contextmanager
import subprocess
from typing import TYPE_CHECKING

from mirror.host import require_java
from mirror.playground.cluster import PlaygroundCluster
from mirror.playground.jars import (
    KAFKA_VERSION,
    kafka_jars,
)
from mirror.playground.node import (
    JarNode,
    NodePlan,
    broker_settings,
    plain_listeners,
    random_uuid,
)
from mirror.playground.ports import LOOPBACK, free_ports
from mirror.playground.process import Leash

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

RELEASES = ("2.5.1", "2.8.2", "3.3.2", "3.9.1", "4.0.1", KAFKA_VERSION)
_WITH_ZOOKEEPER = frozenset({"2.5.1", "2.8.2"})
_OF_QUORUM = ("process.roles", "node.id", "controller.")


@contextmanager
def release(
    version: str, folder: Path, *, settings: Mapping[str, str] | None = None
) -> Iterator[PlaygroundCluster]:
    """Run a broker of this release; `settings` over the playground's own."""
    plain, control = (f"{LOOPBACK}:{port}" for port in free_ports(2))
    listeners = plain_listeners(plain=plain, control=control)
    zookeeper = version in _WITH_ZOOKEEPER
    authorizer = (
        "kafka.security.authorizer.AclAuthorizer"
        if zookeeper
        else "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    )
    found = broker_settings(
        node=1,
        voters={1: control},
        listeners=listeners[:1] if zookeeper else listeners,
        extra={
            "authorizer.class.name": authorizer,
            "super.users": "User:ANONYMOUS",
            **(settings or {}),
        },
    )
    if zookeeper:
        found = {k: v for k, v in found.items() if not k.startswith(_OF_QUORUM)}
        found |= {"broker.id": "1", "zookeeper.connect": control}
    node = JarNode(
        NodePlan(
            number=1,
            folder=folder / "node",
            cluster_id=random_uuid(),
            plain_address=plain,
            settings=found,
            version=version,
        )
    )
    cluster = PlaygroundCluster(
        name=f"Kafka {version}",
        bootstrap=plain,
        admin_bootstrap=plain,
        node_by_number={1: node},
        folder=folder,
    )
    keeper = _zookeeper(version, control, folder / "zookeeper") if zookeeper else None
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.discard()
        if keeper is not None:
            process, leash = keeper
            process.kill()
            process.wait()
            leash.release()


def _zookeeper(
    version: str, address: str, folder: Path
) -> tuple[subprocess.Popen[bytes], Leash]:
    """Start one, which the broker waits for."""
    host, _, port = address.rpartition(":")
    folder.mkdir(parents=True)
    file = folder / "zoo.cfg"
    file.write_text(
        f"dataDir={folder}\nclientPortAddress={host}\nclientPort={port}\n"
        "admin.enableServer=false\ntickTime=2000\n"
    )
    with (folder / "zookeeper.log").open("ab") as log:
        process = subprocess.Popen(
            [
                *(require_java(), "-Xmx64m", "-XX:+UseSerialGC"),
                "-XX:TieredStopAtLevel=1",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                *("-cp", kafka_jars("broker", version)),
                *("org.apache.zookeeper.server.ZooKeeperServerMain", file),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    return process, Leash(process.pid)
