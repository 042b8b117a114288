"""The delaying proxy delays, and does nothing else."""

from __future__ import annotations

import random
import socket
import threading
import time

import pytest

from mirror.playground.ports import LOOPBACK, free_ports
from tests.benchmarks.wan import Wan

pytestmark = pytest.mark.unit

_ONE_WAY = 0.04


def _echo(listener):
    connection, _ = listener.accept()
    with connection:
        while data := connection.recv(1 << 20):
            connection.sendall(data)


@pytest.fixture
def far():
    """A connection to an echo, through the proxy."""
    address = f"{LOOPBACK}:{free_ports(1)[0]}"
    with socket.create_server((LOOPBACK, 0)) as listener:
        threading.Thread(target=_echo, args=(listener,), daemon=True).start()
        broker = f"{LOOPBACK}:{listener.getsockname()[1]}"
        with Wan(address, broker, one_way_seconds=_ONE_WAY):
            host, port = address.split(":")
            with socket.create_connection((host, int(port)), timeout=20) as made:
                yield made


def test_round_trip_takes_twice_the_delay(far):
    """An answer is not there before both ways are done."""
    far.sendall(b"first")
    far.recv(100)
    began = time.monotonic()
    far.sendall(b"ping")

    assert far.recv(100) == b"ping"
    assert time.monotonic() - began >= 2 * _ONE_WAY


def test_much_is_under_way_at_once(far):
    """Megabytes arrive unchanged, and not one round trip after the other."""
    sent = random.Random(7).randbytes(16 << 20)
    threading.Thread(target=far.sendall, args=(sent,), daemon=True).start()
    began = time.monotonic()
    received = bytearray()
    while len(received) < len(sent):
        received += far.recv(1 << 20)

    assert bytes(received) == sent
    pieces = len(sent) // (256 << 10)
    assert time.monotonic() - began < pieces * 2 * _ONE_WAY
