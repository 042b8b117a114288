"""Real schema registries for the tests, as processes of this machine.

Main type: `RegistryProcess`, which a test starts, stops and kills; what it keeps in
memory is gone then. `apicurio` chooses ids itself and knows no modes; `axonops` knows
IMPORT, contexts and soft deletes.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import tarfile
import time
from typing import TYPE_CHECKING, Any, Self

from mirror.errors import PlaygroundError
from mirror.host import require_java
from mirror.playground.jars import cache_folder, cache_lock, fetched
from mirror.playground.node import accepts
from mirror.playground.ports import LOOPBACK, free_ports
from mirror.playground.process import LoggedProcess
from mirror.policy.naming import SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_START_SECONDS = 120.0
_STOP_SECONDS = 10.0
_PAUSE_SECONDS = 0.05
_LOG_TAIL = 2000


class RegistryProcess:
    """A registry; as a context manager it runs while the block does."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        *,
        port: int,
        path: str = "",
        tls: bool = False,
    ) -> None:
        """`name`: its make, for people; `path`: where Confluent's API is."""
        self.name = name
        self.url = f"{'https' if tls else 'http'}://{LOOPBACK}:{port}{path}"
        self._command = command
        self._port, self._path, self._tls = port, path, tls
        self._process = LoggedProcess(folder / "registry.log", cwd=folder)

    def start(self) -> None:
        """Start it, and wait until it answers.

        Raises:
            PlaygroundError: it ended, or does not answer in time.
        """
        self._process.start(self._command)
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.pid is None:
                raise PlaygroundError(f"{self.name} ended: {self.log_tail()}")
            if time.monotonic() > deadline:
                raise PlaygroundError(f"{self.name} does not answer: {self.log_tail()}")
            time.sleep(_PAUSE_SECONDS)

    def stop(self) -> None:
        """End it, by force if it takes long."""
        self._process.stop(_STOP_SECONDS)

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()

    def freeze(self) -> None:
        """Let it accept connections and answer nothing, until `thaw`."""
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGSTOP)
        # On a busy machine its threads go on for a while.
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)

    def thaw(self) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def log_tail(self) -> str:
        return "\n".join(self._process.log_lines())[-_LOG_TAIL:]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _answers(self) -> bool:
        if self._tls:  # it may ask for a certificate that we do not have
            return accepts(f"{LOOPBACK}:{self._port}")
        line = http.client.HTTPConnection(LOOPBACK, self._port, timeout=5)
        try:
            line.request("GET", f"{self._path}/subjects")
            return line.getresponse().status < http.client.INTERNAL_SERVER_ERROR
        except (OSError, http.client.HTTPException):
            return False
        finally:
            line.close()


# ---- Apicurio's: Confluent's API without modes, kept in memory or in a topic ----
#
# It chooses ids itself, so a copy cannot keep the source's. What it keeps in a topic is
# its own format, and not that of Confluent's registry. The program comes from Maven, as
# Kafka's jars do, and runs on the Java of the tests.


APICURIO_VERSION = "3.0.9"
"""The last one that runs on Java 17."""
APICURIO_PATH = "/apis/ccompat/v7"
MORE_TOPICS = ("kafkasql-snapshots", "registry-events")
"""What it creates besides where it keeps schemas in a topic."""
_DEPENDENCY = f"""\
    <dependency org="io.apicurio" name="apicurio-registry-app" rev="{APICURIO_VERSION}"
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
    command = (
        *(str(require_java()), *_SMALL_JVM),
        *(f"-Dquarkus.http.host={LOOPBACK}", f"-Dquarkus.http.port={port}"),
        *(_in_topic(brokers, follows=follows) if brokers else ()),
        *("-cp", f"{home}/*", "io.quarkus.runner.GeneratedMain"),
    )
    return RegistryProcess("apicurio", command, folder, port=port, path=APICURIO_PATH)


def _in_topic(brokers: str, *, follows: bool) -> list[str]:
    return [
        "-Dapicurio.storage.kind=kafkasql",
        f"-Dapicurio.kafkasql.bootstrap.servers={brokers}",
        f"-Dapicurio.kafkasql.topic={SCHEMAS}",
        f"-Dapicurio.storage.read-only.enabled={str(follows).lower()}",
    ]


def _unpacked() -> Path:
    name = f"apicurio-{APICURIO_VERSION}"
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


# ---- Axonops': modes, contexts and soft deletes, kept in memory ----
#
# It takes texts that differ in documentation or in the order of keys for one schema.
# The program is built from its Go module, whose version `AXONOPS_MODULE` pins:
# `python -m tests.tools` does that.


AXONOPS_MODULE = "github.com/axonops/axonops-schema-registry@v0.2.1"
AXONOPS_PACKAGE = "cmd/schema-registry"
AXONOPS_PROGRAM = "schema-registry"


def axonops(
    program: str, folder: Path, *, security: Mapping[str, Any] | None = None
) -> RegistryProcess:
    """Set up a registry. `security` is that part of its own configuration: TLS and
    logins; without it, every client may do everything.
    """
    folder.mkdir(parents=True, exist_ok=True)
    [port] = free_ports(1)
    settings = {
        "server": {"host": LOOPBACK, "port": port},
        "storage": {"type": "memory"},
        "compatibility": {"default_level": "NONE"},
        "logging": {"level": "warn"},
        "security": dict(security or {}),
    }
    file = folder / "registry.yaml"
    file.write_text(json.dumps(settings))  # JSON is YAML
    command = (program, "-config", str(file))
    tls = bool((security or {}).get("tls", {}).get("enabled"))
    return RegistryProcess("axonops", command, folder, port=port, tls=tls)
