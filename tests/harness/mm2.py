"""Kafka's MirrorMaker 2 as a process, from Kafka's own jars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.host import require_java
from mirror.playground.jars import kafka_jars
from tests.benchmarks.peers.mm2 import MirrorMaker2
from tests.benchmarks.peers.peer import Task
from tests.benchmarks.processes import Service

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
PROPERTIES = "mm2.properties"
"""Its configuration, in the folder."""


def start_mm2(
    source: str,
    target: str,
    *,
    alias: str,
    topic: str,
    folder: Path,
    exactly_once: bool,
    more: Mapping[str, str] | None = None,
) -> Service:
    """Copy a topic from the source, whose alias it is, to B; `more`: properties."""
    task = Task(
        source=source, target=target, alias=alias, topic=topic,
        compression="none", folder=folder, tasks=2,
    )  # fmt: skip
    settings = {
        **MirrorMaker2(exactly_once=exactly_once, tuned=False)._settings(task),
        **(more or {}),
        "B.plugin.discovery": "service_load",  # it starts with much less work
    }
    file = folder / PROPERTIES
    file.write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
    return Service(
        [
            *(require_java(), *_JVM, "-cp", kafka_jars("mm2")),
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            *("org.apache.kafka.connect.mirror.MirrorMaker", file),
        ],
        log=folder / "mm2.log",
    )
