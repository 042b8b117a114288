"""Waits for conditions, with a deadline; work that goes on beside a test."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from mirror.host import usable_cores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE_SECONDS = 120.0
"""A deadline for what takes seconds on an idle machine."""


def crowd() -> float:
    """How many times slower everything is on a machine with other work; 1 on a quiet
    one. A lull of a minute does not count: what it is asked for may outlast that.
    """
    return max(1.0, max(os.getloadavg()[:2]) / usable_cores())


def deadline_in(seconds: float = PATIENCE_SECONDS) -> float:
    """The time to give up on what takes at most so long on a quiet machine."""
    return time.monotonic() + seconds * crowd()


def wait_for(
    condition: Callable[[], Any], timeout: float = PATIENCE_SECONDS, pause: float = 0.2
) -> None:
    """Wait until a condition outside mirror is true."""
    deadline = deadline_in(timeout)
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout} s"
        time.sleep(pause)


@contextlib.contextmanager
def beside(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Work in a thread, which is asked to stop and waited for when the block ends; an
    error there is raised then.
    """
    stop = threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work(stop)
        except BaseException as error:  # noqa: BLE001  told to the test's thread
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        if failures:  # also where the block failed, which may be why
            raise failures[0]
