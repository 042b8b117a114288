"""Leases: who mirrors which partitions, for how long, and how to end that early.

Pure part: `assign` spreads partitions over slots and keeps them where they are.
Main type: `Bell`, a listening socket to which every running task holds a
connection; ringing closes them all, and tasks end their lease within a transaction,
on whatever machine they run. It tells nobody anything else.
"""

from __future__ import annotations

from collections import defaultdict
import contextlib
import socket
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.relay.lease import Assignment

TopicPartition = tuple[str, int]

_PARTITIONS_PER_SLOT = 4
MOST_SLOTS = 2
"""How many slots a flow gets at most when the user sets no `tasks`."""


def slots_for(partitions: int, tasks: int | None) -> int:
    """How many slots a flow gets: what the user said, else by its partitions."""
    if tasks is not None:
        return tasks
    wanted = -(-partitions // _PARTITIONS_PER_SLOT)
    return max(1, min(wanted, MOST_SLOTS))


def assign(
    assignments: Iterable[Assignment],
    slots: int,
    current: Mapping[TopicPartition, int],
) -> dict[int, tuple[Assignment, ...]]:
    """Spread partitions evenly over slots, moving as few as possible.

    `current` says in which slot a partition was. Every slot is in the answer, also
    one without partitions.
    """
    wanted = sorted(assignments, key=lambda a: (a.topic, a.partition))
    most = -(-len(wanted) // slots)
    chosen: defaultdict[int, list[Assignment]] = defaultdict(list)
    homeless = []
    for assignment in wanted:
        slot = current.get((assignment.topic, assignment.partition), -1)
        if 0 <= slot < slots and len(chosen[slot]) < most:
            chosen[slot].append(assignment)
        else:
            homeless.append(assignment)
    for assignment in homeless:
        slot = min(range(slots), key=lambda number: len(chosen[number]))
        chosen[slot].append(assignment)
    return {slot: tuple(chosen[slot]) for slot in range(slots)}


class Bell:
    """Ends running leases when rung."""

    def __init__(self, host: str) -> None:
        """Listen on a free port of `host`, an address that executors can reach."""
        self._listener = socket.create_server((host, 0), backlog=128)
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
