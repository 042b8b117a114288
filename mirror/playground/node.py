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
import socket
import subprocess
import time
from typing import TYPE_CHECKING
import uuid

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from mirror.errors import PlaygroundError
from mirror.host import require_java
from mirror.playground.jars import KAFKA_VERSION, cache_folder, kafka_jars
from mirror.playground.process import LoggedProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
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
        self._process = LoggedProcess(plan.folder / "broker.log")

    @property
    def pid(self) -> int | None:
        """The process, or None when it does not run."""
        return self._process.pid

    def spawn(self) -> None:
        """Start the process without waiting; nothing happens when it runs."""
        if self.pid is not None:
            return
        if not (self._data / "meta.properties").exists():
            self._format()
        arguments = "kafka.Kafka", str(self._properties)
        self._process.start(self._command(*arguments, jvm=self._plan.jvm))

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
        self._process.stop(seconds)

    def kill(self) -> None:
        """SIGKILL: the node cannot flush or close anything."""
        self._process.kill()

    def discard(self) -> None:
        """End it by force; its data is about to be deleted."""
        self.kill()

    def log_tail(self, lines: int) -> str:
        return "\n".join(self._process.log_lines()[-lines:])

    def _check_running(self) -> None:
        if self.pid is None:
            raise PlaygroundError(
                f"node {self._plan.number} was not started"
                if (code := self._process.exit_code) is None
                else f"node {self._plan.number} in {self._plan.folder} ended with exit"
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


# ---- waits until a broker is up: it serves metadata, not merely a port ----
#
# Main function: `wait_until_serving`. It asks one address about one node; the
# caller's `check` raises if waiting has become pointless.


_PAUSE_SECONDS = 0.05
_ANSWER_MS = 5_000


def wait_until_serving(
    address: str,
    *,
    node: int,
    brokers: int,
    seconds: float,
    check: Callable[[], None],
) -> None:
    """Wait until the node at `address` lists itself among `brokers` brokers.

    Raises:
        PlaygroundError: it timed out; or whatever `check` raises.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        check()
        if accepts(address):
            known = _known_brokers(address)
            if node in known and len(known) >= brokers:
                return
        time.sleep(_PAUSE_SECONDS)
    raise PlaygroundError(
        f"node {node} at {address} did not serve within {seconds:.0f} s"
    )


def accepts(address: str) -> bool:
    """Whether somebody listens there."""
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=0.5).close()
    except OSError:
        return False
    return True


def _known_brokers(address: str) -> set[int]:
    try:
        admin = KafkaAdminClient(
            bootstrap_servers=address, bootstrap_timeout_ms=_ANSWER_MS
        )
        try:
            listed = admin.describe_cluster()["brokers"]
        except KeyError:  # kafka-python expects what brokers tell since 3.7
            return {each["broker"] for each in admin.describe_log_dirs()}
        finally:
            admin.close()
    except (KafkaError, OSError):
        return set()
    # A killed broker stays in the list, fenced, until it is back; not before 2.8.
    return {each["broker_id"] for each in listed if not each.get("is_fenced")}


# ---- the server.properties of small brokers ----
#
# Main function: `broker_settings`, given a node's `Listener`s. Few internal
# partitions and threads make a broker that is up in a second and needs 150 MB; with
# short session timeouts the death of one shows soon. `secured` adds security.


_SMALL = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "background.threads": "2",
    # A killed broker can come back only after its old session has expired.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "1000",
    # Else an idle controller writes two records a second.
    "metadata.max.idle.interval.ms": "0",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One address on which a node can be reached."""

    name: str
    address: str
    """host:port where the broker listens."""
    advertised: str
    """The advertised host:port; empty for the controllers' listener."""
    protocol: str = "PLAINTEXT"


def plain_listeners(*, plain: str, control: str) -> list[Listener]:
    """The two listeners that every node has: for everyone, and for the quorum."""
    return [
        Listener(name="PLAINTEXT", address=plain, advertised=plain),
        Listener(name="CONTROLLER", address=control, advertised=""),
    ]


def broker_settings(
    *,
    node: int,
    voters: Mapping[int, str],
    listeners: Sequence[Listener],
    extra: Mapping[str, str],
) -> dict[str, str]:
    """Settings of one node; `voters` are the controllers' addresses by node. In `extra`
    {node} stands for its number.
    """
    copies = str(min(3, len(voters)))
    in_sync = str(min(2, len(voters)))
    return {
        **_SMALL,
        "node.id": str(node),
        "controller.quorum.voters": ",".join(
            f"{number}@{address}" for number, address in voters.items()
        ),
        "listeners": ",".join(f"{each.name}://{each.address}" for each in listeners),
        "advertised.listeners": ",".join(
            f"{each.name}://{each.advertised}" for each in listeners if each.advertised
        ),
        "listener.security.protocol.map": ",".join(
            f"{each.name}:{each.protocol}" for each in listeners
        ),
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
        **{name: text.replace("{node}", str(node)) for name, text in extra.items()},
    }
