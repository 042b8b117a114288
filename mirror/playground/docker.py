"""Brokers in containers, if a Docker daemon answers.

Main function: `cluster_in_docker`, a plain cluster of one node from Apache's own image.
testcontainers' KafkaContainer supports only Confluent's, so this is its general
container with our settings; its reaper cleans up when we die. `processes` does several
nodes and security.
"""

from __future__ import annotations

import os
import re
import socket
from typing import TYPE_CHECKING, Any

from mirror.errors import PlaygroundError
from mirror.playground.cache import KAFKA_VERSION
from mirror.playground.cluster import ClusterPlan, PlaygroundCluster
from mirror.playground.node import random_uuid
from mirror.playground.ports import LOOPBACK, free_ports
from mirror.playground.readiness import wait_until_serving
from mirror.playground.settings import Listener, broker_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

IMAGE = f"apache/kafka:{KAFKA_VERSION}"
_DATA = "/var/lib/kafka/data"
_CONTROL = "localhost:9093"
_PING_SECONDS = 3


def docker_answers() -> bool:
    """Whether there is a daemon to start containers with."""
    try:
        # The demo must run where neither library is installed.
        from docker.client import DockerClient
        from docker.errors import DockerException
        import testcontainers  # noqa: F401
    except ImportError:
        return False
    if not _someone_listens():
        return False
    try:
        client = DockerClient.from_env(timeout=_PING_SECONDS)
    except DockerException:
        return False
    try:
        client.ping()
    except (DockerException, OSError):
        return False
    finally:
        client.close()
    return True


def _someone_listens() -> bool:
    # Docker's client leaves its socket open when no daemon answers.
    address = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    if not address.startswith("unix://"):
        return True
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(address.removeprefix("unix://")) == 0


def cluster_in_docker(plan: ClusterPlan) -> PlaygroundCluster:
    """A cluster of one container; starting it pulls the image.

    Raises:
        PlaygroundError: there is no daemon, or the plan is not a plain node.
    """
    if plan.nodes != 1 or plan.secured or plan.jvm:
        raise PlaygroundError(
            "Docker offers plain clusters of one node: for several nodes, security or"
            " Java options set MIRROR_TEST_BROKERS=jars"
        )
    if not docker_answers():
        raise PlaygroundError(
            "no Docker daemon answers, or testcontainers is not installed: start the"
            " one, install the other, or set MIRROR_TEST_BROKERS=jars"
        )
    # The same port inside and outside: the broker reaches itself and is reached
    # by clients under one advertised address.
    (port,) = free_ports(1)
    settings = broker_settings(
        node=1,
        voters={1: _CONTROL},
        listeners=[
            Listener(
                name="PLAINTEXT",
                address=f"0.0.0.0:{port}",
                advertised=f"{LOOPBACK}:{port}",
            ),
            Listener(name="CONTROLLER", address=_CONTROL, advertised=""),
        ],
        extra={"log.dirs": _DATA, **plan.settings},
    )
    bootstrap = f"{LOOPBACK}:{port}"
    return PlaygroundCluster(
        name=plan.name,
        bootstrap=bootstrap,
        admin_bootstrap=bootstrap,
        node_by_number={1: DockerNode(port, settings)},
    )


class DockerNode:
    """A broker and controller in one container."""

    def __init__(self, port: int, settings: Mapping[str, str]) -> None:
        # Imported late: the other ways work without this library.
        from testcontainers.core.container import (
            DockerContainer,
        )

        self._port = port
        self._started = False
        self._container: Any = (
            DockerContainer(IMAGE)
            .with_bind_ports(port, port)
            .with_env("CLUSTER_ID", random_uuid())
            .with_envs(**{_variable(name): text for name, text in settings.items()})
        )

    @property
    def pid(self) -> int | None:
        return None

    def spawn(self) -> None:
        if self._started:
            self._container.get_wrapped_container().start()
            return
        self._container.start()
        self._started = True

    def wait(self, *, brokers: int, seconds: float) -> None:
        wait_until_serving(
            f"{LOOPBACK}:{self._port}",
            node=1,
            brokers=brokers,
            seconds=seconds,
            check=self._check_running,
        )

    def stop(self, *, seconds: float) -> None:
        self._container.get_wrapped_container().stop(timeout=int(seconds))

    def kill(self) -> None:
        self._container.get_wrapped_container().kill()

    def discard(self) -> None:
        if self._started:
            self._container.stop()

    def log_tail(self, lines: int) -> str:
        if not self._started:
            return ""
        log: bytes = self._container.get_wrapped_container().logs(tail=lines)
        return log.decode(errors="replace")

    def _check_running(self) -> None:
        container = self._container.get_wrapped_container()
        container.reload()
        if container.status == "exited":
            raise PlaygroundError(f"the container at port {self._port} ended")


def _variable(setting: str) -> str:
    """A setting as the image's environment variable."""
    marks = {"_": "__", "-": "___", ".": "_"}
    text = re.sub(r"[_.-]", lambda match: marks[match.group()], setting)
    return f"KAFKA_{text.upper()}"
