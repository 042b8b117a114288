"""What goes wrong by itself: processes, brokers, elections, logs, clocks.

Main type: `Strikes`, with one method per kind of fault; `STRIKES` names them. Each
chooses what it hits, and undoes itself after a while if it can. What goes wrong with
requests is in `faults`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.cleaning import clean
from tests.simulation.partition import committed
from tests.simulation.world import NOON

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.flows import SimulatedFlow
    from tests.simulation.judge import Judge
    from tests.simulation.model import ModelCluster
    from tests.simulation.sources import Writer
    from tests.simulation.world import World


_EXPIRATION_MS = 86_400_000


class Strikes:
    """The faults of one history that need no request."""

    def __init__(
        self,
        world: World,
        clusters: tuple[ModelCluster, ModelCluster],
        flow: SimulatedFlow,
        writer: Writer,
        judge: Judge,
    ) -> None:
        """`clusters`: source and target."""
        self._world = world
        self._clusters = clusters
        self._source, self._target = clusters
        self._flow = flow
        self._writer = writer
        self._judge = judge
        self.cut_off: set[tuple[str, tuple[str, int]]] = set()
        """Names of processes and addresses of brokers between which nothing passes."""

    def kill_worker(self) -> None:
        if alive := [w.process for w in self._flow.workers if w.process.alive]:
            process = self._world.random.choice(alive)
            self._world.note(f"{process.name} is killed")
            self._world.kill(process)

    def kill_worker_at_send(self, most: int = 60) -> None:
        random = self._world.random
        if alive := [w.process for w in self._flow.workers if w.process.alive]:
            random.choice(alive).kill_at_send = random.randrange(most)

    def _may_kill_worker(self, chance: float, seconds: tuple[float, ...]) -> None:
        """A machine that dies may have a worker beside its broker."""
        random = self._world.random
        if random.random() < chance:
            self._world.after(
                random.choice(seconds), lambda: self.kill_worker_at_send(10)
            )

    def kill_driver(self) -> None:
        process = self._flow.driver
        if self._world.random.random() < 0.5:
            process.kill_at_send = self._world.random.randrange(60)
        else:
            self._world.note(f"{process.name} is killed")
            self._world.kill(process)

    def suspend(self) -> None:
        """A worker or the driver stands still, and wakes up late."""
        random = self._world.random
        alive = [p for p in self._flow.everyone if p.alive and not p.suspended]
        if not alive:
            return
        process = random.choice(alive)
        process.suspended = True
        seconds = random.choice((0.3, 3.0, 15.0, 40.0))
        self._world.note(f"{process.name} is suspended for {seconds} s")
        self._world.after(seconds, lambda: setattr(process, "suspended", False))

    def stop_broker(self) -> None:
        cluster = self._world.random.choice(self._clusters)
        nodes = cluster.working()
        if not nodes:
            return
        node = self._world.random.choice(nodes)
        self._world.note(f"broker {cluster.name}{node} stops")
        cluster.stop(node)

        def back() -> None:
            if not cluster.broker(node).up:
                self._world.note(f"broker {cluster.name}{node} is back")
                cluster.start(node)

        self._world.after(self._world.random.choice((0.1, 1.0, 4.0)), back)

    def isolate(self) -> None:
        """A broker is cut off from its cluster and keeps its clients; mostly the one
        that leads progress, and perhaps workers die meanwhile, again and again.
        """
        random = self._world.random
        cluster = random.choice(self._clusters)
        nodes = cluster.working()
        if len(nodes) < 2:
            return
        node = random.choice(nodes)
        kept = cluster.partition((self._judge.progress_topic, 0))
        if kept is not None and kept.leader in nodes and random.random() < 0.7:
            node = kept.leader
        self._cut_off(cluster, node)
        if random.random() < 0.5:
            self._kill_workers_while(lambda: cluster.broker(node).isolated)

    def _kill_workers_while(self, goes_on: Callable[[], bool]) -> None:
        def again() -> None:
            if goes_on():
                self.kill_worker()
                seconds = self._world.random.uniform(0.2, 0.8)
                self._world.after(seconds, again)

        self._world.after(0.1, again)

    def _cut_off(self, cluster: ModelCluster, node: int) -> None:
        self._world.note(f"broker {cluster.name}{node} is cut off from its cluster")
        cluster.isolate(node)

        def back() -> None:
            if cluster.broker(node).isolated:
                self._world.note(f"broker {cluster.name}{node} is a member again")
                cluster.rejoin(node)

        self._world.after(self._world.random.choice((0.5, 3.0, 8.0)), back)

    def elect(self) -> None:
        cluster = self._world.random.choice(self._clusters)
        where = self._some(cluster)
        nodes = cluster.working()
        if where is None or not nodes:
            return
        node = self._world.random.choice([*nodes, -1])
        self._world.note(f"{cluster.name} {where} is led by {node}")
        cluster.elect(where, node)
        if node < 0:

            def back() -> None:
                partition = cluster.partition(where)
                if partition is not None and partition.leader < 0 and cluster.working():
                    cluster.elect(where, cluster.working()[0])

            self._world.after(self._world.random.choice((0.1, 1.0, 4.0)), back)

    def _some(self, cluster: ModelCluster) -> tuple[str, int] | None:
        found = [
            (name, number)
            for name, topic in cluster.topics.items()
            for number in range(len(topic.partitions))
        ]
        return self._world.random.choice(found) if found else None

    def lose(self) -> None:
        """An unclean election on the source; of a leader that is cut off, and goes on
        to show what is lost, or of one that is gone.
        """
        where, nodes = self._some(self._source), self._source.working()
        if where is None or not nodes:
            return
        partition = self._source.partition(where)
        assert partition is not None
        end = max(partition.log.end - self._world.random.randrange(40), 0)
        self._world.note(f"a {where} loses what is from {end} on")
        self._judge.truncated(where)
        if end % 2 and len(nodes) > 1 and partition.leader in nodes:
            nodes.remove(partition.leader)
            self._cut_off(self._source, partition.leader)
            self._may_kill_worker(0.5, (0.0, 0.02, 0.2, 1.5))
        markers = [b for b in partition.log.batches if b.control and b.last >= end]
        self._source.elect(where, self._world.random.choice(nodes), lose_from=end)
        # Without them nobody could read on, until somebody ends these transactions.
        for each in markers:
            if partition.log.is_open(each.producer):
                partition.log.end_transaction(
                    each.producer,
                    each.producer_epoch,
                    commit=each.commits,
                    at=self._world.now,
                )

    def _copies(self) -> set[str]:
        """Those that have the source's offsets."""
        return set(self._judge.copied_topics()) - self._judge.translated

    def lose_copy(self) -> None:
        """An unclean election on the target: a copy loses its end."""
        where, nodes = self._some(self._target), self._target.working()
        if where is None or not nodes or where[0] not in self._copies():
            return
        partition = self._target.partition(where)
        assert partition is not None
        end = max(partition.log.end - self._world.random.randrange(40), 0)
        self._judge.look()
        self._world.note(f"b {where} loses what is from {end} on")
        seen = partition.log.high
        self._target.elect(where, self._world.random.choice(nodes), lose_from=end)
        if partition.log.end < seen:
            self._judge.copy_lost(where, partition.log.end)

    def slow_replicas(self) -> None:
        """The followers of a copy do not keep up: nothing new is acknowledged."""
        where = self._some(self._target)
        if where is None or where[0] not in self._copies():
            return
        partition = self._target.partition(where)
        assert partition is not None
        log, epoch = partition.log, partition.epoch
        if log.replicated is not None:
            return
        log.replicated = log.end
        self._world.note(f"b {where}: followers are slow, they have {log.end}")

        def catch_up() -> None:
            if partition.epoch == epoch:
                log.replicated = None
                self._target.stir()
                self._target.committed()

        seconds = self._world.random.choice((0.2, 2.0, 6.0))
        self._world.after(seconds, catch_up)

    def forget_producers(self) -> None:
        """The target's leaders forget producers whose last record is a day old."""
        now = (NOON + self._world.now) * 1000
        for topic in self._target.topics.values():
            for partition in topic.partitions:
                partition.log.expire(int(now - _EXPIRATION_MS))

    def move_coordinator(self) -> None:
        names = sorted(self._target.coordinators)
        if names:
            self._target.move_coordinator(
                self._world.random.choice(names), self._world.random.choice((0.05, 1.0))
            )

    def delete_records(self) -> None:
        where = self._some(self._source)
        partition = self._source.partition(where) if where else None
        if where is None or partition is None:
            return
        log = partition.log
        until = self._world.random.randint(log.start, log.end)
        self._world.note(f"a {where}: what is before {until} is deleted")
        self._judge.deleted(where, until)
        log.delete_before(until)
        self._source.stir()

    def clean(self) -> None:
        """The log cleaner runs on the source, or where progress is kept."""
        random = self._world.random
        if random.random() < 0.5:
            where = self._some(self._source)
            partition = self._source.partition(where) if where else None
            if partition is not None:
                rate = random.choice((0.0, 0.1, 0.5))
                self._world.note(f"a {where}: the log cleaner runs")
                clean(partition.log, random, lambda *_: random.random() < rate)
            return
        partition = self._target.partition((self._judge.progress_topic, 0))
        if partition is not None:
            log = partition.log
            last = {key: offset for offset, key, _ in committed(log, log.start)}
            self._world.note("b: the log cleaner runs where progress is kept")
            clean(log, random, lambda offset, key: last.get(key, offset) > offset)

    def recreate(self) -> None:
        name = self._world.random.choice(self._writer.topics)
        if name not in self._source.topics or not self._source.working():
            return
        count = len(self._source.topics[name].partitions)
        self._world.note(f"a {name} is deleted")
        for number in range(count):
            self._judge.deleted((name, number))
        self._source.delete(name)

        def create() -> None:
            if self._source.working():
                self._world.note(f"a {name} is created again")
                self._source.create(name, count, {})
            else:
                self._world.after(0.5, create)

        self._world.after(self._world.random.choice((0.01, 0.5, 3.0)), create)

    def delete_copy(self) -> None:
        """Somebody deletes a copy, and perhaps makes it again."""
        random = self._world.random
        names = sorted(self._judge.copied_topics())
        if not names or not self._target.working():
            return
        name = random.choice(names)
        count = len(self._target.topics[name].partitions)
        self._world.note(f"b {name} is deleted")
        self._judge.copy_deleted(name)
        self._target.delete(name)

        def create() -> None:
            if name not in self._target.topics and self._target.working():
                self._world.note(f"b {name} is created again by somebody")
                self._target.create(name, count, {})

        if random.random() < 0.5:
            self._world.after(random.choice((0.01, 0.5, 3.0)), create)

    def jump(self) -> None:
        """The wall clock of a process is set."""
        process = self._world.random.choice(self._flow.everyone)
        process.clock += self._world.random.choice((-3600.0, -5.0, 5.0, 3600.0))

    def cut(self) -> None:
        """Nothing passes between a process and a broker."""
        random = self._world.random
        alive = [p for p in self._flow.everyone if p.alive]
        cluster = random.choice(self._clusters)
        if not alive:
            return
        pair = (random.choice(alive).name, random.choice(cluster.brokers).address)
        self._world.note(f"nothing passes between {pair[0]} and {pair[1]}")
        self.cut_off.add(pair)
        self._world.after(
            random.choice((0.5, 4.0, 15.0)), lambda: self.cut_off.discard(pair)
        )

    def stale_views(self) -> None:
        """Brokers learn late who leads."""
        for cluster in self._clusters:
            cluster.view_delay = lambda: self._world.random.choice((0.001, 0.3, 3.0))

    def lose_controller(self) -> None:
        random = self._world.random
        cluster = random.choice(self._clusters)
        cluster.lose_controller(random.choice((1.0, 6.0, 20.0)))

    def slow_markers(self) -> None:
        self._target.transactions.delay = lambda: self._world.random.choice(
            (0.001, 0.05, 1.0)
        )

    def skip_markers(self) -> None:
        """Brokers 4.x: a partition without a leader never gets its marker. A broker
        that is fenced for a moment leaves such partitions, and no other trace.
        """
        transactions = self._target.transactions
        transactions.skips_leaderless = True
        transactions.skipped = lambda: self._may_kill_worker(0.4, (0.0, 0.2, 0.5, 1.0))
        if self._world.random.random() < 0.5:
            self.elect()
        else:
            transactions.ending = self._fence

    def _fence(self) -> None:
        """The next transaction to end may miss some of its markers."""
        self._target.transactions.ending = lambda: None
        random, nodes = self._world.random, self._target.working()
        if not nodes:
            return
        node = random.choice(nodes)
        self._world.note(f"b{node} is fenced")
        theirs = [
            (name, number)
            for name, topic in self._target.topics.items()
            for number, partition in enumerate(topic.partitions)
            if partition.leader == node
        ]
        for where in theirs:
            self._target.elect(where, -1)

        def back() -> None:
            for where in theirs:
                partition = self._target.partition(where)
                if partition is not None and partition.leader < 0:
                    self._target.elect(where, node)

        self._world.after(random.choice((0.002, 0.002, 0.02, 0.2)), back)


