"""Answers come in whole, however they trickle in."""

from __future__ import annotations

import select
import threading
import time
from typing import TYPE_CHECKING

import pytest

from mirror.clusters.receiving import receive

if TYPE_CHECKING:
    import socket

_LARGE = 3 << 20


def _sent(theirs: socket.socket, *pieces: bytes, pause: float = 0) -> threading.Thread:
    def run() -> None:
        for piece in pieces:
            theirs.sendall(piece)
            time.sleep(pause)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_small_answer_behind_a_large_one_is_not_waited_for(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    """After a large answer the socket is readable again as soon as it has a byte."""
    ours, theirs = ends
    large = bytes(range(256)) * (_LARGE // 256)
    thread = _sent(theirs, large, b"x")
    buffer = bytearray(_LARGE)
    receive(ours, memoryview(buffer), _LARGE)
    assert bytes(buffer) == large
    thread.join()
    poller = select.poll()
    poller.register(ours, select.POLLIN)
    assert poller.poll(1000)
    receive(ours, memoryview(buffer), 1)
    assert buffer[:1] == b"x"


def test_a_large_answer_may_come_slowly(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    """An answer of which a little comes within each timeout is received, though its
    mebibytes take longer than that.
    """
    ours, theirs = ends
    pieces = [bytes([number]) * 100_000 for number in range(8)]
    thread = _sent(theirs, *pieces, pause=0.1)
    whole = b"".join(pieces)
    buffer = bytearray(len(whole))
    receive(ours, memoryview(buffer), len(whole))
    assert bytes(buffer) == whole
    thread.join()


@pytest.mark.parametrize("first", [b"", b"y" * 500_000])
def test_silence_is_noticed(
    ends: tuple[socket.socket, socket.socket], first: bytes
) -> None:
    """When nothing comes any more, waiting ends with the socket's timeout; with a
    second one, if something had come.
    """
    ours, theirs = ends
    _sent(theirs, first).join()
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        receive(ours, memoryview(bytearray(_LARGE)), _LARGE)
    assert time.monotonic() - began < 1.5


def test_a_closed_connection_is_told(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    """A connection that ends within an answer is an error, not a short answer."""
    ours, theirs = ends
    _sent(theirs, b"z" * 2_000_000).join(2)
    theirs.close()
    with pytest.raises(ConnectionError):
        receive(ours, memoryview(bytearray(_LARGE)), _LARGE)
