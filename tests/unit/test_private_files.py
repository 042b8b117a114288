"""Files with customers' data: who can read them, and when they are on disk."""

from __future__ import annotations

import errno
import json
import os
import stat
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
import uuid

import pytest

from mirror.cli import proof
from mirror.errors import MirrorError
from mirror.recovery.tails.exporting import TailFile, TailRecord
from tests.harness.configurations import configuration
from tests.unit import test_evidence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.unit

FLOW = configuration(
    {
        "clusters": {each: {"bootstrap_servers": f"{each}:1"} for each in "AB"},
        "flows": {"A->B": {}},
    }
).flows["A->B"]
PART: Any = SimpleNamespace(topic="orders", partition=0, topic_id=uuid.UUID(int=7))
SECRET = b"customer 4711"


@pytest.fixture(autouse=True)
def _as_usual() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def export(path: Path) -> None:
    record = TailRecord(offset=3, time=0, key=SECRET, value=SECRET, headers=())
    with TailFile(path, FLOW) as file:
        file.add(PART, [record])


def report(path: Path) -> None:
    proof.write_report(path, {**test_evidence.report(), "note": SECRET.decode()})


WAYS = pytest.mark.parametrize("write", [export, report])


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@WAYS
def test_only_the_owner_can_read_it(tmp_path: Path, write: Callable[..., None]) -> None:
    """A new file has mode 0600 whatever the umask, and so has one that others could
    read, before anything is added; what it holds stays useful.
    """
    before = os.umask(0)
    new, open_to_all = tmp_path / "new.json", tmp_path / "old.json"
    open_to_all.touch(0o666)
    os.umask(before)
    for each in (new, open_to_all):
        write(each)
        assert SECRET.decode() in each.read_text()
    assert {mode(each) for each in tmp_path.iterdir()} == {0o600}


@WAYS
@pytest.mark.parametrize("planted", ["link", "dangling", "hard link", "fifo", "folder"])
def test_what_somebody_planted_is_not_written(
    tmp_path: Path, write: Callable[..., None], planted: str
) -> None:
    """A link that leads elsewhere, and what is no file, is refused by name; what it
    leads to stays as it is.
    """
    path, victim = tmp_path / "out.json", tmp_path / "victim"
    if planted != "dangling":
        victim.write_text("")
        victim.chmod(0o644)
    match planted:
        case "hard link":
            path.hardlink_to(victim)
        case "fifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case _:
            path.symlink_to(victim)
    with pytest.raises(MirrorError, match=r"out\.json: ") as refused:
        write(path)
    if "link" in planted or planted == "dangling":
        assert "link" in str(refused.value)
    assert victim.exists() == (planted != "dangling")
    if victim.exists():
        assert (victim.read_text(), mode(victim)) == ("", 0o644)


@WAYS
def test_the_file_of_another_user_is_not_written(
    tmp_path: Path, write: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner could read it, whatever its mode: root is told so, too."""
    path = tmp_path / "out.json"
    path.write_text("")
    owner = path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(MirrorError, match=r"out.json: .* another user"):
        write(path)
    assert path.read_text() == ""


class Disk:
    """Notes what is forced to disk, in order, and can fail."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.synced: list[tuple[int, bytes]] = []
        """Inode and content at that time."""
        self._fails_at = fails_at
        self._fsync = os.fsync

    def fsync(self, handle: int) -> None:
        if len(self.synced) == self._fails_at:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._fsync(handle)
        found = os.fstat(handle)
        content = b""
        if stat.S_ISREG(found.st_mode):
            content = os.pread(handle, found.st_size, 0)
        self.synced.append((found.st_ino, content))


@WAYS
def test_file_and_folder_are_on_disk(
    tmp_path: Path, write: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the call returns, the folder with the file's name and all of its content
    have been forced to disk: also the name of a file that a killed run has made.
    """
    path = tmp_path / "out.json"
    for _ in range(2):
        disk = Disk()
        monkeypatch.setattr(os, "fsync", disk.fsync)
        write(path)
        assert tmp_path.stat().st_ino in dict(disk.synced)
        assert (path.stat().st_ino, path.read_bytes()) in disk.synced
        monkeypatch.undo()


@pytest.mark.parametrize("fails_at", [0, 1])
def test_nothing_is_said_of_what_is_not_on_disk(
    tmp_path: Path, fails_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the folder or the file cannot be forced to disk, no export succeeds, so the
    ledger does not name its records; the next run has them once.
    """
    path = tmp_path / "out.json"
    monkeypatch.setattr(os, "fsync", Disk(fails_at).fsync)
    with pytest.raises(MirrorError, match=r"out.json: Input/output error"):
        export(path)
    monkeypatch.undo()
    export(path)
    (line,) = path.read_text().splitlines()
    assert json.loads(line)["offset"] == 3
