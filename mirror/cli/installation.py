"""What needs no configuration: `mirror demo`, `compile` and `version`.

`mirror demo` shows the product at work on two clusters of its own; `playground.demo`
does the work. `mirror compile` does ahead what the first start would do, and only once:
it compiles the kernels that copy records, and archives the classes of Spark's JVM. Both
are kept in the installation; numba says where kernels are (NUMBA_CACHE_DIR). `mirror
version` prints the versions that matter in a bug report: mirror and what its behaviour
depends on.
"""

from __future__ import annotations

import importlib
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
import logging
import os
from pathlib import Path
import pkgutil
import platform
import tempfile
import time
from typing import Annotated

import typer

from mirror import __version__
from mirror.cli.output import EXIT_FAILED, Form, Output, complain, document, table
from mirror.errors import ArchiveError, ConfigError, JavaMissingError
from mirror.host import java_version, require_java


def demo(
    *,
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Keep clusters and service running until Ctrl-C."),
    ] = False,
    records: Annotated[
        int, typer.Option(min=1000, max=1_000_000, help="How many records to produce.")
    ] = 30_000,
) -> None:
    """Copy between two real clusters, break it, and count every record.

    Starts two temporary Kafka clusters of one broker each on this machine, and a mirror
    service between them. While producing records it kills the service's worker
    processes, watches it recover, and then reads the copy: each record must be there
    exactly once. At the end it kills cluster A and fails over: a consumer group goes on
    at B, at the very next record. Takes about two minutes and leaves nothing behind but
    downloads. With --keep both clusters stay alive: you can try the failover yourself.

    \b
    Examples:
      mirror demo
      mirror demo --records 100000
      mirror demo --keep
    """
    from mirror.playground.demo import show

    if not show(records=records, keep=keep):
        raise typer.Exit(EXIT_FAILED)


# ---- `mirror compile` ----


_NOTICED_SECONDS = 0.1
"""Loading a module without kernels, or with compiled ones, takes less."""


def compile_() -> None:
    """Compile what copies records, ahead of the first start.

    It takes a minute of CPU, once for each installation; what is there already is
    left alone. It also archives the classes that Spark loads, which makes every start
    shorter; without Java, or where the installation cannot be written, it does without
    and says why. make install and the image do all this.

    \b
    Examples:
      mirror compile
      NUMBA_CACHE_DIR=/var/lib/mirror/kernels mirror compile
    """
    _require_cache(os.environ.get("NUMBA_CACHE_DIR"))
    typer.echo("compiling the kernels that copy records")
    began = time.monotonic()
    batches = importlib.import_module("mirror.records")
    logging.getLogger("mirror.records.compiled").setLevel(logging.ERROR)
    for module in pkgutil.iter_modules(batches.__path__, "mirror.records."):
        at = time.monotonic()
        importlib.import_module(module.name)
        if (seconds := time.monotonic() - at) > _NOTICED_SECONDS:
            typer.echo(f"  {module.name.rpartition('.')[2]:<14} {seconds:6.1f} s")
    typer.echo(f"kernels are ready after {time.monotonic() - began:.1f} s")

    from mirror.service import archiving

    typer.echo("archiving the classes of Spark's JVM")
    began = time.monotonic()
    try:
        made = archiving.make()
    except (ArchiveError, JavaMissingError) as error:
        complain(f"no archive of Spark's classes, so starts take longer: {error}")
    else:
        took = f"made in {time.monotonic() - began:.1f} s" if made else "there already"
        typer.echo(f"the archive is {took}")


def _require_cache(named: str | None) -> None:
    """Else numba quietly uses another folder, where no service looks."""
    if not named:
        return
    try:
        Path(named).mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=named).close()
    except OSError as error:
        problem = (
            f"NUMBA_CACHE_DIR: {named} cannot be written ({error.strerror}); name a "
            "folder that this user can write, and the same one for the service"
        )
        raise ConfigError([problem]) from error


# ---- `mirror version` ----


def version(*, output: Output = Form.TABLE) -> None:
    """Print the versions of mirror, Python, Spark, kafka-python and Java."""
    versions = {
        "mirror": __version__,
        "python": platform.python_version(),
        "pyspark": _package("pyspark"),
        "kafka-python": _package("kafka-python"),
        "java": _java(),
    }
    if output is Form.JSON:
        document({"versions": versions})
    else:
        table(("COMPONENT", "VERSION"), versions.items())


def _package(name: str) -> str:
    try:
        return installed(name)
    except PackageNotFoundError:
        return "missing"


def _java() -> str:
    try:
        java = require_java()
    except JavaMissingError as error:
        return str(error)
    return f"{java_version(java)} ({java})"
