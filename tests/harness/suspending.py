"""Processes that answer nothing for a while, without being gone."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING

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
