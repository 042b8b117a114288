"""What this host offers: cores, also inside a container, Java, private files, a name.

Main functions: `usable_cores`, `require_java`, `private_file` and `process_name`;
`process_use` and `memory_use` say what is used of it. A container sees all cores
whatever its limit on CPU time, so `usable_cores` also reads the limit from the control
group: two cores' worth of time on a host with 64 counts as two. `require_java` finds
the java binary for Spark and the playground's brokers; it installs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
import errno
from functools import lru_cache
import getpass
import math
import os
from pathlib import Path
import re
import shutil
import socket
import stat
import subprocess
from typing import TYPE_CHECKING

from mirror.errors import JavaMissingError

if TYPE_CHECKING:
    from typing import BinaryIO

_GROUPS = Path("/sys/fs/cgroup")
_PROCESSES = Path("/proc")
_NO_LIMIT = 1 << 60
_LINE = re.compile(r"^(\w+):?\s+(\d+)", re.MULTILINE)


def process_name() -> str:
    """host:pid, by which people find this process."""
    return f"{socket.gethostname()}:{os.getpid()}"


def operator_name() -> str:
    """user@host, by which people find who ran a command."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def private_file(path: Path) -> BinaryIO:
    """Open a file to read it and write at its end, which only its owner can read;
    create it if it is not there. Its name is on disk when this returns; what is written
    is after `os.fsync`.

    Raises:
        OSError: it cannot be opened so. `strerror` says why and what to do: a link
            would lead what is written elsewhere, and another user could read his file.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        handle = os.open(path, flags, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _refused(path, "it is a symbolic link") from error
        raise
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise _refused(path, "it is no regular file")
        if found.st_nlink > 1:
            raise _refused(path, "it is a hard link, and has another name")
        if found.st_uid != os.geteuid():
            raise _refused(path, "it belongs to another user")
        os.fchmod(handle, 0o600)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError:
        os.close(handle)
        raise
    return os.fdopen(handle, "a+b")


def _refused(path: Path, why: str) -> OSError:
    return OSError(errno.EPERM, f"{why}: name another file", str(path))


def usable_cores(groups: Path = _GROUPS) -> int:
    """Cores that this process may run on, within its limit on CPU time."""
    if hasattr(os, "sched_getaffinity"):
        seen = len(os.sched_getaffinity(0))
    else:
        seen = os.cpu_count() or 1
    return allowed(seen, _limit(groups))


def allowed(seen: int, limit: str) -> int:
    """How many of the cores a limit leaves: "QUOTA PERIOD", or none.

    Part of a core counts as one: an idle slot does not need it.
    """
    quota, _, period = limit.strip().partition(" ")
    if not (quota.isdigit() and period.isdigit() and int(quota) and int(period)):
        return seen  # "max", -1, or no limit
    return max(1, min(seen, math.ceil(int(quota) / int(period))))


def _limit(groups: Path) -> str:
    """The control group's limit, as in version 2; composed from version 1's files."""
    try:
        return (groups / "cpu.max").read_text()
    except OSError:
        pass  # not version 2, or the root group, which has no limit
    try:
        first = groups / "cpu"
        quota = (first / "cpu.cfs_quota_us").read_text().strip()
        return f"{quota} {(first / 'cpu.cfs_period_us').read_text().strip()}"
    except OSError:
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessUse:
    """What one process uses."""

    cpu_seconds: float
    memory_bytes: int
    open_files: int
    open_files_limit: int


def process_use(pid: int | None = None) -> ProcessUse | None:
    """What a process uses, by default this one; None if the system does not say."""
    folder = _PROCESSES / ("self" if pid is None else str(pid))
    try:
        # The name may hold spaces and brackets: what follows its end is in fields.
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        limits = (folder / "limits").read_text()
        open_files = sum(1 for _ in (folder / "fd").iterdir())
    except OSError:
        return None  # not Linux, or another user's, or gone
    found = re.search(r"^Max open files +(\d+)", limits, re.MULTILINE)
    return ProcessUse(
        cpu_seconds=(int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
        memory_bytes=int(fields[21]) * os.sysconf("SC_PAGE_SIZE"),
        open_files=open_files,
        open_files_limit=int(found[1]) if found else 0,
    )


def memory_use(
    groups: Path = _GROUPS, processes: Path = _PROCESSES
) -> tuple[int, int] | None:
    """Bytes in use and the limit, of this container; without a limit, of the machine.
    None if the system does not say.

    Caches that the kernel can drop do not count, as for Kubernetes.
    """
    for used, limit, dropped, folder in (
        ("memory.current", "memory.max", "inactive_file", groups),
        ("memory.usage_in_bytes", "memory.limit_in_bytes", "total_inactive_file",
         groups / "memory"),
    ):  # fmt: skip
        try:
            most = (folder / limit).read_text().strip()
            now = int((folder / used).read_text())
            shares = _numbers((folder / "memory.stat").read_text())
        except OSError:
            continue  # the other version, or the root group, which has no limit
        # Version 1 writes a number without sense where there is no limit.
        if most.isdigit() and int(most) < _NO_LIMIT:
            return max(now - shares.get(dropped, 0), 0), int(most)
    try:
        machine = _numbers((processes / "meminfo").read_text())
    except OSError:
        return None
    total = machine["MemTotal"] * 1024
    return total - machine["MemAvailable"] * 1024, total


def _numbers(text: str) -> dict[str, int]:
    """Lines with a name and a number."""
    return {name: int(value) for name, value in _LINE.findall(text)}


OLDEST_JAVA = 17
_ADVICE = "install e.g. Debian's openjdk-17-jre-headless and set JAVA_HOME"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def require_java() -> Path:
    """Find a java binary of version 17 or newer.

    Raises:
        JavaMissingError: none was found, or the one found is too old.
    """
    return _checked(os.environ.get("JAVA_HOME", ""), os.environ.get("PATH", ""))


@lru_cache
def _checked(java_home: str, path: str) -> Path:
    java = _locate(java_home, path)
    version = java_version(java)
    if version is None:
        raise JavaMissingError(
            f"Java {OLDEST_JAVA} or newer is needed, {java} did not print its"
            f" version: {_ADVICE}"
        )
    if version < OLDEST_JAVA:
        raise JavaMissingError(
            f"Java {OLDEST_JAVA} or newer is needed, found {version} at {java}:"
            f" {_ADVICE}"
        )
    return java


def _locate(java_home: str, path: str) -> Path:
    if java_home:
        java = Path(java_home, "bin", "java")
        if not os.access(java, os.X_OK):
            raise JavaMissingError(
                f"Java {OLDEST_JAVA} or newer is needed, JAVA_HOME points to"
                f" {java_home}, which has no bin/java: {_ADVICE}"
            )
        return java
    found = shutil.which("java", path=path)
    if found is None:
        raise JavaMissingError(
            f"Java {OLDEST_JAVA} or newer is needed, found none on PATH: {_ADVICE}"
        )
    return Path(found)


def java_version(java: Path) -> int | None:
    """Ask a java binary for its major version; None when it does not answer."""
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(answer.stderr + answer.stdout)
    return int(match.group(1)) if match else None
