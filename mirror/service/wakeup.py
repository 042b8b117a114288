"""Ends running leases early, on any host.

Main type: `Wakeup`, a listening socket to which every running task holds a connection;
`send` closes them all, and each task ends its lease with its current transaction. When
the driver dies, its sockets close too, so its tasks end as well. A task shows the run's
token first, which comes with its lease; other callers are few at a time, and soon cut
off. Nothing else is sent.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import selectors
import socket
import threading
import time

import structlog

from mirror.log import LogThrottle

log = structlog.get_logger()

_STRANGERS = 256
"""Connections that have not shown the token yet. Another one closes the oldest."""
_TOKEN_SECONDS = 10.0
_TOKEN_BYTES = 32
_PAUSE_SECONDS = 0.1
"""After an error of the listening socket, such as too many open files."""


class Wakeup:
    """Ends running leases when sent."""

    def __init__(self, host: str, *, bind: str | None = None) -> None:
        """Listen on a free port of `host`, an address that executors can reach.

        `bind` is the local address to bind, if executors use a different one.
        """
        self._listener = socket.create_server((bind or host, 0), backlog=1024)
        self._listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self.address: tuple[str, int] = (host, self._listener.getsockname()[1])
        self.token = secrets.token_bytes(_TOKEN_BYTES)
        self._lock = threading.Lock()
        self._listening: list[socket.socket] = []
        self._strangers: dict[socket.socket, tuple[float, bytearray]] = {}
        self._sent = False
        self._closing = threading.Event()
        self._throttle = LogThrottle()
        self._thread = threading.Thread(
            target=self._accept, name="mirror-wakeup", daemon=True
        )
        self._thread.start()

    def send(self) -> None:
        """End every running lease, and those that begin before `mute`."""
        with self._lock:
            self._sent = True
            for connection in self._listening:
                connection.close()
            self._listening.clear()

    def mute(self) -> None:
        """Leases that begin from now on run their full time."""
        with self._lock:
            self._sent = False

    @property
    def sent(self) -> bool:
        return self._sent

    def close(self) -> None:
        self.send()
        self._closing.set()
        # shutdown() wakes the accepting thread, close() alone would not.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def _accept(self) -> None:
        with self._listener, self._selector:
            while not self._closing.is_set():
                for key, _ in self._selector.select(self._patience()):
                    if key.fileobj is self._listener:
                        self._meet()
                    elif isinstance(key.fileobj, socket.socket):
                        self._hear(key.fileobj)
                now = time.monotonic()
                for stranger, (until, _) in list(self._strangers.items()):
                    if until <= now or len(self._strangers) > _STRANGERS:
                        self._forget(stranger).close()
            for stranger in list(self._strangers):
                self._forget(stranger).close()

    def _patience(self) -> float | None:
        """Until the oldest stranger's time is over."""
        for until, _ in self._strangers.values():
            return max(0.0, until - time.monotonic())
        return None

    def _meet(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            if not self._closing.is_set() and self._throttle.due(str(error)):
                log.warning(
                    "tasks cannot connect to be woken; their leases end on time",
                    error=str(error),
                )
            self._closing.wait(_PAUSE_SECONDS)
            return
        self._throttle.clear()
        connection.setblocking(False)
        until = time.monotonic() + _TOKEN_SECONDS
        self._strangers[connection] = until, bytearray()
        self._selector.register(connection, selectors.EVENT_READ)

    def _hear(self, stranger: socket.socket) -> None:
        _, shown = self._strangers[stranger]
        try:
            more = stranger.recv(_TOKEN_BYTES - len(shown))
        except BlockingIOError:
            return
        except OSError:
            more = b""
        shown += more
        if more and len(shown) < _TOKEN_BYTES:
            return
        self._forget(stranger)
        if not hmac.compare_digest(shown, self.token):
            stranger.close()
            return
        with self._lock:
            if self._sent:
                stranger.close()
                return
            self._listening = [c for c in self._listening if not ended(c)]
            self._listening.append(stranger)

    def _forget(self, stranger: socket.socket) -> socket.socket:
        del self._strangers[stranger]
        self._selector.unregister(stranger)
        return stranger


def ended(connection: socket.socket) -> bool:
    """Whether the other side, which sends nothing (more), has hung up; then it is
    closed here, too.
    """
    try:
        waiting = connection.recv(1, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        waiting = b""
    if not waiting:
        connection.close()
    return not waiting
