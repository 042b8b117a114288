"""The faults of the matrix: each is a context manager that takes the `Lab`.

What it does to the clusters or to the service lasts while its block runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
import contextlib
from contextlib import AbstractContextManager, closing, contextmanager
import shutil
import socket
import subprocess
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException
from kafka import KafkaAdminClient, TopicPartition
from kafka.protocol.admin import ElectionType

from mirror.clusters.cluster import Cluster
from mirror.config.cluster_settings import ClusterConfig
from mirror.offsets import progress, runs, standby
from mirror.pairs import control, journal
from mirror.playground.secured import USER
from tests.harness.admin import (
    add_partitions,
    alter_topic,
    create_topic,
    delete_records,
    delete_topic,
    end_offsets,
    topic_exists,
)
from tests.harness.clocks import set_clock
from tests.harness.cut_off import in_sync, leader_of
from tests.harness.load import producer
from tests.harness.metadata import allow, revoke
from tests.harness.namespaces import move
from tests.harness.quotas import limit
from tests.harness.standing import StandingMirror
from tests.harness.suspending import suspended
from tests.harness.waiting import beside, wait_for
from tests.harness.witness import read_topic

if TYPE_CHECKING:
    from pathlib import Path
    import threading

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.fault_cells import Lab

Strike = Callable[["Lab"], AbstractContextManager[None]]
Choice = Callable[["Lab"], tuple["PlaygroundCluster", int]]

_DISK_MB = 48
TRANSACTIONS = "__transaction_state"
GROUPS = "__consumer_offsets"


def source_leader(lab: Lab) -> tuple[PlaygroundCluster, int]:
    return lab.source, leader_of(lab.source.bootstrap, lab.topic)


def target_leader(lab: Lab) -> tuple[PlaygroundCluster, int]:
    return lab.target, leader_of(lab.target.bootstrap, lab.copy)


def coordinator(lab: Lab) -> tuple[PlaygroundCluster, int]:
    with _connected(lab.target) as cluster:
        return lab.target, cluster.transaction_coordinator(lab.transactional_id)


def instances_coordinator(lab: Lab) -> tuple[PlaygroundCluster, int]:
    """The broker where the service's instances meet."""
    group = StandingMirror.group
    with _connected(lab.target) as cluster:
        return lab.target, cluster.group_coordinators([group])[group]


def controller_of(side: str) -> Choice:
    def controller(lab: Lab) -> tuple[PlaygroundCluster, int]:
        cluster = getattr(lab, side)
        return cluster, active_controller(cluster)

    return controller


def active_controller(cluster: PlaygroundCluster) -> int:
    """The node that leads the quorum: clients are shown any broker as controller."""
    with _admin(cluster) as admin:
        (topic,) = admin.describe_metadata_quorum()["topics"]
        found: int = topic["partitions"][0]["leader_id"]
        return found


def killed(choose: Choice) -> Strike:
    """SIGKILL to a broker, which is started again afterwards."""

    @contextmanager
    def strike(lab: Lab) -> Iterator[None]:
        cluster, node = choose(lab)
        cluster.kill(node)
        try:
            yield
        finally:
            cluster.start(node)

    return strike


def restarted(choose: Choice) -> Strike:
    """A broker stops as it should, and is started again afterwards."""

    @contextmanager
    def strike(lab: Lab) -> Iterator[None]:
        cluster, node = choose(lab)
        cluster.stop(node)
        try:
            yield
        finally:
            cluster.start(node)

    return strike


def silent(choose: Choice) -> Strike:
    """A broker whose connections stay open, and that answers nothing."""

    @contextmanager
    def strike(lab: Lab) -> Iterator[None]:
        cluster, node = choose(lab)
        with suspended([cluster.pids()[node]]):
            yield

    return strike


def halting(choose: Choice) -> Strike:
    """A broker that stops for a second, goes on for as long, and stops again."""

    @contextmanager
    def strike(lab: Lab) -> Iterator[None]:
        cluster, node = choose(lab)

        def halt(over: threading.Event) -> None:
            while not over.wait(1):
                with suspended([cluster.pids()[node]]):
                    over.wait(1)

        with beside(halt):
            yield

    return strike


