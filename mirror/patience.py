"""Until when a piece of work waits for brokers, whatever a connection would allow.

Main functions: `until`, a context manager around the work, `left`, which bounds one
wait within it, and `poll`, which waits so. A broker that hangs then costs what is left
of the work's time, and not a request's time for each question. `until` holds in the
thread that entered it; `end_at` holds in all of them, for a process that has to end.
"""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
import math
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    import select

_LEAST_SECONDS = 2.0
"""What each wait gets even when time is up: brokers that answer do so within that, so
long work that goes on is not cut."""
_SLICE_SECONDS = 1.0
"""How long a wait may overlook that the process has to end."""

_until: ContextVar[float] = ContextVar("until", default=math.inf)
_end = math.inf


@contextlib.contextmanager
def until(deadline: float) -> Iterator[None]:
    """`deadline`: monotonic; within another one the earlier one counts."""
    before = _until.set(min(deadline, _until.get()))
    try:
        yield
    finally:
        _until.reset(before)


def end_at(deadline: float) -> None:
    """No work of this process waits longer than that, nor any that has begun."""
    global _end  # noqa: PLW0603  as a process has one end
    _end = deadline


def ends_at() -> float:
    """When the process has to end, monotonic; infinite if it goes on."""
    return _end


def ending() -> bool:
    """Whether the process has to end."""
    return ends_at() < math.inf


def left(seconds: float) -> float:
    """How long to wait that otherwise would wait `seconds`."""
    now = time.monotonic()
    return _left(now, seconds, now)


def poll(poller: select.poll, seconds: float) -> list[tuple[int, int]]:
    """What the poller finds within the time that is left of `seconds`."""
    began, rest = time.monotonic(), left(seconds)
    while True:
        found = poller.poll(max(min(rest, _SLICE_SECONDS), 0.0) * 1000)
        rest = _left(began, seconds, time.monotonic())
        if found or rest <= 0:
            return found


def _left(began: float, seconds: float, now: float) -> float:
    ends = max(min(_until.get(), ends_at()), began + _LEAST_SECONDS)
    return min(began + seconds, ends) - now
