"""One slot that copies one topic, in the test's process or in one of its own.

`Copying` prepares a flow's topics and ownership as a driver does, and makes slots,
leases and plans; `Witness` is an ordinary read_committed consumer that remembers
keys alone. Aliases are the caller's, so that no other test shares the progress.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
from dataclasses import dataclass, field
import itertools
import multiprocessing
import os
from pathlib import Path
import resource
import time
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from mirror.clusters.cluster import Cluster
from mirror.config.schema import MirrorConfig
from mirror.metadata import topics
from mirror.relay.lease import Assignment, Lease, Plan
from mirror.relay.ownership import take_ownership
from mirror.relay.progress import topic_name
from mirror.relay.slot import Slot
from tests.harness import Order, producer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.relay.report import PartitionReport
    from tests.slots import Ambush

spawning = multiprocessing.get_context("spawn")


@dataclass(kw_only=True)
class Copying:
    """A flow of one topic, owned by whoever called `own` last."""

    source: str
    target: str
    topic: str
    alias: str
    """Of the source; the target's is `Q`."""
    timeout: float = 30.0
    generation: str = ""
    partitions: int = 0
    plan: Plan | None = None
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def copy(self) -> str:
        return f"{self.alias}.{self.topic}"

    @property
    def progress(self) -> str:
        return topic_name(self.alias)

    def own(self) -> Self:
        """What a driver does before its first lease."""
        config = MirrorConfig.model_validate(
            {
                "clusters": {
                    alias: {
                        "bootstrap_servers": bootstrap,
                        "request_timeout_seconds": self.timeout,
                    }
                    for alias, bootstrap in (
                        (self.alias, self.source),
                        ("Q", self.target),
                    )
                },
                "flows": {f"{self.alias}->Q": {"topics": [self.topic]}},
            }
        )
        flow = config.flows[f"{self.alias}->Q"]
        with (
            contextlib.closing(
                Cluster(config.clusters[self.alias]).connect()
            ) as source,
            contextlib.closing(Cluster(config.clusters["Q"]).connect()) as target,
        ):
            found = topics.sync(source, target, flow)
            assert not found.problems
            target.wait_for_topic(self.copy)
            self.partitions = found.topics[0].partitions
            self._assignments = tuple(
                Assignment(
                    topic=self.topic,
                    partition=partition,
                    target_topic=self.copy,
                    topic_id=found.topics[0].topic_id,
                )
                for partition in range(self.partitions)
            )
            self.generation = take_ownership(
                flow, source, target, slots=1, partitions={}
            )
            self.plan = Plan(
                flow=flow,
                source=config.clusters[self.alias],
                target=config.clusters["Q"],
                source_id=source.cluster_id,
                target_id=target.cluster_id,
            )
        return self

    def lease(self, seconds: float) -> Lease:
        return Lease(
            slot=0,
            number=next(self._numbers),
            generation=self.generation,
            seconds=seconds,
            assignments=self._assignments,
        )

    @contextlib.contextmanager
    def slot(self) -> Iterator[Slot]:
        assert self.plan is not None
        with contextlib.closing(Slot(self.plan, 0)) as slot:
            yield slot


class RunningLease:
    """A lease under way in a thread, until its bell is rung."""

    def __init__(self, slot: Slot, lease: Lease) -> None:
        self._bell, self._rope = os.pipe()
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        self._future = self._pool.submit(slot.run, lease, bell=self._bell)

    @property
    def ended(self) -> bool:
        return self._future.done()

    def ring(self, timeout: float = 30) -> list[PartitionReport]:
        """End it and take its reports; what it raised is raised."""
        os.write(self._rope, b"!")
        try:
            return self._future.result(timeout)
        finally:
            self._pool.shutdown()
            os.close(self._rope)
            os.close(self._bell)


class Witness:
    """An ordinary consumer of a whole topic; a context manager."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.found: Order = {number: [] for number in range(partitions)}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "witness",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 20,
                "topic.metadata.refresh.interval.ms": 500,
            }
        )
        self._consumer.assign(
            [TopicPartition(topic, p, OFFSET_BEGINNING) for p in self.found]
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    @property
    def count(self) -> int:
        return sum(map(len, self.found.values()))

    def look(self, seconds: float = 0.05) -> set[int]:
        """Read what is there; returns the partitions whose end was seen."""
        ended = set()
        for message in self._consumer.consume(5000, seconds):
            error = message.error()
            if error is None:
                self.found[message.partition()].append(message.key())
                ended.discard(message.partition())
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise AssertionError(error)
        return ended

    def wait(
        self, count: int, timeout: float, lease: RunningLease | None = None
    ) -> None:
        """Read until there are so many records."""
        end = time.monotonic() + timeout
        while self.count < count:
            assert time.monotonic() < end, f"{self.count} of {count} in {timeout} s"
            assert lease is None or not lease.ended, f"it ended: {lease.ring()}"
            self.look()


def assert_nothing_else(bootstrap: str, topic: str, expected: Order) -> None:
    """A consumer that reads the whole topic finds exactly these keys, in order."""
    with Witness(bootstrap, topic, len(expected)) as witness:
        ended: set[int] = set()
        deadline = time.monotonic() + 60
        while len(ended) < len(expected):
            assert time.monotonic() < deadline
            ended |= witness.look(0.5)
    for partition, keys in expected.items():
        assert witness.found[partition] == keys, f"partition {partition} differs"


def send_keys(
    bootstrap: str, topic: str, keys: Order, value: bytes, **settings: Any
) -> None:
    client = producer(bootstrap, **settings)
    for partition, names in keys.items():
        for key in names:
            while True:
                try:
                    client.produce(topic, key=key, value=value, partition=partition)
                    break
                except BufferError:
                    client.poll(0.1)
    assert client.flush(120) == 0


def keys(partitions: int, each: int, *, first: int = 0) -> Order:
    return {
        partition: [b"%d:%d" % (partition, n) for n in range(first, first + each)]
        for partition in range(partitions)
    }


def peak_memory() -> int:
    """The most that this process ever held at once, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # elsewhere a spawned process may count its parent in
        line = next(x for x in status.read_text().splitlines() if "VmHWM" in x)
        return int(line.split()[1]) << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class SlotAlone:
    """A slot in a process of its own, one lease, ended by `end` or a signal."""

    def __init__(
        self, copying: Copying, *, seconds: float = 60, ambush: Ambush | None = None
    ) -> None:
        self._rope, bell = spawning.Pipe()
        self._peak: Any = spawning.SimpleQueue()
        arguments = (copying.plan, copying.lease(seconds), bell, self._peak, ambush)
        self.process = spawning.Process(target=_alone, args=arguments, daemon=True)
        self.process.start()
        bell.close()

    def end(self, timeout: float = 60) -> int:
        """Ring its bell; returns its peak memory."""
        self._rope.send_bytes(b"!")
        self.process.join(timeout)
        assert self.process.exitcode == 0
        return self._peak.get()

    def kill(self) -> None:
        self._rope.close()
        self.process.kill()
        self.process.join(10)


def _alone(plan: Plan, lease: Lease, bell: Any, peak: Any, ambush: Any) -> None:
    # What Spark's workers have loaded as well.
    import pandas  # noqa: F401, ICN001, PLC0415
    import pyspark.worker  # noqa: F401, PLC0415

    import mirror.relay.task  # noqa: F401, PLC0415

    if ambush is not None:
        ambush.lie()
    with contextlib.closing(Slot(plan, 0)) as slot:
        slot.run(lease, bell=bell.fileno())
    peak.put(peak_memory())
