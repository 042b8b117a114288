"""A Kafka cluster: topics, leaders, and brokers that do not all know the same.

Main type: `ModelCluster`. The truth about a partition is one log, that of its leader;
replication takes no time. A broker goes by its own view of the metadata, which may be
old; one that is cut off from its cluster (`isolate`) goes on with what it had then:
views, logs and states of transactions.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
import uuid

from tests.simulation.coordinator import Transaction, Transactions
from tests.simulation.partition import PartitionLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.administration import Acl
    from tests.simulation.groups import Group
    from tests.simulation.membership import Membership
    from tests.simulation.network import Network, Wire

TopicPartition = tuple[str, int]


@dataclass(eq=False)
class Partition:
    """Its leader's log, and who that is."""

    log: PartitionLog
    leader: int
    """-1: none."""
    epoch: int = 0


@dataclass(eq=False)
class Topic:
    """A topic; a re-created one is another."""

    id: uuid.UUID
    partitions: list[Partition]
    configs: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Seen:
    """What a broker knows of a topic: each partition's leader and epoch."""

    id: uuid.UUID
    leaders: tuple[tuple[int, int], ...]
    configs: dict[str, str]


@dataclass(eq=False)
class Session:
    """A fetch session."""

    epoch: int
    asked: dict[TopicPartition | tuple[uuid.UUID, int], object]
    told: dict[object, tuple[int, int, int, int]] = field(default_factory=dict)
    """What the client was told of each: error, high watermark, stable, start."""


class ModelBroker:
    """One broker and what it knows."""

    def __init__(self, cluster: ModelCluster, node: int, address: tuple[str, int]):
        self.cluster = cluster
        self.node = node
        self.address = address
        self.up = True
        self.isolated = False
        self.view: dict[str, Seen] = {}
        self.acls: set[Acl] | None = None
        """Those that it knows; None: it has no authorizer."""
        self.sessions: dict[int, Session] = {}
        self.old_logs: dict[TopicPartition, PartitionLog] = {}
        self.old_states: dict[str, Transaction] = {}
        self.old_coordinators: dict[str, int] = {}
        self.old_groups: dict[str, Group] = {}

    def handle(self, frame: bytes, wire: Wire) -> None:
        self.cluster.serve(self, frame, wire)

    def log(self, topic: str, partition: int) -> PartitionLog | None:
        """Its own log of what it thinks it leads."""
        if self.isolated:
            return self.old_logs.get((topic, partition))
        return self.cluster.topics[topic].partitions[partition].log

    def transaction(self, name: str) -> Transaction | None:
        """The state of an id that it thinks it coordinates."""
        known = self.old_states if self.isolated else self.cluster.transactions.states
        return known.get(name)


