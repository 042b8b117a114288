"""A flow without Spark: what its driver decides, and slots that copy for it.

`SparklessFlow` finds the topics, makes their copies and takes the ownership, by the
driver's own functions, and makes slots and leases. A slot runs in the test's process,
`RunningLease` in a thread of it; `slot_processes` has those that run in their own.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
from dataclasses import dataclass, field, replace
import os
from typing import TYPE_CHECKING, Any, Self
import uuid

from mirror.clusters.cluster import Cluster
from mirror.config.schema import MirrorConfig, for_tasks
from mirror.copying import dead_letters
from mirror.copying.lease import Assignment, Lease, LeasePlan
from mirror.copying.slot import Slot
from mirror.offsets.progress import topic_name
from mirror.service.ownership import take_ownership
from mirror.topics import topics
from tests.harness.configurations import configuration
from tests.harness.waiting import PATIENCE_SECONDS, crowd
from tests.harness.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from mirror.copying.lease import PartitionReport

TARGET = "B"
"""The target's alias."""


@dataclass(kw_only=True)
class SparklessFlow:
    """A flow into `TARGET`, or another alias. What it selects, and who may write, is
    known after `own`; a pickled flow takes that to the other process.
    """

    source: str | Mapping[str, Any]
    """An address, or a whole section of a configuration; so is the target."""
    target: str | Mapping[str, Any]
    topic: str
    """May be a pattern."""
    alias: str = field(default_factory=lambda: f"L{uuid.uuid4().hex[:6]}")
    """The source's. No other test's, unless a test names one: flows of one source share
    their progress.
    """
    timeout: float = 30.0
    """For one request, in seconds."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Further ones of the flow. Other tests' heartbeats are not copied unless they say
    so.
    """
    into: str = TARGET
    """The target's alias."""
    service: dict[str, Any] = field(default_factory=dict)
    """Settings of the service that would run it."""
    logins: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """Further entries of `clusters`, for `source_login` and `target_login`."""
    generation: str = field(init=False, repr=False)
    assignments: tuple[Assignment, ...] = field(init=False, repr=False)
    plan: LeasePlan = field(init=False, repr=False)
    leases: int = 0
    """How many there have been."""

    @property
    def name(self) -> str:
        return f"{self.alias}->{self.into}"

    @property
    def copy(self) -> str:
        return f"{self.alias}.{self.topic}"

    @property
    def progress(self) -> str:
        return topic_name(self.alias)

    def config(self) -> MirrorConfig:
        return configuration(self.document())

    def document(self) -> dict[str, Any]:
        """What its configuration file says."""
        return {
            "clusters": {
                alias: {
                    "request_timeout_seconds": self.timeout,
                    **({"bootstrap_servers": end} if isinstance(end, str) else end),
                }
                for alias, end in (
                    (self.alias, self.source),
                    (self.into, self.target),
                    *self.logins.items(),
                )
            },
            "flows": {
                self.name: {
                    "topics": [self.topic],
                    "heartbeats_replication": False,
                    **self.settings,
                }
            },
            "service": self.service,
        }

    @contextlib.contextmanager
    def connected(self) -> Iterator[tuple[Cluster, Cluster]]:
        """Its source and target."""
        config = self.config()
        with (
            contextlib.closing(
                Cluster(config.clusters[self.alias]).connect()
            ) as source,
            contextlib.closing(Cluster(config.clusters[self.into]).connect()) as target,
        ):
            yield source, target

    def own(self, *, slots: int = 1, led: bool = True) -> Self:
        """Do what a driver does before its first lease. `led`: until each copy is."""
        with self.connected() as (source, target):
            found = topics.sync(source, target, self.config().flows[self.name])
            assert not found.problems
            self.own_copies(found, source, target, slots=slots, led=led)
        return self

    def own_copies(
        self,
        found: topics.TopicsResult,
        source: Cluster,
        target: Cluster,
        *,
        slots: int = 1,
        led: bool = True,
    ) -> None:
        """Become the only writer to the copies of these topics; `led` as for `own`."""
        config = self.config()
        flow = config.flows[self.name]
        dead_letters.prepare(target, flow)
        self.assignments = tuple(
            Assignment(
                topic=each.topic,
                partition=partition,
                target_topic=each.target_topic,
                topic_id=each.topic_id,
            )
            for each in found.topics
            for partition in range(each.partitions)
        )
        ids = {(a.topic, a.partition): a.topic_id for a in self.assignments}
        owned = take_ownership(flow, source, target, slots=slots, partitions=ids)
        self.generation = owned.run
        for each in found.topics if led else ():
            target.wait_for_topic(each.target_topic)
        reads, writes = for_tasks(config, flow)
        self.plan = LeasePlan(
            flow=flow,
            source=reads,
            target=writes,
            source_id=source.cluster_id,
            target_id=target.cluster_id,
            slot_ids=owned.slot_ids,
        )

    def lease(
        self,
        seconds: float,
        *,
        slot: int = 0,
        partitions: Collection[int] | None = None,
    ) -> Lease:
        """The next one, of these partitions or of all."""
        self.leases += 1
        return Lease(
            slot=slot,
            number=self.leases,
            generation=self.generation,
            seconds=seconds,
            assignments=tuple(
                each
                for each in self.assignments
                if partitions is None or each.partition in partitions
            ),
        )

    @contextlib.contextmanager
    def slot(self) -> Iterator[Slot]:
        with contextlib.closing(Slot(self.plan, 0)) as slot:
            yield slot

    def copy_until(self, count: int, *, at: str = "") -> None:
        """Copy until an ordinary consumer finds `count` records in the copy, or in the
        topic `at`.
        """
        assert isinstance(self.target, str)
        with Witness(self.target) as witness, self.slot() as slot:
            witness.begin(at or self.copy)
            copy_until(witness, slot, self.lease(60), count=count, timeout=60)


class RunningLease:
    """A lease under way in a thread, until its wakeup is woken. It lasts as much longer
    as tests wait longer on a busy machine.
    """

    def __init__(self, slot: Slot, lease: Lease) -> None:
        self._wakeup, self._waker = os.pipe()
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        lease = replace(lease, seconds=lease.seconds * crowd())
        self._future = self._pool.submit(slot.run, lease, wakeup=self._wakeup)

    @property
    def ended(self) -> bool:
        return self._future.done()

    def end(self, timeout: float = PATIENCE_SECONDS) -> list[PartitionReport]:
        """End it and return its reports; what it raised is raised."""
        if self._wakeup >= 0:
            os.write(self._waker, b"!")
            concurrent.futures.wait([self._future], timeout)
            self._pool.shutdown()
            os.close(self._waker)
            os.close(self._wakeup)
            self._wakeup = -1
        return self._future.result(0)


def copy_until(
    witness: Witness,
    slot: Slot,
    lease: Lease,
    *,
    count: int,
    timeout: float = PATIENCE_SECONDS,
) -> list[PartitionReport]:
    """Let a slot copy until a witness finds `count` records; returns its reports."""
    running = RunningLease(slot, lease)
    try:
        witness.wait(count, timeout, running)
    finally:
        reports = running.end()
    return reports
