"""Where the brokers keep their data: in memory when there is room, else on disk.

Main function: `folder_in`. A disk that cannot keep up throttles whoever writes, by
turns, and the target broker's CPU per byte then varies threefold between runs that are
the same. A run says which of the two it had.
"""

from __future__ import annotations

from contextlib import contextmanager
import os
from pathlib import Path
import shutil
import tempfile
from typing import TYPE_CHECKING, Literal

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator

Storage = Literal["memory", "disk"]

_MEMORY = Path("/dev/shm")
_PREFIX = "mirror-bench-"
_COPIES = 3
"""On the source, on the target, and one that is about to be deleted."""
_OTHERS_BYTES = 2 << 30
"""For brokers and peers."""


def storage_for(source_bytes: int) -> Storage:
    """Where a scenario with so much on its source has room."""
    if not _MEMORY.is_dir():
        return "disk"
    _remove_left_behind()
    free = min(shutil.disk_usage(_MEMORY).free, psutil.virtual_memory().available)
    return "memory" if free >= _COPIES * source_bytes + _OTHERS_BYTES else "disk"


@contextmanager
def folder_in(storage: Storage, disk: Path) -> Iterator[Path]:
    """An empty folder there, which is gone afterwards."""
    prefix = f"{_PREFIX}{os.getpid()}-"
    parent = _MEMORY if storage == "memory" else disk
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as folder:
        yield Path(folder)


def _remove_left_behind() -> None:
    """Nobody else gives the memory back that a killed benchmark has filled."""
    for folder in _MEMORY.glob(f"{_PREFIX}*"):
        owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)
