"""A flow from top to bottom: one source, one target, one streaming query.

Main type: `Flow`. Its order of work: reach both clusters, find topics and make their
copies, become the only writer, then run one streaming query whose micro-batches are
leases, while a thread looks for new topics. Any failure ends `run`; whoever called
it decides when to run again. How a lease is carried out is `relay`'s duty.
"""

from __future__ import annotations

import contextlib
from functools import reduce
import re
import shutil
import threading
import time
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, functions
import structlog

from mirror.clusters import admin
from mirror.clusters.cluster import Cluster
from mirror.complaint import Complaint
from mirror.errors import ClusterError, FlowError
from mirror.leases import Bell, assign, slots_for
from mirror.metadata import topics
from mirror.observe.status import FlowState
from mirror.relay.lease import Assignment, Lease, Plan
from mirror.relay.ownership import take_ownership
from mirror.relay.report import SQL_SCHEMA, from_row
from mirror.relay.task import RelayTask, lease_to_row
from mirror.scoreboard import Scoreboard

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from mirror.config.schema import ClusterConfig, FlowConfig, ServiceConfig
    from mirror.metadata.topics import TopicsResult
    from mirror.observe.status import Board
    from mirror.relay.report import PartitionReport

log = structlog.get_logger()

_GRACE_SECONDS = 10.0
"""How long a lease may take beyond its length before it is given up."""
_COLD_SECONDS = 60.0
"""The same for the first lease, which waits for workers to start."""
_STOP_SECONDS = 4.0
"""How long running transactions get to finish when a flow must stop."""
_WARM_UP_LEASES = 5
_WARM_UP_SECONDS = 0.5
_PYTHON_ERROR = re.compile(r"(\w+\.)*\w+(Error|Exception): .")
# Spark reads its `environment` when a function is wrapped: one flow at a time.
_wrapping = threading.Lock()


class Flow:
    """Mirrors one cluster into another until told to stop."""

    def __init__(
        self,
        flow: FlowConfig,
        source: ClusterConfig,
        target: ClusterConfig,
        *,
        board: Board,
        service: ServiceConfig,
        once: bool = False,
    ) -> None:
        self.config = flow
        self.name = flow.name
        self._clusters = (source, target)
        self._board = board
        self._checkpoint = service.state_dir / f"{flow.source}-to-{flow.target}"
        self.log_settings = (service.log_level, service.log_format)
        self._complaint = Complaint()
        self._once = once
        self._stopping = threading.Event()
        self._scores = Scoreboard()
        self._run: _Run | None = None

    def stop(self) -> None:
        """Finish the running transactions and end `run`. Returns at once."""
        self._stopping.set()
        if self._run is not None:
            self._run.end()

    def run(self, spark: SparkSession) -> bool:
        """Mirror until stopped, or with `once` until caught up.

        Returns whether to run again at once: another slot count is wanted.

        Raises:
            MirrorError: the flow cannot go on now; run it again to recover.
        """
        self._board.update(self.name, state=FlowState.STARTING, reason="")
        with contextlib.ExitStack() as stack:
            source, target = (
                Cluster(config, client_id=f"mirror.{self.name}")
                for config in self._clusters
            )
            stack.callback(source.close)
            stack.callback(target.close)
            source.connect()
            target.connect()
            if source.cluster_id == target.cluster_id:
                raise FlowError(
                    f"flow {self.name}: {source.alias} and {target.alias} are one and "
                    f"the same cluster ({source.cluster_id}); it would copy its copies"
                )
            found = self.discover(source, target)
            slots = slots_for(_partitions(found), self.config.tasks)
            generation = take_ownership(
                self.config,
                source,
                target,
                slots=slots,
                partitions={
                    (topic.topic, partition): topic.topic_id
                    for topic in found.topics
                    for partition in range(topic.partitions)
                },
            )
            log.info("flow starts", flow=self.name, slots=slots,
                     topics=len(found.topics))  # fmt: skip
            plan = Plan(
                flow=self.config,
                source=self._clusters[0],
                target=self._clusters[1],
                source_id=source.cluster_id,
                target_id=target.cluster_id,
            )
            ends = _ends(source, found) if self._once else None
            run = _Run(spark, self, plan, generation=generation, slots=slots, ends=ends)
            stack.callback(run.close)
            run.update(found)
            self._run = run
            if self._stopping.is_set():
                return False
            shutil.rmtree(self._checkpoint, ignore_errors=True)
            query = run.start(self._checkpoint)
            try:
                self._watch(query, run, source, target)
            finally:
                self._run = None
                run.stop(query)
        return run.again

    def discover(self, source: Cluster, target: Cluster) -> TopicsResult:
        """Look for topics once, and say what changed."""
        found = topics.sync(source, target, self.config)
        for name in found.created:
            log.info("target topic created", flow=self.name, topic=name)
        for name in found.grown:
            log.info("target topic grown", flow=self.name, topic=name)
        self._board.update(self.name, problems=found.problems)
        return found

    def took(
        self, reports: list[PartitionReport], *, lease: int, slots: int, gap: float
    ) -> None:
        """Show what one lease did."""
        self._board.update(
            self.name,
            state=FlowState.RUNNING,
            reason="",
            leases=lease,
            slots=slots,
            lease_gap_ms=gap * 1000,
            partitions=self._scores.add(reports),
        )

    def _watch(
        self, query: StreamingQuery, run: _Run, source: Cluster, target: Cluster
    ) -> None:
        """Look for new topics until the query ends, fails, or must end."""
        while not run.over.wait(self.config.refresh_topics_seconds):
            if not query.isActive:
                break
            try:
                run.update(self.discover(source, target))
                self._complaint.clear()
            except ClusterError as error:
                # Leases go on and say themselves whether they can still copy.
                if self._complaint.due(str(error)):
                    log.warning("looking for topics failed", flow=self.name,
                                error=str(error))  # fmt: skip
        if not run.ended.is_set():
            raise FlowError(f"flow {self.name}: {run.failure or _cause(query)}")


