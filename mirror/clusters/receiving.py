"""Bytes from a socket into a buffer, all of them.

One function, `receive`. Of a large answer the kernel wakes us for each mebibyte, not
for each packet (SO_RCVLOWAT), which spares both sides work. It knows nothing of what
the bytes mean.
"""

from __future__ import annotations

import select
import socket
import ssl

_LARGE = 64 << 10
_PIECE = 1 << 20


def receive(connected: socket.socket, view: memoryview, size: int) -> None:
    """Fill the first `size` bytes of a view.

    Raises:
        TimeoutError: nothing came within the socket's timeout.
        ConnectionError: the other side closed it.
        OSError: anything else that is wrong with the socket.
    """
    done = 0
    # What TLS has unpacked already, the kernel does not count.
    if size >= _LARGE and not isinstance(connected, ssl.SSLSocket):
        try:
            done = _in_large_pieces(connected, view, size)
        finally:
            _wake_at(connected, 1)
    while done < size:
        done += _some(connected, view[done:size])


def _in_large_pieces(connected: socket.socket, view: memoryview, size: int) -> int:
    """How far it came: to a small rest, or to where less came than was waited for."""
    done = 0
    while size - done >= _LARGE:
        _wake_at(connected, min(size - done, _PIECE))
        try:
            done += _some(connected, view[done:size])
        except TimeoutError:
            _wake_at(connected, 1)
            poller = select.poll()
            poller.register(connected, select.POLLIN)
            if not poller.poll(0):
                raise
            break
    return done


def _wake_at(connected: socket.socket, size: int) -> None:
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)


def _some(connected: socket.socket, view: memoryview) -> int:
    if not (count := connected.recv_into(view)):
        raise ConnectionError("the broker closed the connection")
    return count
