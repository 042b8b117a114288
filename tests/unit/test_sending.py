"""Sending never waits, and loses or swaps no byte."""

from __future__ import annotations

from contextlib import closing
import random
import select
import socket
import threading
import time
from typing import TYPE_CHECKING, cast

import pytest

from mirror.clusters.wire.connection import Outgoing
from mirror.copying.waiting import wait
from tests.harness.waiting import crowd

if TYPE_CHECKING:
    from mirror.clusters.wire.connection import Connection
    from mirror.clusters.wire.line import Line

pytestmark = pytest.mark.unit

_MANY = 6 << 20

Ends = tuple["Line", socket.socket]


def _pieces() -> list[bytes]:
    chance = random.Random(4)
    sizes = [1, 0, 61, 1 << 20, 3, _MANY, *(chance.randrange(300) for _ in range(200))]
    return [chance.randbytes(size) for size in sizes]


class _Connection:
    """As much of a connection as `wait` needs."""

    readable = False

    def __init__(self, ours: Line) -> None:
        self.outgoing = Outgoing(ours)
        self.closed = False
        self._ours = ours

    @property
    def sending(self) -> bool:
        return bool(self.outgoing)

    def fileno(self) -> int:
        return self._ours.fileno()

    def send_on(self) -> None:
        try:
            self.outgoing.send()
        except OSError:
            self.closed = True


def _read(theirs: socket.socket, size: int, into: bytearray) -> threading.Thread:
    def run() -> None:
        while len(into) < size and (part := theirs.recv(1 << 16)):
            into.extend(part)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_all_arrives_in_order_while_waiting(line: Ends) -> None:
    """What a socket does not accept at once is sent while waiting for responses."""
    ours, theirs = line
    connection = _Connection(ours)
    pieces = _pieces()
    connection.outgoing.put(pieces)
    connection.send_on()
    assert connection.sending
    came = bytearray()
    whole = b"".join(pieces)
    thread = _read(theirs, len(whole), came)
    end = time.monotonic() + 10
    while connection.sending and time.monotonic() < end:
        assert wait([cast("Connection", connection)], None, 0.05) == ([], False)
    thread.join(10)
    assert bytes(came) == whole


def test_nobody_waits_for_a_peer_that_reads_nothing(line: Ends) -> None:
    """With a full socket, sending and waiting return in time, and a response that
    arrives meanwhile is reported.
    """
    ours, theirs = line
    connection = _Connection(ours)
    connection.outgoing.put([bytes(_MANY)] * 3)
    began = time.monotonic()
    connection.send_on()
    assert wait([cast("Connection", connection)], None, 0.1) == ([], False)
    assert time.monotonic() - began < 1 * crowd()
    theirs.sendall(b"answer")
    assert wait([cast("Connection", connection)], None, 5) == ([connection], False)
    assert time.monotonic() - began < 2 * crowd()


def test_a_peer_that_is_gone_counts_as_one_to_read(line: Ends) -> None:
    """A connection that fails while sending ends the wait at once."""
    ours, theirs = line
    connection = _Connection(ours)
    connection.outgoing.put([bytes(_MANY)] * 3)
    connection.send_on()
    # Bytes that were not read make the other side reset it.
    theirs.close()
    began = time.monotonic()
    ready, _ = wait([cast("Connection", connection)], None, 5)
    assert ready == [connection]
    assert time.monotonic() - began < 2 * crowd()
    with pytest.raises(OSError, match=r"."):
        connection.outgoing.send()


def test_the_bell_is_heard_while_sending(line: Ends) -> None:
    """A wakeup ends the wait, although a request is not completely sent."""
    ours, theirs = line
    connection = _Connection(ours)
    connection.outgoing.put([bytes(_MANY)] * 3)
    connection.send_on()
    wakeup, hand = socket.socketpair()
    with closing(wakeup), closing(hand):
        hand.send(b"x")
        assert select.select([wakeup], [], [], 1)[0]
        _, woken = wait([cast("Connection", connection)], wakeup.fileno(), 5)
    assert woken
    assert theirs.fileno() >= 0
