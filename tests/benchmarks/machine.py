"""What the figures were measured on and with."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
import platform
import subprocess

import psutil

from mirror.java import require_java
from mirror.playground.cache import KAFKA_VERSION


def describe() -> dict[str, str]:
    return {
        "mirror": f"{version('mirror')} ({_commit()})",
        "kafka": KAFKA_VERSION,
        "java": _java(),
        "python": platform.python_version(),
        "pyspark": version("pyspark"),
        "confluent-kafka": version("confluent-kafka"),
        "cpu": _cpu(),
        "cores": str(psutil.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
    }


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    return names[0] if names else platform.machine()


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
