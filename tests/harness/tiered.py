"""Brokers with tiered storage, from the test classes that Kafka publishes.

Main function: `tiered`, a context in which a cluster of one broker runs that keeps the
older segments of topics with `remote.storage.enable` in a folder. `first_kept` says
where what the broker still has in its own log begins.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from mirror.playground.brokers import playground
from mirror.playground.jars import (
    KAFKA_VERSION,
    fetched,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

_TEST_JAR = f"""
    <dependency org="org.apache.kafka" name="kafka-storage" rev="{KAFKA_VERSION}"
        conf="default->master">
      <artifact name="kafka-storage" type="test-jar" ext="jar" m:classifier="test"/>
    </dependency>"""
_OF_METADATA = "rlmm.config.remote.log.metadata.topic"


@contextmanager
def tiered(folder: Path) -> Iterator[PlaygroundCluster]:
    """Run a broker whose segments move to `folder`/remote half a second after their
    end.
    """
    jars = fetched(
        f"kafka-{KAFKA_VERSION}-tiered", _TEST_JAR, types=("test-jar",)
    ).glob("*.jar")
    settings = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": (
            "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
        ),
        "remote.log.storage.manager.class.path": str(next(jars)),
        "rsm.config.dir": str(folder / "remote"),
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        f"{_OF_METADATA}.replication.factor": "1",
        f"{_OF_METADATA}.num.partitions": "1",
        "remote.log.manager.task.interval.ms": "500",
        "log.retention.check.interval.ms": "500",
        "log.initial.task.delay.ms": "100",
    }
    with playground(
        ("tiered",), root=folder, road="jars", given=False, settings=settings
    ) as made:
        yield made["tiered"]


def first_kept(cluster: PlaygroundCluster, topic: str, partition: int) -> int:
    """The first offset of a partition that its broker still has itself."""
    assert cluster.folder is not None
    (data,) = cluster.folder.glob(f"node-1/data/{topic}-{partition}")
    return min(int(segment.stem) for segment in data.glob("*.log"))
