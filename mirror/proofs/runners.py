"""Carries out the tasks of a proof: calls without arguments that can be pickled.

Main types: `Runner`, what all of them can do; `InProcess`, which needs nothing else and
is enough for a few records; `SparkRunner`, for a Spark session of its own: each task is
a Spark job of one task, some at a time, so that none waits for the slowest of a wave,
and one whose process dies is done again alone; and `BesideSlots`, for one task in the
session of a service, in a process that no slot uses. `OutOfReach` knows which tasks
need not be tried. Spark is loaded only where it is used.
"""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from itertools import islice
import os
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from mirror.clusters import codes
from mirror.clusters.topics import same_topic
from mirror.errors import ClusterError, MirrorError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    import uuid

    from py4j.protocol import Py4JJavaError
    from pyspark.sql import SparkSession

    from mirror.clusters.cluster import Cluster
    from mirror.proofs.account import CopiedPartition


log = structlog.get_logger()
_ATTEMPTS = 3
_NAME = "mirror-verify"
_NICENESS = 10
"""Slots go first where there are fewer cores than processes."""


class Runner(Protocol):
    """Carries out tasks somewhere."""

    def results(self, tasks: Iterable[Callable[[], Any]]) -> Iterator[Any]:
        """What the tasks return, as they end."""


class InProcess:
    """Carries them out here, one by one."""

    def results(self, tasks: Iterable[Callable[[], Any]]) -> Iterator[Any]:
        """What the tasks return, in order."""
        for task in tasks:
            yield task()


class SparkRunner:
    """Runs tasks in the processes of a Spark session."""

    def __init__(self, spark: SparkSession, *, at_once: int) -> None:
        self._context = spark.sparkContext
        self._at_once = at_once
        self._cancelled = False

    def results(self, tasks: Iterable[Callable[[], Any]]) -> Iterator[Any]:
        """What the tasks return, as they end.

        Raises:
            ClusterError: a cluster does not let a task do its work.
            MirrorError: a task failed several times.
        """
        waiting = iter(tasks)
        with ThreadPoolExecutor(self._at_once) as pool:
            running: set[Future[Any]] = set()
            try:
                while True:
                    room = 2 * self._at_once - len(running)
                    running |= {
                        pool.submit(self._run, pickled(task))
                        for task in islice(waiting, room)
                    }
                    if not running:
                        return
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    for each in done:
                        yield each.result()
            except (KeyboardInterrupt, GeneratorExit):  # which wait for no task
                self._cancelled = True
                pool.shutdown(wait=False, cancel_futures=True)
                self._context.cancelAllJobs()
                raise

    def _run(self, task: Callable[[], Any]) -> Any:
        from py4j.protocol import Py4JJavaError  # noqa: PLC0415  with Spark

        for attempt in range(1, _ATTEMPTS + 1):
            try:
                result, problem = self._carry_out(task)
            except Py4JJavaError as error:
                reason = _reason(error)
                if attempt == _ATTEMPTS or self._cancelled:
                    raise MirrorError(
                        f"a task of the proof failed: {reason}"
                    ) from error
                log.warning("a task of the proof failed; once more", reason=reason)
            else:
                if problem:
                    raise ClusterError(problem)
                return result
        raise AssertionError

    def _carry_out(self, task: Callable[[], Any]) -> tuple[Any, str]:
        one = self._context.parallelize([0], 1)
        ((result, problem),) = one.map(lambda _: _outcome(task)).collect()
        return result, problem


