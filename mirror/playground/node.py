"""One Kafka node as a process of this machine.

Main type: `JarNode`: formats its folder, writes its configuration, starts the JVM,
waits for it, stops or kills it. It knows the other nodes of its cluster only through
the quorum in its settings.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
import hashlib
import os
import shutil
import subprocess
from typing import TYPE_CHECKING
import uuid

from mirror.errors import PlaygroundError
from mirror.host import require_java
from mirror.playground.cache import KAFKA_VERSION, cache_folder
from mirror.playground.jars import kafka_jars
from mirror.playground.leash import Leash
from mirror.playground.readiness import wait_until_serving

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_SMALL_JVM = (
    *("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    *("-XX:-UsePerfData", "-Xshare:auto", "-Djava.awt.headless=true"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """All that one node needs to know before it starts."""

    number: int
    """`node.id`, from 1."""
    folder: Path
    """The folder for configuration, data and log."""
    cluster_id: str
    plain_address: str
    """host:port of the listener without security."""
    settings: Mapping[str, str]
    """The whole server.properties, except `log.dirs`."""
    scram_users: Mapping[str, str] = field(default_factory=dict)
    """Passwords of the users that exist from the start."""
    jvm: Sequence[str] = ()
    """Options that override those that keep a test's broker small."""
    version: str = KAFKA_VERSION
    """Kafka's; before 3.3 the settings name a ZooKeeper, and nothing is formatted."""


class JarNode:
    """A broker and controller in one JVM; see `NodePlan` for what it is made of."""

    def __init__(self, plan: NodePlan) -> None:
        self._plan = plan
        self._data = plan.folder / "data"
        self._properties = plan.folder / "server.properties"
        self._log = plan.folder / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._leash: Leash | None = None

    @property
    def pid(self) -> int | None:
        """The process, or None when it does not run."""
        running = self._process is not None and self._process.poll() is None
        return self._process.pid if self._process and running else None

    def spawn(self) -> None:
        """Start the process without waiting; nothing happens when it runs."""
        if self.pid is not None:
            return
        self._forget()
        if not (self._data / "meta.properties").exists():
            self._format()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(self._properties), jvm=self._plan.jvm),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C is for us: we stop the brokers in our own order.
                start_new_session=True,
            )
        self._leash = Leash(self._process.pid)

    def wait(self, *, brokers: int, seconds: float) -> None:
        """Wait until the node serves metadata that lists it among `brokers` brokers.

        Raises:
            PlaygroundError: the process ended, or the time was up.
        """
        wait_until_serving(
            self._plan.plain_address,
            node=self._plan.number,
            brokers=brokers,
            seconds=seconds,
            check=self._check_running,
        )

    def stop(self, *, seconds: float) -> None:
        """End the process cleanly; after `seconds`, kill it."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._forget()

    def kill(self) -> None:
        """SIGKILL: the node cannot flush or close anything."""
        if self._process is not None:
            self._process.kill()
        self._forget()

    def discard(self) -> None:
        """End it by force; its data is about to be deleted."""
        self.kill()

    def log_tail(self, lines: int) -> str:
        if not self._log.exists():
            return ""
        text = self._log.read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def _forget(self) -> None:
        if self._process is not None:
            self._process.wait()
        if self._leash is not None:
            self._leash.release()
        self._process = self._leash = None

    def _check_running(self) -> None:
        if self._process is None:
            raise PlaygroundError(f"node {self._plan.number} was not started")
        if (code := self._process.poll()) is not None:
            raise PlaygroundError(
                f"node {self._plan.number} in {self._plan.folder} ended with exit"
                f" code {code}"
            )

    def _command(self, *arguments: str, jvm: Sequence[str] = ()) -> list[str]:
        options = (*_SMALL_JVM, *jvm, "-cp", kafka_jars("broker", self._plan.version))
        return [str(require_java()), *options, *arguments]

    def _format(self) -> None:
        self._plan.folder.mkdir(parents=True, exist_ok=True)
        settings = {**self._plan.settings, "log.dirs": str(self._data)}
        self._properties.write_text(
            "".join(f"{name}={value}\n" for name, value in settings.items())
        )
        if "zookeeper.connect" in settings:
            return
        seed = self._seed()
        if not seed.exists():
            self._format_with_java(seed)
            return
        self._data.mkdir()
        shutil.copy(seed, self._data / "bootstrap.checkpoint")
        (self._data / "meta.properties").write_text(
            f"version=1\ncluster.id={self._plan.cluster_id}\n"
            f"node.id={self._plan.number}\ndirectory.id={random_uuid()}\n"
        )

    def _seed(self) -> Path:
        # The file contains feature levels and users, but no cluster id or node id:
        # cached, it saves every later node a JVM start.
        users = repr(sorted(self._plan.scram_users.items()))
        mark = hashlib.sha256(users.encode()).hexdigest()[:8]
        return cache_folder() / f"bootstrap-{self._plan.version}-{mark}.checkpoint"

    def _format_with_java(self, seed: Path) -> None:
        users = [
            word
            for user, password in self._plan.scram_users.items()
            for word in (
                "--add-scram",
                f"SCRAM-SHA-512=[name={user},password={password}]",
            )
        ]
        answer = subprocess.run(
            self._command(
                *("kafka.tools.StorageTool", "format", "-t", self._plan.cluster_id),
                *("-c", str(self._properties), *users),
            ),
            capture_output=True,
            text=True,
            check=False,
        )
        if answer.returncode:
            raise PlaygroundError(
                f"node {self._plan.number} could not be formatted:"
                f" {(answer.stdout + answer.stderr).strip()[-2000:]}"
            )
        made = seed.with_suffix(f".{os.getpid()}")
        shutil.copy(self._data / "bootstrap.checkpoint", made)
        made.rename(seed)


def random_uuid() -> str:
    """A Kafka uuid; one that starts with a dash would read as an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