def unheard(side: str, *, share: float = 1) -> Strike:
    """Packets reach the only broker of a cluster; its answers are dropped, or a random
    `share` of their packets.
    """
    return _filtered(side, "INPUT", "--sport", share, "DROP")


def reset(side: str) -> Strike:
    """One in twenty packets to the only broker of a cluster resets its connection."""
    doing = ("REJECT", "--reject-with", "tcp-reset")
    return _filtered(side, "OUTPUT", "--dport", 0.05, *doing)


def _filtered(side: str, chain: str, port_of: str, share: float, *doing: str) -> Strike:
    @contextmanager
    def strike(lab: Lab) -> Iterator[None]:
        port = getattr(lab, side).bootstrap.rpartition(":")[2]
        some = ("statistic", "--mode", "random", "--probability", str(share))
        through = "-i" if chain == "INPUT" else "-o"
        rule = (chain, through, "lo", "-p", "tcp", port_of, port)
        rule += ("-m", *some, "-j", *doing)
        subprocess.run(["iptables", "-I", *rule], check=True)
        try:
            yield
        finally:
            subprocess.run(["iptables", "-D", *rule], check=True)

    return strike


def restarted_in_turn(side: str) -> Strike:
    """Each broker of a cluster is stopped and started: leaders, coordinators and
    controllers all move.
    """

    @contextmanager
    def strike(lab: Lab) -> Iterator[None]:
        cluster = getattr(lab, side)
        topic = lab.topic if side == "source" else lab.copy
        for node in cluster.nodes:
            cluster.stop(node)
            cluster.start(node)
            at = cluster.admin_bootstrap
            wait_for(lambda at=at: len(in_sync(at, topic)) == 3, pause=0.5)
        yield

    return strike


def moved(side: str, *topics: str) -> Strike:
    """Every partition of these topics, or of the flow's, gets another leader."""

    @contextmanager
    def strike(lab: Lab) -> Iterator[None]:
        cluster = getattr(lab, side)
        own = (lab.topic,) if side == "source" else (lab.copy, positions_of(lab))
        with _admin(cluster) as admin:
            chosen = {
                TopicPartition(found["name"], each["partition_index"]): [
                    *each["replica_nodes"][1:],
                    each["replica_nodes"][0],
                ]
                for found in admin.describe_topics([*(topics or own)])
                for each in found["partitions"]
            }
        place(cluster, chosen)
        yield

    return strike


def place(
    cluster: PlaygroundCluster, chosen: Mapping[TopicPartition, list[int]]
) -> None:
    """Give partitions these replicas, of which the first one leads."""
    with _admin(cluster) as admin:
        admin.alter_partition_reassignments(chosen)
        wait_for(lambda: not admin.list_partition_reassignments())
        elected: dict[str, list[int]] = {}
        for place in chosen:
            elected.setdefault(place.topic, []).append(place.partition)
        admin.elect_leaders(ElectionType.PREFERRED, elected)
    for place, replicas in chosen.items():
        wait_for(
            lambda place=place, first=replicas[0]: (
                leader_of(cluster.bootstrap, *place) == first
            )
        )


def progress_of(lab: Lab) -> str:
    return progress.topic_name(lab.alias)


def positions_of(lab: Lab) -> str:
    """Where the tool that copies keeps how far it is."""
    if lab.mirror is None:
        return f"mm2-offsets.{lab.alias}.internal"
    return progress_of(lab)


def map_of(lab: Lab) -> str:
    return runs.topic_name(lab.alias, ".")


def copy_of(lab: Lab) -> str:
    return lab.copy


def coordinators_of(_: Lab) -> str:
    return TRANSACTIONS


