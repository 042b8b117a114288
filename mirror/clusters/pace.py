"""How much of a core a piece of work takes, so that what runs beside it hardly notices.

Main functions: `gently`, a context manager around the work of a thread, and `rest`,
which every request calls, and long work in between. A rest is as long as the work since
the last one asks for, by the thread's own CPU clock: what waits for a core is then met
by short stretches of work instead of one long one.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_LEAST_SECONDS = 0.0005
"""Of work: shorter rests would be more work than rest."""


class _Thread(threading.local):
    rests = 0.0
    """Seconds for each second of work."""
    since = 0.0
    """Its CPU clock at the last rest."""


_thread = _Thread()


@contextlib.contextmanager
def gently(share: float) -> Iterator[None]:
    """Take at most this share of a core, in this thread, while the block runs."""
    before = _thread.rests
    _thread.rests, _thread.since = 1 / share - 1, time.thread_time()
    try:
        yield
    finally:
        _thread.rests = before


def rest() -> None:
    """Rest, if this thread's work is to be gentle."""
    if not _thread.rests:
        return
    worked = time.thread_time() - _thread.since
    if worked >= _LEAST_SECONDS:
        time.sleep(worked * _thread.rests)
        _thread.since = time.thread_time()
