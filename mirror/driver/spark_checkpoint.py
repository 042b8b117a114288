"""A folder for Spark's checkpoint that no other query uses at the same time.

Main functions: `state_folder`, the parent of all such folders, and `own`, which
reserves one for a flow's query. The checkpoint counts its leases from zero, so `own`
removes what an earlier query left. Several services of one user may have flows of
the same name: a kernel lock on the folder marks it as taken, and ends with the process
that holds it.
"""

from __future__ import annotations

from contextlib import contextmanager
import fcntl
import itertools
import os
from pathlib import Path
import shutil
from typing import TYPE_CHECKING

from mirror.errors import ConfigError, MirrorError

if TYPE_CHECKING:
    from collections.abc import Iterator


def state_folder(named: Path | None) -> Path:
    """The folder from `service.state_dir`, or the platform's default for state.

    That is `state` in systemd's $STATE_DIRECTORY, or `mirror` in $XDG_STATE_HOME (XDG
    Base Directory Specification), which defaults to ~/.local/state.

    Raises:
        ConfigError: none is set, and this user has no home directory.
    """
    if named is not None:
        return named.absolute()
    if service := os.environ.get("STATE_DIRECTORY"):
        return Path(service.split(":")[0]) / "state"
    given = Path(os.environ.get("XDG_STATE_HOME", ""))
    if given.is_absolute():  # the specification says to ignore relative paths
        return given / "mirror"
    try:
        return Path.home() / ".local" / "state" / "mirror"
    except RuntimeError as error:
        problem = (
            f"service.state_dir: not set, and user id {os.getuid()} has no home "
            "directory; set it to a folder, or set HOME or XDG_STATE_HOME"
        )
        raise ConfigError([problem]) from error


@contextmanager
def own(folder: Path, flow: str) -> Iterator[Path]:
    """A path for this flow's checkpoint, where nothing exists; removed afterwards.

    Raises:
        MirrorError: the folder cannot be written to, or its file system has no locks.
    """
    name = flow.replace("->", "-to-")
    try:
        place, held = _first_free(folder, name)
    except OSError as error:
        raise MirrorError(
            f"service.state_dir: {error.filename or folder}: {error.strerror}; make it "
            "writable for this user, or choose another folder"
        ) from error
    checkpoint = place / "leases"
    try:
        shutil.rmtree(checkpoint, ignore_errors=True)
        yield checkpoint
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)
        os.close(held)  # this unlocks it


def _first_free(folder: Path, name: str) -> tuple[Path, int]:
    """The first of the flow's folders that no process has locked, and our lock."""
    for number in itertools.count(1):
        place = folder / f"{name}-{number}"
        place.mkdir(parents=True, exist_ok=True)
        held = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(held)
        except OSError:
            os.close(held)
            raise
        else:
            return place, held
    raise AssertionError  # numbers do not end
