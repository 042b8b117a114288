"""Ending running leases early, on whatever machine their tasks run.

Main type: `Bell`, a listening socket to which every running task holds a connection;
ringing closes them all, and tasks end their lease within a transaction. The death of
the driver rings it, too. It tells nobody anything else.
"""

from __future__ import annotations

import contextlib
import socket
import threading


class Bell:
    """Ends running leases when rung."""

    def __init__(self, host: str, *, bind: str | None = None) -> None:
        """Listen on a free port of `host`, an address that executors can reach.

        `bind`: this machine's own address, where executors know it by another.
        """
        self._listener = socket.create_server((bind or host, 0), backlog=1024)
        self.address: tuple[str, int] = (host, self._listener.getsockname()[1])
        self._lock = threading.Lock()
        self._listening: list[socket.socket] = []
        self._rung = False
        self._thread = threading.Thread(
            target=self._accept, name="mirror-bell", daemon=True
        )
        self._thread.start()

    def ring(self) -> None:
        """End every running lease, and those that begin before `mute`."""
        with self._lock:
            self._rung = True
            for connection in self._listening:
                connection.close()
            self._listening.clear()

    def mute(self) -> None:
        """Leases that begin from now on run their full time."""
        with self._lock:
            self._rung = False

    @property
    def rung(self) -> bool:
        return self._rung

    def close(self) -> None:
        self.ring()
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
                if self._rung:
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
