"""One slot that copies one topic, in the test's process or in a separate one.

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
from mirror.driver.ownership import take_ownership
from mirror.metadata import topics
from mirror.offsets.progress import topic_name
from mirror.relay import dead_letters
from mirror.relay.lease import Assignment, Lease, LeasePlan
from mirror.relay.slot import Slot
from tests.harness.waiting import PATIENCE_SECONDS
from tests.harness.witness import Order, assert_exactly_once

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from confluent_kafka import Producer

    from mirror.relay.report import PartitionReport
    from tests.harness.slots import Ambush

spawning = multiprocessing.get_context("spawn")


@dataclass(kw_only=True)
class Copying:
    """A flow of one topic, owned by the last caller of `own`."""

    source: str | Mapping[str, Any]
    """An address, or a whole section of a configuration; so is the target."""
    target: str | Mapping[str, Any]
    topic: str
    alias: str
    """Of the source; the target's is `Q`."""
    timeout: float = 30.0
    settings: dict[str, Any] = field(default_factory=dict)
    """Further ones of the flow."""
    generation: str = ""
    partitions: int = 0
    plan: LeasePlan | None = None
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
                        **({"bootstrap_servers": end} if isinstance(end, str) else end),
                        "request_timeout_seconds": self.timeout,
                    }
                    for alias, end in ((self.alias, self.source), ("Q", self.target))
                },
                "flows": {
                    f"{self.alias}->Q": {"topics": [self.topic], **self.settings}
                },
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
            dead_letters.prepare(target, flow)
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
                flow,
                source,
                target,
                slots=1,
                partitions={
                    (a.topic, a.partition): a.topic_id for a in self._assignments
                },
            )
            self.plan = LeasePlan(
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
    """A lease running in a thread, until its wakeup fires."""

    def __init__(self, slot: Slot, lease: Lease) -> None:
        self._wakeup, self._rope = os.pipe()
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        self._future = self._pool.submit(slot.run, lease, wakeup=self._wakeup)

    @property
    def ended(self) -> bool:
        return self._future.done()

    def end(self, timeout: float = PATIENCE_SECONDS) -> list[PartitionReport]:
        """End it and take its reports; what it raised is raised."""
        if self._wakeup >= 0:
            os.write(self._rope, b"!")
            concurrent.futures.wait([self._future], timeout)
            self._pool.shutdown()
            os.close(self._rope)
            os.close(self._wakeup)
            self._wakeup = -1
        return self._future.result(0)


class Witness:
    """An ordinary read_committed consumer, for one topic at a time; a context
    manager. `found` are the keys it saw since it last began.
    """

    def __init__(self, bootstrap: str) -> None:
        self.found: Order = {}
        self._topic = ""
        self._ends: dict[int, int] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "witness",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,
            }
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def begin(self, topic: str) -> None:
        """Read this topic from its beginning."""
        partitions = self._consumer.list_topics(topic, 30).topics[topic].partitions
        self.found = {number: [] for number in partitions}
        self._topic, self._ends = topic, {}
        self._consumer.assign(
            [TopicPartition(topic, p, OFFSET_BEGINNING) for p in self.found]
        )

    def wait(
        self, count: int, timeout: float, lease: RunningLease | None = None
    ) -> None:
        """Read until there are so many records."""
        end = time.monotonic() + timeout
        while (have := sum(map(len, self.found.values()))) < count:
            assert time.monotonic() < end, f"{have} of {count} in {timeout} s"
            assert lease is None or not lease.ended, f"it ended: {lease.end()}"
            self._look()

    def watch(
        self, slot: Slot, lease: Lease, count: int, timeout: float
    ) -> list[PartitionReport]:
        """Have a slot copy until there are so many records; what it reports then."""
        running = RunningLease(slot, lease)
        try:
            self.wait(count, timeout, running)
        finally:
            reports = running.end()
        return reports

    def assert_exactly(
        self, topic: str, expected: Order, timeout: float = PATIENCE_SECONDS
    ) -> None:
        """Read it again to its end, after which no transaction is open: exactly these
        keys are there, once and in order.
        """
        self.begin(topic)
        deadline = time.monotonic() + timeout
        while len(self._ends) < len(self.found) or self._ends != {
            p: self._consumer.get_watermark_offsets(TopicPartition(topic, p), 30)[1]
            for p in self.found
        }:
            assert time.monotonic() < deadline, "no end is in sight"
            self._look()
        assert_exactly_once(self.found, expected)

    def _look(self) -> None:
        for message in self._consumer.consume(5000, 0.02):
            error = message.error()
            if error is None:
                self.found[message.partition()].append(message.key())
            elif error.code() == KafkaError._PARTITION_EOF:
                self._ends[message.partition()] = message.offset()
            else:
                raise AssertionError(error)


def send(client: Producer, topic: str, order: Order, value: bytes) -> None:
    for partition, names in order.items():
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
        self._rope, wakeup = spawning.Pipe()
        self._peak: Any = spawning.SimpleQueue()
        arguments = (copying.plan, copying.lease(seconds), wakeup, self._peak, ambush)
        self.process = spawning.Process(target=_alone, args=arguments, daemon=True)
        self.process.start()
        wakeup.close()

    def end(self, timeout: float = PATIENCE_SECONDS) -> int:
        """Ring its wakeup; returns its peak memory."""
        self._rope.send_bytes(b"!")
        self.process.join(timeout)
        assert self.process.exitcode == 0
        return self._peak.get()

    def kill(self) -> None:
        self._rope.close()
        self.process.kill()
        self.process.join(10)


def _alone(plan: LeasePlan, lease: Lease, wakeup: Any, peak: Any, ambush: Any) -> None:
    # What Spark's workers have loaded as well.
    import pandas  # noqa: F401, ICN001, PLC0415
    import pyspark.worker  # noqa: F401, PLC0415

    import mirror.relay.task  # noqa: F401, PLC0415

    if ambush is not None:
        ambush.lie()
    with contextlib.closing(Slot(plan, 0)) as slot:
        slot.run(lease, wakeup=wakeup.fileno())
    peak.put(peak_memory())
