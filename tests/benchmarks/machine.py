"""The hardware and software of a measurement."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
import platform
import re
import shlex
import shutil
import subprocess
import sys

import psutil

from mirror.host import require_java
from mirror.playground.jars import KAFKA_VERSION

_GO_MODULES = Path(__file__).parent / "peers" / "franz_go" / "go.mod"


def command() -> str:
    """The command that repeats the measurement."""
    return shlex.join(["python", "-m", "tests.benchmarks", *sys.argv[1:]])


def describe(data: Path) -> dict[str, str]:
    """`data`: where the brokers kept theirs, for what kind of disk that is."""
    return {
        "mirror": f"{version('mirror')} ({_commit()})",
        "kafka": KAFKA_VERSION,
        "java": _java(),
        "python": platform.python_version(),
        "pyspark": version("pyspark"),
        "confluent-kafka": version("confluent-kafka"),
        "go": _go(),
        "franz-go": _franz_go(),
        "cpu": _cpu(),
        "cores": str(psutil.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "disk": _disk(data),
        "system": f"{platform.system()} {platform.release()}",
    }


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    return names[0] if names else platform.machine()


def _disk(folder: Path) -> str:
    """The file system under the folder; tmpfs is memory."""
    mounts = {
        Path(each.mountpoint): each.fstype for each in psutil.disk_partitions(all=True)
    }
    path = folder.resolve()
    place = next((each for each in (path, *path.parents) if each in mounts), None)
    kind = mounts[place] if place else "unknown"
    return "RAM disk" if kind in {"tmpfs", "ramfs"} else kind


def _go() -> str:
    if shutil.which("go") is None:
        return "none"
    answer = subprocess.run(
        ["go", "env", "GOVERSION"], capture_output=True, text=True, check=True
    )
    return answer.stdout.strip().removeprefix("go")


def _franz_go() -> str:
    text = _GO_MODULES.read_text(encoding="utf-8")
    found = re.search(r"franz-go v(\S+)", text)
    return found[1] if found else "unknown"


def _java() -> str:
    answer = subprocess.run(
        [require_java(), "-version"], capture_output=True, text=True, check=True
    )
    return answer.stderr.splitlines()[0]


def _commit() -> str:
    answer = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return answer.stdout.strip() or "no git"
