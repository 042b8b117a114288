"""Notices at once when the process of another instance has died.

Each instance listens on a free port, and holds a connection to each other one's. The
system ends the connections of a dead process and refuses new ones: seconds before its
session in the group expires. Nothing is sent. What cannot be told from a broken network
(a lost host, a packet filter, a process that hangs) is left to that session. Main type:
`Lifelines`, for one thread.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import select
import socket
from typing import TYPE_CHECKING, Any

from mirror.driver.wakeup import ended

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.clusters.wire.connection import Connection

Address = tuple[str, int]

_MOST_HELD = 100
"""Connections that others may hold; one more closes the oldest."""
_ANSWER_MS = 20
"""How long a host that has just ended a connection has to take or refuse another one.
Later its answer is seen at the next look."""
_LAST_PORT = (1 << 16) - 1
_UNDER_WAY = frozenset({0, errno.EINPROGRESS})


class Lifelines:
    """The connections of one instance to the others, and theirs to it."""

    def __init__(self) -> None:
        self.address: Address | None = None
        """Where it listens; None: the others cannot watch this instance."""
        self._listener: socket.socket | None = None
        self._held: list[socket.socket] = []
        self._lines: dict[str, _Line] = {}

    def listen(self, host: str) -> Address:
        """Listen on a free port of `host`, an address of this machine; returns both.

        Raises:
            OSError: it cannot.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family)
        self._listener.setblocking(False)
        self.address = (host, self._listener.getsockname()[1])
        return self.address

    def hold(self, addresses: Mapping[str, Address]) -> None:
        """Hold connections to these members, and to no others."""
        for member in self._lines.keys() - addresses.keys():
            self._lines.pop(member).close()
        for member in addresses.keys() - self._lines.keys():
            self._lines[member] = _Line(addresses[member])

    def dead(self) -> frozenset[str]:
        """The members whose process has died, as far as it can be told now."""
        self._accept()
        return frozenset(m for m, line in self._lines.items() if line.is_dead())

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        for stranger in self._held:
            stranger.close()
        for line in self._lines.values():
            line.close()

    def _accept(self) -> None:
        if self._listener is None:
            return
        # The system takes connections for us, so this may be late.
        with contextlib.suppress(OSError):
            while True:
                self._held.append(self._listener.accept()[0])
        self._held = [each for each in self._held if not ended(each)]
        while len(self._held) > _MOST_HELD:
            self._held.pop(0).close()


class _Line:
    """A connection to one member."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._was_open = self._is_open = False
        self._error = 0
        """What came of the attempt to connect, unless it is under way."""
        self._socket: socket.socket | None = None
        self._connect()

    def is_dead(self) -> bool:
        """Whether it was open, has ended, and is refused now."""
        if not self._is_open:
            return self._is_refused(0)
        if self._socket is None or not ended(self._socket):
            return False
        self._is_open = False
        self._connect()
        return self._is_refused(_ANSWER_MS)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connect(self) -> None:
        self.close()
        family = socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET
        try:
            self._socket = socket.socket(family, socket.SOCK_STREAM)
        except OSError:  # too many open files: nothing can be told of this member
            return
        self._socket.setblocking(False)
        self._error = self._socket.connect_ex(self._address)

    def _is_refused(self, wait_ms: int) -> bool:
        """Whether the last attempt is refused, by a host that took an earlier one."""
        if self._socket is None:
            return False
        error = self._error
        if error in _UNDER_WAY:
            poller = select.poll()
            poller.register(self._socket, select.POLLOUT)
            if not poller.poll(wait_ms):
                return False
            error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if not error:
            self._is_open = self._was_open = True
            return False
        self.close()
        return self._was_open and error == errno.ECONNREFUSED


def address_in(said: Any) -> Address | None:
    """What another instance says, if that is an address."""
    try:
        host, port = said
        found = str(ipaddress.ip_address(host)), int(port)
    except (TypeError, ValueError):
        return None
    return found if 0 < found[1] <= _LAST_PORT else None


def host_towards(connection: Connection) -> str:
    """The address of this machine that a broker sees."""
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        return str(same.getsockname()[0])
