"""How long partitions stand still after a broker of the target is killed.

Two clusters of three nodes, whose brokers have sessions of six seconds. The node that
dies leads what the scenario's `roles` name, and nothing else. Beside the peer two
ordinary producers write to the same cluster: an idempotent one, to partitions that the
node led, and a transactional one. What a partition of the copy stands still longer than
these is the peer's own share.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import pairwise
import multiprocessing
from pathlib import Path
import tempfile
import time
from typing import TYPE_CHECKING, Any, ClassVar, Self

from confluent_kafka import KafkaException, Producer
from kafka import KafkaAdminClient, TopicPartition
from kafka.protocol.admin import ElectionType

from mirror.playground.brokers import class_data_options, playground
from tests.benchmarks import latency, load, throughput
from tests.benchmarks.clusters import JVM
from tests.benchmarks.columns import Column
from tests.benchmarks.latency import sent_at
from tests.benchmarks.processes import PeerError
from tests.benchmarks.target import Target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from multiprocessing.synchronize import Event

    from confluent_kafka import Consumer

    from mirror.playground.cluster import PlaygroundCluster
    from tests.benchmarks.bench import Bench, Measure, Start
    from tests.benchmarks.processes import Service

PARTITIONS = 6
REPLICAS = 3
ROLES = ("copy", "state", "transactions", "groups", "controller")
"""What a node may lead; `state`: the topics of the peer."""
_SETTINGS = {"broker.session.timeout.ms": "6000"}
_WITNESS = "witness"
_WITNESS_ID = "witness"
_EVERY_SECONDS = 0.1
_STEADY_SECONDS = 15.0
_MOVED_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadBrokerResult:
    COLUMNS: ClassVar = (
        Column("own_seconds", "own share s", ",.1f", "less"),
        Column("pause_seconds", "pause s", ",.1f"),
        Column("idempotent_seconds", "idempotent producer s", ",.1f"),
        Column("transactional_seconds", "transactional producer s", ",.1f"),
        Column("calm_seconds", "before s", ",.1f"),
    )

    pause_seconds: float
    """The longest time without a record that a partition of the copy had."""
    idempotent_seconds: float
    """The longest time without an acknowledgement in a partition."""
    transactional_seconds: float
    """The longest time without a commit."""
    calm_seconds: float
    """The longest pause of a partition before the node died."""
    pauses: Mapping[int, float]
    """By partition of the copy."""

    @property
    def own_seconds(self) -> float:
        return self.pause_seconds - max(
            self.idempotent_seconds, self.transactional_seconds
        )

    def flaw(self) -> None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadBroker:
    name: str
    title: str
    roles: tuple[str, ...]
    peers: tuple[str, ...] = ("mm2", "mirror")
    per_second: int = 2000
    warm_up_seconds: float = 20.0
    away_seconds: float = 25.0

    @property
    def source_bytes(self) -> int:
        return 0

    @contextmanager
    def ready(self, bench: Bench) -> Iterator[Measure]:
        def measure(start: Start) -> DeadBrokerResult:
            with (
                tempfile.TemporaryDirectory(dir=bench.folder) as folder,
                playground(
                    root=Path(folder), road="jars", given=False, nodes=REPLICAS,
                    settings=_SETTINGS, jvm=(*class_data_options(), *JVM),
                ) as clusters,
            ):  # fmt: skip
                return self._measure(bench, clusters["a"], clusters["b"], start)

        yield measure

    def _measure(
        self,
        bench: Bench,
        source: PlaygroundCluster,
        target: PlaygroundCluster,
        start: Start,
    ) -> DeadBrokerResult:
        topic = self.name
        for cluster, name in ((source, topic), (target, _WITNESS)):
            load.create_topics(
                cluster.bootstrap, [name], partitions=PARTITIONS, replicas=REPLICAS
            )
        places = [(topic, number) for number in range(PARTITIONS)]
        with (
            bench.task(
                topic, source=source.bootstrap, target=target.bootstrap,
                replicas=REPLICAS,
            ) as task,
            load.Pacer(
                source.bootstrap, places, per_second=self.per_second,
                batches=True,
            ),
        ):  # fmt: skip
            copy = Target(target.bootstrap, task.target_topic, partitions=PARTITIONS)
            service = start(task)
            try:
                throughput.first_look(service, copy)
                return self._strike(service, copy, target, task.target_topic)
            finally:
                service.stop()

    def _strike(
        self,
        service: Service,
        copy: Target,
        target: PlaygroundCluster,
        copied: str,
    ) -> DeadBrokerResult:
        with (
            closing(copy.consumer(quick=True)) as consumer,
            _Witness(target.bootstrap, _idempotent) as idempotent,
            _Witness(target.bootstrap, _transactional) as transactional,
        ):
            latency.discard(consumer, until=time.time() + self.warm_up_seconds / 2)
            node = _arrange(target, copied, self.roles)
            latency.discard(consumer, until=time.time() + self.warm_up_seconds / 2)
            calm = _pauses(consumer, _STEADY_SECONDS)
            service.require_running()
            struck = time.monotonic()
            target.kill(node)
            pauses = _pauses(consumer, self.away_seconds)
            if late := [p for p in range(PARTITIONS) if pauses.get(p, 99.0) > 20]:
                raise PeerError(f"partitions {late} stand still:\n{service.log_tail()}")
            target.start(node)
            return DeadBrokerResult(
                pause_seconds=max(pauses.values()),
                idempotent_seconds=idempotent.longest(struck),
                transactional_seconds=transactional.longest(struck),
                calm_seconds=max(calm.values()),
                pauses=pauses,
            )


def _arrange(target: PlaygroundCluster, copied: str, roles: tuple[str, ...]) -> int:
    """Let one node lead what the roles name, and the others all else; returns it."""
    with closing(KafkaAdminClient(bootstrap_servers=target.bootstrap)) as admin:
        quorum = admin.describe_metadata_quorum()
        leader = quorum["topics"][0]["partitions"][0]["leader_id"]
        nodes = sorted(target.nodes)
        others = [node for node in nodes if node != leader]
        node = leader if "controller" in roles else others[0]
        rest = [each for each in nodes if each != node]
        chosen: dict[TopicPartition, list[int]] = {}
        for found in admin.describe_topics():
            leads = found["name"] == _WITNESS or _role(found["name"], copied) in roles
            for each in found["partitions"]:
                number = each["partition_index"]
                first = node if leads else rest[number % len(rest)]
                chosen[TopicPartition(found["name"], number)] = [
                    first, *(n for n in nodes if n != first)
                ]  # fmt: skip
        admin.alter_partition_reassignments(chosen)
        until = time.monotonic() + _MOVED_SECONDS
        while admin.list_partition_reassignments():
            _require_in_time(until)
            time.sleep(0.2)
        elected: dict[str, list[int]] = {}
        for place in chosen:
            elected.setdefault(place.topic, []).append(place.partition)
        admin.elect_leaders(ElectionType.PREFERRED, elected, raise_errors=False)
        while any(
            each["leader_id"] != chosen[found["name"], each["partition_index"]][0]
            for found in admin.describe_topics(list(elected))
            for each in found["partitions"]
        ):
            _require_in_time(until)
            time.sleep(0.2)
        return node


def _require_in_time(until: float) -> None:
    if time.monotonic() > until:
        raise PeerError("leaders did not move")


def _role(topic: str, copied: str) -> str:
    known = {
        copied: "copy",
        "__transaction_state": "transactions",
        "__consumer_offsets": "groups",
    }
    return known.get(topic, "state")


def _pauses(consumer: Consumer, seconds: float) -> dict[int, float]:
    """The longest time without a record in the next seconds, by partition."""
    began = time.monotonic()
    last = dict.fromkeys(range(PARTITIONS), began)
    longest = dict.fromkeys(range(PARTITIONS), 0.0)
    while (now := time.monotonic()) < began + seconds:
        message = consumer.poll(0.1)
        if message is None or message.error():
            continue
        sent_at(message)
        number, now = message.partition() or 0, time.monotonic()
        longest[number] = max(longest[number], now - last[number])
        last[number] = now
    return {number: max(pause, now - last[number]) for number, pause in longest.items()}


class _Witness:
    """An ordinary producer in a process of its own, and when it was acknowledged."""

    def __init__(self, bootstrap: str, work: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._stop = context.Event()
        self._ours, theirs = context.Pipe(duplex=False)
        self._process = context.Process(
            target=work, args=(bootstrap, self._stop, theirs), daemon=True
        )

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._process.join(30)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def longest(self, since: float) -> float:
        """The longest time between two acknowledgements of a partition from then on."""
        self._stop.set()
        acknowledged: dict[int, list[float]] = self._ours.recv()
        longest = 0.0
        for times in acknowledged.values():
            later = [since, *(each for each in times if each > since)]
            longest = max(longest, *(b - a for a, b in pairwise(later)))
        return longest


def _idempotent(bootstrap: str, stop: Event, answer: Any) -> None:
    load.end_with_parent()
    times: dict[int, list[float]] = {number: [] for number in range(PARTITIONS)}
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0,
         **load.QUICK, **load.QUIET}
    )  # fmt: skip

    def told(error: object, message: Any) -> None:
        if error is None:
            times[message.partition()].append(time.monotonic())

    while not stop.is_set():
        for number in range(PARTITIONS):
            producer.produce(_WITNESS, b"x", partition=number, on_delivery=told)
        producer.poll(_EVERY_SECONDS)
    producer.flush(10)
    answer.send(times)


def _transactional(bootstrap: str, stop: Event, answer: Any) -> None:
    load.end_with_parent()
    times: list[float] = []
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": _WITNESS_ID,
         "transaction.timeout.ms": 60_000, "linger.ms": 0, **load.QUICK, **load.QUIET}
    )  # fmt: skip
    producer.init_transactions(60)
    while not stop.is_set():
        producer.begin_transaction()
        try:
            for number in range(PARTITIONS):
                producer.produce(_WITNESS, b"x", partition=number)
            while True:
                try:
                    producer.commit_transaction(30)
                    break
                except KafkaException as error:
                    if not error.args[0].retriable():
                        raise
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(30)
            continue
        times.append(time.monotonic())
        time.sleep(_EVERY_SECONDS)
    answer.send({0: times})


def _scenario(title: str, *roles: str) -> DeadBroker:
    name = "dead-broker" if roles == ROLES else f"dead-{roles[0]}"
    title = f"{title} is killed, at 2000 records/s"
    return DeadBroker(name=name, title=title, roles=roles)


DEAD_BROKERS = (
    _scenario("the node that leads the copy", "copy"),
    _scenario("the node that leads the peer's own topics", "state"),
    _scenario("the transaction coordinator", "transactions"),
    _scenario("the coordinator of groups", "groups"),
    _scenario("the controller", "controller"),
    _scenario("the node that is all of these", *ROLES),
)
