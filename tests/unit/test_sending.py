"""Sending never waits, and loses or swaps no byte."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
import random
import select
import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING, cast

import pytest

from mirror.clusters.sending import Outgoing
from mirror.playground.certificates import CertificateAuthority
from mirror.relay.waiting import wait

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirror.clusters.connection import Connection

_MANY = 6 << 20

Ends = tuple[socket.socket, socket.socket]


@pytest.fixture(params=["plain", "tls"])
def ends(ends: Ends, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ends]:
    """The same ends, also with TLS between them."""
    if request.param == "plain":
        yield ends
        return
    authority = CertificateAuthority()
    bundle = tmp_path / "server.pem"
    bundle.write_text(authority.issue("server").bundle_pem)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(bundle)
    server.num_tickets = 0  # they would come like an answer
    client = ssl.create_default_context(cadata=authority.pem)
    with ThreadPoolExecutor(1) as pool:
        accepted = pool.submit(server.wrap_socket, ends[1], server_side=True)
        ours = client.wrap_socket(ends[0], server_hostname="127.0.0.1")
        theirs = accepted.result()
    with closing(ours), closing(theirs):
        yield ours, theirs


def _pieces() -> list[bytes]:
    chance = random.Random(4)
    sizes = [1, 0, 61, 1 << 20, 3, _MANY, *(chance.randrange(300) for _ in range(200))]
    return [chance.randbytes(size) for size in sizes]


class _Line:
    """As much of a connection as `wait` asks for."""

    readable = False

    def __init__(self, ours: socket.socket) -> None:
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


def test_all_arrives_in_order_while_waiting(ends: Ends) -> None:
    """What a socket does not take at once is sent on while answers are waited for."""
    ours, theirs = ends
    line = _Line(ours)
    pieces = _pieces()
    line.outgoing.put(pieces)
    line.send_on()
    assert line.sending
    came = bytearray()
    whole = b"".join(pieces)
    thread = _read(theirs, len(whole), came)
    end = time.monotonic() + 10
    while line.sending and time.monotonic() < end:
        assert wait([cast("Connection", line)], None, 0.05) == ([], False)
    thread.join(10)
    assert bytes(came) == whole


def test_nobody_waits_for_a_peer_that_reads_nothing(ends: Ends) -> None:
    """With a full socket, sending and waiting return in time, and an answer that comes
    meanwhile is told.
    """
    ours, theirs = ends
    line = _Line(ours)
    line.outgoing.put([bytes(_MANY)] * 3)
    began = time.monotonic()
    line.send_on()
    assert wait([cast("Connection", line)], None, 0.1) == ([], False)
    assert time.monotonic() - began < 1
    theirs.sendall(b"answer")
    assert wait([cast("Connection", line)], None, 5) == ([line], False)
    assert time.monotonic() - began < 2


def test_a_peer_that_is_gone_counts_as_one_to_read(ends: Ends) -> None:
    """A connection that fails while it is sent on ends the wait at once."""
    ours, theirs = ends
    line = _Line(ours)
    line.outgoing.put([bytes(_MANY)] * 3)
    line.send_on()
    # Bytes that were not read make the other side reset it.
    theirs.close()
    began = time.monotonic()
    ready, _ = wait([cast("Connection", line)], None, 5)
    assert ready == [line]
    assert time.monotonic() - began < 2
    with pytest.raises(OSError, match=r"."):
        line.outgoing.send()


def test_the_bell_is_heard_while_sending(ends: Ends) -> None:
    """A ringing bell ends the wait, though a request is not sent whole."""
    ours, theirs = ends
    line = _Line(ours)
    line.outgoing.put([bytes(_MANY)] * 3)
    line.send_on()
    bell, hand = socket.socketpair()
    with closing(bell), closing(hand):
        hand.send(b"x")
        assert select.select([bell], [], [], 1)[0]
        _, rung = wait([cast("Connection", line)], bell.fileno(), 5)
    assert rung
    assert theirs.fileno() >= 0
