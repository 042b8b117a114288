"""A cluster of three brokers, each of which can be cut off from only its peers.

Main type: `SplitCluster`. Brokers reach their controller, and each other, through a
`Gate` each, which can be closed to one broker's process. That broker keeps its clients,
its logs and its old view of the cluster, and loses everything else: its partitions move
to the others, and it does not learn of that. mirror also reaches each broker through a
gate; the tests' own clients reach them directly, at the addresses of `witness`.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Self

from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPartition
import psutil

from mirror.playground.brokers import class_data_options
from mirror.playground.cluster import START_SECONDS
from mirror.playground.node import (
    JarNode,
    Listener,
    NodePlan,
    broker_settings,
    random_uuid,
)
from mirror.playground.ports import LOOPBACK, free_ports
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

_CONTROLLER = 100
_BROKERS = (1, 2, 3)


class Gate:
    """A TCP forwarder to one address that can be closed, to all or to some."""

    def __init__(self, target: str, at: tuple[str, int] = (LOOPBACK, 0)) -> None:
        host, _, port = target.rpartition(":")
        self.accepted = 0
        self._target = (host, int(port))
        self._closed_to: Callable[[int], bool] = _nobody
        self._lock = threading.Lock()
        self._pairs: dict[int, tuple[socket.socket, socket.socket]] = {}
        self._server = socket.create_server(at)
        self.address = f"{at[0]}:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self, to: Callable[[int], bool] = lambda _: True) -> None:
        """End connections that come from certain ports, and refuse new ones."""
        with self._lock:
            self._closed_to = to
            ended = [pair for port, pair in self._pairs.items() if to(port)]
        for near, far in ended:
            _end(near)
            _end(far)

    def open(self) -> None:
        self._closed_to = _nobody

    def _accept(self) -> None:
        while True:
            try:
                near, (_, port) = self._server.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target, timeout=5)
            except OSError:
                _end(near)
                continue
            far.settimeout(None)
            with self._lock:
                if self._closed_to(port):
                    _end(near)
                    _end(far)
                    continue
                self._pairs[port] = (near, far)
                self.accepted += 1
            for source, sink in ((near, far), (far, near)):
                threading.Thread(
                    target=self._pump, args=(source, sink, port), daemon=True
                ).start()

    def _pump(self, source: socket.socket, sink: socket.socket, port: int) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(1 << 16):
                sink.sendall(piece)
        with self._lock:
            self._pairs.pop(port, None)
        for each in (source, sink):
            _end(each)

    def discard(self) -> None:
        _end(self._server)  # close alone leaves it to the thread that accepts
        self.close()


def _nobody(_port: int) -> bool:
    return False


def _end(connected: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)
    connected.close()


class SplitCluster:
    """A controller and three brokers; a context manager."""

    def __init__(self, folder: Path) -> None:
        ports = iter(free_ports(1 + 3 * len(_BROKERS)))
        control = f"{LOOPBACK}:{next(ports)}"
        self._cluster_id = random_uuid()
        self._folder = folder
        self._direct = {n: f"{LOOPBACK}:{next(ports)}" for n in _BROKERS}
        clients = {n: f"{LOOPBACK}:{next(ports)}" for n in _BROKERS}
        internal = {n: f"{LOOPBACK}:{next(ports)}" for n in _BROKERS}
        self._to_client = {n: Gate(clients[n]) for n in _BROKERS}
        self._to_peer = {n: Gate(internal[n]) for n in _BROKERS}
        self._to_controller = Gate(control)
        self._controller = self._node(
            _CONTROLLER,
            listeners=[
                Listener(
                    name="CONTROLLER",
                    address=control,
                    advertised=self._to_controller.address,
                )
            ],
            roles="controller",
        )
        self._brokers = {
            n: self._node(
                n,
                listeners=[
                    Listener(
                        name="WITNESS",
                        address=self._direct[n],
                        advertised=self._direct[n],
                    ),
                    Listener(
                        name="PLAINTEXT",
                        address=clients[n],
                        advertised=self._to_client[n].address,
                    ),
                    Listener(
                        name="INTERNAL",
                        address=internal[n],
                        advertised=self._to_peer[n].address,
                    ),
                ],
                roles="broker",
            )
            for n in _BROKERS
        }

    def _node(
        self, number: int, *, listeners: Sequence[Listener], roles: str
    ) -> JarNode:
        of_brokers = {"inter.broker.listener.name": "INTERNAL"}
        settings = broker_settings(
            node=number,
            voters={_CONTROLLER: self._to_controller.address},
            listeners=listeners,
            extra={
                "process.roles": roles,
                "default.replication.factor": "3",
                "min.insync.replicas": "2",
                "offsets.topic.replication.factor": "3",
                "transaction.state.log.replication.factor": "3",
                "transaction.state.log.min.isr": "2",
                "listener.security.protocol.map": (
                    "PLAINTEXT:PLAINTEXT,WITNESS:PLAINTEXT,"
                    "INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
                ),
                # Writes that a cut-off broker cannot replicate fail soon.
                "request.timeout.ms": "4000",
                "replica.lag.time.max.ms": "3000",
                **(of_brokers if roles == "broker" else {}),
            },
        )
        if roles == "controller":
            del settings["inter.broker.listener.name"]
        return JarNode(
            NodePlan(
                number=number,
                folder=self._folder / f"node-{number}",
                cluster_id=self._cluster_id,
                plain_address=self._direct.get(number, ""),
                settings=settings,
                jvm=class_data_options(),
            )
        )

    @property
    def bootstrap(self) -> str:
        """All brokers, for mirror."""
        return ",".join(gate.address for gate in self._to_client.values())

    def witness(self, *brokers: int) -> str:
        """These brokers, for the tests' own clients; all, if none is named."""
        return ",".join(self._direct[n] for n in brokers or _BROKERS)

    @contextlib.contextmanager
    def hidden(self, *brokers: int) -> Iterator[None]:
        """mirror cannot reach these brokers while the block runs."""
        for broker in brokers:
            self._to_client[broker].close()
        try:
            yield
        finally:
            for broker in brokers:
                self._to_client[broker].open()

    def asked(self, broker: int) -> int:
        """How many connections mirror has made to a broker."""
        return self._to_client[broker].accepted

    def others(self, broker: int) -> tuple[int, ...]:
        return tuple(n for n in _BROKERS if n != broker)

    def cut(self, broker: int) -> None:
        """Cut a broker off from its peers and its controller, not from its clients."""
        self._to_controller.close(to=self._is_of(broker))
        for number, gate in self._to_peer.items():
            gate.close() if number == broker else gate.close(to=self._is_of(broker))

    def starve(self, broker: int) -> None:
        """Keep a broker from replicating what its peers lead. They replicate what it
        leads, and it knows its controller.
        """
        for number in self.others(broker):
            self._to_peer[number].close(to=self._is_of(broker))

    def _is_of(self, broker: int) -> Callable[[int], bool]:
        """Whether a connection from a port is the broker's."""

        def of_broker(port: int) -> bool:
            process = psutil.Process(self._brokers[broker].pid)
            return any(each.laddr.port == port for each in process.net_connections())

        return of_broker

    def heal(self) -> None:
        """Undo all cuts, and wait until all brokers are one cluster again."""
        for gate in (*self._to_peer.values(), self._to_controller):
            gate.open()
        for node in self._brokers.values():
            node.wait(brokers=len(_BROKERS), seconds=START_SECONDS)

    def __enter__(self) -> Self:
        for node in (self._controller, *self._brokers.values()):
            node.spawn()
        for node in self._brokers.values():
            node.wait(brokers=len(_BROKERS), seconds=START_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        for node in (self._controller, *self._brokers.values()):
            node.discard()
        for gates in (self._to_peer, self._to_client):
            for gate in gates.values():
                gate.discard()
        self._to_controller.discard()


def leader_of(bootstrap: str, topic: str, partition: int = 0) -> int:
    """Which broker leads a partition, as these brokers say; -1: none, or no such
    topic.
    """
    client = AdminClient({"bootstrap.servers": bootstrap})
    shown = client.list_topics(topic, timeout=30).topics[topic].partitions
    return shown[partition].leader if partition in shown else -1


def move_leader(bootstrap: str, topic: str, to: int) -> None:
    """Make a broker lead partition 0, of which it has a replica in sync."""
    where = KafkaPartition(topic, 0)
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        others = [broker for broker in _BROKERS if broker != to]
        answer = admin.alter_partition_reassignments({where: [to, *others]})
        assert answer == {where: None}
        wait_for(lambda: not admin.list_partition_reassignments())
        admin.elect_leaders(0, {topic: [0]})
    finally:
        admin.close()
    wait_for(lambda: leader_of(bootstrap, topic) == to, pause=0.3)


def in_sync(bootstrap: str, topic: str) -> set[int]:
    """The brokers that are in sync with partition 0."""
    shown = AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, timeout=30)
    return set(shown.topics[topic].partitions[0].isrs)


def wait_for_another_leader(bootstrap: str, topic: str, old: int) -> None:
    """Wait until these brokers name another leader of partition 0."""
    wait_for(lambda: leader_of(bootstrap, topic) not in {old, -1}, pause=0.3)
