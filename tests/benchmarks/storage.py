"""Where the brokers keep their data: in memory if there is room, else on disk.

Main function: `folder_in`. A disk that cannot keep up throttles its writers at random,
and the target broker's CPU per byte then varies threefold between identical runs. So
does the memory of a virtual machine whose host reclaims free pages and returns them
slowly: so it is allocated beforehand and kept. A run says which of the two it had.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
import mmap
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
_PIECE = 1 << 20
"""Hosts take back only larger ones: 2 MiB is Linux' own choice, 8 MiB was seen."""


def storage_for(source_bytes: int) -> Storage:
    """Where a scenario with so much on its source has room."""
    if not _MEMORY.is_dir():
        return "disk"
    _remove_left_behind()
    return "memory" if _free() >= _needed(source_bytes) else "disk"


@contextmanager
def folder_in(storage: Storage, disk: Path, *, source_bytes: int) -> Iterator[Path]:
    """An empty folder there, which is gone afterwards; for so much on the source."""
    prefix = f"{_PREFIX}{os.getpid()}-"
    parent = _MEMORY if storage == "memory" else disk
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as folder:
        taken = _taken(_needed(source_bytes)) if storage == "memory" else nullcontext()
        with taken:
            yield Path(folder)


@contextmanager
def _taken(size: int) -> Iterator[None]:
    """Have touched `size` bytes of memory, of which a page is held every `_PIECE`:
    what lies between is free, and too small for the host to take it back.
    """
    with tempfile.TemporaryFile(dir=_MEMORY) as file:
        size -= size % _PIECE
        for _ in range(0, size, _PIECE):
            file.write(bytes(_PIECE))
        file.flush()
        with mmap.mmap(file.fileno(), size) as pages:
            for start in range(0, size, _PIECE):
                pages.madvise(
                    mmap.MADV_REMOVE, start + mmap.PAGESIZE, _PIECE - mmap.PAGESIZE
                )
        yield


def _needed(source_bytes: int) -> int:
    return _COPIES * source_bytes + _OTHERS_BYTES


def _free() -> int:
    return min(shutil.disk_usage(_MEMORY).free, psutil.virtual_memory().available)


def _remove_left_behind() -> None:
    """Nothing else frees the memory that a killed benchmark has filled."""
    for folder in _MEMORY.glob(f"{_PREFIX}*"):
        owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)
