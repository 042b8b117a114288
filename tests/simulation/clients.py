"""Applications that move between the clusters of a pair.

Main types: `Producer`, which keeps the truth about what it wrote, and `Consumer`, the
only member of its group, which counts what it handles.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.simulation import administration
from tests.simulation.groups import Group
from tests.simulation.partition import committed
from tests.simulation.sources import Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.model import ModelCluster
    from tests.simulation.world import World

PRINCIPAL = "User:application"
GROUP = "g0"
PARTITIONS = {"t0": 2, "t1": 1}
"""Of the topics that applications write to."""


class Producer(Writer):
    """Writes where it is told to, if brokers let it."""

    def __init__(self, clusters: dict[str, ModelCluster], at: str) -> None:
        super().__init__(clusters[at], [*PARTITIONS])
        self._clusters = clusters
        self.at = at
        self.writes = True
        self.eager = False
        """Whether it goes by itself to where it may write."""
        self.wrote: dict[str, float] = {}
        """When it last wrote to each cluster."""

    def move(self, alias: str) -> None:
        if alias != self.at:
            self.end_all()
            self.at, self.cluster = alias, self._clusters[alias]
        self.writes = True

    def stop(self) -> None:
        self.end_all()
        self.writes = False

    def step(self) -> None:
        if not self.writes:
            return
        other = "AB".replace(self.at, "")
        if self.eager and not self.topics_of(self.at) and self.topics_of(other):
            self.cluster.world.note(f"the producer goes to {other} by itself")
            self.move(other)
        if found := self.topics_of(self.at):
            self.topics = found
            self.wrote[self.at] = self.cluster.world.now
            super().step()

    def topics_of(self, alias: str) -> list[str]:
        """Those that it may write to, by the ACLs that any leader of them knows."""
        return [name for name in PARTITIONS if self._may_write(alias, name)]

    def _may_write(self, alias: str, name: str) -> bool:
        cluster = self._clusters[alias]
        if name not in cluster.topics:
            return False
        return any(
            administration.may_write(cluster.broker(each.leader), PRINCIPAL, name)
            for each in cluster.topics[name].partitions
            if each.leader > 0
        )


class Consumer:
    """The member of a group: it handles what it reads, and commits that."""

    def __init__(self, clusters: dict[str, ModelCluster]) -> None:
        self._clusters = clusters
        self.at = ""
        """Where it runs; empty: nowhere."""
        self.handled: Counter[bytes] = Counter()
        self.stray: Counter[bytes] = Counter()
        """What it read on a cluster that a failover had given up by then: nobody there
        answers how far, so it is read again."""
        self.given_up: Callable[[str], bool] = lambda _: False
        self._places: dict[tuple[str, int], int] = {}

    def start(self, alias: str) -> None:
        if self.at == alias:
            return
        self.stop()
        self.at = alias
        group = self._clusters[alias].groups.setdefault(GROUP, Group())
        group.members += 1
        self._places = {where: at for where, (at, _) in group.offsets.items()}

    def forget(self, topic: str) -> None:
        """A topic is gone, and with it what the group has committed there."""
        for where in [each for each in self._places if each[0] == topic]:
            del self._places[where]

    def stop(self) -> None:
        if self.at:
            self._clusters[self.at].groups[GROUP].members -= 1
        self.at = ""

    def step(self, world: World) -> None:
        if not self.at:
            return
        cluster = self._clusters[self.at]
        if cluster.coordinators.get(GROUP, 1) < 0:
            return  # it could not commit
        for name, topic in cluster.topics.items():
            if name.rpartition(".")[2] not in PARTITIONS:
                continue
            for number, partition in enumerate(topic.partitions):
                self._read(world, cluster, (name, number), partition)

    def _read(
        self, world: World, cluster: ModelCluster, where: tuple[str, int], there: Any
    ) -> None:
        log = there.log
        at = self._places.get(where, 0)
        if there.leader < 0 or log.stable <= at:
            return
        keys = [key for offset, key, _ in committed(log, at) if key]
        self.handled.update(keys)
        if keys and self.given_up(self.at):
            self.stray.update(keys)
        if keys:
            first, last = keys[0].decode(), keys[-1].decode()
            world.note(f"{first} to {last} handled: {cluster.name} {where}@{at}")
        self._places[where] = log.stable
        cluster.groups[GROUP].offsets[where] = (log.stable, "")
