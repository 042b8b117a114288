"""A class-data archive for the services of tests: Spark's JVM starts with less work.

Main function: `environment`, the variables that a service gets. The first call makes
the archive, in the cache's folder, with a Spark session that does what every service
does. Java ignores an archive that does not fit; without one starts are only slower.
MIRROR_CLASS_DATA=off does without.
"""

from __future__ import annotations

from functools import cache
import hashlib
import os
from pathlib import Path
import subprocess
import sys
import tempfile
import time

import pyspark

from mirror.host import require_java
from mirror.playground.cache import cache_folder, cache_lock

_ROOT = Path(__file__).parents[2]
_SECONDS = 600.0
_LEASES = 3


@cache
def environment() -> dict[str, str]:
    """What to add to a service's environment; empty without an archive."""
    if os.environ.get("MIRROR_CLASS_DATA") == "off":
        return {}
    archive = _place()
    if not archive.exists():
        with cache_lock("spark-class-data"):
            if not archive.exists():
                _try_to_make(archive)
    if not archive.exists() or not archive.stat().st_size:
        return {}
    # Quiet, since a test may read what the service writes.
    return _options(f"-XX:SharedArchiveFile={archive} -Xshare:auto -Xlog:cds=off")


def _options(java: str) -> dict[str, str]:
    return {
        "PYSPARK_SUBMIT_ARGS": (
            f'--conf "spark.driver.defaultJavaOptions={java}" pyspark-shell'
        )
    }


def _place() -> Path:
    """Java uses an archive only with the very jars that it was made with."""
    java = subprocess.run(
        [require_java(), "-version"], capture_output=True, text=True, check=False
    ).stderr
    folder = Path(pyspark.__file__).resolve().with_name("jars")
    jars = [(jar.name, jar.stat().st_mtime_ns) for jar in sorted(folder.glob("*.jar"))]
    name = f"spark-{_digest(str(folder))}-{_digest(java + repr(jars))}.jsa"
    return cache_folder() / name


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _try_to_make(archive: Path) -> None:
    made = archive.with_suffix(f".{os.getpid()}")
    options = _options(f"-XX:ArchiveClassesAtExit={made} -Xlog:cds=off")
    try:
        with tempfile.TemporaryDirectory() as folder:  # Spark may leave things there
            subprocess.run(
                [sys.executable, "-m", __name__],
                cwd=folder,
                env={**os.environ, **options, "PYTHONPATH": str(_ROOT)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_SECONDS,
                check=True,
            )
        same_folder = f"{archive.name.rpartition('-')[0]}-*.jsa"
        for old in cache_folder().glob(same_folder):
            old.unlink()
        made.rename(archive)
    except subprocess.TimeoutExpired:
        made.unlink(missing_ok=True)  # a quieter moment may do
    except (subprocess.CalledProcessError, OSError):
        archive.touch()  # tried, and not to be tried at every start


def _run() -> None:
    """Start Spark, carry out a few leases, and wait until its JVM has ended."""
    # Only here: other tests do without Spark.
    from mirror.config.service_settings import ServiceConfig  # noqa: PLC0415
    from mirror.driver.executors import warm_up  # noqa: PLC0415
    from mirror.driver.session import session  # noqa: PLC0415

    spark = session(ServiceConfig(), slots=2)
    leases = []

    def lease(_ticks: object, number: int) -> None:
        warm_up(spark, "archive", 2)
        leases.append(number)

    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", 1)
            .option("numPartitions", 1)
            .load()
            .writeStream.foreachBatch(lease)
            .option("checkpointLocation", f"file://{checkpoint}")
            .start()
        )
        while len(leases) < _LEASES and query.isActive:
            time.sleep(0.1)
        query.stop()
    java = spark.sparkContext._gateway.proc
    spark.stop()
    java.stdin.close()
    java.wait()


if __name__ == "__main__":
    _run()
