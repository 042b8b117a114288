"""The streaming query of a flow: its micro-batches are leases.

Main function: `lease_query`. A query goes on from one run of the flow to the next,
since nothing is copied while Spark ends one and begins another; its micro-batch waits
until the next run takes over. What a lease does: `leases`. If one fails, so does the
query.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
from pathlib import Path
import re
import shutil
import threading
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
import structlog

from mirror.errors import ConfigError, FlowError, MirrorError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession


log = structlog.get_logger()

_NO_ANSWER = (PySparkException, Py4JError, OSError)
"""What Spark's calls raise, also if the JVM is gone."""
_OUR_ERROR = re.compile(r"^mirror\.errors\.\w+: ")
_PYTHON_ERROR = re.compile(r"(\w+\.)*\w+(Error|Exception): .")


@contextlib.contextmanager
def lease_query(spark: SparkSession, flow: str, state: Path) -> Iterator[LeaseQuery]:
    """A query that has begun, with its checkpoint in the folder `state`.

    Raises:
        MirrorError: the folder cannot be used.
    """
    with own(state, flow) as checkpoint:
        query = LeaseQuery(spark, flow, checkpoint)
        try:
            yield query
        finally:
            query.close()


class LeaseQuery:
    """A streaming query that carries out the leases of one run after another."""

    def __init__(self, spark: SparkSession, flow: str, checkpoint: Path) -> None:
        self._spark = spark
        self._flow = flow
        self._turn = threading.Condition()
        self._lease: Callable[[], None] | None = None
        self._closed = False
        """It carries out no more leases."""
        self._callback = Callback(spark, self._micro_batch)
        ticks = (
            spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", 1)
            .option("numPartitions", 1)
            .load()
        )
        self._query = (
            ticks.writeStream.queryName(flow)
            .foreachBatch(self._callback)
            # Not on the cluster's file system: only this process uses it.
            .option("checkpointLocation", f"file://{checkpoint}")
            .start()
        )

    @property
    def active(self) -> bool:
        try:
            return bool(self._query.isActive)
        except _NO_ANSWER:
            return False  # the JVM is gone

    @property
    def failure(self) -> str:
        """Why it is no longer active."""
        try:
            failed = self._query.exception()
        except _NO_ANSWER:
            return "Spark's JVM does not answer"
        return "its streaming query ended" if failed is None else short(failed)

    def carry_out(self, lease: Callable[[], None]) -> None:
        """From now on each micro-batch calls `lease`; a `FlowError` ends the query."""
        with self._turn:
            self._lease = lease
            self._turn.notify_all()

    @property
    def can_go_on(self) -> bool:
        """Whether the run has ended, and another one's leases can be carried out."""
        return self._lease is None and not self._closed and self.active

    def pause(self) -> None:
        """The run has ended: wait for the next call of `carry_out`."""
        with self._turn:
            self._lease = None

    def cancel(self) -> None:
        """Abandon the tasks of the running lease, which fails."""
        self._spark.sparkContext.cancelJobGroup(str(self._query.runId))

    def close(self) -> None:
        """End the query. A lease that runs is abandoned."""
        with self._turn:
            self._lease, self._closed = None, True
            self._turn.notify_all()
        try:
            self._query.stop()
        except _NO_ANSWER as error:
            # A time-out is not translated.
            log.warning("query does not stop", flow=self._flow, error=short(error))
        finally:
            self._callback.close()

    def _micro_batch(self, _ticks: DataFrame, _number: int) -> None:
        with self._turn:
            self._turn.wait_for(lambda: self._lease is not None or self._closed)
            lease = self._lease
        if lease is None:
            return
        try:
            lease()
        except FlowError:
            self._closed = True
            raise


def short(error: BaseException) -> str:
    """The line of an error that says what happened; Spark's errors run to kilobytes."""
    lines = str(error).splitlines() or [type(error).__name__]
    python = [line for line in lines if _PYTHON_ERROR.match(line)]
    if python:
        return _OUR_ERROR.sub("", python[-1]).strip()[:300]
    # A worker that died leaves only Java's view: one line of causes, last one first.
    java = [
        line.rpartition("Exception: ")[2] for line in lines if "Exception: " in line
    ]
    return (java or lines)[0].strip().split(". ")[0][:300]


