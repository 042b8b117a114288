"""A program: runs queries one after the other, each with a `Callback` of its own;
every other one fails.

It prints a JSON list with an entry for each query, after its end: this process's
threads, the JVM's open files, and how many owners of callbacks are still alive.
"""

from __future__ import annotations

import gc
import json
from pathlib import Path
import sys
import threading
from typing import TYPE_CHECKING
import weakref

import psutil

from mirror.config.service_settings import ServiceConfig
from mirror.errors import FlowError
from mirror.service.query import Callback
from mirror.service.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class _Owner:
    """What a run of a flow is to its query."""

    def __init__(self, *, fails: bool) -> None:
        self.called = threading.Event()
        self._fails = fails

    def call(self, frame: DataFrame, _number: int) -> None:
        frame.collect()
        self.called.set()
        if self._fails:
            raise FlowError("a worker was killed")


def _run(spark: SparkSession, checkpoint: Path, *, fails: bool) -> weakref.ref[_Owner]:
    owner = _Owner(fails=fails)
    callback = Callback(spark, owner.call)
    ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1)
    query = (
        ticks.load()
        .writeStream.foreachBatch(callback)
        .option("checkpointLocation", f"file://{checkpoint}")
        .start()
    )
    assert owner.called.wait(60)
    query.stop()
    callback.close()
    return weakref.ref(owner)


def main() -> None:
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    spark = session(ServiceConfig(), slots=1)
    (jvm,) = (
        process
        for process in psutil.Process().children(recursive=True)
        if process.name() == "java"
    )
    owners, found = [], []
    for number in range(count):
        owners.append(_run(spark, folder / str(number), fails=number % 2 == 1))
        gc.collect()
        alive = sum(owner() is not None for owner in owners)
        found.append((threading.active_count(), jvm.num_fds(), alive))
    sys.stdout.write(json.dumps(found))
    sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main()
