"""Threads, locks, events, queues and futures that take turns in a world.

Main function: `replaced`, which puts them in place of the modules `threading` and
`concurrent.futures` in all of mirror's modules. A thread of the real code is a thread
of the process that starts it, and dies with it.
"""

from __future__ import annotations

from collections import deque
from concurrent import futures
import contextlib
from contextvars import copy_context
import functools
import importlib
import pkgutil
import queue
import sys
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import mirror

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tests.simulation.world import World

_FOREVER = 1e9
_OTHERS = ("mirror.cli", "mirror.playground", "mirror.__main__")
"""Not simulated, unless a history has loaded them itself."""


class Threads:
    """In place of the module `threading`."""

    local = threading.local

    def __init__(self, world: World) -> None:
        self.current_thread = lambda: world.turn
        of = {"world": world}
        self.Thread = type("Thread", (_Thread,), of)
        self.Timer = type("Timer", (_Timer,), of)
        self.Event = type("Event", (_Event,), of)
        self.Lock = type("Lock", (_Lock,), of)
        self.RLock = type("RLock", (_RLock,), of)
        self.Condition = type("Condition", (_Condition,), of)

    @staticmethod
    def main_thread() -> object:
        """None of the threads that there are: nothing installs handlers of signals."""
        return None


class _InWorld:
    world: World

    def _await(self, ready: Callable[[], bool], seconds: float | None) -> bool:
        """Wait in virtual time; an answer that is there costs none."""
        if not ready():
            self.world.wait(ready, _FOREVER if seconds is None else seconds)
        return ready()


class _Thread(_InWorld):
    def __init__(
        self,
        *,
        target: Callable[..., object],
        args: Sequence[Any] = (),
        name: str = "thread",
        daemon: bool = False,
    ) -> None:
        self.name, self.daemon = name, daemon
        self._body = lambda: target(*args)
        self._task: Any = None

    def start(self) -> None:
        self._task = self.world.start(self.world.process, self._body)

    @property
    def ident(self) -> int | None:
        return None if self._task is None else id(self._task)

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.ended

    def join(self, timeout: float | None = None) -> None:
        self._await(lambda: not self.is_alive(), timeout)


class _Timer(_Thread):
    def __init__(
        self, interval: float, function: Callable[..., object], args: Sequence[Any] = ()
    ) -> None:
        super().__init__(target=function, args=args, name="timer")
        self._seconds = interval
        self._cancelled = False

    def start(self) -> None:
        process = self.world.process

        def over() -> None:
            if not self._cancelled and process.alive:
                self._task = self.world.start(process, self._body)

        self.world.after(self._seconds, over)

    def cancel(self) -> None:
        self._cancelled = True


