"""Responses arrive whole, however slowly they come."""

from __future__ import annotations

import select
import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING

import pytest

from mirror.clusters.wire.connection import Incoming
from tests.harness.waiting import crowd

if TYPE_CHECKING:
    from mirror.clusters.wire.line import Line

pytestmark = pytest.mark.unit

_LARGE = 3 << 20

Ends = tuple["Line", socket.socket]


def _sent(theirs: socket.socket, *pieces: bytes, pause: float = 0) -> threading.Thread:
    def run() -> None:
        for piece in pieces:
            theirs.sendall(piece)
            time.sleep(pause)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def _readable(line: Line, seconds: float) -> bool:
    poller = select.poll()
    poller.register(line, select.POLLIN)
    return line.unread or bool(poller.poll(seconds * 1000))


def test_a_small_answer_behind_a_large_one_is_not_waited_for(line: Ends) -> None:
    """After a large response the line is readable again as soon as it has one byte."""
    ours, theirs = line
    large = bytes(range(256)) * (_LARGE // 256)
    thread = _sent(theirs, large, b"x")
    buffer = bytearray(_LARGE)
    incoming = Incoming(ours)
    assert incoming.fill(memoryview(buffer), wait=True)
    assert bytes(buffer) == large
    thread.join()
    assert _readable(ours, 1)
    assert incoming.fill(memoryview(buffer)[:1], wait=True)
    assert buffer[:1] == b"x"


def test_what_has_come_is_taken_without_waiting(line: Ends) -> None:
    """A part of a response is taken at once, the rest when it comes. Meanwhile nothing
    is readable, and in the end every byte is in its place.
    """
    ours, theirs = line
    whole = b"".join(bytes([number]) * 300_000 for number in range(10))
    buffer = memoryview(bytearray(len(whole)))
    incoming = Incoming(ours)
    assert not incoming.fill(buffer, wait=False)
    _sent(theirs, whole[:400_000]).join()
    end = time.monotonic() + 5
    while incoming.taken < 400_000 and time.monotonic() < end:
        assert not incoming.fill(buffer, wait=False)
    assert incoming.taken == 400_000
    assert not _readable(ours, 0.05)
    thread = _sent(theirs, whole[400_000:])
    while not incoming.fill(buffer, wait=False):
        assert _readable(ours, 5)
    thread.join()
    assert bytes(buffer) == whole
    assert incoming.taken == 0


def test_a_large_answer_may_come_slowly(line: Ends) -> None:
    """A response of which a little comes within each timeout is received, although each
    mebibyte takes longer than that.
    """
    ours, theirs = line
    pieces = [bytes([number]) * 100_000 for number in range(8)]
    thread = _sent(theirs, *pieces, pause=0.1)
    whole = b"".join(pieces)
    buffer = bytearray(len(whole))
    assert Incoming(ours).fill(memoryview(buffer), wait=True)
    assert bytes(buffer) == whole
    thread.join()


@pytest.mark.parametrize("first", [b"", b"y" * 500_000])
def test_silence_is_noticed(line: Ends, first: bytes) -> None:
    """When nothing more comes, waiting ends after the line's timeout, or after a second
    one if something had come.
    """
    ours, theirs = line
    _sent(theirs, first).join()
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        Incoming(ours).fill(memoryview(bytearray(_LARGE)), wait=True)
    assert time.monotonic() - began < 1.5 * crowd()


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("politely", [True, False])
def test_a_closed_connection_is_told(line: Ends, wait: bool, politely: bool) -> None:
    """A connection that ends within a response is an error, not a short response,
    whether its end is announced or not.
    """
    ours, theirs = line
    thread = _sent(theirs, b"z" * 2_000_000)
    incoming = Incoming(ours)
    buffer = memoryview(bytearray(_LARGE))
    while incoming.taken < 2_000_000:
        incoming.fill(buffer, wait=False)
    thread.join()
    if politely and isinstance(theirs, ssl.SSLSocket):
        theirs.settimeout(0.1)
        with pytest.raises(TimeoutError):
            theirs.unwrap()  # it says so, and waits for us to say so
    theirs.close()
    assert _readable(ours, 5)
    with pytest.raises(ConnectionError):
        incoming.fill(buffer, wait=wait)
