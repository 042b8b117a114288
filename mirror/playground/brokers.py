"""Real Kafka clusters for the demo, the tests and the benchmarks.

Main function: `playground`, a context in which the named clusters run. There are three
ways: clusters given by MIRROR_TEST_BOOTSTRAP_<NAME>, Docker, or Kafka's own jars as
processes; MIRROR_TEST_BROKERS=env|docker|jars forces one. It creates clusters and
removes them; `PlaygroundCluster` handles them in between.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
import hashlib
import logging
import os
import re
import shutil
import socket
import subprocess
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from mirror.errors import PlaygroundError
from mirror.host import require_java
from mirror.playground.cluster import Access, ClusterPlan, GivenNode, PlaygroundCluster
from mirror.playground.jars import (
    KAFKA_VERSION,
    cache_folder,
    cache_lock,
    kafka_jars,
)
from mirror.playground.node import (
    JarNode,
    Listener,
    NodePlan,
    broker_settings,
    plain_listeners,
    random_uuid,
    wait_until_serving,
)
from mirror.playground.ports import LOOPBACK, free_ports
from mirror.playground.secured import PASSWORDS, PROTOCOLS, Security

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from mirror.playground.secured import CertificateKind


# ---- brokers in containers, if a Docker daemon answers ----
#
# Main function: `cluster_in_docker`, a plain cluster of one node from Apache's own
# image. testcontainers' KafkaContainer supports only Confluent's, so this is its
# general container with our settings; its reaper cleans up when we die. Processes
# do several nodes and security.


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
        with closing(DockerClient.from_env(timeout=_PING_SECONDS)) as client:
            client.ping()
    except (DockerException, OSError):
        return False
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
        from testcontainers.core.container import DockerContainer

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


# ---- clusters from Kafka's own jars, every node a process on this machine ----
#
# Main function: `cluster_of_processes`, which chooses ports and sets up nodes,
# quorum and security. It starts nothing: `PlaygroundCluster.start` does.


_Addresses = dict[int, str]


def cluster_of_processes(
    plan: ClusterPlan, *, class_data: Sequence[str] | None = None
) -> PlaygroundCluster:
    """Set up a cluster; for secured ones this also writes the certificates.

    `class_data`: Java options in place of `class_data_options`.
    """
    jvm = class_data_options() if class_data is None else class_data
    folder = plan.folder.resolve()
    addresses = _addresses(plan.nodes)
    plain, control = addresses["PLAINTEXT"], addresses["CONTROLLER"]
    security = (
        Security(folder / "security", certificate=plan.certificate)
        if plan.secured
        else None
    )
    extra = {**(security.broker_settings() if security else {}), **plan.settings}
    cluster_id = random_uuid()
    nodes = {}
    for number in plain:
        listeners = plain_listeners(plain=plain[number], control=control[number])
        if security:
            own = {name: of_nodes[number] for name, of_nodes in addresses.items()}
            listeners += security.listeners(own)
        nodes[number] = JarNode(
            NodePlan(
                number=number,
                folder=folder / f"node-{number}",
                cluster_id=cluster_id,
                plain_address=plain[number],
                settings=broker_settings(
                    node=number, voters=control, listeners=listeners, extra=extra
                ),
                scram_users=PASSWORDS if security else {},
                jvm=(*jvm, *plan.jvm),
            )
        )

    def access(listener: str) -> Access | None:
        if security is None:
            return None
        return Access(
            bootstrap=_bootstrap(addresses[listener]),
            client_config=security.client(listener),
        )

    return PlaygroundCluster(
        name=plan.name,
        bootstrap=_bootstrap(addresses["SCRAM" if security else "PLAINTEXT"]),
        admin_bootstrap=_bootstrap(plain),
        node_by_number=nodes,
        client_config=security.client("SCRAM") if security else {},
        mutual_tls=access("MUTUAL"),
        one_way_tls=access("ONEWAY"),
        sasl=access("SASL"),
        folder=folder,
    )


def _addresses(nodes: int) -> dict[str, _Addresses]:
    """The addresses of each listener, by node from 1."""
    names = ("PLAINTEXT", "CONTROLLER", *PROTOCOLS)
    addresses = [f"{LOOPBACK}:{port}" for port in free_ports(len(names) * nodes)]
    return {
        name: dict(enumerate(addresses[kind :: len(names)], start=1))
        for kind, name in enumerate(names)
    }


def _bootstrap(addresses: Mapping[int, str]) -> str:
    return ",".join(addresses.values())


# ---- a class-data archive, with which a broker starts in a third of the time ----
#
# Main function: `class_data_options`, the Java options that use the archive. The
# first call creates it with a throw-away broker; it is valid for one Java and one
# class path, and Java ignores it otherwise. Brokers also run without it: if it
# cannot be created, they only start more slowly.


_LOG = logging.getLogger(__name__)
_START_SECONDS = 120.0
# Writing the archive is part of the JVM's exit, and slow on a busy machine.
_DUMP_SECONDS = 180.0


def class_data_options() -> tuple[str, ...]:
    """Java options for the archive, made on first use; empty without one.

    MIRROR_CLASS_DATA=off does without.
    """
    if os.environ.get("MIRROR_CLASS_DATA") == "off":
        return ()
    archive = cache_folder() / f"kafka-{_fingerprint()}.jsa"
    if not archive.exists():
        with cache_lock("class-data"):
            if not archive.exists():
                _try_to_make(archive)
    return (f"-XX:SharedArchiveFile={archive}",) if archive.stat().st_size else ()


def _fingerprint() -> str:
    java = require_java()
    version = subprocess.run(
        [java, "-version"], capture_output=True, text=True, check=False
    ).stderr
    return hashlib.sha256((version + kafka_jars("broker")).encode()).hexdigest()[:12]


def _try_to_make(archive: Path) -> None:
    made = archive.with_suffix(f".{os.getpid()}")
    folder = cache_folder() / f"class-data-{os.getpid()}"
    try:
        _run_throwaway_broker(folder, made)
        made.rename(archive)
    except (PlaygroundError, OSError) as error:
        _LOG.warning("no class-data archive, brokers start slower: %s", error)
        # An empty file records the failure, so that not every start tries again.
        archive.touch()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        made.unlink(missing_ok=True)


def _run_throwaway_broker(folder: Path, archive: Path) -> None:
    options = (f"-XX:ArchiveClassesAtExit={archive}",)
    plan = ClusterPlan(name="class-data", folder=folder, jvm=options)
    [node] = cluster_of_processes(plan, class_data=()).node_by_number.values()
    try:
        node.spawn()
        node.wait(brokers=1, seconds=_START_SECONDS)
        node.stop(seconds=_DUMP_SECONDS)
    except PlaygroundError:
        node.kill()
        raise


Road = Literal["env", "docker", "jars"]


@contextmanager
def playground(  # noqa: PLR0913 - all but the root have a default
    names: Sequence[str] = ("a", "b"),
    *,
    root: Path,
    road: Road | None = None,
    given: bool = True,
    nodes: int = 1,
    secured: bool = False,
    certificate: CertificateKind = "valid",
    settings: Mapping[str, str] | None = None,
    jvm: Sequence[str] = (),
    keep: bool = False,
) -> Iterator[dict[str, PlaygroundCluster]]:
    """Run one cluster per name and remove them afterwards.

    Args:
        names: one cluster each.
        root: folder for data and logs, one subfolder per cluster.
        road: None takes `choose_road`'s choice.
        given: clusters named by the environment may be used; they cannot be killed.
        nodes: brokers per cluster, all of them controllers too.
        secured: add SCRAM and mutual TLS listeners, and an authorizer.
        certificate: what secured brokers present; clients must refuse the bad ones.
        settings: broker settings over the playground's own.
        jvm: Java options over the playground's own, such as a larger heap.
        keep: stop cleanly and leave data and logs in `root`.

    Raises:
        PlaygroundError: a cluster could not be created that way.
    """
    plans = [
        ClusterPlan(
            name=name,
            folder=root / name,
            nodes=nodes,
            secured=secured,
            certificate=certificate,
            settings=settings or {},
            jvm=jvm,
        )
        for name in names
    ]
    make = _MAKERS[road or choose_road(plans, given=given)]
    clusters = {plan.name: make(plan) for plan in plans}
    try:
        _start_together(list(clusters.values()))
        yield clusters
    finally:
        for cluster in clusters.values():
            _clear(cluster, keep=keep)


def choose_road(plans: Sequence[ClusterPlan], *, given: bool = True) -> Road:
    """MIRROR_TEST_BROKERS; else given clusters; else Docker; else the jars.

    Given clusters and Docker offer only plain clusters; anything else uses the jars
    unless forced.
    """
    forced = os.environ.get("MIRROR_TEST_BROKERS")
    if forced and forced not in get_args(Road):
        raise PlaygroundError(
            f"MIRROR_TEST_BROKERS is {forced!r}: it must be env, docker or jars"
        )
    if forced and (given or forced != "env"):
        return cast("Road", forced)
    if any(map(_special, plans)):
        return "jars"
    if given and all(
        not plan.settings and _address_variable(plan.name) in os.environ
        for plan in plans
    ):
        return "env"
    return "docker" if docker_answers() else "jars"


def _special(plan: ClusterPlan) -> bool:
    return plan.nodes > 1 or plan.secured or bool(plan.jvm)


def _address_variable(name: str) -> str:
    return f"MIRROR_TEST_BOOTSTRAP_{name.upper()}"


def _given(plan: ClusterPlan) -> PlaygroundCluster:
    bootstrap = os.environ.get(_address_variable(plan.name))
    if not bootstrap:
        raise PlaygroundError(
            f"{_address_variable(plan.name)} is not set: it names the brokers of"
            f" cluster {plan.name}, as host:port[,host:port]"
        )
    if _special(plan) or plan.settings:
        raise PlaygroundError(
            f"cluster {plan.name} was given by {_address_variable(plan.name)} and is"
            " used as it is: other nodes, security or settings are not possible"
        )
    return PlaygroundCluster(
        name=plan.name,
        bootstrap=bootstrap,
        admin_bootstrap=bootstrap,
        node_by_number={1: GivenNode(bootstrap)},
    )


_MAKERS: dict[Road, Callable[[ClusterPlan], PlaygroundCluster]] = {
    "env": _given,
    "docker": cluster_in_docker,
    "jars": cluster_of_processes,
}


def _start_together(clusters: Sequence[PlaygroundCluster]) -> None:
    for cluster in clusters:
        for node in cluster.node_by_number.values():
            node.spawn()
    for cluster in clusters:
        cluster.start()


def _clear(cluster: PlaygroundCluster, *, keep: bool) -> None:
    if keep and cluster.folder is not None:
        cluster.stop()
        return
    cluster.discard()
    if cluster.folder is not None:
        shutil.rmtree(cluster.folder, ignore_errors=True)
