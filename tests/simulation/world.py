"""Virtual time: processes take turns, and one seed decides whose turn it is.

Main type: `World`. Threads of the real code are greenlets here, so one runs at a time:
a thread that waits (in a poll or a sleep) hands over to the next event. Work takes no
time. A `Process` can be killed or suspended at any wait or send, with all its threads
and lines.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import faulthandler
import heapq
import math
import random
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from greenlet import getcurrent, greenlet

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.network import SimLine

STEP = 1e-5
"""Seconds that a poll takes which does not wait, so that no loop stops the clock."""
NOON = 1_800_000_000.0
_REAL_SECONDS = 100.0
"""After so long a thread waits for what is not simulated: the Python process prints
where, and ends."""
_really_sleep = time.sleep


class Killed(BaseException):
    """The process of this thread is dead: nothing it does reaches anybody."""


class StuckError(Exception):
    """Nothing is left to happen, or a thread waits for what is not simulated."""


@dataclass(eq=False)
class Process:
    """Threads that die together."""

    name: str
    alive: bool = True
    suspended: bool = False
    clock: float = 0.0
    """How far its wall clock is off, in seconds."""
    site: str = ""
    """The cluster beside which it runs; empty: beside none."""
    ends_at: float = math.inf
    """As `patience.end_at` says."""
    lines: list[SimLine] = field(default_factory=list)
    kill_at_send: int = -1
    """It dies at the send with this number from now; -1: at none."""


@dataclass(eq=False)
class _Task:
    """One thread of a process."""

    process: Process
    body: greenlet = field(default_factory=getcurrent)
    ready: Callable[[], bool] | None = None
    """Whether it can go on before its time is over; None: it sleeps."""
    until: float = 0.0
    number: int = 0
    """Of its current wait: an event for an earlier one is void."""
    ended: bool = False


class World:
    """Time, chance, and everything that is going to happen."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.history: list[tuple[float, str]] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._tasks: list[_Task] = []
        self._turn: _Task | None = None
        self._main = _Task(Process("world"))
        self._thread = threading.get_ident()
        self._error: BaseException | None = None

    def note(self, text: str) -> None:
        """A line of the history."""
        self.history.append((self.now, text))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Let something happen later."""
        self._count += 1
        heapq.heappush(self._events, (self.now + seconds, self._count, action))

    @property
    def process(self) -> Process:
        """The process whose turn it is."""
        return (self._turn or self._main).process

    @property
    def turn(self) -> object:
        """The thread whose turn it is; None: the history's own."""
        return self._turn

    def start(self, process: Process, function: Callable[[], None]) -> _Task:
        """A new thread of a process; it begins with its first turn."""
        task = _Task(process)

        def body() -> None:
            try:
                if process.alive:
                    function()
            except Killed:
                pass
            except BaseException as error:  # noqa: BLE001  `run` raises it
                self._error = self._error or error
            task.ended = True
            self._tasks.remove(task)

        task.body = greenlet(body, parent=self._main.body)
        self._tasks.append(task)
        self._wake_later(task, 0.0)
        return task

    def wait(self, ready: Callable[[], bool] | None, seconds: float) -> None:
        """Until it is ready, or the time is over.

        Raises:
            Killed: the process died meanwhile.
        """
        task = self._turn
        assert task is not None, "only processes wait"
        if seconds <= 0 or (ready is not None and ready()):
            self.now += STEP
            self._die_if_dead(task)
            return
        task.ready, task.until = ready, self.now + seconds
        self._wake_later(task, seconds)
        self._main.body.switch()
        self._die_if_dead(task)

    def wake(self, turn: Any) -> None:
        """End the wait of a thread, as `turn` names it."""
        turn.until = min(turn.until, self.now)

    def sleep(self, seconds: float) -> None:
        if threading.get_ident() != self._thread:  # such as a library's
            _really_sleep(seconds)
            return
        self.wait(None, max(seconds, STEP))

    def _die_if_dead(self, task: _Task) -> None:
        if not task.process.alive:
            raise Killed

    def _wake_later(self, task: _Task, seconds: float) -> None:
        task.number += 1
        number = task.number

        def wake() -> None:
            if task.number == number:
                task.until = min(task.until, self.now)

        self.after(seconds, wake)

    def _due(self) -> _Task | None:
        """A thread that can go on, by chance if there are several."""
        found, now = [], self.now
        for task in self._tasks:
            process, ready = task.process, task.ready
            if not process.suspended and (
                task.until <= now
                or not process.alive
                or (ready is not None and ready())
            ):
                found.append(task)
        if len(found) > 1:
            return self.random.choice(found)
        return found[0] if found else None

    def _go_on(self, done: Callable[[], bool]) -> None:
        """Give turns, and let time pass, until it is done."""
        faulthandler.dump_traceback_later(_REAL_SECONDS, exit=True, file=sys.__stderr__)
        try:
            while not done():
                self._step()
        finally:  # else it would end the Python process after a failure as well
            faulthandler.cancel_dump_traceback_later()

    def _step(self) -> None:
        if (task := self._due()) is not None:
            task.number += 1
            self._turn = task
            task.body.switch()
            self._turn = None
        elif self._events:
            at, _, action = heapq.heappop(self._events)
            self.now = max(self.now, at)
            action()
        else:
            raise StuckError("nothing is left to happen")

    def run(self, seconds: float) -> None:
        """Let things happen for so long.

        Raises:
            StuckError: it cannot go on.
        """
        end = self.now + seconds
        self.after(seconds, lambda: None)
        self._go_on(lambda: self._error is not None or self.now >= end)
        if self._error is not None:
            raise self._error

    def fail(self, error: Exception) -> None:
        """The history ends with this."""
        self._error = self._error or error

    def kill(self, process: Process) -> None:
        """As SIGKILL: its lines end, its threads do nothing more."""
        process.alive = process.suspended = False
        for line in tuple(process.lines):
            line.die()

    def close(self) -> None:
        """End all threads."""
        for task in self._tasks:
            task.process.alive = task.process.suspended = False
        self._go_on(lambda: not self._tasks)


def sent(world: World) -> None:
    """To be called at each send of a process: it may die right there.

    Raises:
        Killed: it does.
    """
    process = world.process
    if process.kill_at_send >= 0:
        process.kill_at_send -= 1
        if process.kill_at_send < 0:
            world.note(f"{process.name} dies at a send")
            world.kill(process)
    if not process.alive:
        raise Killed
