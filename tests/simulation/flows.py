"""The real code in a model: a driver that leases, and workers with slots.

Main type: `SimulatedFlow`. Each worker is a process with one slot, like Spark's; the
driver is a process as well. A process that dies is replaced after a while; one that
was only suspended goes on beside its replacement.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from mirror.clusters.admin import topic_admin
from mirror.clusters.cluster import Cluster
from mirror.copying.lease import Assignment, Lease, LeasePlan
from mirror.copying.slot import Slot
from mirror.errors import ClusterError, MirrorError
from mirror.offsets import progress
from mirror.offsets.groups import Copy, copy_of
from mirror.proofs import prefix
from mirror.service import groups, same_offsets
from mirror.service.groups import GroupJobs
from mirror.service.leases import Credit
from mirror.service.ownership import take_ownership
from mirror.service.same_offsets import PaddingJob
from mirror.service.taking_up import Comparisons
from mirror.status.store import StatusStore
from mirror.topics import topics
from mirror.topics.merging import Merging
from tests.harness.configurations import configuration
from tests.simulation.world import Process, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirror.copying.lease import PartitionReport
    from mirror.service.same_offsets import SameOffsets
    from tests.simulation.model import ModelCluster

SOURCE, TARGET = "A", "B"
_OVERDUE_SECONDS = 12.0
_RESTART_SECONDS = 0.5
_GAPS = (0.01, 0.2, 1.5)
"""Seconds between two leases."""
_CREDITS = (0.0, 0.1, 1.0)
"""How long a slot copies on; a suspended one does it later."""
_CREDIT_STEP_SECONDS = 0.05
_JOB_SECONDS = 1.0
_ELSEWHERE = 0.05
"""How often Spark has another process run a slot's next lease."""


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
        self._busy = self._wanted = False

    def run(self, plan: LeasePlan, lease: Lease, *, credit_seconds: float) -> None:
        """Copy for one lease, in its own thread, and on credit after it as `Copier`
        does.
        """
        self.reports, self.error = None, None
        self._wanted = True

        def body() -> None:
            self._world.wait(lambda: not self._busy, _OVERDUE_SECONDS)
            if self._busy:
                return
            self._busy, self._wanted = True, False
            try:
                self._carry_out(plan, lease, credit_seconds)
            except MirrorError as error:
                self.error = error
            self._busy = False

        self._world.start(self.process, body)

    def _carry_out(self, plan: LeasePlan, lease: Lease, credit_seconds: float) -> None:
        if self._slot is None:
            self._slot = Slot(plan, self.number)
        self.reports = self._slot.run(lease)
        end = self._world.now + credit_seconds
        going = self._slot.on_credit
        while going and not self._wanted and self._world.now < end:
            going = self._slot.copy_on(_CREDIT_STEP_SECONDS)
        if not self._wanted:
            self._slot.finish(lambda: self._wanted)

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
        self._created: set[str] = set()
        """Copies that the last looks have made."""
        self.waiting: set[tuple[str, int]] = set()
        """Source partitions that are not copied until a run decides how."""
        self._most_slots = most_slots
        self._lease_seconds = lease_seconds
        self._serial = 0
        name = f"{SOURCE}->{TARGET}"
        self.config = configuration(
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

    def begin_jobs(self) -> None:
        """Start the flow's job for groups; when it dies, another one."""
        self._start("jobs", self._look_at_groups, again=self.begin_jobs)

    def _look_at_groups(self) -> None:
        """Once a second, as the service does."""
        flow, merging = self.flow, Merging([self.flow])
        copies: dict[str, Copy] = {}
        jobs = GroupJobs(
            flow,
            lambda: copies,
            store=StatusStore((flow.name,)),
            tell=lambda name, problems: self.world.note(f"{name}: {problems}"),
        )
        (work,) = (job.work for job in jobs.jobs() if job.name == groups.CHECKPOINTS)
        while True:
            try:
                with self._connected() as (source, target):
                    while True:
                        found = topics.select(source, flow).topics
                        copies.clear()
                        copies.update(
                            (
                                each.topic,
                                copy_of(
                                    flow, each.topic, each.target_topic,
                                    each.partitions, merging,
                                ),
                            )
                            for each in found
                        )  # fmt: skip
                        work(source, target)
                        self.world.sleep(_JOB_SECONDS)
            except MirrorError as error:
                self.world.note(f"{self.world.process.name} failed: {error}")
                self.world.sleep(_JOB_SECONDS)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[tuple[Cluster, Cluster]]:
        with (
            contextlib.closing(
                Cluster(self.config.clusters[SOURCE]).connect()
            ) as source,
            contextlib.closing(
                Cluster(self.config.clusters[TARGET]).connect()
            ) as target,
        ):
            yield source, target

    @property
    def beyond_help(self) -> set[tuple[str, int]]:
        """Partitions of which the flow says that only a person can end a transaction
        there: with v1, epochs do not tell a producer's transactions apart.
        """
        return {
            (report.topic, report.partition)
            for report in self.reports
            if "no longer know whether it was committed" in report.reason
        }

    @property
    def diverged(self) -> set[tuple[str, int]]:
        """Source partitions of which the flow says that their copies must be made
        again.
        """
        return {
            (report.topic, report.partition)
            for report in self.reports
            if "cannot have the source's offsets" in report.reason
        }

    def begin(self) -> None:
        """Start a driver; when it dies, another one."""
        self._comparisons = Comparisons(prefix.difference)
        self.driver = self._start("driver", self._drive, again=self.begin)

    def _start(
        self, name: str, body: Callable[[], None], *, again: Callable[[], None]
    ) -> Process:
        """A new process, after whose death `again` is called."""
        self._serial += 1
        process = Process(f"{name} {self._serial}")
        self.everyone.append(process)
        self.world.start(process, body)
        self._watch(process, again)
        return process

    def _watch(self, process: Process, begin: Callable[[], None]) -> None:
        def look() -> None:
            if not process.alive:
                self.world.note(f"{process.name} is replaced")
                begin()
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
        with self._connected() as (source, target):
            assignments = self._assignments(source, target)
            slots = self.world.random.randint(1, self._most_slots)
            with progress.reading_once():
                owned = take_ownership(
                    self.flow,
                    source,
                    target,
                    slots=slots,
                    partitions={
                        (a.topic, a.partition): a.topic_id for a in assignments
                    },
                )
            same = same_offsets.decide(
                self.flow, self.config, source, target,
                topics.select(source, self.flow).topics, owned=owned,
                compared=self._comparisons.found,
            )  # fmt: skip
            self._created.clear()
            if same.comparing:
                self._comparisons.begin(self.flow, self.config, same.comparing)
                while not self._comparisons.over:
                    self._comparisons.turn(source, target)
                    self.world.sleep(1.0)
                raise ClusterError("a copy was compared")
            if same.padding:
                PaddingJob(self.flow, same, padded=lambda: None).turn(source, target)
                raise ClusterError("a copy was padded")
            assignments = self._written_as(same, assignments)
            self.world.note(f"{self.world.process.name} owns the flow")
            plan = LeasePlan(
                flow=self.flow,
                source=self.config.clusters[SOURCE],
                target=self.config.clusters[TARGET],
                source_id=source.cluster_id,
                target_id=target.cluster_id,
                slot_ids=owned.slot_ids,
            )
            workers: dict[int, _Worker] = {}
            credit = Credit(possible=True)  # at least once: see `_lease`
            newest = assignments
            number = 0
            while True:
                number += 1
                closes = credit.must_end(before=newest != assignments)
                if not closes:
                    assignments = newest
                lease = Lease(
                    slot=0,
                    number=number,
                    generation=owned.run,
                    seconds=0.0 if closes else self._lease_seconds,
                    assignments=assignments,
                    credit=credit.possible and not closes,
                )
                credit.learn(self._lease(plan, workers, lease, slots=slots))
                if not all(each.process.alive for each in workers.values()):
                    credit.given = credit.possible  # nothing says who is fenced
                if closes and credit.given:
                    raise ClusterError("a slot on credit may not be fenced")
                if number % 3 == 0:
                    # Topics grow, and are made again under the same name, and
                    # partitions move from slot to slot.
                    newest = (
                        self._written_as(same, self._look(source, target), again=True)
                        or newest
                    )
                    first = self.world.random.randrange(slots)
                    newest = newest[first:] + newest[:first]
                self.world.sleep(self.world.random.choice(_GAPS))

    def _written_as(
        self, same: SameOffsets, found: tuple[Assignment, ...], *, again: bool = False
    ) -> tuple[Assignment, ...]:
        """With the terms of copies, as `Assignments` makes them. `again`: some time
        after it was decided about them.

        Raises:
            ClusterError: another run has to decide about a topic.
        """
        if same is same_offsets.NONE:
            return found
        self.waiting = {
            (each.topic, each.partition) for each in found if each.topic in same.waiting
        }
        created, self._created = self._created, set()
        if any(each.target_topic in created for each in found):
            raise ClusterError("a copy was deleted")
        if any(not same.knows(each.topic) for each in found):
            raise ClusterError("a topic is new")
        if same.waiting and again:
            raise ClusterError("a topic waits for a decision")
        return tuple(
            replace(
                each,
                term=None
                if (note := same.notes.get(each.topic)) is None
                else note.term(each.partition),
            )
            for each in found
            if each.topic not in same.waiting
        )

    def _look(self, source: Cluster, target: Cluster) -> tuple[Assignment, ...]:
        """New assignments; none if a cluster does not answer, which ends no run."""
        try:
            return self._assignments(source, target)
        except ClusterError as error:
            name = self.world.process.name
            self.world.note(f"{name}: looking for topics failed: {error}")
            return ()

    def _assignments(self, source: Cluster, target: Cluster) -> tuple[Assignment, ...]:
        found = topics.select(source, self.flow).topics
        for each in found:
            new = topic_admin.NewTopic(
                name=each.target_topic, partitions=each.partitions,
                replication_factor=-1,
            )  # fmt: skip
            made = topic_admin.create_topics(target, [new])
            for refusal in made.refused.values():
                raise refusal
            self._created.update(made.created)
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
        lease: Lease,
        *,
        slots: int,
    ) -> list[PartitionReport]:
        """Carry out a lease; `lease` has the partitions of all slots."""
        random = self.world.random
        for slot in range(slots):
            worker = workers.get(slot)
            # At least once has one executor, as where it gives credit.
            elsewhere = random.random() < _ELSEWHERE and self.flow.exactly_once
            if worker is None or not worker.process.alive or elsewhere:
                self._serial += 1
                worker = workers[slot] = _Worker(self.world, slot, self._serial)
                self.everyone.append(worker.process)
                self.workers.append(worker)
            worker.run(
                plan,
                replace(lease, slot=slot, assignments=lease.assignments[slot::slots]),
                credit_seconds=random.choice(_CREDITS),
            )
        self.world.wait(
            lambda: all(worker.done for worker in workers.values()),
            lease.seconds + _OVERDUE_SECONDS,
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
        return self.reports
