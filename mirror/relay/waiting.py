"""Waiting for whichever connection has something to read, or for the bell.

One function, `wait`. It reads nothing itself and knows no requests.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.clusters.connection import Connection


def wait(
    connections: Iterable[Connection], bell: int | None, timeout: float
) -> tuple[list[Connection], bool]:
    """Those with something to read, and whether the bell (a file descriptor) rang.

    `timeout` is in seconds. A closed connection counts as one to read: reading it
    tells why it is closed.
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
            poller.register(descriptor, select.POLLIN)
    if bell is not None:
        poller.register(bell, select.POLLIN)
    # Rounded up: a timeout below a millisecond must not become a busy loop.
    milliseconds = 0 if ready else max(0, int(timeout * 1000 + 0.999))
    events = [descriptor for descriptor, _ in poller.poll(milliseconds)]
    ready += [known[descriptor] for descriptor in events if descriptor in known]
    return ready, bell is not None and bell in events