def short_of_replicas(topic: Callable[[Lab], str]) -> Strike:
    """A topic of the target wants three replicas in sync, and one broker is dead."""

    @contextmanager
    def strike(lab: Lab) -> Iterator[None]:
        cluster, name = lab.target, topic(lab)
        alter_topic(cluster.bootstrap, name, min_insync_replicas="3")
        node = max(cluster.nodes)
        cluster.kill(node)
        try:
            yield
        finally:
            cluster.start(node)
            wait_for(lambda: len(in_sync(cluster.bootstrap, name)) == 3, pause=0.5)
            alter_topic(cluster.bootstrap, name, min_insync_replicas="2")

    return strike


def unclean(side: str) -> Strike:
    """What is sent while one broker has all of the topic is copied, and then lost with
    that broker: another one leads that was away.
    """

    @contextmanager
    def strike(lab: Lab) -> Iterator[None]:
        cluster: PlaygroundCluster = getattr(lab, side)
        topic = lab.topic if side == "source" else lab.copy
        for each, name in ((lab.source, lab.topic), (lab.target, lab.copy)):
            alter_topic(
                each.bootstrap,
                name,
                min_insync_replicas="1",
                unclean_leader_election_enable="true",
            )
        first, last, _ = sorted(cluster.nodes)
        before = lab.load.order
        place(cluster, {TopicPartition(topic, p): [first, last] for p in before})
        cluster.kill(last)
        try:
            lab.load.send(200)
            lab.wait_level()
            lab.gone[cluster.admin_bootstrap] = {
                key
                for p, keys in lab.load.order.items()
                for key in keys[len(before[p]) :]
            }
            cluster.kill(first)
            cluster.start(last)
            for p in before:
                wait_for(lambda p=p: leader_of(cluster.bootstrap, topic, p) == last)
        finally:
            for node in set(cluster.nodes) - cluster.pids().keys():
                cluster.start(node)
        # Its producers count on what the source has lost.
        lab.load.reconnect(lab.source.admin_bootstrap)
        yield

    return strike


@contextmanager
def created_again(lab: Lab) -> Iterator[None]:
    """The source's topic, all of which is copied, is another one of its name."""
    source = lab.source.admin_bootstrap
    lab.gone[source] = {
        key for load in lab.loads for keys in load.order.values() for key in keys
    }
    delete_topic(source, lab.topic)
    with contextlib.suppress(KafkaException):  # the flow back may be faster
        create_topic(source, lab.topic, len(lab.load.order))
    lab.load.reconnect(source)
    yield


@contextmanager
def grown(lab: Lab) -> Iterator[None]:
    """The source's topic has one more partition, which the load uses, too."""
    add_partitions(lab.source.admin_bootstrap, lab.topic, len(lab.load.order) + 1)
    lab.load.add_partition()
    lab.load.send(200)
    yield


def throttled(side: str, quota: str, value: float) -> Strike:
    """The cluster limits the slot's client."""

    @contextmanager
    def strike(lab: Lab) -> Iterator[None]:
        bootstrap = getattr(lab, side).bootstrap
        who = {"client-id": f"mirror.{lab.flow}.0"}
        limit(bootstrap, who, value, quota=quota)
        try:
            yield
        finally:
            limit(bootstrap, who, None, quota=quota)

    return strike


