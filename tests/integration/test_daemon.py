"""Spark's Python daemons share what they import, and end as Spark expects."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
import os
from pathlib import Path
import signal
import socket
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from mirror.copying import daemon
from tests.harness.waiting import PATIENCE_SECONDS, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        not hasattr(os, "pidfd_open"), reason="only Linux shares daemons"
    ),
]
_NOBODY = 65534


@dataclass(frozen=True)
class Daemon:
    """A daemon as Spark's JVM sees it: a process, and where it takes connections."""

    process: subprocess.Popen[bytes]
    path: str
    errors: Path
    """What it and its workers print on stderr."""

    def worker(self) -> tuple[socket.socket, psutil.Process]:
        """A new worker, and the connection that keeps it."""
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self.path)
        pid = int.from_bytes(connection.recv(4), "big", signed=True)
        return connection, psutil.Process(pid)


@pytest.fixture
def start() -> Iterator[Callable[[str], Daemon]]:
    """Start daemons of slots, as one JVM does; a test's end leaves none."""
    with ExitStack() as stack:
        # A path of a socket has no room for pytest's folders.
        folder = stack.enter_context(tempfile.TemporaryDirectory())

        def begin(slot: str) -> Daemon:
            errors = Path(folder, "errors")
            stderr = stack.enter_context(errors.open("ab"))
            process = subprocess.Popen(
                [sys.executable, "-m", "mirror.copying.daemon", "pyspark.worker"],
                env={
                    **os.environ,
                    daemon.SLOT: slot,
                    "PYTHON_UNIX_DOMAIN_ENABLED": "true",
                    "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
                    "PYTHON_WORKER_FACTORY_SOCK_DIR": folder,
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
            stack.callback(process.__exit__, None, None, None)
            stack.callback(process.kill)
            assert process.stdout is not None
            length = int.from_bytes(process.stdout.read(4), "big")
            return Daemon(process, process.stdout.read(length).decode(), errors)

        yield begin
    wait_for(lambda: not _is_listening())


def test_daemons_come_from_one_process_that_imported(
    start: Callable[[str], Daemon],
) -> None:
    """Workers of two slots are forked from two daemons, which one process made; it ends
    after the last of them.
    """
    daemons = [start("f/0"), start("f/1")]
    connections, workers = zip(*(each.worker() for each in daemons), strict=True)
    made = [worker.parent() for worker in workers]
    (server,) = {each.parent() for each in made}

    assert len({each.pid for each in made}) == 2
    assert server.pid not in {each.process.pid for each in daemons}
    assert [os.getpgid(w.pid) for w in workers] == [each.pid for each in made]

    for each in daemons:
        assert server.is_running()
        assert each.process.stdin is not None
        each.process.stdin.close()
        assert each.process.wait(PATIENCE_SECONDS) == 0
    wait_for(lambda: not any(p.is_running() for p in (server, *made, *workers)))
    for connection in connections:
        connection.close()


def test_the_fork_server_may_come_first(start: Callable[[str], Daemon]) -> None:
    """One that was started ahead makes the daemons, with the environment that Spark
    gives them: without it they would not know where to listen.
    """
    daemon.start_ahead(os.getpid(), output=2)
    wait_for(_is_listening)
    (ahead,) = (c for c in psutil.Process().children() if "ahead" in c.cmdline())

    connection, worker = start("f/0").worker()

    assert worker.parent().parent() == ahead
    connection.close()


def _is_listening() -> bool:
    """Whether a fork server is there for daemons that this process starts."""
    address = daemon._address(os.getpid()).removeprefix("\0")
    return address in Path("/proc/net/unix").read_text()


def test_spark_ends_a_daemon(start: Callable[[str], Daemon]) -> None:
    """SIGTERM to the process that Spark started ends its daemon and its workers, and
    no other's.
    """
    first, second = start("f/0"), start("f/1")
    (one, ended), (two, stays) = first.worker(), second.worker()
    manager = ended.parent()

    first.process.send_signal(signal.SIGTERM)

    first.process.wait(PATIENCE_SECONDS)
    wait_for(lambda: not (manager.is_running() or ended.is_running()))
    assert stays.is_running()
    one.close()
    two.close()


def test_a_worker_whose_jvm_has_ended(start: Callable[[str], Daemon]) -> None:
    """It ends without a word, though it has an answer that nobody reads."""
    first = start("f/0")
    connection, worker = first.worker()

    connection.sendall(bytes(64))  # no task: the answer is an error
    connection.close()

    wait_for(lambda: not worker.is_running())
    assert first.errors.read_text() == ""


def test_a_fork_server_that_died(start: Callable[[str], Daemon]) -> None:
    """Its daemons go on, and the next one starts another."""
    first = start("f/0")
    connection, worker = first.worker()
    manager = worker.parent()
    server = manager.parent()

    server.kill()
    wait_for(lambda: not server.is_running())
    connection.close()

    other, again = first.worker()
    third, new = start("f/1").worker()
    assert again.parent() == manager
    assert new.parent().parent() != server
    other.close()
    third.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_is_not_asked(
    start: Callable[[str], Daemon], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who listens at the address but is another user gets no pipes; the daemon imports
    for itself.
    """
    asked = []

    class Squatted(subprocess.Popen[bytes]):
        def __init__(self, command: list[str], **options: Any) -> None:
            address = daemon._address(os.getpid())
            os.seteuid(_NOBODY)
            try:
                squatter = socket.socket(socket.AF_UNIX)
                squatter.bind(address)
                squatter.listen()
            finally:
                os.seteuid(0)
            asked.append(squatter)
            super().__init__(command, **options)

    monkeypatch.setattr(subprocess, "Popen", Squatted)
    first = start("f/0")
    connection, worker = first.worker()

    assert worker.parent().pid == first.process.pid
    (squatter,) = asked
    squatter.settimeout(10)
    with squatter, squatter.accept()[0] as asking:
        assert asking.recv(100) == b""
    connection.close()


def test_pyspark_comes_from_where_it_is_installed(tmp_path: Path) -> None:
    """The archives that Spark names in PYTHONPATH are left out if they are inside the
    pyspark that is installed; those of another Spark, as on a cluster, come first.
    """
    site, other = tmp_path / "site", tmp_path / "spark"
    (site / "pyspark").mkdir(parents=True)
    (site / "pyspark" / "__init__.py").touch()
    ours = f"{site}/pyspark/python/lib/pyspark.zip"
    theirs = f"{other}/python/lib/pyspark.zip"

    assert daemon.without_copies([ours, "", str(site)]) == ["", str(site)]
    assert daemon.without_copies([theirs, str(site)]) == [theirs, str(site)]
