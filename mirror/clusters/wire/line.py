"""Bytes over TCP, plain or with TLS, without ever blocking.

Main types: `Line`, and `TlsLine`, which does TLS in memory: one system call moves many
TLS records, where a wrapped socket needs two calls for each. The user of a line waits
for its file descriptor, unless something is `unread`. `connection` knows which bytes
belong together.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
from typing import TYPE_CHECKING, Any, cast

from mirror import patience

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_CIPHER_BYTES = 256 << 10
"""How much to encrypt ahead, and to read at a time."""
_PIECE = 64 << 10
_SMALL = 4 << 10
"""Smaller buffers are encrypted together, since each piece makes a TLS record."""


class Line:
    """A connected socket with a timeout, so that its descriptor does not block."""

    def __init__(self, connected: socket.socket) -> None:
        self.timeout_seconds = connected.gettimeout() or 0.0
        self._socket = connected

    @property
    def unread(self) -> bool:
        """Whether there may be bytes that waiting for the socket does not notice."""
        return False

    @property
    def unsent(self) -> bool:
        """Whether bytes that `write` accepted are still unsent."""
        return False

    @property
    def silent(self) -> bool:
        """Whether the peer keeps it open and has sent nothing. The check consumes a
        byte, so it is only for a line on which nothing is expected.
        """
        try:
            return self.read(memoryview(bytearray(1))) is None
        except OSError:
            return False

    def read(self, view: memoryview) -> int | None:
        """How many bytes were read; None: nothing yet, 0: the peer closed it.

        Raises:
            OSError: the connection failed.
        """
        try:
            return os.readv(self._socket.fileno(), [view])
        except BlockingIOError:
            return None

    def write(self, buffers: Sequence[memoryview]) -> int:
        """Accept as many bytes, in order, as there is room for; returns how many.

        Raises:
            OSError: the connection failed.
        """
        try:
            return os.writev(self._socket.fileno(), buffers)
        except BlockingIOError:
            return 0

    def wake_at(self, size: int) -> None:
        """Have the kernel wake the reader only once `size` bytes are there."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)

    def wait_to_read(self) -> bool:
        """Wait for bytes until the timeout; returns whether there are any."""
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        return self.unread or bool(patience.poll(poller, self.timeout_seconds))

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()


class TlsLine(Line):
    """A line with TLS."""

    def __init__(
        self, connected: socket.socket, context: ssl.SSLContext, *, host: str
    ) -> None:
        """Do the TLS handshake, and wait for it.

        Raises:
            ssl.SSLError: one side refuses the other.
            OSError: the connection failed, or took too long.
        """
        super().__init__(connected)
        self._came = ssl.MemoryBIO()
        self._goes = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._came, self._goes, server_hostname=host)
        # With a buffer it returns a count, which its type does not say.
        self._read: Callable[[int, memoryview], int] = cast("Any", self._tls.read)
        self._unsent = memoryview(b"")
        self._room = memoryview(bytearray(_CIPHER_BYTES))
        try:
            self._shake_hands()
        finally:
            # After a failure, too: the peer gets the TLS alert.
            with contextlib.suppress(OSError):
                self._send()

    def _shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._send()
                while self._take_in() is None:
                    if not self.wait_to_read():
                        raise TimeoutError("timed out") from None
            else:
                return

    @property
    def unread(self) -> bool:
        return self._tls.pending() > 0 or self._came.pending > 0

    @property
    def unsent(self) -> bool:
        return bool(self._unsent) or self._goes.pending > 0

    def read(self, view: memoryview) -> int | None:
        done = 0
        while done < len(view):
            try:
                count = self._read(len(view) - done, view[done:])
            except ssl.SSLWantReadError:
                if came := self._take_in():
                    continue
                if came is None and not done:
                    return None
                break
            except ssl.SSLEOFError:
                break
            if not count:  # the peer ended TLS
                break
            done += count
        if self.unsent:  # TLS itself has something to answer
            self._send()
        return done

    def _take_in(self) -> int | None:
        came = super().read(self._room)
        if came:
            self._came.write(self._room[:came])
        elif came == 0:
            self._came.write_eof()
        return came

    def write(self, buffers: Sequence[memoryview]) -> int:
        taken = 0
        for piece in _pieces(buffers):
            ahead = self._goes.pending + len(self._unsent)
            if ahead >= _CIPHER_BYTES and not self._send():
                return taken
            self._tls.write(piece)
            taken += len(piece)
        self._send()
        return taken

    def _send(self) -> bool:
        """Send what is encrypted; returns whether that was all."""
        while self.unsent:
            if not self._unsent:
                self._unsent = memoryview(self._goes.read())
            self._unsent = self._unsent[super().write([self._unsent]) :]
            if self._unsent:
                return False
        return True

    def wake_at(self, size: int) -> None:
        """Does nothing: the size of a TLS record is not known beforehand."""


def _pieces(buffers: Sequence[memoryview]) -> Iterator[memoryview]:
    small: list[memoryview] = []
    for buffer in buffers:
        if len(buffer) < _SMALL:
            small.append(buffer)
            continue
        if small:
            yield memoryview(b"".join(small))
            small = []
        for at in range(0, len(buffer), _PIECE):
            yield buffer[at : at + _PIECE]
    if small:
        yield memoryview(b"".join(small))