@contextmanager
def slow_disks(lab: Lab) -> Iterator[None]:
    """Each fsync of the target's brokers takes a second longer."""
    command = ("strace", "-f", "-qq", "-o", "/dev/null")
    command += ("-e", "trace=fsync,fdatasync")
    command += ("-e", "inject=fsync,fdatasync:delay_enter=1000000", "-p")
    tracers = [
        subprocess.Popen(
            [*command, str(pid)],
            stderr=subprocess.DEVNULL,
        )
        for pid in lab.target.pids().values()
    ]
    try:
        yield
        assert all(tracer.poll() is None for tracer in tracers)
    finally:
        for tracer in tracers:
            tracer.terminate()
            tracer.wait()


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A file system of a few MB."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_MB}m", "mirror", str(folder)]
    subprocess.run(command, check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@contextmanager
def full_disk(lab: Lab) -> Iterator[None]:
    """The disk of the target's third broker is filled, until the broker ends; it is
    started again with the space that it had.
    """
    folder = lab.target.folder
    assert folder is not None
    disk = folder / "node-3"
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    wait_for(lambda: 3 not in lab.target.pids())
    try:
        yield
    finally:
        ballast.unlink()
        lab.target.start(3)


def denied(operation: str, topic: Callable[[Lab], str]) -> Strike:
    """The target takes a right away from mirror's user."""

    @contextmanager
    def strike(lab: Lab) -> Iterator[None]:
        right = (lab.target.admin_bootstrap, USER, operation, topic(lab))
        allow(*right, permission="DENY")
        try:
            yield
        finally:
            revoke(*right, permission="DENY")

    return strike


@contextmanager
def ids_expired(lab: Lab) -> Iterator[None]:
    """The target's coordinator has forgotten the transactional ids."""

    def known() -> list[str]:
        with _admin(lab.target) as admin:
            found = admin.list_transactions().values()
        ids = [each.transactional_id for listed in found for each in listed]
        return [each for each in ids if each.startswith(lab.transactional_id[:-1])]

    assert known()
    wait_for(lambda: not known(), pause=1)
    yield


def workers_suspended(lab: Lab) -> AbstractContextManager[None]:
    """The processes that copy sleep."""
    return suspended(lab.mirror.worker_pids())


@contextmanager
def workers_killed(lab: Lab) -> Iterator[None]:
    """The processes that copy die."""
    lab.mirror.kill_workers()
    yield


@contextmanager
def driver_killed(lab: Lab) -> Iterator[None]:
    """The service and Spark's JVM die; the service is started again afterwards."""
    lab.mirror.kill_driver()
    try:
        yield
    finally:
        lab.mirror.start()


@contextmanager
def overtaken(lab: Lab) -> Iterator[None]:
    """The processes that copy sleep, and retention deletes what is sent meanwhile."""
    place = (lab.source.bootstrap, lab.topic)
    with workers_suspended(lab):
        before = end_offsets(*place)
        wait_for(
            lambda: all(end > before[p] + 100 for p, end in end_offsets(*place).items())
        )
        for p, found in read_topic(*place).items():
            delete_records(*place, found[-1].offset() + 1, partitions=[p])
            gone = lab.gone.setdefault(lab.source.admin_bootstrap, set())
            gone |= {message.key() for message in found}
        yield


def clock_set(seconds: int) -> Strike:
    """The wall clock of the service's machine jumps."""

    @contextmanager
    def strike(lab: Lab) -> Iterator[None]:
        assert lab.folder is not None
        set_clock(lab.folder / "clock", seconds)
        yield

    return strike


FIRST_ADDRESS, _NEXT_ADDRESS = "127.0.0.2", "127.0.0.3"
BROKER_NAME = "broker.example"


def resolve(folder: Path, address: str) -> Path:
    """The hosts file of a service, in which the broker's name leads to this address."""
    hosts = folder / "hosts"
    hosts.write_text(f"127.0.0.1 localhost {socket.gethostname()}\n"
                     f"{address} {BROKER_NAME}\n")  # fmt: skip
    return hosts


@contextmanager
def renumbered(lab: Lab) -> Iterator[None]:
    """The target's only broker moves to another address, and its name follows."""
    assert lab.folder is not None
    move(lab.target, FIRST_ADDRESS, _NEXT_ADDRESS)
    resolve(lab.folder, _NEXT_ADDRESS)
    yield


def java_suspended(lab: Lab) -> AbstractContextManager[None]:
    """Spark's JVM sleeps: driver and executor."""
    return suspended(lab.mirror.java_pids())


@contextmanager
def checkpoint_damaged(lab: Lab) -> Iterator[None]:
    """Files of Spark's checkpoint are overwritten, and the folder is removed."""
    for file in lab.mirror.state_dir.rglob("leases/**/*"):
        with contextlib.suppress(OSError):  # Spark renames and removes some
            file.write_bytes(b"\xff" * 64)
    folders = list(lab.mirror.state_dir.rglob("leases"))
    assert folders
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)  # Spark goes on writing there
    yield


