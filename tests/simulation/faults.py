"""What goes wrong, chosen by the seed.

Main type: `Faults`, which spoils requests itself and has `strikes` for the rest. Each
history gets a few of the `KINDS`, some of them often, others not at all: kinds that
always strike together would hide each other's traces. `end` puts everything right;
from then on the flow has to get through by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation import serving, writing
from tests.simulation.requests import Request
from tests.simulation.strikes import (
    OF_RECOVERY,
    OF_SAME_OFFSETS,
    STRIKES,
    Strikes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from tests.simulation.flows import SimulatedFlow
    from tests.simulation.judge import Judge
    from tests.simulation.model import ModelBroker, ModelCluster
    from tests.simulation.network import Network, Wire
    from tests.simulation.sources import Writer
    from tests.simulation.world import World

_WRITES = frozenset(
    {"Produce", "EndTxn", "InitProducerId", "AddPartitionsToTxn", "CreateTopics"}
)
UNCLEAR = (-1, 7, 13, 15, 20)
"""After these errors a broker may have done it all the same."""
AT_REQUESTS = (
    "slow", "break before", "break after", "hang", "late", "late work", "throttle",
    "errors",
)  # fmt: skip
_LIMITED = frozenset({"Produce", "Fetch"})
"""By quotas of bytes."""
KINDS = (*AT_REQUESTS, *STRIKES)
OF_SAME = (*AT_REQUESTS, *sorted(OF_SAME_OFFSETS))
OF_FILLED = (*OF_SAME, "clean")
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
        *,
        kinds: Collection[str] = KINDS,
        counts: Sequence[int] = (1, 2, 3, 5),
        rates: Sequence[float] = (0.3, 1.0, 3.0),
    ) -> None:
        """`clusters`: source and target. `kinds` of which this history has some,
        `counts`: how many that may be, and `rates`: how often they strike, a second.
        """
        self.on = True
        self._world: World = network.world
        self._clusters = clusters
        self._flow = flow
        self._strikes = Strikes(self._world, clusters, flow, writer, judge)
        random = self._world.random
        count = random.choice(counts)
        self.chosen = frozenset(random.sample(sorted(kinds), count))
        self._rates = {name: random.choice(rates) for name in self.chosen}
        network.delay = self._delay
        network.cut = self.cuts

    def begin(self) -> None:
        self._world.note(f"faults: {', '.join(sorted(self.chosen))}")
        for name in sorted(self.chosen):
            if (
                strike := (STRIKES | OF_RECOVERY | OF_SAME_OFFSETS).get(name)
            ) is not None:
                self._strike_later(name, strike)

    def _strike_later(self, name: str, strike: Callable[[Strikes], None]) -> None:
        def now() -> None:
            if self.on:
                strike(self._strikes)
                self._strike_later(name, strike)

        self._world.after(self._world.random.expovariate(self._rates[name]), now)

    def end(self) -> None:
        """Put everything right."""
        self.on = False
        self._strikes.cut_off.clear()
        for cluster in self._clusters:
            cluster.has_controller = True
            if cluster.gone:
                continue
            cluster.view_delay = lambda: 0.001
            cluster.transactions.calm()
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

    def cuts(self, wire: Wire) -> bool:
        """Whether nothing passes here."""
        return (wire.process.name, wire.address) in self._strikes.cut_off

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
        elif request.api in _LIMITED and self.strikes("throttle", 0.05):
            request.throttle = self._world.random.choice((0.1, 1.2, 4.0))
            self._world.note(f"{where}: throttled for {request.throttle} s")
            serving.handle(request)
        elif self.strikes("errors", 0.02):
            self._fail(request, where)
        else:
            serving.handle(request)

    def _fail(self, request: Request, where: str) -> None:
        random = self._world.random
        unclear = request.api in _WRITES and random.random() < 0.3
        code = random.choice(UNCLEAR if unclear else _CODES)
        self._world.note(f"{where}: error {code}")
        if request.api not in _WRITES:
            request.spoil = lambda answer: _spoil(answer, code, random)
            serving.handle(request)
            return
        done = code in UNCLEAR and random.random() < 0.5
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
