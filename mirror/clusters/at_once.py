"""Work on several clusters at once, a thread for each: one waits while the others do.

Main function: `at_once`. A `Cluster` is not thread-safe: no two pieces of work may use
the same one.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")


def at_once(work: Sequence[Callable[[], T]]) -> list[Future[T]]:
    """All of it, done or failed, in this order."""
    if not work:
        return []
    with ThreadPoolExecutor(len(work)) as pool:
        # Copied, since for how long brokers are waited for counts there as well.
        return [pool.submit(copy_context().run, each) for each in work]
