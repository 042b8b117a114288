"""Makes an archive of the classes that Spark's JVM loads in every service.

Main function: `make`. A session that does what every service does runs in a process of
its own, since Java writes the archive when it ends.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

from mirror.config import environment
from mirror.config.service_settings import ServiceConfig
from mirror.errors import ArchiveError
from mirror.service.executors import warm_up
from mirror.service.session import QUIET, class_data_archive, session

if TYPE_CHECKING:
    from pathlib import Path

_SECONDS = 600.0
_LEASES = 3
_EARLIER = f"mirror-{'?' * 12}.jsa"
"""Earlier names, which told no Java: no start takes these any more."""


def make() -> bool:
    """Create the archive; False if there is one already.

    Raises:
        JavaMissingError: there is no Java that Spark can run on.
        ArchiveError: it cannot be created.
    """
    archive = class_data_archive()
    if archive.exists():
        return False
    _remove_left_over(archive.parent)
    made = archive.with_suffix(f".{os.getpid()}")
    try:
        made.touch()  # fails at once where it cannot be written
        with tempfile.TemporaryDirectory() as folder:  # Spark may leave things there
            subprocess.run(
                [sys.executable, "-P", "-m", __name__, str(made)],
                cwd=folder,
                env=environment.without_secrets(os.environ),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_SECONDS,
                check=True,
            )
        if not made.stat().st_size:
            raise ArchiveError("Java wrote nothing")
        of_this_java, _, _ = archive.name.rpartition("-")
        for names in (f"{of_this_java}-*.jsa", _EARLIER):
            for old in archive.parent.glob(names):
                old.unlink(missing_ok=True)
        made.rename(archive)
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines()
        causes = [line for line in lines if line.startswith("Caused by: ")]  # of Java
        raise ArchiveError((causes or lines or [str(error)])[-1]) from error
    except subprocess.TimeoutExpired as error:
        raise ArchiveError(f"not done within {_SECONDS:.0f} s") from error
    except OSError as error:
        raise ArchiveError(str(error)) from error
    finally:
        made.unlink(missing_ok=True)
    return True


def _remove_left_over(folder: Path) -> None:
    """What others had begun when they were killed; their names end with their pids."""
    for part in folder.glob("mirror-*.[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            try:
                os.kill(int(part.suffix[1:]), 0)
            except ProcessLookupError:
                part.unlink()


def _run(archive: str) -> None:
    """Start Spark, carry out a few leases, and wait until its JVM has ended."""
    java_options = f'-XX:ArchiveClassesAtExit="{archive}" {QUIET}'
    settings = {"spark.driver.defaultJavaOptions": java_options}
    spark = session(ServiceConfig(spark=settings), slots=2)
    leases = []

    def lease(_ticks: object, number: int) -> None:
        warm_up(spark, "archive", [None, None])
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
    gateway: Any = spark.sparkContext._gateway
    java = gateway.proc
    spark.stop()
    java.stdin.close()
    java.wait()


if __name__ == "__main__":
    _run(sys.argv[1])
