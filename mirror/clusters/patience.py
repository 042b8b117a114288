"""Until when a piece of work waits for brokers, whatever a connection would allow.

Main functions: `until`, a context manager around the work, and `left`, which bounds one
wait within it. A broker that hangs then costs what is left of the work's time, and not
a request's time for each question. It holds in the thread that entered it.
"""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
import math
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_LEAST_SECONDS = 2.0
"""What each wait gets even when time is up: brokers that answer do so within that, so
long work that goes on is not cut."""

_until: ContextVar[float] = ContextVar("until", default=math.inf)


@contextlib.contextmanager
def until(deadline: float) -> Iterator[None]:
    """`deadline`: monotonic; within another one the earlier one counts."""
    before = _until.set(min(deadline, _until.get()))
    try:
        yield
    finally:
        _until.reset(before)


def left(seconds: float) -> float:
    """How long to wait that otherwise would wait `seconds`."""
    return min(seconds, max(_until.get() - time.monotonic(), _LEAST_SECONDS))
