"""The Spark session that carries the flows: its settings, and why each is there.

Main function: `session`. It works in-process and under `spark-submit` alike: what
was submitted with (master, extra settings) wins over what stands here.
"""

from __future__ import annotations

import os
from pathlib import Path
import sys
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from mirror.java import require_java

if TYPE_CHECKING:
    from mirror.config.schema import ServiceConfig

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
    # Spark matches error texts with a regular expression that recurses per character,
    # hence the stack. The JVM only places tasks: compiling it well costs more CPU in
    # the first minute than it saves, and the gap between leases is no shorter.
    "spark.driver.extraJavaOptions": (
        "-Xss4m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 "
        f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}"
    ),
}


def session(config: ServiceConfig, *, slots: int) -> SparkSession:
    """Start Spark with room for `slots` tasks at once.

    Raises:
        JavaMissingError: there is no Java that Spark can run on.
    """
    java = require_java()
    os.environ.setdefault("JAVA_HOME", str(java.resolve().parent.parent))
    # Workers must be this very Python, with this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("mirror")
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # set by spark-submit
    if config.spark_master is not None:
        builder = builder.master(config.spark_master)
    elif not submitted:
        builder = builder.master(f"local[{slots + 1}]")
        builder = builder.config("spark.driver.host", "127.0.0.1")
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    else:
        # The submitted JVM has its own log settings, which know no "quiet".
        builder = builder.config("spark.log.level", "ERROR")
    for key, value in {**_SETTINGS, **config.spark}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def cores(spark: SparkSession) -> int:
    """How many tasks can run at once, on the executors that there are now."""
    context = spark.sparkContext._jsc.sc()  # noqa: SLF001  Python has no such question
    profile = context.resourceProfileManager().defaultResourceProfile()
    return int(context.maxNumConcurrentTasks(profile))


def is_alive(spark: SparkSession) -> bool:
    """Whether the session's JVM still answers; no flow can run without it."""
    try:
        return bool(spark.conf.get("spark.app.id"))
    except (PySparkException, Py4JError, OSError):
        return False
