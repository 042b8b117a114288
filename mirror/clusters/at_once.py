"""Work on several clusters at once, a thread for each: one waits while the others do.

Main functions: `at_once`, and `begun`, which does not wait for it. A `Cluster` is not
thread-safe: no two pieces of work may use the same one.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")


def at_once(work: Sequence[Callable[[], T]]) -> list[Future[T]]:
    """All of it, done or failed, in this order."""
    wait(futures := begun(work))
    return futures


def begun(work: Sequence[Callable[[], T]]) -> list[Future[T]]:
    """The same while it is being done: the process ends no sooner."""
    if not work:
        return []
    pool = ThreadPoolExecutor(len(work))
    # Copied, since for how long brokers are waited for counts there as well.
    futures = [pool.submit(copy_context().run, each) for each in work]
    pool.shutdown(wait=False)
    return futures
