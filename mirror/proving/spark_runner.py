"""Carries out the tasks of a proof on Spark.

Main types: `SparkRunner`, for a session of its own: a Spark job does tasks for about a
second, since a job costs 50 ms of CPU, and some jobs run at a time, so that none waits
for the slowest of a wave. If a process dies, only its job's tasks are done again.
`BesideSlots`, for one task in the session of a service, in a process that no slot uses.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
import os
import time
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.serializers import CPickleSerializer
import structlog

from mirror.driver.executors import alone
from mirror.errors import ClusterError, MirrorError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import SparkSession

log = structlog.get_logger()

_ATTEMPTS = 3
_MOST_TASKS = 8
"""In one job."""
_ENOUGH_SECONDS = 1.0
_ENOUGH_BYTES = 4 << 20
"""Of tasks, or of their results: a result that is larger ends its job."""
_pickles: Any = CPickleSerializer()
_NAME = "mirror-verify"
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
        packed = map(_pickles.dumps, tasks)
        undone: deque[bytes] = deque()
        with ThreadPoolExecutor(self._at_once) as pool:
            running: dict[Future[list[Any]], list[bytes]] = {}
            while True:
                while len(running) < 2 * self._at_once and (
                    some := _some(undone, packed)
                ):
                    running[pool.submit(self._run, some)] = some
                if not running:
                    return
                for each in wait(running, return_when=FIRST_COMPLETED).done:
                    found = each.result()
                    undone.extend(running.pop(each)[len(found) :])
                    yield from found

    def _run(self, tasks: list[bytes]) -> list[Any]:
        """What the first of these tasks return, at least one of them."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                found = self._carry_out(tasks)
            except Py4JJavaError as error:
                reason = str(error.java_exception.getMessage()).split("\n", 1)[0]
                if attempt == _ATTEMPTS or self._cancelled:
                    raise MirrorError(
                        f"a task of the proof failed: {reason}"
                    ) from error
                log.warning("a task of the proof failed; once more", reason=reason)
                tasks = tasks[:1]  # it may be the fault of any
            else:
                return [_result(each) for each in found]
        raise AssertionError

    def _carry_out(self, tasks: list[bytes]) -> list[bytes]:
        one = self._context.parallelize([0], 1)
        found: list[bytes]
        (found,) = one.map(lambda _: _outcomes(tasks)).collect()
        return found


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
            yield from self._run([_pickles.dumps(task)])

    def warm_up(self) -> None:
        """Start the process: slots cannot start theirs meanwhile, which takes a second,
        and a lease that ends just then would be followed by a pause.
        """
        try:
            self._carry_out([_pickles.dumps(_nothing)])
        except Py4JJavaError as error:
            reason = str(error.java_exception.getMessage()).split("\n", 1)[0]
            log.warning("the process of proofs does not start", reason=reason)

    def cancel(self) -> None:
        """End the running task: Spark kills its process."""
        self._cancelled = True
        self._context.cancelJobGroup(_NAME)

    def _carry_out(self, tasks: list[bytes]) -> list[bytes]:
        self._context.setJobGroup(_NAME, "proves copies", interruptOnCancel=True)
        self._context.setLocalProperty("spark.scheduler.pool", _NAME)
        found: list[bytes] = alone(
            self._spark, _NAME, lambda: _behind_slots(tasks), self._place()
        )
        return found


def _some(undone: deque[bytes], packed: Iterator[bytes]) -> list[bytes]:
    """The tasks of one job."""
    some: list[bytes] = []
    while len(some) < _MOST_TASKS and sum(map(len, some)) < _ENOUGH_BYTES:
        following = undone.popleft() if undone else next(packed, None)
        if following is None:
            break
        some.append(following)
    return some


def _nothing() -> None:
    """A task that only needs a process."""


def _behind_slots(tasks: list[bytes]) -> list[bytes]:
    os.setpriority(os.PRIO_PROCESS, 0, _NICENESS)
    return _outcomes(tasks)


def _outcomes(tasks: list[bytes]) -> list[bytes]:
    """What the first of these tasks return, as many as a job is to do."""
    began = time.monotonic()
    found: list[bytes] = []
    for each in tasks:
        found.append(_pickles.dumps(_outcome(_pickles.loads(each))))
        if (
            time.monotonic() - began > _ENOUGH_SECONDS
            or sum(map(len, found)) > _ENOUGH_BYTES
        ):
            break
    return found


def _outcome(task: Callable[[], Any]) -> tuple[Any, str]:
    """What a task returns, or what is wrong: exceptions of ours need not survive a trip
    through Spark.
    """
    try:
        return task(), ""
    except MirrorError as error:
        return None, str(error)


def _result(outcome: bytes) -> Any:
    result, problem = _pickles.loads(outcome)
    if problem:
        raise ClusterError(problem)
    return result