class ModelCluster:
    """A cluster of one or more brokers."""

    serve: Callable[[ModelBroker, bytes, Wire], None]

    def __init__(
        self, network: Network, name: str, *, brokers: int, v2: bool, by_id: bool
    ) -> None:
        self.name = name
        self.id = f"id-of-{name}"
        self.network = network
        self.world = network.world
        self.by_id = by_id
        """Whether its brokers speak of topic ids in fetches."""
        self.topics: dict[str, Topic] = {}
        self.transactions = Transactions(self.world, self._mark, v2=v2)
        self.coordinators: dict[str, int] = {}
        """The coordinator of each transactional id and group; -1 while it moves."""
        self.groups: dict[str, Group] = {}
        self.memberships: dict[str, Membership] = {}
        """Of groups that divide work, and commit nothing."""
        self.acls: set[Acl] | None = None
        """None: brokers have no authorizer."""
        self.group_moved: Callable[[str, TopicPartition], None] = lambda *_: None
        """Called after an offset of a group was set from outside."""
        self.gone = False
        """Whether all of it is lost: no broker starts."""
        self.has_controller = True
        """Whether topics, configs and ACLs can be changed."""
        self.view_delay: Callable[[], float] = lambda: 0.001
        self.committed: Callable[[], None] = lambda: None
        """Called after each marker."""
        self.deleting: Callable[[str], None] = lambda _: None
        """Called before a topic is deleted by request."""
        self.waiting: list[Callable[[], bool]] = []
        """Fetches that wait for data: each returns whether it is answered now."""
        self.brokers = [
            ModelBroker(self, node, (name, 9000 + node))
            for node in range(1, brokers + 1)
        ]
        for broker in self.brokers:
            network.brokers[broker.address] = broker

    @property
    def bootstrap(self) -> list[str]:
        return [f"{host}:{port}" for host, port in (b.address for b in self.brokers)]

    def broker(self, node: int) -> ModelBroker:
        return self.brokers[node - 1]

    def working(self) -> list[int]:
        """Brokers that are up and a part of the cluster."""
        return [b.node for b in self.brokers if b.up and not b.isolated]

    def create(self, name: str, partitions: int, configs: dict[str, str]) -> Topic:
        nodes = self.working()
        first = self.world.random.randrange(len(nodes))
        topic = self.topics[name] = Topic(
            id=uuid.UUID(int=self.world.random.getrandbits(128), version=4),
            partitions=[
                Partition(PartitionLog(), nodes[(first + number) % len(nodes)])
                for number in range(partitions)
            ],
            configs=configs,
        )
        self.spread()
        return topic

    def grow(self, name: str, partitions: int) -> None:
        """More partitions for a topic."""
        topic, nodes = self.topics[name], self.working()
        while len(topic.partitions) < partitions:
            topic.partitions.append(
                Partition(PartitionLog(), self.world.random.choice(nodes))
            )
        self.spread()

    def delete(self, name: str) -> None:
        del self.topics[name]
        for group in self.groups.values():
            for where in [each for each in group.offsets if each[0] == name]:
                del group.offsets[where]
        self.spread()

    def spread(self) -> None:
        """Let brokers learn of the metadata as it is, each after a while."""
        for broker in self.brokers:
            if broker.up and not broker.isolated:
                self.world.after(self.view_delay(), lambda b=broker: self._learn(b))
        self.stir()

    def _learn(self, broker: ModelBroker) -> None:
        if broker.up and not broker.isolated:
            broker.view = {
                name: Seen(
                    topic.id,
                    tuple((p.leader, p.epoch) for p in topic.partitions),
                    dict(topic.configs),
                )
                for name, topic in self.topics.items()
            }
            broker.acls = None if self.acls is None else set(self.acls)
            self.stir()

    def stir(self) -> None:
        """Something changed that a waiting fetch may be waiting for."""
        self.waiting = [waits for waits in self.waiting if not waits()]

    def partition(self, where: TopicPartition) -> Partition | None:
        topic = self.topics.get(where[0])
        if topic is None or where[1] >= len(topic.partitions):
            return None
        return topic.partitions[where[1]]

    def elect(self, where: TopicPartition, node: int, *, lose_from: int = -1) -> None:
        """A new leader, or none (-1). With `lose_from` it lacks what is behind."""
        partition = self.partition(where)
        if partition is None:
            return
        if partition.log.replicated is not None:
            # The new leader has no more, and nothing more was acknowledged.
            partition.log.truncate(partition.log.high)
            partition.log.replicated = None
        partition.leader = node
        partition.epoch += 1
        if lose_from >= 0:
            partition.log.truncate(lose_from)
        partition.log.begin_epoch(partition.epoch)
        self.spread()

    def _mark(
        self,
        where: TopicPartition,
        producer: int,
        epoch: int,
        commit: bool,
    ) -> bool:
        partition = self.partition(where)
        if partition is None:
            return True  # the topic is gone
        if partition.leader < 0:
            return False
        partition.log.end_transaction(producer, epoch, commit=commit, at=self.world.now)
        self.committed()
        self.stir()
        return True

    def coordinator(self, name: str) -> int:
        """The broker that coordinates a transactional id; -1 while none does."""
        if name not in self.coordinators:
            self.coordinators[name] = self.world.random.choice(self.working())
        return self.coordinators[name]

    def move_coordinator(self, name: str, seconds: float) -> None:
        """To another broker, which needs a while."""
        if self.coordinators.get(name, -1) < 0:
            return
        self.coordinators[name] = -1

        def arrive() -> None:
            if nodes := self.working():
                self.coordinators[name] = self.world.random.choice(nodes)
            else:
                self.world.after(seconds, arrive)

        self.world.after(seconds, arrive)

    def stop(self, node: int) -> None:
        """A broker dies; others take over what it had."""
        broker = self.broker(node)
        broker.up = False
        broker.sessions.clear()
        self.network.hang_up(broker)
        self._leave(node)

    def _leave(self, node: int) -> None:
        nodes = self.working()
        for name, topic in self.topics.items():
            for number, partition in enumerate(topic.partitions):
                if partition.leader == node:
                    new = self.world.random.choice(nodes) if nodes else -1
                    self.elect((name, number), new)
        for name, at in list(self.coordinators.items()):
            if at == node:
                self.move_coordinator(name, self.world.random.uniform(0.0, 0.3))

    def start(self, node: int) -> None:
        """A broker is back; partitions without a leader may have it."""
        if self.gone:
            return
        broker = self.broker(node)
        broker.up, broker.isolated = True, False
        broker.view = {}
        for name, topic in self.topics.items():
            for number, partition in enumerate(topic.partitions):
                if partition.leader < 0:
                    self.elect((name, number), node)
        self.spread()

    def lose(self) -> None:
        """All brokers end at once, for long or for good; disks stay as they are."""
        self.gone = True
        for broker in self.brokers:
            if broker.up:
                self.stop(broker.node)

    def lose_controller(self, seconds: float) -> None:
        """For so long nothing changes: no topics, configs, ACLs."""
        self.world.note(f"{self.name} has no controller for {seconds} s")
        self.has_controller = False

        def back() -> None:
            self.has_controller = True

        self.world.after(seconds, back)

    def come_back(self) -> None:
        self.gone = False
        for broker in self.brokers:
            self.start(broker.node)

    def isolate(self, node: int) -> None:
        """Cut a broker off from the others: it answers from what it has now."""
        broker = self.broker(node)
        broker.old_logs = {
            (name, number): partition.log.copy()
            for name, topic in self.topics.items()
            for number, partition in enumerate(topic.partitions)
            if partition.leader == node
        }
        broker.old_states = copy.deepcopy(self.transactions.states)
        broker.old_coordinators = dict(self.coordinators)
        broker.old_groups = copy.deepcopy(self.groups)
        broker.isolated = True
        self._leave(node)

    def rejoin(self, node: int) -> None:
        """It is a member again, and half the time leads what it led: it is the
        preferred leader there.
        """
        broker = self.broker(node)
        led = sorted(broker.old_logs)
        broker.old_logs, broker.old_states, broker.old_coordinators = {}, {}, {}
        broker.old_groups = {}
        self.start(node)
        if self.world.random.random() < 0.5:
            for where in led:
                self.elect(where, node)