# ---- the function that Spark calls for each micro-batch of a query, and its end ----
#
# py4j gives each thread of the JVM that calls Python a connection, which a thread
# of Python serves, and never closes it; the function lives until the JVM's garbage
# collector finds its caller. A service whose flows run again for weeks would keep
# all of that.


class Callback:
    """Calls `function` until it is closed, and then lets go of it."""

    def __init__(
        self, spark: SparkSession, function: Callable[[DataFrame, int], None]
    ) -> None:
        self._gateway: Any = spark.sparkContext._gateway
        self._function: Callable[[DataFrame, int], None] | None = function
        self._connection: Any = None

    def __call__(self, frame: DataFrame, number: int) -> None:
        """In a thread of py4j, which makes its own calls in the JVM's calling thread:
        so this finds that thread's connection.

        Raises:
            FlowError: the function did.
        """
        if self._connection is None:
            client = self._gateway.java_gateway_server.getCallbackClient()
            self._connection = client.getPerThreadConnection()
        failure = ""
        if self._function is not None:
            try:
                self._function(frame, number)
            except FlowError as error:
                failure = str(error)
        if failure:
            # pyspark keeps the error, and with its traceback all that it came through.
            raise FlowError(failure)

    def close(self) -> None:
        """After the query's end: close the connection, which ends its thread."""
        connection, self._connection, self._function = self._connection, None, None
        if connection is None:
            return
        try:
            connection.shutdown()
        except (Py4JError, OSError) as error:
            # `supervisor` ends the service if the JVM is gone.
            log.debug("the JVM does not close a connection", error=str(error))


# ---- a folder for Spark's checkpoint that no other query uses at the same time ----
#
# Main functions: `state_folder`, the parent of all such folders, and `own`, which
# reserves one for a flow's query. The checkpoint counts its leases from zero, so
# `own` removes what an earlier query left. Several services of one user may have
# flows of the same name: a kernel lock on the folder marks it as taken, and ends
# with the process that holds it.


def state_folder(named: Path | None) -> Path:
    """The folder from `service.state_dir`, or the platform's default for state.

    That is `state` in systemd's $STATE_DIRECTORY, or `mirror` in $XDG_STATE_HOME (XDG
    Base Directory Specification), which defaults to ~/.local/state.

    Raises:
        ConfigError: none is set, and this user has no home directory.
    """
    if named is not None:
        return named.absolute()
    if service := os.environ.get("STATE_DIRECTORY"):
        return Path(service.split(":")[0]) / "state"
    given = Path(os.environ.get("XDG_STATE_HOME", ""))
    if given.is_absolute():  # the specification says to ignore relative paths
        return given / "mirror"
    try:
        return Path.home() / ".local" / "state" / "mirror"
    except RuntimeError as error:
        problem = (
            f"service.state_dir: not set, and user id {os.getuid()} has no home "
            "directory; set it to a folder, or set HOME or XDG_STATE_HOME"
        )
        raise ConfigError([problem]) from error


@contextlib.contextmanager
def own(folder: Path, flow: str) -> Iterator[Path]:
    """A path for this flow's checkpoint, where nothing exists; removed afterwards.

    Raises:
        MirrorError: the folder cannot be written to, or its file system has no locks.
    """
    name = flow.replace("->", "-to-")
    try:
        place, held = _first_free(folder, name)
    except OSError as error:
        raise MirrorError(
            f"service.state_dir: {error.filename or folder}: {error.strerror}; make it "
            "writable for this user, or choose another folder"
        ) from error
    checkpoint = place / "leases"
    try:
        shutil.rmtree(checkpoint, ignore_errors=True)
        yield checkpoint
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)
        os.close(held)  # this unlocks it


def _first_free(folder: Path, name: str) -> tuple[Path, int]:
    """The first of the flow's folders that no process has locked, and our lock."""
    for number in itertools.count(1):
        place = folder / f"{name}-{number}"
        place.mkdir(parents=True, exist_ok=True)
        held = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(held)
        except OSError:
            os.close(held)
            raise
        else:
            return place, held
    raise AssertionError  # numbers do not end