def damaged(topic: Callable[[Lab], str], key: Callable[[Lab], str]) -> Strike:
    """Somebody writes what mirror cannot read to one of its topics. Then a tombstone
    takes its place, and brokers compact the topic.
    """

    @contextmanager
    def strike(lab: Lab) -> Iterator[None]:
        place = (lab.target.bootstrap, topic(lab))
        wrong = {"key": key(lab).encode(), "partition": 0}
        if not topic_exists(*place):
            create_topic(*place, cleanup_policy="compact")
        client = producer(place[0])
        client.produce(place[1], value=b"{}", **wrong)
        assert client.flush(30) == 0
        lab.mirror.kill_workers()  # the next ones read all of it

        def removed() -> bool:
            """Each tombstone ends the last one's segment, which is then cleaned."""
            client.produce(place[1], value=None, **wrong)
            assert client.flush(30) == 0
            found = read_topic(*place, **{"isolation.level": "read_uncommitted"})
            return not any(m.value() == b"{}" for m in found[0])

        try:
            yield
        finally:
            alter_topic(*place, segment_ms="1000", min_cleanable_dirty_ratio="0")
            wait_for(removed, pause=1.5)

    return strike


def pauses_of(lab: Lab) -> str:
    return control.topic_name(lab.alias)


def standby_of(lab: Lab) -> str:
    return standby.topic_name(lab.alias)


@contextmanager
def own_topics_damaged(lab: Lab) -> Iterator[None]:
    """Somebody writes what mirror cannot read to topics that it need not read."""
    with _admin(lab.target) as admin:
        names = [
            name
            for name in admin.list_topics()
            if name.endswith(".internal") and lab.alias in name
        ]
    names.remove(progress_of(lab))
    names.remove(map_of(lab))
    client = producer(lab.target.bootstrap)
    for name in names:
        for key in (b"", b"\x00", b"\xff" * 40, b'{"a":', b"x"):
            for value in (b"", b"\x00", b"\xff" * 40, b'{"v": [1]}', b"{}"):
                client.produce(name, key=key, value=value, partition=0)
    assert client.flush(30) == 0
    lab.mirror.kill_workers()  # the next ones read all of it
    yield
    print("own topics", names)


def map_damaged(lab: Lab) -> AbstractContextManager[None]:
    """Somebody writes to the offset map what is none of its records."""
    return _damaged_until_deleted(lab.target.admin_bootstrap, map_of(lab), key=b"")


@contextmanager
def _damaged_until_deleted(bootstrap: str, topic: str, *, key: bytes) -> Iterator[None]:
    """Of a topic of mirror's; at the end the records up to that one are deleted."""
    client = producer(bootstrap)
    client.produce(topic, key=key, value=b'{"version": 1}', partition=0)
    assert client.flush(30) == 0
    try:
        yield
    finally:
        delete_records(bootstrap, topic, end_offsets(bootstrap, topic)[0])


@contextmanager
def journal_damaged(lab: Lab) -> Iterator[None]:
    """Somebody writes to the journal on the target what is no entry. Then its records
    up to that one are deleted, and the service brings back what the source's has.
    """
    place = (lab.target.admin_bootstrap, journal.TOPIC)
    pair = f"{lab.alias}<->{lab.target_alias}".encode()

    def noted() -> list[bytes | None]:
        found = read_topic(*place).get(0, [])
        return [each.value() for each in found if each.key() == pair]

    wait_for(noted)
    role = noted()
    with _damaged_until_deleted(*place, key=pair):
        yield
    wait_for(lambda: noted() == role)


def _admin(cluster: PlaygroundCluster) -> closing[KafkaAdminClient]:
    return closing(KafkaAdminClient(bootstrap_servers=cluster.admin_bootstrap))


@contextmanager
def _connected(cluster: PlaygroundCluster) -> Iterator[Cluster]:
    config = ClusterConfig(alias="T", bootstrap_servers=cluster.bootstrap.split(","))
    with closing(Cluster(config).connect()) as connected:
        yield connected