class _Event(_InWorld):
    """Wakes those who wait, so that the world need not ask: most wait for an end that
    never comes.
    """

    def __init__(self) -> None:
        self._set = False
        self._waiting: list[object] = []

    def set(self) -> None:
        self._set = True
        for each in self._waiting:
            self.world.wake(each)

    def clear(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set:
            turn = self.world.turn
            self._waiting.append(turn)
            self.world.wait(None, _FOREVER if timeout is None else timeout)
            self._waiting.remove(turn)
        return self._set


class _Lock(_InWorld):
    def __init__(self) -> None:
        self._taken = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._taken and blocking:
            self._await(lambda: not self._taken, timeout if timeout >= 0 else _FOREVER)
        taken, self._taken = self._taken, True
        return not taken

    def release(self) -> None:
        self._taken = False

    def locked(self) -> bool:
        return self._taken

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class _RLock(_Lock):
    def __init__(self) -> None:
        super().__init__()
        self._owner: object = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = self.world.turn
        if self._owner is not me:
            if not super().acquire(blocking, timeout):
                return False
            self._owner = me
        self._depth += 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            super().release()


class _Condition(_RLock):
    def __init__(self) -> None:
        super().__init__()
        self._told = 0

    def notify(self, n: int = 1) -> None:
        """All: a wait may always end early."""
        self._told += n

    def notify_all(self) -> None:
        self._told += 1

    def wait(self, timeout: float | None = None) -> bool:
        depth, self._depth = self._depth, 1
        self.release()
        told = self._told
        try:
            return self._await(lambda: self._told != told, timeout)
        finally:
            self.acquire()
            self._depth = depth

    def wait_for(
        self, predicate: Callable[[], bool], timeout: float | None = None
    ) -> bool:
        end = self.world.now + (_FOREVER if timeout is None else timeout)
        while not (found := predicate()) and self.world.now < end:
            self.wait(end - self.world.now)
        return found


class _Future(_InWorld):
    """In place of `concurrent.futures.Future`."""

    def __init__(self) -> None:
        self._done = False
        self._result: Any = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        return self._done

    def set_result(self, result: Any) -> None:
        self._done, self._result = True, result

    def set_exception(self, error: BaseException | None) -> None:
        self._done, self._error = True, error

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if not self._await(self.done, timeout):
            raise TimeoutError
        return self._error

    def result(self, timeout: float | None = None) -> Any:
        if (error := self.exception(timeout)) is not None:
            raise error
        return self._result


class _Queue(_InWorld):
    """In place of `queue.SimpleQueue`."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()

    def put(self, item: Any) -> None:
        self._items.append(item)

    def get(self) -> Any:
        self._await(lambda: bool(self._items), None)
        return self._items.popleft()

    def empty(self) -> bool:
        return not self._items


class _Pool(_InWorld):
    """In place of `ThreadPoolExecutor`: as many threads as there is work."""

    future: type[_Future]

    def __init__(self, max_workers: int = 0, thread_name_prefix: str = "pool") -> None:
        self._name = thread_name_prefix
        self._begun: list[_Future] = []

    def submit(self, work: Callable[..., Any], *args: Any, **more: Any) -> _Future:
        future = self.future()
        self._begun.append(future)
        context = copy_context()

        def body() -> None:
            try:
                future.set_result(context.run(work, *args, **more))
            except Exception as error:  # noqa: BLE001  for who asks the future
                future.set_exception(error)

        self.world.start(self.world.process, body)
        return future

    def map(self, work: Callable[..., Any], *several: Any) -> Iterator[Any]:
        found = [self.submit(work, *each) for each in zip(*several, strict=False)]
        return (each.result() for each in found)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if wait:
            self._await(lambda: all(each.done() for each in self._begun), None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


@contextlib.contextmanager
def replaced(world: World) -> Iterator[None]:
    """Threads of mirror's modules take turns in this world while the block runs."""
    of = {"world": world}
    future = type("Future", (_Future,), of)
    pool = type("Pool", (_Pool,), {**of, "future": future})
    made = type("Queue", (_Queue,), of)

    def wait(
        fs: Iterable[_Future],
        timeout: float | None = None,
        return_when: str = futures.ALL_COMPLETED,
    ) -> Any:
        several = [*fs]
        enough = any if return_when == futures.FIRST_COMPLETED else all
        world.wait(
            lambda: enough(each.done() for each in several),
            _FOREVER if timeout is None else timeout,
        )
        done = {each for each in several if each.done()}
        return futures._base.DoneAndNotDoneFutures(done, {*several} - done)

    threads, modules = Threads(world), _modules()
    simulated = (
        ("threading", threading, threads),
        ("Future", futures.Future, future),
        ("ThreadPoolExecutor", futures.ThreadPoolExecutor, pool),
        ("wait", futures.wait, wait),
        ("SimpleQueue", queue.SimpleQueue, made),
        ("queue", queue, SimpleNamespace(SimpleQueue=made)),
    )
    before = [
        (module, name, real)
        for module in modules
        for name, real, _ in simulated
        if getattr(module, name, None) is real
    ]
    values = {name: value for name, _, value in simulated}
    for module, name, _ in before:
        setattr(module, name, values[name])
    # Python 3.11 has a lock for each property, which all objects share.
    locks = [(each, each.lock) for each in _cached_properties(modules)]
    for each, _ in locks:
        each.lock = threads.RLock()
    try:
        yield
    finally:
        for module, name, real in before:
            setattr(module, name, real)
        for each, lock in locks:
            each.lock = lock


def _cached_properties(modules: Iterable[Any]) -> Iterator[Any]:
    for module in modules:
        for kind in vars(module).values():
            if isinstance(kind, type) and kind.__module__ == module.__name__:
                for each in vars(kind).values():
                    if isinstance(each, functools.cached_property):
                        yield each


@functools.cache
def _import_all() -> None:
    """Also what the real code imports late."""
    for found in pkgutil.walk_packages(mirror.__path__, "mirror."):
        if not found.name.startswith(_OTHERS) and found.name not in sys.modules:
            importlib.import_module(found.name)


def _modules() -> list[Any]:
    """All of mirror's."""
    _import_all()
    return [
        module
        for name, module in sorted(sys.modules.items())
        if name.startswith("mirror.")
    ]
