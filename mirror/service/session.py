"""The Spark session that carries the flows: its settings, and why each is there.

Main function: `session`. It works in-process and under `spark-submit` alike: master and
settings given to `spark-submit` win over those here and in the configuration. `cores`
and `wait_for_cores` tell how many tasks can run at once, `on_signals` receives the
signals that only Spark's JVM gets, and `end` ends the session.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
import re
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from py4j.protocol import INPUT_CONVERTER, Py4JError
import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import ensure_callback_server_started, launch_gateway
from pyspark.sql import SparkSession
from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter
import structlog

from mirror import log as logs
from mirror.config import environment
from mirror.config.service_settings import SPARK_SECRET
from mirror.copying import daemon
from mirror.errors import ConfigError, MirrorError
from mirror.host import require_java

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pyspark.sql.streaming.listener import StreamingQueryListener

    from mirror.config.service_settings import ServiceConfig


log = structlog.get_logger()

_LOOPBACK = "127.0.0.1"
_STOP_SECONDS = 10.0
_LOG = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}"
# A JVM only places or starts tasks: compiling it well costs more CPU in the first
# minute than it saves, and the gap between leases is no shorter. Its own counters, for
# tools that we do not have, would wake it twenty times a second.
_LEAN = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
# Java would begin with a heap by the size of the machine, and fill it. This one grows.
_SMALL_HEAP = "-Xms96m"

_SETTINGS = {
    # A lease that fails goes through fencing in the driver, never a silent retry.
    "spark.task.maxFailures": "1",
    "spark.speculation": "false",
    "spark.locality.wait": "0s",
    "spark.scheduler.mode": "FAIR",
    # Over TCP every task start stalls 40 ms (delayed acknowledgements).
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "mirror.copying.daemon",
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
    # A lease has a row for each slot: Java code made for it never pays.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # It would log an event that takes a second, as where the machine is busy, with all
    # properties of its job: keys of Spark among them.
    "spark.scheduler.listenerbus.logSlowEvent": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Without its page Spark still keeps a history, of a thousand leases by default: it
    # fills for an hour, 11 KB by lease.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    # Spark matches error texts with a regular expression that recurses per character,
    # hence the stack.
    "spark.driver.extraJavaOptions": f"-Xss4m {_LEAN} {_SMALL_HEAP} {_LOG}",
    "spark.executor.extraJavaOptions": f"{_LEAN} {_LOG}",
}
_launching = threading.Lock()
_SETTLED_SECONDS = 3.0
"""After this long without a new executor, no more are expected."""
_MASTER_SECONDS = 5.0
_COMING_SECONDS = 30.0
"""The longest wait for executors; later ones are still used when they come."""


def launch(config: ServiceConfig) -> None:
    """Begin to start Spark's JVM: it comes up in a thread while modules are imported.
    `session` waits for it, and says what is wrong.
    """

    def begin() -> None:
        with contextlib.suppress(Exception):
            if not _submitted():
                _launch(_settings(config, slots=1))

    threading.Thread(target=begin, name="jvm-launch", daemon=True).start()


def session(config: ServiceConfig, *, slots: int) -> SparkSession:
    """Start Spark, by default in this process with room for `slots` tasks.

    Raises:
        JavaMissingError: there is no Java that Spark can run on.
        ConfigError: a Spark cluster without a secret.
        MirrorError: no master of the Spark cluster answers.
    """
    settings = _settings(config, slots=slots)
    if not _submitted():
        _launch(settings)
    given = {**dict(SparkConf().getAll()), **settings}
    _require_master(given["spark.master"])
    settings |= protection(given["spark.master"], given)
    builder = SparkSession.builder.appName("mirror")
    for key, value in settings.items():
        builder = builder.config(key, value)
    if "spark.sql.extensions" not in given:
        conf = SparkConf().setAppName("mirror").setAll([*settings.items()])
        _make_lean(SparkContext.getOrCreate(conf))
    return builder.getOrCreate()


def _require_master(master: str) -> None:
    """Ask the masters of a standalone cluster: Spark itself asks for a minute, and ends
    with a trace of its stack.
    """
    if not master.startswith("spark://"):
        return
    reasons = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), _MASTER_SECONDS):
                return
        except (OSError, ValueError) as error:
            reasons.append(f"{address}: {error}")
    raise MirrorError(
        f"spark_master {master}: no master answers ({'; '.join(reasons)}); check that "
        "it runs there, and that this machine can reach it"
    )


def _make_lean(context: SparkContext) -> None:
    """The session that the builder then finds, without the extensions that jars on the
    class path offer: pyspark's are functions of its machine learning, for which Scala
    reflects on itself for half a second of CPU.
    """
    jvm: Any = context._jvm
    spark = jvm.org.apache.spark
    none = jvm.scala.Option.empty()
    nothing = jvm.PythonUtils.toScalaMap({})
    made = spark.sql.classic.SparkSession(
        context._jsc.sc(), none, none, spark.sql.SparkSessionExtensions(), nothing,
        nothing,
    )  # fmt: skip
    spark.sql.classic.SparkSession.setDefaultSession(made)


def _settings(config: ServiceConfig, *, slots: int) -> dict[str, str]:
    _pass_no_numpy()
    java = require_java()
    os.environ.setdefault("JAVA_HOME", str(java.resolve().parent.parent))
    # Workers must be this very Python, with this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {**_SETTINGS, **config.spark}
    if _submitted():
        SparkContext._ensure_initialized()
        submitted = SparkConf()
        # The submitted JVM has its own log settings, which are not quiet.
        settings.setdefault("spark.log.level", "ERROR")
        settings = {k: v for k, v in settings.items() if not submitted.contains(k)}
    elif config.spark_master is not None:
        settings = {"spark.master": config.spark_master, **settings}
    else:
        settings = {
            "spark.master": f"local[{slots + 1}]",
            "spark.driver.host": _LOOPBACK,
            "spark.driver.bindAddress": _LOOPBACK,
            **settings,
        }
    if not _submitted():
        settings.setdefault("spark.driver.defaultJavaOptions", class_data_options())
    return settings


def _pass_no_numpy() -> None:
    """Spark asks of each argument of each call of Java whether it is numpy's, and for
    that loads its tests, and pandas with them. None is.
    """
    for each in list(INPUT_CONVERTER):
        if isinstance(each, (NumpyArrayConverter, NumpyScalarConverter)):
            INPUT_CONVERTER.remove(each)


def _launch(settings: Mapping[str, str]) -> None:
    """Start the JVM, unless it runs. Every user of the host can read its command line,
    so secrets are left out: the session passes them over the gateway.
    """
    shown = {k: v for k, v in settings.items() if not SPARK_SECRET.search(k)}
    conf = SparkConf(loadDefaults=False).setAll(list(shown.items()))
    # Else Spark looks this machine's name up, and fails where it has no address. For
    # its JVM alone: a hook may start a Spark of its own.
    bound = settings.get("spark.driver.bindAddress")
    more = {"SPARK_LOCAL_IP": _LOOPBACK} if bound == _LOOPBACK else {}
    with _launching:
        if SparkContext._gateway is not None:
            return
        hidden = environment.secrets(os.environ)
        with _surroundings(hidden, more), passed_on() as output:
            # A process group of its own: a signal to ours reaches this process alone,
            # which finishes its transactions with the JVM; the JVM ends after it.
            own = {"stdout": output, "stderr": output, "process_group": 0}
            gateway = launch_gateway(conf, own)
            if _has_our_workers(settings):
                daemon.start_ahead(gateway.proc.pid, output)
            SparkContext._ensure_initialized(gateway=gateway)


def _has_our_workers(settings: Mapping[str, str]) -> bool:
    """Whether workers run beside this process, with its Python."""
    local = settings.get("spark.master", "").startswith("local[")
    return local and os.environ["PYSPARK_PYTHON"] == sys.executable


@contextlib.contextmanager
def _surroundings(hidden: Iterable[str], more: Mapping[str, str]) -> Iterator[None]:
    """Change what child processes inherit: hide variables, since tasks get what they
    need with their lease and a JVM shows its environment to anyone who asks, and add
    `more`, where the user has set nothing.
    """
    kept = {name: os.environ.pop(name) for name in hidden}
    added = {name: value for name, value in more.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]
        os.environ.update(kept)


def cores(spark: SparkSession) -> int:
    """How many tasks can run at once on the current executors."""
    context = spark.sparkContext._jsc.sc()
    profile = context.resourceProfileManager().defaultResourceProfile()
    return int(context.maxNumConcurrentTasks(profile))


def wait_for_cores(spark: SparkSession, wanted: int, stopping: threading.Event) -> int:
    """Wait for the executors of a cluster; returns how many tasks can run at once.

    It returns once `wanted` can, when no more executors come, or on `stopping`.
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
    """Handle signals under `spark-submit`, where they reach the JVM, not Python.

    Without this, the JVM would end Python abruptly. With it, each named signal makes
    its call; the JVM ends when Python does, with the same exit code.
    """
    if not _submitted():
        return
    gateway: Any = spark.sparkContext._gateway
    ensure_callback_server_started(gateway)
    signals = gateway.jvm.sun.misc.Signal
    for name, call in calls.items():
        signals.handle(signals(name.removeprefix("SIG")), _OnSignal(call))


