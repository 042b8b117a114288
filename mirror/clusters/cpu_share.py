"""How much of a core work takes that may take its time, such as a rehearsal.

Main functions: `gently`, around the work of a thread, `throughout`, for a process that
does nothing else, and `rest`, which each request to a broker calls, and long work in
between. A rest is in proportion to the work since the last one, by the thread's own CPU
clock: what waits for the core meets short stretches of work in place of a long one.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from typing import TYPE_CHECKING

from mirror import patience

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType

SHARE = 0.2
"""Of a core, for somebody who waits."""
_LEAST_SECONDS = 0.0005
"""Of work: shorter ones count with the next."""


class _Thread(threading.local):
    rests = 0.0
    """Seconds for each second of work."""
    since = 0.0
    """Its CPU clock at the last rest."""

    def begin(self, share: float) -> None:
        self.rests, self.since = 1 / share - 1, time.thread_time()


_thread = _Thread()


def current() -> float:
    """The share of a core that this thread may take; 1 where nothing limits it."""
    return 1 / (_thread.rests + 1)


@contextlib.contextmanager
def gently(share: float = SHARE) -> Iterator[None]:
    """Take at most this share of a core, in this thread, while the block runs; less if
    the thread may take only less.
    """
    before = _thread.rests
    _thread.begin(min(share, current()))
    try:
        yield
    finally:
        _thread.rests = before


@contextlib.contextmanager
def throughout() -> Iterator[None]:
    """The same for a process that does nothing else: also between modules it loads."""
    between = _BetweenModules()
    sys.meta_path.insert(0, between)
    try:
        with gently():
            yield
    finally:
        sys.meta_path.remove(between)


def rest() -> None:
    """Rest as long as the work asks for, unless the process has to end."""
    if not _thread.rests or patience.ending():
        return
    worked = time.thread_time() - _thread.since
    if worked >= _LEAST_SECONDS:
        time.sleep(worked * _thread.rests)
        _thread.since = time.thread_time()


class _BetweenModules:
    """Is asked first where a module is, and never knows."""

    def find_spec(
        self, _name: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> None:
        rest()
