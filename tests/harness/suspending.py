"""Processes that answer nothing for a while, and how long waits for them may be."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING

import pytest

from mirror import patience
from mirror.clusters.wire import handshake
from mirror.patience import left

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


@contextlib.contextmanager
def suspended(pids: Collection[int]) -> Iterator[None]:
    """SIGSTOP for all, and SIGCONT when the block ends for those that are left."""
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


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
