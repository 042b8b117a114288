"""Processes that answer nothing for a while, and how long waits for them may be."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
import signal
from typing import TYPE_CHECKING

import pytest

from mirror import patience
from mirror.clusters.wire import handshake
from mirror.patience import left
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


@contextlib.contextmanager
def suspended(pids: Collection[int]) -> Iterator[None]:
    """SIGSTOP for all, and SIGCONT when the block ends for those that are left. In the
    block none of their threads runs: a busy machine stops them one after the other.
    """
    assert pids
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: not any(map(_runs, pids)))
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _runs(pid: int) -> bool:
    """Whether any of its threads does. Source: proc(5), the state behind the name."""
    for file in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            state = file.read_text().rpartition(")")[2].split()[0]
            if state not in "TtZX":
                return True
    return False


@contextlib.contextmanager
def granted() -> Iterator[list[float]]:
    """How long each wait for a broker may be while the block runs, in seconds: what
    the program would wait, however slow the machine is.
    """
    waits: list[float] = []

    def noted(seconds: float) -> float:
        waits.append(left(seconds))
        return waits[-1]

    with pytest.MonkeyPatch.context() as patch:
        for module in (handshake, patience):
            patch.setattr(module, "left", noted)
        yield waits