STRIKES: dict[str, Callable[[Strikes], None]] = {
    "kill worker": Strikes.kill_worker,
    "kill worker at send": Strikes.kill_worker_at_send,
    "kill driver": Strikes.kill_driver,
    "suspend": Strikes.suspend,
    "stop broker": Strikes.stop_broker,
    "isolate": Strikes.isolate,
    "elect": Strikes.elect,
    "lose": Strikes.lose,
    "move coordinator": Strikes.move_coordinator,
    "delete records": Strikes.delete_records,
    "clean": Strikes.clean,
    "recreate": Strikes.recreate,
    "delete copy": Strikes.delete_copy,
    "jump": Strikes.jump,
    "cut": Strikes.cut,
    "stale views": Strikes.stale_views,
    "slow markers": Strikes.slow_markers,
    "skip markers": Strikes.skip_markers,
}

OF_SAME_OFFSETS: dict[str, Callable[[Strikes], None]] = {
    name: STRIKES[name]
    for name in STRIKES.keys() - {"delete records", "clean", "recreate"}
} | {
    "lose copy": Strikes.lose_copy,
    "slow replicas": Strikes.slow_replicas,
    "forget producers": Strikes.forget_producers,
}
"""Where copies have the source's offsets: without what a source cannot lose then."""
OF_RECOVERY: dict[str, Callable[[Strikes], None]] = {
    "lose controller": Strikes.lose_controller,
}
"""Only whole services meet these."""
