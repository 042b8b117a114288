"""The folder that outlives a playground: jars, seeds, class-data archives.

Main functions: `cache_folder` and `cache_lock`. Several test runs share the folder, so
files are created under the lock and renamed into place.
"""

from __future__ import annotations

from contextlib import contextmanager
import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

KAFKA_VERSION = "4.3.1"


def cache_folder() -> Path:
    """MIRROR_CACHE, or ~/.cache/mirror; created if missing."""
    named = os.environ.get("MIRROR_CACHE")
    folder = Path(named) if named else Path.home() / ".cache" / "mirror"
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def cache_lock(name: str) -> Iterator[None]:
    """Hold the named lock against other processes and other threads."""
    with (cache_folder() / f"{name}.lock").open("w") as file:
        # Closing the file releases the lock, even when the process is killed.
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
