"""How many cores a container's limit leaves."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from mirror.host import allowed, usable_cores

if TYPE_CHECKING:
    from pathlib import Path

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