def end(spark: SparkSession, listener: StreamingQueryListener) -> None:
    """End the session after its queries have ended; the JVM ends after Python.

    A listener that is just being called may wait for the JVM while the JVM waits for
    it: a deadlock. So the listener is removed first, and the wait is limited.
    """
    gateway = spark.sparkContext._gateway
    process = getattr(gateway, "proc", None)
    stopping = threading.Thread(target=_stop, args=(spark, listener), daemon=True)
    stopping.start()
    stopping.join(_STOP_SECONDS)
    if stopping.is_alive():
        log.warning("Spark does not stop: killing its JVM", seconds=_STOP_SECONDS)
        if process is not None:  # under `spark-submit` it is not ours to kill
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
    """A handler that the JVM calls when it gets a signal."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def handle(self, _signal: Any) -> None:
        self._call()

    class Java:
        implements = ("sun.misc.SignalHandler",)


def _submitted() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ  # set by spark-submit


# ---- what keeps leases secret between the processes of a Spark cluster ----
#
# Main function: `protection`. A lease carries the clusters' credentials, so off
# local mode Spark authenticates its processes and encrypts what they send and
# store. The cluster's master and workers need the same settings; Spark on YARN and
# Kubernetes makes a secret itself, elsewhere the user gives one.


_SECRET = "spark.authenticate.secret"  # noqa: S105  the setting's name
_FILES = (
    f"{_SECRET}.file",
    f"{_SECRET}.driver.file",
    f"{_SECRET}.executor.file",
)
_VARIABLE = "_SPARK_AUTH_SECRET"
"""Spark's own name for it, in the environment."""
PROTECTION = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    # The default, CTR, encrypts but does not notice changed bytes; version 1 derives
    # keys in a weaker way; SASL would be a way around both.
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    "spark.network.crypto.authEngineVersion": "2",
    "spark.network.crypto.saslFallback": "false",
    "spark.io.encryption.enabled": "true",
}
_SWITCHES = tuple(key for key, value in PROTECTION.items() if value == "true")
_LOCAL = re.compile(r"local(\[.*\])?")


