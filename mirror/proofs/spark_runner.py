"""Carries out the tasks of a proof on Spark.

Main types: `SparkRunner`, for a session of its own: each task is a Spark job of one
task, some at a time, so that none waits for the slowest of a wave, and one whose
process dies is done again alone. `BesideSlots`, for one task in the session of a
service, in a process that no slot uses.
"""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from itertools import islice
import os
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.serializers import CloudPickleSerializer
import structlog

from mirror.errors import ClusterError, MirrorError
from mirror.service.executors import alone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import SparkSession

log = structlog.get_logger()

_ATTEMPTS = 3
_NAME = "mirror-verify"
_TASKS = CloudPickleSerializer()
_NICENESS = 10
"""Slots go first where there are fewer cores than processes."""


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
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                result, problem = self._carry_out(task)
            except Py4JJavaError as error:
                reason = str(error.java_exception.getMessage()).split("\n", 1)[0]
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
        try:
            self._carry_out(_nothing)
        except Py4JJavaError as error:
            reason = str(error.java_exception.getMessage()).split("\n", 1)[0]
            log.warning("the process of proofs does not start", reason=reason)

    def cancel(self) -> None:
        """End the running task: Spark kills its process."""
        self._cancelled = True
        self._context.cancelJobGroup(_NAME)

    def _carry_out(self, task: Callable[[], Any]) -> tuple[Any, str]:
        self._context.setJobGroup(_NAME, "proves copies", interruptOnCancel=True)
        self._context.setLocalProperty("spark.scheduler.pool", _NAME)
        found: tuple[Any, str] = alone(
            self._spark, _NAME, lambda: _behind_slots(task), self._place()
        )
        return found


def pickled(task: Callable[[], Any]) -> Callable[[], Any]:
    """The same, as small as it travels: the runs of a range take an eighth."""
    return partial(_unpickled, _TASKS.dumps(task))


def _unpickled(task: bytes) -> Any:
    return _TASKS.loads(task)()


def _nothing() -> None:
    """A task that only needs a process."""


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