class _Run:
    """One driver run of a flow: its query, its leases, under one generation."""

    def __init__(
        self,
        spark: SparkSession,
        flow: Flow,
        plan: Plan,
        *,
        generation: str,
        slots: int,
        ends: dict[tuple[str, int], int] | None,
    ) -> None:
        self.ended = threading.Event()
        """Set once it shall end."""
        self.over = threading.Event()
        """Set once it shall end or has failed."""
        self.failure = ""
        self.again = False
        self.bell = Bell(spark.conf.get("spark.driver.host") or "127.0.0.1")
        self._spark = spark
        self._flow = flow
        self._task = RelayTask(
            plan=plan, bell=self.bell.address, log_settings=flow.log_settings
        )
        self._generation = generation
        self._slots = slots
        self._ends = ends
        self._assignments: tuple[Assignment, ...] = ()
        self._placed: dict[tuple[str, int], int] = {}
        self._number = 0
        self._finished_at: float | None = None
        self._query: StreamingQuery | None = None
        self._idle = threading.Event()
        self._idle.set()

    def start(self, checkpoint: Path) -> StreamingQuery:
        ticks = (
            self._spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", 1)
            .option("numPartitions", 1)
            .load()
        )
        self._query = (
            ticks.writeStream.queryName(self._flow.name)
            .foreachBatch(self._lease)
            .option("checkpointLocation", str(checkpoint))
            .start()
        )
        return self._query

    def update(self, found: TopicsResult) -> None:
        """Mirror these topics from the next lease on; if they are new, from now on."""
        assignments = tuple(
            Assignment(
                topic=topic.topic,
                partition=partition,
                target_topic=topic.target_topic,
                topic_id=topic.topic_id,
            )
            for topic in found.topics
            for partition in range(topic.partitions)
        )
        if assignments == self._assignments:
            return
        self._assignments = assignments
        if slots_for(len(assignments), self._flow.config.tasks) != self._slots:
            self.again = True  # another slot count needs a new generation
            self.end()
        elif self._query is not None:
            self.bell.ring()

    def end(self) -> None:
        """No further lease; the running one ends within its transaction."""
        self.ended.set()
        self.over.set()
        self.bell.ring()

    def stop(self, query: StreamingQuery) -> None:
        """End the query: after its lease, or after a while without waiting."""
        self.end()
        if not self._idle.wait(_STOP_SECONDS):
            log.warning("lease does not end: stopping it", flow=self._flow.name)
        try:
            query.stop()
        except PySparkException as error:
            log.warning("query does not stop", flow=self._flow.name,
                        error=_short(error))  # fmt: skip

    def close(self) -> None:
        self.bell.close()

    def _lease(self, _ticks: DataFrame, _batch: int) -> None:
        """One lease: this is the streaming query's micro-batch."""
        self._idle.clear()
        try:
            self.bell.mute()
            # After muting: `end` sets this before it rings.
            if not self.ended.is_set():
                self._carry_out()
        finally:
            self._idle.set()

    def _carry_out(self) -> None:
        started = time.monotonic()
        gap = started - self._finished_at if self._finished_at else 0.0
        self._number += 1
        seconds = self._seconds()
        frame = self._frame(seconds)
        grace = _GRACE_SECONDS if self._number > 1 else _COLD_SECONDS
        overdue = threading.Timer(seconds + grace, self._give_up)
        overdue.start()
        try:
            reports = [from_row(row) for row in frame.collect()]
        except Exception as error:  # noqa: BLE001  whatever Spark raises for a job
            if self.ended.is_set():
                return
            # Short, and without its cause: see spark.driver.extraJavaOptions.
            self.failure = _short(error)
            self.over.set()
            raise FlowError(self.failure) from None
        finally:
            overdue.cancel()
            self._finished_at = time.monotonic()
        self._flow.took(reports, lease=self._number, slots=self._slots, gap=gap)
        if self._ends is not None and self._caught_up(reports):
            self.end()

    def _seconds(self) -> float:
        longest = self._flow.config.lease_seconds
        if self._ends is not None:
            longest = min(longest, 1.0)
        if self._number <= _WARM_UP_LEASES:
            return min(longest, _WARM_UP_SECONDS)
        return longest

    def _frame(self, seconds: float) -> DataFrame:
        """One single-partition frame per slot, each with a worker of its own."""
        spread = assign(self._assignments, self._slots, self._placed)
        self._placed = {
            (a.topic, a.partition): slot for slot, part in spread.items() for a in part
        }
        context = self._spark.sparkContext
        frames = []
        with _wrapping:
            for slot, part in spread.items():
                lease = Lease(
                    slot=slot,
                    number=self._number,
                    generation=self._generation,
                    seconds=seconds,
                    assignments=part,
                )
                # Part of the key of Spark's worker pools: the slot stays warm in one
                # process.
                context.environment["MIRROR_SLOT"] = f"{self._flow.name}/{slot}"
                frames.append(
                    self._spark.range(0, 1, 1, 1)
                    .select(functions.lit(lease_to_row(lease)).alias("lease"))
                    .mapInArrow(self._task, SQL_SCHEMA)
                )
            context.environment.pop("MIRROR_SLOT", None)
        return reduce(DataFrame.union, frames)

    def _give_up(self) -> None:
        """A task hangs: end the query, so that the next run of the flow fences it."""
        log.error("lease overdue: giving it up", flow=self._flow.name,
                  lease=self._number)  # fmt: skip
        if self._query is not None:
            self._spark.sparkContext.cancelJobGroup(str(self._query.runId))

    def _caught_up(self, reports: list[PartitionReport]) -> bool:
        assert self._ends is not None
        return all(
            report.state == "FAULTED"
            or report.position >= self._ends.get((report.topic, report.partition), 0)
            for report in reports
        )


def _partitions(found: TopicsResult) -> int:
    return sum(topic.partitions for topic in found.topics)


def _ends(source: Cluster, found: TopicsResult) -> dict[tuple[str, int], int]:
    return admin.list_offsets(
        source,
        [(t.topic, p) for t in found.topics for p in range(t.partitions)],
        timestamp=admin.LATEST,
    )


def _cause(query: StreamingQuery) -> str:
    error = query.exception()
    return _short(error) if error is not None else "its streaming query ended"


def _short(error: BaseException) -> str:
    """The line of an error that says what happened; Spark's texts run to kilobytes."""
    lines = str(error).splitlines() or [type(error).__name__]
    python = [line for line in lines if _PYTHON_ERROR.match(line)]
    if python:
        return python[-1].removeprefix("mirror.errors.FlowError: ").strip()[:300]
    # A worker that died leaves only Java's view: causes within one line, last first.
    java = [
        line.rpartition("Exception: ")[2] for line in lines if "Exception: " in line
    ]
    return (java or lines)[0].strip().split(". ")[0][:300]
