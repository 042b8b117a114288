"""An archive of the classes that Spark's JVM loads: with it a start takes less work.

Main functions: `options`, the Java options that use the archive, and `make`, which
creates it with a Spark session that does what every service does. It lies beside
Spark's jars, and is valid for these and one Java; Java ignores one that does not fit.
Without one a start only takes longer. MIRROR_CLASS_DATA=off does without.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
import subprocess
import sys
import tempfile
import time

import pyspark

from mirror.errors import ArchiveError
from mirror.host import require_java

_SECONDS = 600.0
_LEASES = 3
_QUIET = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"


def options() -> str:
    """For the JVM's command line; empty without an archive.

    Raises:
        JavaMissingError: there is no Java that Spark can run on.
    """
    archive = place()
    if os.environ.get("MIRROR_CLASS_DATA") == "off" or not archive.exists():
        return ""
    return f'-XX:SharedArchiveFile="{archive}" {_QUIET}'


def place() -> Path:
    """Where the archive is, or would be: its name tells Java and Spark's jars."""
    java = require_java().resolve()
    jars = Path(pyspark.__file__).resolve().with_name("jars")
    parts = [java, *sorted(jars.glob("*.jar"))]
    # In seconds, as Java compares them: an image's layers keep no more.
    stated = [(str(part), int(part.stat().st_mtime)) for part in parts]
    digest = hashlib.sha256(repr(stated).encode()).hexdigest()[:12]
    return jars.with_name(f"mirror-{digest}.jsa")


def make() -> bool:
    """Create the archive; False if there is one already.

    Raises:
        JavaMissingError: there is no Java that Spark can run on.
        ArchiveError: it cannot be created.
    """
    archive = place()
    if archive.exists():
        return False
    made = archive.with_suffix(f".{os.getpid()}")
    try:
        made.touch()  # fails at once where it cannot be written
        with tempfile.TemporaryDirectory() as folder:  # Spark may leave things there
            subprocess.run(
                [sys.executable, "-P", "-m", __name__, str(made)],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_SECONDS,
                check=True,
            )
        for old in archive.parent.glob("mirror-*.jsa"):
            old.unlink()
        made.rename(archive)
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().splitlines()
        raise ArchiveError(said[-1] if said else str(error)) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ArchiveError(str(error)) from error
    finally:
        made.unlink(missing_ok=True)
    return True


def _run(archive: str) -> None:
    """Start Spark, carry out a few leases, and wait until its JVM has ended."""
    # What `options` needs is less.
    from mirror.config.service_settings import ServiceConfig  # noqa: PLC0415
    from mirror.driver.executors import warm_up  # noqa: PLC0415
    from mirror.driver.session import session  # noqa: PLC0415

    java_options = f'-XX:ArchiveClassesAtExit="{archive}" {_QUIET}'
    settings = {"spark.driver.defaultJavaOptions": java_options}
    spark = session(ServiceConfig(spark=settings), slots=2)
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
    java = spark.sparkContext._gateway.proc  # type: ignore[union-attr]  # noqa: SLF001
    spark.stop()
    java.stdin.close()
    java.wait()


if __name__ == "__main__":
    _run(sys.argv[1])
