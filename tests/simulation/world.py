"""Virtual time: processes take turns, and one seed decides whose turn it is.

Main type: `World`. Real code runs in threads, one at a time: a thread that waits (in a
poll or a sleep) hands over to the next event. Work takes no time. A `Process` can be
killed or suspended at any wait or send, with all its threads and lines.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import heapq
import random
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.network import SimLine

STEP = 1e-5
"""Seconds that a poll takes which does not wait, so that no loop stops the clock."""
NOON = 1_800_000_000.0
_REAL_SECONDS = 60.0
"""After so long without any turn, a thread waits for what is not simulated."""
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
    lines: list[SimLine] = field(default_factory=list)
    kill_at_send: int = -1
    """It dies at the send with this number from now; -1: at none."""


@dataclass(eq=False)
class _Task:
    """One thread of a process."""

    process: Process
    name: str
    turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    ready: Callable[[], bool] | None = None
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
        self._turns = 0
        self._main = _Task(Process("world"), "main")
        self._threads = {threading.current_thread()}
        self._error: BaseException | None = None
        self._main_done: Callable[[], bool] = lambda: False

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

    def start(self, process: Process, function: Callable[[], None], name: str) -> _Task:
        """A new thread of a process; it begins with its first turn."""
        task = _Task(process, name)

        def body() -> None:
            task.turn.acquire()
            try:
                if process.alive:
                    function()
            except Killed:
                pass
            except BaseException as error:  # noqa: BLE001  `run` raises it
                self._error = self._error or error
            task.ended = True
            self._tasks.remove(task)
            self._pass_on(None)

        thread = threading.Thread(target=body, name=name, daemon=True)
        self._threads.add(thread)
        thread.start()
        self._tasks.append(task)
        task.ready = lambda: True
        self._wake_later(task, 0.0)
        return task

    def wait(self, ready: Callable[[], bool], seconds: float) -> None:
        """Until it is ready, or the time is over.

        Raises:
            Killed: the process died meanwhile.
        """
        task = self._turn
        assert task is not None, "only processes wait"
        if seconds <= 0 or ready():
            self.now += STEP
            self._die_if_dead(task)
            return
        task.ready, task.until = ready, self.now + seconds
        self._wake_later(task, seconds)
        if self._pass_on(task) is not task and not self._await_turn(task):
            raise StuckError(f"{task.name} got no turn")
        self._die_if_dead(task)

    def _await_turn(self, task: _Task) -> bool:
        """False: for a minute no thread got one. A slow machine takes long for all."""
        while True:
            turns = self._turns
            if task.turn.acquire(timeout=_REAL_SECONDS):
                return True
            if self._turns == turns:
                return False

    def sleep(self, seconds: float) -> None:
        if threading.current_thread() not in self._threads:  # such as a library's
            _really_sleep(seconds)
            return
        self.wait(lambda: False, max(seconds, STEP))

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
        found = [
            task
            for task in self._tasks
            if task is not self._turn
            and task.ready is not None
            and not task.process.suspended
            and (not task.process.alive or task.until <= self.now or task.ready())
        ]
        if len(found) > 1:
            return self.random.choice(found)
        return found[0] if found else None

    def _pass_on(self, task: _Task | None) -> _Task:
        """Let time pass until a thread can go on, and give it the turn."""
        self._turn = None
        while not self._main_done():
            if (following := self._due()) is not None:
                break
            if not self._events:
                self._error = self._error or StuckError("nothing is left to happen")
                following = self._main
                break
            at, _, action = heapq.heappop(self._events)
            self.now = max(self.now, at)
            try:
                action()
            except Exception as error:  # noqa: BLE001  not for the code that waits
                self._error = self._error or error
        else:
            following = self._main
        following.ready = None
        following.number += 1
        self._turns += 1
        self._turn = following
        if following is not task:
            following.turn.release()
        return following

    def run(self, seconds: float) -> None:
        """Let things happen for so long.

        Raises:
            StuckError: it cannot go on.
        """
        end = self.now + seconds
        self.after(seconds, lambda: None)
        self._main_done = lambda: self._error is not None or self.now >= end
        if self._pass_on(self._main) is not self._main and not (
            self._await_turn(self._main)
        ):
            raise StuckError("a thread waits for what is not simulated")
        if self._error is not None:
            raise self._error

    def kill(self, process: Process) -> None:
        """As SIGKILL: its lines end, its threads do nothing more."""
        process.alive = process.suspended = False
        for line in tuple(process.lines):
            line.die()

    def close(self) -> None:
        """End all threads."""
        self._main_done = lambda: not self._tasks
        for task in self._tasks:
            task.process.alive = task.process.suspended = False
        if self._tasks and self._pass_on(self._main) is not self._main:
            self._main.turn.acquire(timeout=_REAL_SECONDS)


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
