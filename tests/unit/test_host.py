"""How many cores a container's limit leaves, and what is used of its memory."""

from __future__ import annotations

import os
from pathlib import Path
import resource

import pytest

from mirror.host import allowed, memory_use, process_use, usable_cores

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("seen", "limit", "expected"),
    [
        (64, "200000 100000", 2),
        (64, "250000 100000\n", 3),
        (64, "50000 100000", 1),
        (2, "800000 100000", 2),
        (64, "max 100000", 64),
        (64, "-1 100000", 64),
        (64, "", 64),
        (64, "0 100000", 64),
    ],
)
def test_limit_leaves_cores(seen: int, limit: str, expected: int) -> None:
    """A limit counts in whole cores, rounded up, and never adds any."""
    assert allowed(seen, limit) == expected


@pytest.mark.parametrize(
    "files",
    [
        {"cpu.max": "100000 100000\n"},
        {"cpu/cpu.cfs_quota_us": "100000\n", "cpu/cpu.cfs_period_us": "100000\n"},
    ],
    ids=["version 2", "version 1"],
)
def test_both_versions_of_control_groups(tmp_path: Path, files: dict[str, str]) -> None:
    """The limit is found where either version of control groups keeps it."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    assert usable_cores(tmp_path) == 1


def test_no_limit(tmp_path: Path) -> None:
    """Without control groups it is what the scheduler says."""
    assert usable_cores(tmp_path) == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    "files",
    [
        {
            "memory.max": "1000\n",
            "memory.current": "800\n",
            "memory.stat": "anon 1\ninactive_file 300\n",
        },
        {
            "memory/memory.limit_in_bytes": "1000\n",
            "memory/memory.usage_in_bytes": "800\n",
            "memory/memory.stat": "inactive_file 1\ntotal_inactive_file 300\n",
        },
    ],
    ids=["version 2", "version 1"],
)
def test_memory_of_a_container(tmp_path: Path, files: dict[str, str]) -> None:
    """What the kernel can drop does not count as used."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    assert memory_use(tmp_path) == (500, 1000)


@pytest.mark.parametrize("limit", ["max", str(2**63 - 4096)])
def test_memory_of_a_machine(tmp_path: Path, limit: str) -> None:
    """Without a limit it is the machine's memory."""
    for name, text in {
        "memory.max": limit,
        "memory.current": "1",
        "memory.stat": "",
        "meminfo": "MemTotal:  100 kB\nMemFree: 1 kB\nMemAvailable:   40 kB\n",
    }.items():
        (tmp_path / name).write_text(text)

    assert memory_use(tmp_path, tmp_path) == (60 * 1024, 100 * 1024)
    assert memory_use(tmp_path, tmp_path / "nowhere") is None


def test_use_of_a_process() -> None:
    """What this process uses grows with what it does; of one that is gone nothing is
    known.
    """
    before = process_use()
    assert before is not None
    held = bytearray(b"x" * 50_000_000)
    with Path(os.devnull).open("rb"):
        after = process_use(os.getpid())
    assert after is not None

    assert after.memory_bytes > before.memory_bytes + len(held) // 2
    assert after.open_files == before.open_files + 1
    assert after.cpu_seconds >= before.cpu_seconds > 0
    assert after.open_files_limit == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert process_use(2**22 + 1) is None
