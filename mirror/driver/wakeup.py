"""Ends running leases early, on any host.

Main type: `Wakeup`, a listening socket to which every running task holds a connection;
`send` closes them all, and each task ends its lease with its current transaction. When
the driver dies, its sockets close too, so its tasks end as well. No data is sent.
"""

from __future__ import annotations

import contextlib
import socket
import threading


class Wakeup:
    """Ends running leases when sent."""

    def __init__(self, host: str, *, bind: str | None = None) -> None:
        """Listen on a free port of `host`, an address that executors can reach.

        `bind` is the local address to bind, if executors use a different one.
        """
        self._listener = socket.create_server((bind or host, 0), backlog=1024)
        self.address: tuple[str, int] = (host, self._listener.getsockname()[1])
        self._lock = threading.Lock()
        self._listening: list[socket.socket] = []
        self._sent = False
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
        # shutdown() wakes the accepting thread, close() alone would not.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if self._sent:
                    connection.close()
                    continue
                self._listening = [c for c in self._listening if not _ended(c)]
                self._listening.append(connection)


def _ended(connection: socket.socket) -> bool:
    """Whether a task has hung up (it never sends anything)."""
    try:
        waiting = connection.recv(1, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        waiting = b""
    if not waiting:
        connection.close()
    return not waiting
