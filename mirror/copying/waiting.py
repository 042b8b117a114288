"""Waits until any connection has something to read, or for the wakeup.

One function, `wait`. It reads nothing itself, and only continues requests partly sent.
"""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.clusters.wire.connection import Connection


def wait(
    connections: Iterable[Connection], wakeup: int | None, timeout: float
) -> tuple[list[Connection], bool]:
    """Connections with something to read, and whether the wakeup (a file descriptor) is
    readable.

    `timeout` is in seconds. A closed connection counts as readable: reading it raises
    the reason. Meanwhile, partly sent requests are sent on.
    """
    poller = select.poll()
    known: dict[int, Connection] = {}
    ready = []
    for connection in connections:
        descriptor = connection.fileno()
        if connection.readable or descriptor < 0:
            ready.append(connection)
        else:
            known[descriptor] = connection
            poller.register(descriptor, _interest(connection))
    if wakeup is not None:
        poller.register(wakeup, select.POLLIN)
    end = time.monotonic() + timeout
    while True:
        # Round up: a timeout below a millisecond must not become a busy loop.
        left = 0.0 if ready else max(0.0, end - time.monotonic())
        events = poller.poll(int(left * 1000 + 0.999))
        woken = any(descriptor == wakeup for descriptor, _ in events)
        heard = [(known[at], event) for at, event in events if at in known]
        ready += [connection for connection, event in heard if _came(connection, event)]
        if ready or woken or not events:
            return ready, woken
        for connection, _ in heard:
            poller.modify(connection.fileno(), _interest(connection))


def _came(connection: Connection, event: int) -> bool:
    """Whether there is something to read. If there is room to send, send on."""
    if event & select.POLLOUT:
        connection.send_on()
    return connection.closed or bool(event & ~select.POLLOUT)


def _interest(connection: Connection) -> int:
    return select.POLLIN | (select.POLLOUT if connection.sending else 0)