class BesideSlots(SparkRunner):
    """Runs one task at a time on a core that no slot needs."""

    def __init__(self, spark: SparkSession, place: Callable[[], str | None]) -> None:
        """`place`: where to run the next one; None: anywhere."""
        super().__init__(spark, at_once=1)
        self._spark = spark
        self._place = place

    def results(self, tasks: Iterable[Callable[[], Any]]) -> Iterator[Any]:
        """What the tasks return, in order.

        Raises:
            MirrorError: as `SparkRunner`, or it was cancelled.
        """
        for task in tasks:
            self._cancelled = False
            yield self._run(task)

    def warm_up(self) -> None:
        """Start the process: slots cannot start theirs meanwhile, which takes a second,
        and a lease that ends just then would be followed by a pause.
        """
        from py4j.protocol import Py4JJavaError  # noqa: PLC0415  with Spark

        try:
            self._carry_out(lambda: None)  # it only needs a process
        except Py4JJavaError as error:
            log.warning("the process of proofs does not start", reason=_reason(error))

    def cancel(self) -> None:
        """End the running task: Spark kills its process."""
        self._cancelled = True
        self._context.cancelJobGroup(_NAME)

    def _carry_out(self, task: Callable[[], Any]) -> tuple[Any, str]:
        from mirror.service.executors import alone  # noqa: PLC0415  with Spark

        self._context.setJobGroup(_NAME, "proves copies", interruptOnCancel=True)
        self._context.setLocalProperty("spark.scheduler.pool", _NAME)
        found: tuple[Any, str] = alone(
            self._spark, _NAME, lambda: _behind_slots(task), self._place()
        )
        return found


def _reason(error: Py4JJavaError) -> str:
    """The first line of what Spark says."""
    return str(error.java_exception.getMessage()).split("\n", 1)[0]


def pickled(task: Callable[[], Any]) -> Callable[[], Any]:
    """The same, as small as it travels: the runs of a range take an eighth."""
    from pyspark.serializers import CloudPickleSerializer  # noqa: PLC0415  with Spark

    return partial(_unpickled, CloudPickleSerializer().dumps(task))


def _unpickled(task: bytes) -> Any:
    from pyspark.serializers import CloudPickleSerializer  # noqa: PLC0415  with Spark

    return CloudPickleSerializer().loads(task)()


def _behind_slots(task: Callable[[], Any]) -> tuple[Any, str]:
    os.setpriority(os.PRIO_PROCESS, 0, _NICENESS)
    return _outcome(task)


def _outcome(task: Callable[[], Any]) -> tuple[Any, str]:
    """What a task returns, or what is wrong: exceptions of ours need not survive a trip
    through Spark.
    """
    try:
        return task(), ""
    except MirrorError as error:
        return None, str(error)


# ---- what can no longer be compared ----
#
# A task waits for a minute until a cluster answers, or a topic is there. One such wait
# is enough: ranges that would end the same way are not tried.


class OutOfReach:
    """For one proof. Uses the connections of its driver."""

    def __init__(self, source: Cluster, target: Cluster) -> None:
        self._source, self._target = source, target
        self._reasons: dict[tuple[str | int, ...], str] = {}
        """By what is gone: a partition, a topic, or all of a cluster."""

    def reason(self, of: CopiedPartition) -> str:
        """Why a partition need not be tried; empty if it may work."""
        for gone in ((), (of.topic,), (of.topic, of.partition)):
            if reason := self._reasons.get(gone):
                return reason
        return ""

    def note(self, of: CopiedPartition, reason: str) -> None:
        """A task failed for this reason: look what else it concerns."""
        if self.reason(of):
            return
        for cluster, topic, topic_id in (
            (self._source, of.topic, of.topic_id),
            (self._target, of.target_topic, of.copy_id),
        ):
            try:
                gone = _gone(cluster, topic, topic_id, of.partition)
            except UnreachableError:
                self._reasons[()] = reason
                return
            except ClusterError:
                continue  # this task's own reason says it better
            if gone:
                self._reasons[of.topic, *gone[1:]] = reason
                return


def _gone(
    cluster: Cluster, topic: str, topic_id: uuid.UUID, partition: int
) -> tuple[str | int, ...]:
    """The topic or the partition, if it is not there; else nothing."""
    shown = cluster.topics([topic])[topic]
    other = not same_topic(topic_id, shown.topic_id)
    if shown.error == codes.UNKNOWN_TOPIC_OR_PARTITION or other:
        return (topic,)
    leader = shown.leaders.get(partition)
    return () if leader is not None and leader.node >= 0 else (topic, partition)
