"""Spark's Python daemons: one per slot, all with our modules imported once.

Spark runs `python -m mirror.copying.daemon` for each slot, so that a slot finds its
worker again. Importing takes 1.5 s of CPU and 150 MB, hence a fork server, which
`start_ahead` or the first daemon starts. Each daemon is forked from it and gets the
environment and the pipes of the process that Spark started, which waits for its end.
Where Linux is missing each imports for itself.
"""

from __future__ import annotations

import contextlib
import gc
import os
from pathlib import Path
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

SLOT = "MIRROR_SLOT"
"""The variable that differs between the daemons of one JVM."""
_PIPES = (0, 1, 2)
_LOOK_SECONDS = 1.0
_UNUSED_SECONDS = 60.0
"""A fork server that no daemon has asked by then ends, as one does whose service has
ended before that.
"""
_BACKLOG = 128
_AHEAD = "ahead"
_PID = struct.Struct("i")
_SIZE = struct.Struct("I")
_OWNER = struct.Struct("3i")
"""SO_PEERCRED: process, user and group of the other end."""


def start_ahead(jvm: int, output: int) -> None:
    """Start the fork server of a JVM, by its process id, before Spark asks for daemons:
    it imports while Spark's context starts. `output`: where it prints to.
    """
    if hasattr(os, "pidfd_open"):
        server = subprocess.Popen(
            [sys.executable, "-m", "mirror.copying.daemon", _AHEAD, str(jvm)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        threading.Thread(target=server.wait, name="fork-server", daemon=True).start()


def main() -> None:
    """Carry on as a daemon until Spark closes stdin, or as a fork server."""
    if sys.argv[1] == _AHEAD:
        if (listener := _listener(_address(int(sys.argv[2])))) is not None:
            _serve_daemons(listener)
        return
    os.setpgid(0, 0)  # Ctrl-C is the service's to handle
    if not hasattr(os, "pidfd_open") or not _waited_for_daemon():
        _import()
        _serve_spark()


def _import() -> None:
    # Each worker gets one core: libraries must not start threads of their own.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.path[:] = without_copies(sys.path)
    gc.disable()  # what modules make stays
    import pyspark.daemon  # noqa: PLC0415  after the lines above
    import pyspark.worker  # noqa: F401, PLC0415  every worker imports it

    import mirror.copying.slot  # noqa: PLC0415  loads the kernels from numba's cache
    import mirror.copying.task  # noqa: F401, PLC0415

    gc.enable()


def without_copies(path: Sequence[str]) -> list[str]:
    """Without what lies inside a pyspark that is on the path itself: Spark puts copies
    of the same sources first, in archives, and every start would compile them.
    """
    installed = [Path(each, "pyspark") for each in path]
    installed = [each for each in installed if (each / "__init__.py").is_file()]
    return [
        each
        for each in path
        if not any(Path(each).is_relative_to(folder) for folder in installed)
    ]


def _serve_spark() -> None:
    from pyspark import daemon  # noqa: PLC0415  after `main`'s lines

    worker = daemon.worker

    def work(sock: socket.socket, authenticated: bool) -> int:
        try:
            return worker(sock, authenticated)
        except ConnectionError:
            os._exit(1)  # the JVM has ended: no one reads a traceback of that

    daemon.worker = work
    daemon.manager()


def _waited_for_daemon() -> bool:
    """Wait for the end of a daemon that the fork server made; False: it made none."""
    address = _address(os.getppid())
    if (listener := _listener(address)) is not None:
        with listener:
            if os.fork() == 0:
                os.setsid()
                _serve_daemons(listener)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # leave no zombie of it
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(address)
            if not _is_ours(connection):
                return False
            ours = b"\0".join(b"=".join(each) for each in os.environb.items())
            socket.send_fds(connection, [_SIZE.pack(len(ours))], _PIPES)
            connection.sendall(ours)
            pid = connection.recv(_PID.size)
        except OSError:
            return False
    if len(pid) < _PID.size:
        return False
    _wait_for(*_PID.unpack(pid))
    return True


def _listener(address: str) -> socket.socket | None:
    """For a fork server; None: another daemon of this JVM has started one."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        return None
    return listener


def _address(jvm: int) -> str:
    """In Linux's abstract namespace: gone with its process. Containers may share that
    one, but not the numbers of processes.
    """
    return f"\0mirror-{Path('/proc/self/ns/pid').readlink()}-{jvm}"


def _is_ours(connection: socket.socket) -> bool:
    """Whether the other end runs as the same user: any user can take an address."""
    owner = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _OWNER.size)
    return bool(_OWNER.unpack(owner)[1] == os.geteuid())


def _wait_for(pid: int) -> None:
    try:
        daemon = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    # Spark ends the process that it started.
    signal.signal(
        signal.SIGTERM,
        lambda *_: signal.pidfd_send_signal(daemon, signal.SIGTERM),
    )
    select.select([daemon], [], [])


def _serve_daemons(listener: socket.socket) -> NoReturn:
    """Be the fork server until the last daemon has ended."""
    service = os.getppid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)  # Spark reads the daemon's
    _import()
    gc.freeze()  # a collection in a fork would copy every page it looks at
    listener.settimeout(_LOOK_SECONDS)
    until = time.monotonic() + _UNUSED_SECONDS
    while _has_children() or (time.monotonic() < until and os.getppid() == service):
        with contextlib.suppress(TimeoutError):
            connection, _ = listener.accept()
            until = 0.0
            with connection:
                if _is_ours(connection) and os.fork() == 0:
                    listener.close()
                    _be_daemon(connection)
    os._exit(0)


def _has_children() -> bool:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _be_daemon(connection: socket.socket) -> NoReturn:
    size, pipes, _, _ = socket.recv_fds(connection, _SIZE.size, len(_PIPES))
    for pipe, own in zip(pipes, _PIPES, strict=True):
        os.dup2(pipe, own)
        os.close(pipe)
    with connection.makefile("rb") as sent:
        variables = sent.read(*_SIZE.unpack(size)).split(b"\0")
    for each in variables:
        name, _, value = each.partition(b"=")
        os.environb[name] = value
    connection.send(_PID.pack(os.getpid()))
    connection.close()
    _serve_spark()
    sys.exit()


if __name__ == "__main__":
    main()
