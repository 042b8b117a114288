"""How long work waits for brokers that do not answer."""

from __future__ import annotations

import math
import select
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from mirror import patience

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.unit

_LONG_SECONDS = 600.0


@pytest.fixture
def poller() -> Iterator[select.poll]:
    """Of a connection whose other end says nothing."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        made = select.poll()
        made.register(ours, select.POLLIN)
        yield made


@pytest.fixture(autouse=True)
def _without_end() -> Iterator[None]:
    yield
    patience.end_at(math.inf)


def test_a_wait_under_way_ends_with_the_process(poller: select.poll) -> None:
    """What began to wait before the process had to end waits no longer than that."""
    threading.Timer(0.5, lambda: patience.end_at(time.monotonic())).start()

    assert patience.poll(poller, _LONG_SECONDS) == []


def test_later_waits_are_short(poller: select.poll) -> None:
    """Afterwards each wait gets a little time, in which a broker that answers does."""
    patience.end_at(time.monotonic())

    assert 0 < patience.left(_LONG_SECONDS) < 5
    assert patience.left(0.5) == pytest.approx(0.5)
    assert patience.poll(poller, _LONG_SECONDS) == []


def test_the_earlier_end_counts() -> None:
    """A step's own deadline stays, and the process's holds in every thread."""
    now = time.monotonic()
    patience.end_at(now + 100)
    with patience.until(now + 50):
        assert patience.left(_LONG_SECONDS) == pytest.approx(50, abs=5)
        patience.end_at(now + 20)
        assert patience.left(_LONG_SECONDS) == pytest.approx(20, abs=5)


def test_what_is_there_is_found_at_once() -> None:
    """Bytes that come end a wait, whatever time is left."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        poller = select.poll()
        poller.register(ours, select.POLLIN)
        threading.Timer(0.2, theirs.send, args=(b"x",)).start()

        assert patience.poll(poller, _LONG_SECONDS) == [(ours.fileno(), select.POLLIN)]
