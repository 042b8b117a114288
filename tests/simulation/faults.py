"""What goes wrong, chosen by the seed.

Main type: `Faults`. Each history gets a few of the `KINDS`, some of them often, others
not at all: kinds that always strike together would hide each other's traces. `end` puts
everything right again; from then on the flow has to get through by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation import serving, writing
from tests.simulation.requests import Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.flows import SimulatedFlow
    from tests.simulation.judge import Judge
    from tests.simulation.model import ModelBroker, ModelCluster
    from tests.simulation.network import Network, Wire
    from tests.simulation.sources import Writer
    from tests.simulation.world import World

_WRITES = frozenset(
    {"Produce", "EndTxn", "InitProducerId", "AddPartitionsToTxn", "CreateTopics"}
)
_UNCLEAR = frozenset({-1, 7, 13, 15, 20})
"""After these errors a broker may have done it all the same."""
_CODES = tuple(code for code in range(-1, 120) if code not in (0, 57))


class Faults:
    """The faults of one history."""

    def __init__(
        self,
        network: Network,
        clusters: tuple[ModelCluster, ModelCluster],
        flow: SimulatedFlow,
        writer: Writer,
        judge: Judge,
    ) -> None:
        """`clusters`: source and target."""
        self.on = True
        self._world: World = network.world
        self._network = network
        self._clusters = clusters
        self._source, self._target = clusters
        self._flow = flow
        self._writer = writer
        self._judge = judge
        random = self._world.random
        count = random.choice((1, 2, 3, 5))
        self.chosen = frozenset(random.sample(sorted(KINDS), count))
        self._rates = {name: random.choice((0.3, 1.0, 3.0)) for name in self.chosen}
        network.delay = self._delay
        network.cut = self._cut
        self._cut_off: set[tuple[str, tuple[str, int]]] = set()
        """Names of processes and addresses of brokers between which nothing passes."""

    def begin(self) -> None:
        self._world.note(f"faults: {', '.join(sorted(self.chosen))}")
        for name in sorted(self.chosen):
            if (strike := KINDS[name]) is not None:
                self._strike_later(name, strike)

    def _strike_later(self, name: str, strike: Callable[[Faults], None]) -> None:
        def now() -> None:
            if self.on:
                strike(self)
                self._strike_later(name, strike)

        self._world.after(self._world.random.expovariate(self._rates[name]), now)

    def end(self) -> None:
        """Put everything right."""
        self.on = False
        self._cut_off.clear()
        for cluster in self._clusters:
            cluster.view_delay = lambda: 0.001
            cluster.transactions.delay = lambda: 0.001
            for broker in cluster.brokers:
                if broker.isolated:
                    cluster.rejoin(broker.node)
                elif not broker.up:
                    cluster.start(broker.node)
            for name, topic in cluster.topics.items():
                for number, partition in enumerate(topic.partitions):
                    if partition.leader < 0:
                        cluster.elect((name, number), cluster.working()[0])
            cluster.spread()
        for process in self._flow.everyone:
            process.suspended = False
            process.kill_at_send = -1
        self._world.note("the faults end")

    def strikes(self, name: str, chance: float) -> bool:
        return (
            self.on
            and name in self.chosen
            and self._world.random.random() < chance * self._rates[name]
        )

    def _delay(self, wire: Wire) -> float:
        random = self._world.random
        if self.strikes("slow", 0.02):
            return random.choice((0.05, 0.5, 2.0, 5.0))
        return random.uniform(0.0002, 0.002)

    def _cut(self, wire: Wire) -> bool:
        return (wire.process.name, wire.address) in self._cut_off

    def serve(self, broker: ModelBroker, frame: bytes, wire: Wire) -> None:
        """In place of `serving.serve`."""
        request = Request(broker, frame, wire)
        if request.api == "ApiVersions":
            serving.handle(request)
            return
        where = (
            f"{broker.cluster.name}{broker.node} {request.api} of {wire.process.name}"
        )
        if self.strikes("break before", 0.01):
            self._world.note(f"{where}: lost")
            wire.break_up()
        elif self.strikes("break after", 0.01):
            self._world.note(f"{where}: done, and the connection breaks")
            request.silent = True
            serving.handle(request)
            wire.break_up()
        elif self.strikes("hang", 0.005):
            self._world.note(f"{where}: the connection hangs")
            wire.hung = True
        elif self.strikes("late", 0.01):
            self._world.note(f"{where}: the answer is late")
            request.delay = self._world.random.choice((0.5, 2.9, 3.1, 8.0))
            serving.handle(request)
        elif self.strikes("late work", 0.01):
            seconds = self._world.random.choice((0.1, 1.0, 4.0))
            self._world.note(f"{where}: done {seconds} s late")
            self._world.after(seconds, lambda: broker.up and serving.handle(request))
        elif self.strikes("errors", 0.02):
            self._fail(request, where)
        else:
            serving.handle(request)

    def _fail(self, request: Request, where: str) -> None:
        random = self._world.random
        code = random.choice(_CODES)
        self._world.note(f"{where}: error {code}")
        if request.api not in _WRITES:
            request.spoil = lambda answer: _spoil(answer, code, random)
            serving.handle(request)
            return
        done = code in _UNCLEAR and random.random() < 0.5
        if request.api == "Produce":
            parts = [
                (topic.name, part.index)
                for topic in request.body.topic_data
                for part in topic.partition_data
            ]
            refused = random.sample(parts, random.randint(1, len(parts)))
            if done:
                request.spoil = lambda answer: writing.refuse(answer, refused, code)
            else:
                request.refused = dict.fromkeys(refused, code)
            serving.handle(request)
        elif done:
            request.spoil = lambda answer: _spoil(answer, code, None)
            serving.handle(request)
        else:
            serving.answer_with(request, code)

    # What strikes by itself.

    def kill_worker(self) -> None:
        if alive := [w.process for w in self._flow.workers if w.process.alive]:
            process = self._world.random.choice(alive)
            self._world.note(f"{process.name} is killed")
            self._world.kill(process)

    def kill_worker_at_send(self) -> None:
        if alive := [w.process for w in self._flow.workers if w.process.alive]:
            self._world.random.choice(
                alive
            ).kill_at_send = self._world.random.randrange(60)

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
        cluster = self._world.random.choice(self._clusters)
        nodes = cluster.working()
        if len(nodes) < 2:
            return
        node = self._world.random.choice(nodes)
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
        """An unclean election on the source."""
        where, nodes = self._some(self._source), self._source.working()
        if where is None or not nodes:
            return
        partition = self._source.partition(where)
        assert partition is not None
        end = max(partition.log.end - self._world.random.randrange(40), 0)
        self._world.note(f"a {where} loses what is from {end} on")
        self._judge.truncated(where)
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
        self._cut_off.add(pair)
        self._world.after(
            random.choice((0.5, 4.0, 15.0)), lambda: self._cut_off.discard(pair)
        )

    def stale_views(self) -> None:
        """Brokers learn late who leads."""
        for cluster in self._clusters:
            cluster.view_delay = lambda: self._world.random.choice((0.001, 0.3, 3.0))

    def slow_markers(self) -> None:
        self._target.transactions.delay = lambda: self._world.random.choice(
            (0.001, 0.05, 1.0)
        )

    def skip_markers(self) -> None:
        """Brokers 4.x: a partition without a leader never gets its marker."""
        self._target.transactions.skips_leaderless = True
        self.elect()


KINDS: dict[str, Callable[[Faults], None] | None] = {
    "slow": None,
    "break before": None,
    "break after": None,
    "hang": None,
    "late": None,
    "late work": None,
    "errors": None,
    "kill worker": Faults.kill_worker,
    "kill worker at send": Faults.kill_worker_at_send,
    "kill driver": Faults.kill_driver,
    "suspend": Faults.suspend,
    "stop broker": Faults.stop_broker,
    "isolate": Faults.isolate,
    "elect": Faults.elect,
    "lose": Faults.lose,
    "move coordinator": Faults.move_coordinator,
    "delete records": Faults.delete_records,
    "recreate": Faults.recreate,
    "jump": Faults.jump,
    "cut": Faults.cut,
    "stale views": Faults.stale_views,
    "slow markers": Faults.slow_markers,
    "skip markers": Faults.skip_markers,
}
"""By name; None: it strikes at requests, not by itself."""


def _spoil(answer: Any, code: int, random: Any) -> None:
    """Put a code into one of the answer's error fields; into all, without a choice."""
    fields = list(_error_fields(answer))
    if random is not None and fields:
        fields = [random.choice(fields)]
    for each, name in fields:
        setattr(each, name, code)


def _error_fields(value: Any) -> Any:
    """Every field of an answer that holds an error code, and its owner."""
    if isinstance(value, list):
        for each in value:
            yield from _error_fields(each)
        return
    fields = getattr(value, "fields", None)
    if not isinstance(fields, dict):
        return
    for name in fields:
        if name in {"error_code", "partition_error_code"}:
            yield value, name
        else:
            yield from _error_fields(getattr(value, name, None))
