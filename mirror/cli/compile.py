"""`mirror compile`: what the first start would do, and only once, done ahead.

It compiles the kernels that copy records, and archives the classes of Spark's JVM. Both
are kept in the installation; numba says where kernels are (NUMBA_CACHE_DIR).
"""

from __future__ import annotations

import importlib
import logging
import os
from pathlib import Path
import pkgutil
import tempfile
import time

import typer

from mirror.cli.output import complain
from mirror.errors import ArchiveError, ConfigError, JavaMissingError

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
