"""The Spark session that carries the flows: its settings, and why each is there.

Main function: `session`. It works in-process and under `spark-submit` alike: what
was submitted with (master, settings) wins over what stands here and in the
configuration. `cores` and `wait_for_cores` ask how many tasks run at once,
`on_signals` hears the signals that only Spark's JVM gets, and `end` ends it all.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession
import structlog

from mirror.config import environment
from mirror.config.service_settings import SPARK_SECRET
from mirror.host import require_java

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pyspark.sql.streaming.listener import StreamingQueryListener

    from mirror.config.service_settings import ServiceConfig

log = structlog.get_logger()

_STOP_SECONDS = 10.0
_LOG = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}"
# A JVM only places or starts tasks: compiling it well costs more CPU in the first
# minute than it saves, and the gap between leases is no shorter.
_LEAN = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"

_SETTINGS = {
    # A lease that fails goes through fencing in the driver, never a silent retry.
    "spark.task.maxFailures": "1",
    "spark.speculation": "false",
    "spark.locality.wait": "0s",
    "spark.scheduler.mode": "FAIR",
    # Over TCP every task start stalls 40 ms (delayed acknowledgements).
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "mirror.relay.daemon",
    "spark.python.task.killTimeout": "0s",
    # The gap between leases: ask for the next micro-batch at once, and write the
    # lease counter without Hadoop's forks of chmod and readlink.
    "spark.sql.streaming.pollingDelay": "1ms",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.stopTimeout": "10000",
    "spark.sql.adaptive.enabled": "false",
    # Each slot's frame keeps a partition, and so a worker, of its own.
    "spark.sql.unionOutputPartitioning": "false",
    "spark.sql.dataFrameQueryContext.enabled": "false",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    # Spark matches error texts with a regular expression that recurses per character,
    # hence the stack.
    "spark.driver.extraJavaOptions": f"-Xss4m {_LEAN} {_LOG}",
    "spark.executor.extraJavaOptions": f"{_LEAN} {_LOG}",
}
_SETTLED_SECONDS = 3.0
"""No executor came for so long: the others are not on their way."""
_COMING_SECONDS = 30.0
"""Executors that are not there by then may still come, but nobody waits."""


def session(config: ServiceConfig, *, slots: int) -> SparkSession:
    """Start Spark; in this process, unless told otherwise, with room for `slots` tasks.

    Raises:
        JavaMissingError: there is no Java that Spark can run on.
    """
    java = require_java()
    os.environ.setdefault("JAVA_HOME", str(java.resolve().parent.parent))
    # Workers must be this very Python, with this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {**_SETTINGS, **config.spark}
    if _submitted():
        SparkContext._ensure_initialized()  # noqa: SLF001  to read what was submitted
        given = SparkConf()
        # The submitted JVM has its own log settings, which know no "quiet".
        settings.setdefault("spark.log.level", "ERROR")
        settings = {k: v for k, v in settings.items() if not given.contains(k)}
    elif config.spark_master is not None:
        settings = {"spark.master": config.spark_master, **settings}
    else:
        settings = {
            "spark.master": f"local[{slots + 1}]",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            **settings,
        }
    if not _submitted():
        _launch(settings)
    builder = SparkSession.builder.appName("mirror")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _launch(settings: Mapping[str, str]) -> None:
    """Start the JVM. What it is started with, everybody on the machine can read, so
    secrets are left for the session, which tells them over the gateway.
    """
    shown = {k: v for k, v in settings.items() if not SPARK_SECRET.search(k)}
    conf = SparkConf(loadDefaults=False).setAll(list(shown.items()))
    with _kept_back(environment.secrets(os.environ)):
        SparkContext._ensure_initialized(conf=conf)  # noqa: SLF001


@contextlib.contextmanager
def _kept_back(names: Iterable[str]) -> Iterator[None]:
    """These variables are not passed on to processes: tasks get what they need with
    their lease, and the environment of a JVM is shown to whoever asks it.
    """
    kept = {name: os.environ.pop(name) for name in names}
    try:
        yield
    finally:
        os.environ.update(kept)


def cores(spark: SparkSession) -> int:
    """How many tasks can run at once, on the executors that there are now."""
    context = spark.sparkContext._jsc.sc()  # noqa: SLF001  Python has no such question
    profile = context.resourceProfileManager().defaultResourceProfile()
    return int(context.maxNumConcurrentTasks(profile))


def wait_for_cores(spark: SparkSession, wanted: int, stopping: threading.Event) -> int:
    """Let the executors of a cluster arrive; how many tasks then run at once.

    It ends when `wanted` do, when no further executor comes, or with `stopping`.
    """
    began = grown = time.monotonic()
    most = cores(spark)
    while most < wanted and not stopping.wait(0.1):
        now = time.monotonic()
        if (available := cores(spark)) > most:
            most, grown = available, now
        settled = most > 0 and now - grown > _SETTLED_SECONDS
        if settled or now - began > _COMING_SECONDS:
            break
    return most


def on_signals(spark: SparkSession, calls: Mapping[str, Callable[[], None]]) -> None:
    """Under `spark-submit` signals reach the JVM, which would end Python unasked.

    With this, those of these names call ours; the JVM ends when Python does, with its
    exit code.
    """
    if not _submitted():
        return
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    signals = gateway.jvm.sun.misc.Signal
    for name, call in calls.items():
        signals.handle(signals(name.removeprefix("SIG")), _OnSignal(call))


def end(spark: SparkSession, listener: StreamingQueryListener) -> None:
    """End the session, whose queries have ended; its JVM follows when we are gone.

    A listener that is just being called asks the JVM for more, which may wait for the
    listener: both for ever. So it is taken away first, and patience has an end.
    """
    gateway = spark.sparkContext._gateway  # noqa: SLF001  it alone knows its process
    process = getattr(gateway, "proc", None)
    stopping = threading.Thread(target=_stop, args=(spark, listener), daemon=True)
    stopping.start()
    stopping.join(_STOP_SECONDS)
    if stopping.is_alive():
        log.warning("Spark does not stop: killing its JVM", seconds=_STOP_SECONDS)
        if process is not None:  # not ours to kill, if we were submitted
            process.kill()


def _stop(spark: SparkSession, listener: StreamingQueryListener) -> None:
    spark.streams.removeListener(listener)
    spark.stop()


def is_alive(spark: SparkSession) -> bool:
    """Whether the session's JVM still answers; no flow can run without it."""
    try:
        return bool(spark.conf.get("spark.app.id"))
    except (PySparkException, Py4JError, OSError):
        return False


class _OnSignal:
    """Called by the JVM when it gets a signal."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def handle(self, _signal: Any) -> None:
        self._call()

    class Java:
        implements = ("sun.misc.SignalHandler",)


def _submitted() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ  # set by spark-submit
