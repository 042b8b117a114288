"""Carries out the tasks of a service's proofs: one at a time, and only while it may.

Main type: `OneTask`, a `Runner` that all flows of a service share. While something is
in the way it waits, after it has cancelled the running task, and runs that again later.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
import contextlib
import threading
from typing import TYPE_CHECKING, Any, Protocol

from mirror.errors import MirrorError
from mirror.proving.log_stream import Meter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


_LOOK_SECONDS = 0.2


class StoppedError(MirrorError):
    """The flow ends, or its settings have changed."""


class Cancellable(Protocol):
    """A runner of which the running task can be ended."""

    def results(self, tasks: Iterable[Callable[[], Any]]) -> Iterator[Any]:
        """As `Runner`."""

    def cancel(self) -> None:
        """The running task raises."""


class OneTask:
    """Runs one task at a time, of all flows."""

    def __init__(self, runner: Cancellable, obstacle: Callable[[], str]) -> None:
        """`obstacle`: why none may run now; empty if one may."""
        self.obstacle = obstacle
        self._runner = runner
        self._turn = threading.Lock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="mirror-proof")

    @contextlib.contextmanager
    def turn(self, stopping: threading.Event) -> Iterator[None]:
        """One flow's turn; others wait. What a flow does in it takes no more than its
        budget, and then it rests, so that each gets a turn.

        Raises:
            StoppedError: the flow ends meanwhile.
        """
        while not self._turn.acquire(timeout=_LOOK_SECONDS):
            if stopping.is_set():
                raise StoppedError("stopped")
        try:
            yield
        finally:
            self._turn.release()

    def run(self, task: Callable[[], Any], of: Turn) -> tuple[Any, int]:
        """What the task returns, and how many bytes it has fetched.

        Raises:
            StoppedError: the flow ends.
            MirrorError: what the task raised.
        """
        while True:
            while reason := self.obstacle():
                of.waits(reason)
                if of.stopping.wait(_LOOK_SECONDS):
                    break
            if of.stopping.is_set():
                raise StoppedError("stopped")
            of.waits("")
            future = self._pool.submit(self._first, lambda: _metered(task))
            cancelled = False
            while not wait([future], _LOOK_SECONDS).done:
                if of.stopping.is_set() or self.obstacle():
                    self._runner.cancel()
                    cancelled = True
            if not cancelled or future.exception() is None:
                return future.result()

    def _first(self, task: Callable[[], Any]) -> tuple[Any, int]:
        found: tuple[Any, int]
        (found,) = self._runner.results([task])
        return found


class Turn:
    """The `Runner` of one flow."""

    def __init__(
        self,
        tasks: OneTask,
        stopping: threading.Event,
        *,
        waits: Callable[[str], None],
        done: Callable[[object, int], None],
    ) -> None:
        """`waits` gets the reason, or "" when it goes on; `done` each result, and how
        many bytes it took.
        """
        self.stopping = stopping
        self.waits = waits
        self._tasks = tasks
        self._done = done

    def results(self, tasks: Iterable[Callable[[], Any]]) -> Iterator[Any]:
        """What the tasks return, in order."""
        for task in tasks:
            result, fetched = self._tasks.run(task, self)
            self._done(result, fetched)
            yield result


def _metered(task: Callable[[], Any]) -> tuple[Any, int]:
    before = Meter.fetched_bytes
    result = task()
    return result, Meter.fetched_bytes - before
