"""The wakeup: whom it wakes, and what it bears from callers that are no tasks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
import os
import resource
import select
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, cast

import pytest
from structlog.testing import capture_logs

from mirror.copying import task as task_module
from mirror.copying.lease import Lease
from mirror.copying.task import Copier, RelayTask
from mirror.service import wakeup as module
from mirror.service.wakeup import Wakeup

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.unit

_MANY = 200


@pytest.fixture
def wakeup() -> Iterator[Wakeup]:
    with closing(Wakeup("127.0.0.1")) as made:
        yield made


@contextmanager
def connected(wakeup: Wakeup, said: bytes = b"") -> Iterator[socket.socket]:
    with socket.create_connection(wakeup.address, timeout=10) as connection:
        connection.sendall(said)
        yield connection


def is_woken(connection: socket.socket, *, within: float = 10) -> bool:
    connection.settimeout(within)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_tasks_of_this_run_are_woken(wakeup: Wakeup):
    """A task that shows the token sleeps until the wakeup is sent, also if the token
    comes in two parts; one that comes after that is woken at once, until `mute`.
    """
    with connected(wakeup, wakeup.token) as task, connected(wakeup) as slow:
        slow.sendall(wakeup.token[:5])
        assert not is_woken(task, within=0.1)
        slow.sendall(wakeup.token[5:])
        assert not is_woken(slow, within=0.1)
        wakeup.send()
        assert is_woken(task)
        assert is_woken(slow)
    with connected(wakeup, wakeup.token) as late:
        assert is_woken(late)
    wakeup.mute()
    with connected(wakeup, wakeup.token) as task:
        assert not is_woken(task, within=0.1)


class _Waits:
    """A slot whose lease only ends when it is woken."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.on_credit = False

    def close(self) -> None:
        pass

    def run(self, _lease: Any, *, wakeup: int | None) -> list[Any]:
        assert wakeup is not None
        assert not select.select([wakeup], [], [], 0.2)[0]
        self.began.set()
        assert select.select([wakeup], [], [], 10)[0]
        return []


def test_a_lease_ends_when_it_is_woken(wakeup: Wakeup, monkeypatch: pytest.MonkeyPatch):
    """A relay task that gets address and token with its lease is woken."""
    slot = _Waits()
    copier = Copier(lambda: cast("Any", slot))
    monkeypatch.setattr(task_module, "_slot", lambda *_: copier)
    task = RelayTask(
        plan=cast("Any", None),
        wakeup=wakeup.address,
        wakeup_token=wakeup.token,
        log_settings=cast("Any", None),
    )
    lease = Lease(slot=0, number=1, generation="g", seconds=30, assignments=())
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(task._run, lease)
        assert slot.began.wait(10)
        wakeup.send()
        assert running.result(10) == []
    copier.close()


def test_callers_without_the_token(wakeup: Wakeup, monkeypatch: pytest.MonkeyPatch):
    """Who shows another token is cut off at once, and of many silent callers only so
    many are kept; a task is served meanwhile.
    """
    monkeypatch.setattr(module, "_STRANGERS", 20)
    with ExitStack() as stack:
        task = stack.enter_context(connected(wakeup, wakeup.token))
        stranger = stack.enter_context(connected(wakeup, bytes(len(wakeup.token))))
        assert is_woken(stranger, within=5)
        silent = [stack.enter_context(connected(wakeup)) for _ in range(_MANY)]
        assert all(is_woken(each, within=5) for each in silent[:-20])
        assert not is_woken(silent[-1], within=0.1)
        assert not is_woken(task, within=0.1)
        wakeup.send()
        assert is_woken(task)


def test_a_caller_that_says_nothing(wakeup: Wakeup, monkeypatch: pytest.MonkeyPatch):
    """It is cut off after its time, whatever part of the token it has shown."""
    monkeypatch.setattr(module, "_TOKEN_SECONDS", 0.1)
    with connected(wakeup) as silent, connected(wakeup, wakeup.token[:5]) as slow:
        assert is_woken(silent)
        assert is_woken(slow)


def test_too_many_open_files(wakeup: Wakeup):
    """While the process has no file descriptor left it warns, and once it has one again
    the caller that waited is a task like any other.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as task, capture_logs() as logs:
        os.close(lowest := os.dup(0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
        try:
            task.connect(wakeup.address)
            task.sendall(wakeup.token)
            deadline = time.monotonic() + 10
            while not logs and time.monotonic() < deadline:
                time.sleep(0.01)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert "too many open files" in str(logs).lower()
        with suppress(TimeoutError):
            assert not is_woken(task, within=0.5)
        wakeup.send()
        assert is_woken(task)
