"""The real code in a model: a driver that leases, and workers with slots.

Main type: `SimulatedFlow`. Each worker is a process with one slot, like Spark's; the
driver is a process as well. Whatever dies is replaced after a while, whoever was only
suspended goes on beside its replacement.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from mirror.clusters.admin import topic_admin
from mirror.clusters.cluster import Cluster
from mirror.config.schema import MirrorConfig
from mirror.driver.ownership import take_ownership
from mirror.errors import MirrorError
from mirror.metadata import topics
from mirror.relay.lease import Assignment, Lease, LeasePlan
from mirror.relay.slot import Slot
from tests.simulation.world import Process, World

if TYPE_CHECKING:
    from mirror.relay.report import PartitionReport
    from tests.simulation.model import ModelCluster

SOURCE, TARGET = "A", "B"
_OVERDUE_SECONDS = 12.0
_RESTART_SECONDS = 0.5


class LeaseOverdueError(Exception):
    """A worker did not come back with its report."""


class _Worker:
    """A process with one slot."""

    def __init__(self, world: World, number: int, serial: int) -> None:
        self.process = Process(f"worker {number}.{serial}")
        self.number = number
        self.reports: list[PartitionReport] | None = None
        self.error: BaseException | None = None
        self._world = world
        self._slot: Slot | None = None

    def run(self, plan: LeasePlan, lease: Lease) -> None:
        """Copy for one lease, in its own thread."""
        self.reports, self.error = None, None

        def body() -> None:
            if self._slot is None:
                self._slot = Slot(plan, self.number)
            try:
                self.reports = self._slot.run(lease)
            except MirrorError as error:
                self.error = error

        self._world.start(self.process, body, self.process.name)

    @property
    def done(self) -> bool:
        return (
            self.reports is not None or self.error is not None or not self.process.alive
        )


class SimulatedFlow:
    """One flow from `SOURCE` to `TARGET`."""

    def __init__(
        self,
        source: ModelCluster,
        target: ModelCluster,
        *,
        most_slots: int,
        lease_seconds: float,
        settings: dict[str, object],
    ) -> None:
        self.world = source.world
        self.workers: list[_Worker] = []
        self.everyone: list[Process] = []
        """All processes that there have been, the driver's among them."""
        self.reports: list[PartitionReport] = []
        """Of the last lease that ended well."""
        self.leases = 0
        self._most_slots = most_slots
        self._lease_seconds = lease_seconds
        self._serial = 0
        name = f"{SOURCE}->{TARGET}"
        self.config = MirrorConfig.model_validate(
            {
                "clusters": {
                    alias: {
                        "bootstrap_servers": cluster.bootstrap,
                        "request_timeout_seconds": 3,
                    }
                    for alias, cluster in ((SOURCE, source), (TARGET, target))
                },
                "flows": {
                    name: {
                        "topics": ["t.*"],
                        "on_loss": "continue",
                        "on_recreated_topic": "continue",
                        **settings,
                    }
                },
            }
        )
        self.flow = self.config.flows[name]

    driver: Process

    @property
    def beyond_help(self) -> set[tuple[str, int]]:
        """Partitions of which the flow says that only a person can end a transaction
        there. With v1, epochs do not tell a producer's transactions apart; with v2, a
        process that fences an id and dies takes along how its transaction ended.
        """
        return {
            (report.topic, report.partition)
            for report in self.reports
            if "no longer know whether it was committed" in report.reason
        }

    def begin(self) -> None:
        """Start a driver; when it dies, another one."""
        self._serial += 1
        process = Process(f"driver {self._serial}")
        self.everyone.append(process)
        self.driver = process
        self.world.start(process, self._drive, process.name)
        self._watch(process)

    def _watch(self, process: Process) -> None:
        def look() -> None:
            if not process.alive:
                self.world.note(f"{process.name} is replaced")
                self.begin()
            else:
                self.world.after(1.0, look)

        self.world.after(1.0, look)

    def _drive(self) -> None:
        while True:
            try:
                self._run()
            except (MirrorError, LeaseOverdueError) as error:
                self.world.note(f"{self.world.process.name} restarts: {error}")
                self.world.sleep(_RESTART_SECONDS)

    def _run(self) -> None:
        """One run: own the flow, then lease until something is wrong."""
        with (
            contextlib.closing(
                Cluster(self.config.clusters[SOURCE]).connect()
            ) as source,
            contextlib.closing(
                Cluster(self.config.clusters[TARGET]).connect()
            ) as target,
        ):
            assignments = self._assignments(source, target)
            slots = self.world.random.randint(1, self._most_slots)
            generation = take_ownership(
                self.flow,
                source,
                target,
                slots=slots,
                partitions={(a.topic, a.partition): a.topic_id for a in assignments},
            ).text
            self.world.note(f"{self.world.process.name} owns the flow")
            plan = LeasePlan(
                flow=self.flow,
                source=self.config.clusters[SOURCE],
                target=self.config.clusters[TARGET],
                source_id=source.cluster_id,
                target_id=target.cluster_id,
            )
            workers: dict[int, _Worker] = {}
            number = 0
            while True:
                number += 1
                self._lease(plan, workers, generation, number, assignments, slots=slots)
                if number % 3 == 0:
                    # Topics grow, and are made again under the same name.
                    assignments = self._assignments(source, target)

    def _assignments(self, source: Cluster, target: Cluster) -> tuple[Assignment, ...]:
        found = topics.select(source, self.flow).topics
        for each in found:
            topic_admin.create_topic(
                target, each.target_topic, partitions=each.partitions,
                replication_factor=-1,
            )  # fmt: skip
            target.wait_for_topic(each.target_topic)
        return tuple(
            Assignment(
                topic=each.topic,
                partition=number,
                target_topic=each.target_topic,
                topic_id=each.topic_id,
            )
            for each in found
            for number in range(each.partitions)
        )

    def _lease(
        self,
        plan: LeasePlan,
        workers: dict[int, _Worker],
        generation: str,
        number: int,
        assignments: tuple[Assignment, ...],
        *,
        slots: int,
    ) -> None:
        for slot in range(slots):
            worker = workers.get(slot)
            if worker is None or not worker.process.alive:
                self._serial += 1
                worker = workers[slot] = _Worker(self.world, slot, self._serial)
                self.everyone.append(worker.process)
                self.workers.append(worker)
            worker.run(
                plan,
                Lease(
                    slot=slot,
                    number=number,
                    generation=generation,
                    seconds=self._lease_seconds,
                    assignments=assignments[slot::slots],
                ),
            )
        self.world.wait(
            lambda: all(worker.done for worker in workers.values()),
            self._lease_seconds + _OVERDUE_SECONDS,
        )
        for worker in workers.values():
            if worker.error is not None:
                raise worker.error
            if not worker.process.alive:
                continue
            if not worker.done:
                raise LeaseOverdueError(f"{worker.process.name} is overdue")
        self.leases += 1
        self.reports = [
            report for worker in workers.values() for report in worker.reports or ()
        ]
