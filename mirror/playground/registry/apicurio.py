"""Apicurio's registry: Confluent's API without modes, kept in memory or in a topic.

Main function: `apicurio`. It chooses ids itself, so a copy cannot keep the source's.
What it keeps in a topic is its own format, and not that of Confluent's registry.
The program comes from Maven, as Kafka's jars do, and runs on the Java of the tests.
"""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING

from mirror.host import require_java
from mirror.playground.cache import cache_folder, cache_lock
from mirror.playground.jars import fetched
from mirror.playground.ports import LOOPBACK, free_ports
from mirror.playground.registry.process import RegistryPlan, RegistryProcess
from mirror.policy.naming import SCHEMAS

if TYPE_CHECKING:
    from pathlib import Path

VERSION = "3.0.9"
"""The last one that runs on Java 17."""
PATH = "/apis/ccompat/v7"
MORE_TOPICS = ("kafkasql-snapshots", "registry-events")
"""What it creates besides where it keeps schemas in a topic."""
_DEPENDENCY = f"""\
    <dependency org="io.apicurio" name="apicurio-registry-app" rev="{VERSION}"
                conf="default->default" transitive="false">
      <artifact name="apicurio-registry-app" type="tar.gz" ext="tar.gz"
                m:classifier="all"/>
    </dependency>"""
_SMALL_JVM = (
    *("-Xms64m", "-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    "-Djava.util.logging.manager=org.jboss.logmanager.LogManager",
)


def apicurio(
    folder: Path, *, brokers: str = "", follows: bool = False
) -> RegistryProcess:
    """Set up a registry. `brokers`: they keep its schemas, in the topic `_schemas`;
    empty: it does, in memory. `follows`: it changes nothing there.

    Raises:
        PlaygroundError: the program could not be fetched.
        JavaMissingError: there is no Java.
    """
    folder.mkdir(parents=True, exist_ok=True)
    [port] = free_ports(1)
    home = _unpacked()
    return RegistryProcess(
        RegistryPlan(
            name="apicurio",
            command=(
                *(str(require_java()), *_SMALL_JVM),
                *(f"-Dquarkus.http.host={LOOPBACK}", f"-Dquarkus.http.port={port}"),
                *(_in_topic(brokers, follows=follows) if brokers else ()),
                *("-cp", f"{home}/*", "io.quarkus.runner.GeneratedMain"),
            ),
            folder=folder,
            port=port,
            path=PATH,
        )
    )


def _in_topic(brokers: str, *, follows: bool) -> list[str]:
    return [
        "-Dapicurio.storage.kind=kafkasql",
        f"-Dapicurio.kafkasql.bootstrap.servers={brokers}",
        f"-Dapicurio.kafkasql.topic={SCHEMAS}",
        f"-Dapicurio.storage.read-only.enabled={str(follows).lower()}",
    ]


def _unpacked() -> Path:
    name = f"apicurio-{VERSION}"
    # Its POM has a parent that is not published.
    folder = fetched(name, _DEPENDENCY, types=("tar.gz",), poms=False)
    [archive] = folder.glob("*.tar.gz")
    home = cache_folder() / f"{name}-home"
    with cache_lock("apicurio"):
        if not home.exists():
            made = home.with_suffix(".new")
            with tarfile.open(archive) as packed:
                packed.extractall(made, filter="data")
            made.rename(home)
    return home