def protection(master: str, given: Mapping[str, str]) -> dict[str, str]:
    """The settings that are missing in `given`. Those that turn protection off stay,
    with a warning.

    Raises:
        ConfigError: Spark needs a secret, and there is none.
    """
    if _LOCAL.fullmatch(master):
        return {}
    off = [key for key in _SWITCHES if given.get(key, "true").lower() != "true"]
    if off:
        log.warning(
            "leases carry the clusters' passwords, and Spark's protection of them is "
            "off: remove these settings",
            settings=", ".join(off),
        )
    if "spark.authenticate" in off:
        return {}
    makes_its_own = master == "yarn" or master.startswith("k8s://")
    if not makes_its_own and _SECRET not in given:
        problem = (
            f"{_SECRET}: Spark on {master} needs a secret, since leases carry the "
            "clusters' passwords: give the same one to mirror (spark-submit "
            "--properties-file, or service.spark) and to Spark's master and workers; "
            "see docs/howto/spark-submit.md"
        )
        raise ConfigError([problem])
    if master.startswith("k8s://") and not (
        any(key in given for key in (_SECRET, *_FILES)) or _VARIABLE in os.environ
    ):
        log.warning(
            "Spark writes its secret into the executors' pod specs: put one into a "
            "Secret, mount it in all pods, and name its file",
            setting=_FILES[0],
        )
    return {key: value for key, value in PROTECTION.items() if key not in given}


# ---- what the JVM prints, passed on line by line to mirror's own log ----
#
# Main function: `passed_on`. The JVM, Spark's scripts and tasks inside this process's
# JVM print to the same place: lines of our own log go on as they are, all others
# become events where the log is JSON, so that programs can read it from the first
# line on.


@contextlib.contextmanager
def passed_on() -> Iterator[int]:
    """The pipe for a JVM that is started in the block: where it and its workers print.
    It is read until they end.
    """
    reading, writing = os.pipe()
    # Not joined: the JVM outlives Python by a moment.
    threading.Thread(
        target=_read, args=(reading,), name="jvm-output", daemon=True
    ).start()
    try:
        yield writing
    finally:
        os.close(writing)


def _read(reading: int) -> None:
    with open(reading, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            logs.pass_on(line.rstrip("\n"))


# ---- an archive of the classes that the JVM loads: a start takes less work ----
#
# `archiving` makes it, beside Spark's jars, for these and one Java; Java ignores one
# that does not fit, and without one a start only takes longer. MIRROR_CLASS_DATA=off
# does without.


QUIET = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"

# Elsewhere than at the address it was made for, all of it is read, changed and kept:
# 125 MB and a quarter of a second of CPU for each start.
_IN_PLACE = "-XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0"


def class_data_options() -> str:
    """For the JVM's command line; empty without an archive.

    Raises:
        JavaMissingError: there is no Java that Spark can run on.
    """
    archive = class_data_archive()
    if os.environ.get("MIRROR_CLASS_DATA") == "off" or not archive.exists():
        return ""
    return f'-XX:SharedArchiveFile="{archive}" {QUIET} {_IN_PLACE}'


def class_data_archive() -> Path:
    """Where the archive is, or would be: its name tells which Java, and what that and
    Spark's jars are today.
    """
    java = require_java().resolve()
    jars = Path(pyspark.__file__).resolve().with_name("jars")
    parts = [java, *sorted(jars.glob("*.jar"))]
    # In seconds, as Java compares them: an image's layers keep no more.
    stated = [(str(part), int(part.stat().st_mtime)) for part in parts]
    return jars.with_name(f"mirror-{_digest(java)}-{_digest(stated)}.jsa")


def _digest(of: object) -> str:
    return hashlib.sha256(repr(of).encode()).hexdigest()[:12]
