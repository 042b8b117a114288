"""The keys that Kafka's own classes define, as a list beside the unit tests.

`python -m tests.harness.kafka_keys` writes the list for the playground's Kafka, and for
each folder of another version's jars that it is given; other versions in the list stay.
`printed` asks the classes, `listed` reads the list.
"""

from __future__ import annotations

from dataclasses import dataclass
import os
from pathlib import Path
import re
import subprocess
import sys

from mirror.host import require_java
from mirror.playground.jars import kafka_jars

LIST = Path(__file__).parents[1] / "unit" / "kafka_keys.tsv"
_JAVA = Path(__file__).parents[1] / "java" / "PrintKafkaKeys.java"
_MIRROR = "org.apache.kafka.connect.mirror"
_RUNTIME = "org.apache.kafka.connect.runtime"
_CLASSES = (
    *(f"{_MIRROR}.Mirror{part}Config"
      for part in ("Maker", "Source", "Checkpoint", "Heartbeat")),
    f"{_MIRROR}.DefaultTopicFilter$TopicFilterConfig",
    f"{_MIRROR}.DefaultGroupFilter$GroupFilterConfig",
    f"{_MIRROR}.DefaultConfigPropertyFilter$ConfigPropertyFilterConfig",
    f"{_RUNTIME}.SourceConnectorConfig",
    f"{_RUNTIME}.WorkerConfig",
    f"{_RUNTIME}.distributed.DistributedConfig",
    f"{_RUNTIME}.rest.RestServerConfig",
    "org.apache.kafka.clients.consumer.ConsumerConfig",
    "org.apache.kafka.clients.producer.ProducerConfig",
    "org.apache.kafka.clients.admin.AdminClientConfig",
    "org.apache.kafka.common.config.SslConfigs",
    "org.apache.kafka.common.config.SaslConfigs",
)  # fmt: skip
_VERSION = re.compile(r"connect-mirror-(\d[\d.]*)\.jar")


@dataclass(frozen=True, slots=True)
class Defined:
    """A key, a class that defines it, and Kafka's version."""

    key: str
    by: str
    version: str


def printed(jars: str) -> set[Defined]:
    """What the classes in these jars, a class path, define."""
    answer = subprocess.run(
        [*(require_java(), "-XX:TieredStopAtLevel=1"),
         *("-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", jars),
         *(_JAVA, *_CLASSES)],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    version = _VERSION.search(jars)
    assert version, "these jars have no MirrorMaker"
    rows = (line.split("\t") for line in answer.stdout.splitlines())
    return {Defined(key, by, version[1]) for by, key in rows}


def listed() -> set[Defined]:
    rows = (line.split("\t") for line in LIST.read_text().splitlines())
    return {
        Defined(key, by, version)
        for key, classes, versions in rows
        for by in classes.split(",")
        for version in versions.split(",")
    }


def _write(found: set[Defined]) -> None:
    by_use: dict[tuple[str, tuple[str, ...]], set[str]] = {}
    for key, version in {(each.key, each.version) for each in found}:
        classes = sorted(
            each.by for each in found if (each.key, each.version) == (key, version)
        )
        by_use.setdefault((key, tuple(classes)), set()).add(version)
    lines = [
        f"{key}\t{','.join(classes)}\t{','.join(sorted(versions))}\n"
        for (key, classes), versions in sorted(by_use.items())
    ]
    LIST.write_text("".join(lines))


if __name__ == "__main__":
    folders = [Path(each).glob("*.jar") for each in sys.argv[1:]]
    paths = [os.pathsep.join(map(str, jars)) for jars in folders]
    new = {each for jars in (kafka_jars("mm2"), *paths) for each in printed(jars)}
    versions = {each.version for each in new}
    _write(new | {each for each in listed() if each.version not in versions})
