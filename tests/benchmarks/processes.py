"""A peer's processes: started, measured and ended together.

Main type: `Service`, a command in a session of its own. CPU is counted over the session
and all descendants (Spark's JVM and Python workers), including children that have
ended: their parents keep their time.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
import re
import signal
import subprocess
from typing import TYPE_CHECKING, Any
import urllib.request

import psutil

from mirror.playground.process import Leash

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_TICKS = os.sysconf("SC_CLK_TCK")
_STOP_SECONDS = 30


class PeerError(RuntimeError):
    """A peer did not do its work, so there is nothing to measure."""


class Service:
    """One command and everything it starts."""

    orphaned_seconds = 0.0
    """CPU of all services so far that the system does not count as our children's:
    of descendants whose parents ended first, such as Spark's workers."""

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        workers: str | None = None,
        status_url: str | None = None,
    ) -> None:
        """`workers` is an argument of the processes that hold the data
        (None: the command is the only one); `status_url` tells how it is doing.
        """
        self.log = log
        self.status_url = status_url
        self._workers = workers
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )
        self._leash = Leash(self._process.pid)

    def pids(self) -> list[int]:
        """The CPU of the session, and of all descendants that left it."""
        return sorted(self._among(_all_stats()))

    def _among(self, stats: Mapping[int, _Stat]) -> set[int]:
        root = self._process.pid
        found = {root}
        # Parents may have a higher pid than their children: repeat until it is still.
        while True:
            more = {
                pid
                for pid, stat in stats.items()
                if stat.session == root or stat.parent in found
            }
            if more <= found:
                return found
            found |= more

    def cpu_seconds(self) -> float:
        stats = _all_stats()
        ours = self._among(stats)
        return sum(stats[pid].cpu_ticks for pid in ours if pid in stats) / _TICKS

    def resident_bytes(self) -> int:
        """Shared pages count once per process that maps them."""
        return self._sum(lambda process: int(process.memory_info().rss))

    def proportional_bytes(self) -> int:
        """Shared pages count in parts (PSS)."""
        return self._sum(lambda process: int(process.memory_full_info().pss))

    def _sum(self, size: Callable[[psutil.Process], int]) -> int:
        total = 0
        for pid in self.pids():
            try:
                total += size(psutil.Process(pid))
            except psutil.NoSuchProcess:
                continue
        return total

    def worker_bytes(self) -> dict[int, int]:
        """What each process that holds data has in memory, by pid."""
        found = {}
        for pid in self.pids() if self._workers else [self._process.pid]:
            try:
                process = psutil.Process(pid)
                if not self._workers or self._workers in process.cmdline():
                    found[pid] = int(process.memory_info().rss)
            except (psutil.NoSuchProcess, psutil.ZombieProcess):
                continue
        return found

    def peak_bytes(self) -> int:
        """The most that the command itself had in memory so far; 0 once it ended."""
        status = Path("/proc", str(self._process.pid), "status").read_text()
        found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
        return int(found[1]) << 10 if found else 0

    def status(self) -> dict[str, Any]:
        """The status of its only flow.

        Raises:
            PeerError: it does not answer, or has no status.
        """
        if self.status_url is None:
            raise PeerError("it has no status")
        try:
            with urllib.request.urlopen(self.status_url, timeout=5) as answer:
                document: dict[str, Any] = json.load(answer)["flows"][0]
        except OSError as error:
            raise PeerError(f"no status: {error}\n{self.log_tail()}") from error
        return document

    def require_running(self) -> None:
        if (code := self._process.poll()) is not None:
            raise PeerError(f"it ended with exit code {code}:\n{self.log_tail()}")

    def is_running(self) -> bool:
        return self._process.poll() is None

    def log_tail(self, lines: int = 30) -> str:
        text = self.log.read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def kill_workers(self) -> None:
        """SIGKILL for the processes that hold data."""
        for pid in self.worker_bytes():
            _kill(pid)

    def kill(self) -> None:
        """SIGKILL for all of them, the command first: it must not see others end."""
        for pid in sorted(self.pids(), key=lambda pid: pid != self._process.pid):
            _kill(pid)

    def stop(self) -> None:
        """Ask the command to end; then kill what is left."""
        pids = self.pids()
        used, inherited = self.cpu_seconds(), _of_children()
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        Service.orphaned_seconds += max(0.0, used - (_of_children() - inherited))
        self._leash.release()
        for pid, stat in _all_stats().items():
            if pid in pids and stat.session == self._process.pid:
                _kill(pid)


def _of_children() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


class _Stat:
    __slots__ = ("cpu_ticks", "parent", "session")

    def __init__(self, text: str) -> None:
        # The command's name may contain spaces and brackets; what follows it does not.
        fields = text.rpartition(")")[2].split()
        self.parent = int(fields[1])
        self.session = int(fields[3])
        self.cpu_ticks = sum(map(int, fields[11:15]))


def _all_stats() -> dict[int, _Stat]:
    stats = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            stats[int(entry.name)] = _Stat(Path(entry.path, "stat").read_text())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return stats
