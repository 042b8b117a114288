"""Whether an instance notices that another one has died, and nothing else."""

from __future__ import annotations

from contextlib import closing
import errno
import socket
from typing import TYPE_CHECKING

import pytest

from mirror.service import leadership
from mirror.service.leadership import Lifelines, address_in
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.unit

HOST = "127.0.0.1"


class Other:
    """Another instance's end, without our code."""

    def __init__(self) -> None:
        self.listener = socket.create_server((HOST, 0))
        self.taken: list[socket.socket] = []

    @property
    def address(self) -> tuple[str, int]:
        return HOST, self.listener.getsockname()[1]

    def take(self) -> None:
        self.taken.append(self.listener.accept()[0])

    def hang_up(self) -> None:
        for each in self.taken:
            each.close()
        self.taken.clear()

    def close(self) -> None:
        """As the system does for a process that dies."""
        self.listener.close()
        self.hang_up()


@pytest.fixture
def other() -> Iterator[Other]:
    with closing(Other()) as made:
        yield made


@pytest.fixture
def mine() -> Iterator[Lifelines]:
    with closing(Lifelines()) as made:
        yield made


def test_one_that_cannot_listen_sees_others(mine: Lifelines, other: Other) -> None:
    """Without a port of its own an instance still sees another one die."""
    mine.hold({"other": other.address})
    other.take()
    assert not mine.dead()
    assert mine.address is None
    other.close()
    assert mine.dead() == {"other"}


def test_a_death_is_told_once(mine: Lifelines, other: Other) -> None:
    """A connection that ends and is refused from then on is a death."""
    mine.hold({"other": other.address})
    other.take()
    assert not mine.dead()
    other.close()
    assert mine.dead() == {"other"}
    assert not mine.dead()


def test_a_broken_connection_is_no_death(mine: Lifelines, other: Other) -> None:
    """The other one still takes connections, so it lives; its later death is seen."""
    mine.hold({"other": other.address})
    other.take()
    assert not mine.dead()
    other.hang_up()
    assert not mine.dead()
    other.take()
    assert not mine.dead()
    other.close()
    assert mine.dead() == {"other"}


def test_what_never_connected_does_not_die(mine: Lifelines, other: Other) -> None:
    """An address that refuses from the beginning says nothing: it may be another
    machine's.
    """
    address = other.address
    other.close()
    mine.hold({"other": address})
    assert not mine.dead()
    assert not mine.dead()


def test_a_host_that_does_not_answer_is_not_waited_for(
    mine: Lifelines, other: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a packet filter, a lost host's connection ends without an answer."""
    monkeypatch.setattr(leadership, "_ANSWER_MS", 0)
    mine.hold({"other": other.address})
    other.take()
    assert not mine.dead()
    other.listener.listen(0)
    with closing(socket.create_connection(other.address)):  # its queue is full
        other.hang_up()
        assert not mine.dead()
        assert not mine.dead()


def test_who_is_no_member_any_more_cannot_die(mine: Lifelines, other: Other) -> None:
    """One that has left the group is not held, and its end is nobody's death."""
    mine.hold({"other": other.address})
    other.take()
    assert not mine.dead()
    mine.hold({})
    assert other.taken[0].recv(1) == b""
    other.close()
    assert not mine.dead()


def test_two_instances_hold_each_other(mine: Lifelines) -> None:
    """Both sides of a connection are ours: one that dies is seen, one that closed its
    own end is forgotten.
    """
    with closing(Lifelines()) as second:
        address = second.listen(HOST)
        mine.hold({"second": address})
        second.hold({"mine": mine.listen(HOST)})
        assert not mine.dead()
        assert not second.dead()
        assert len(second._held) == 1
        mine.hold({})
        wait_for(lambda: not second.dead() and not second._held, timeout=10, pause=0.01)
        mine.hold({"second": address})
        assert not mine.dead()
    assert mine.dead() == {"second"}


def test_strangers_are_few(mine: Lifelines, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections of strangers cost no more than a few files; the oldest go first."""
    monkeypatch.setattr(leadership, "_MOST_HELD", 3)
    address = mine.listen(HOST)
    strangers = [socket.create_connection(address) for _ in range(5)]
    for each in strangers:
        each.sendall(b"GET / HTTP/1.1\r\n\r\n")
    mine.dead()
    assert len(mine._held) <= 3
    for each in strangers:
        each.close()


def test_a_shortage_of_files_is_no_death(
    mine: Lifelines, other: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a socket nothing can be told, and the thread that asks goes on."""

    def refused(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    address = other.address
    mine.hold({"other": address})
    other.take()
    assert not mine.dead()
    other.close()
    monkeypatch.setattr(leadership.socket, "socket", refused)
    assert not mine.dead()
    mine.hold({"other": address, "third": (HOST, 1)})
    assert not mine.dead()


@pytest.mark.parametrize(
    ("said", "means"),
    [
        (["10.0.0.7", 4711], ("10.0.0.7", 4711)),
        (["fd00::7", 4711], ("fd00::7", 4711)),
        (["host.example.com", 4711], None),
        (["10.0.0.7"], None),
        (["10.0.0.7", "x"], None),
        (["10.0.0.7", 0], None),
        (["10.0.0.7", 70_000], None),
        ([None, None], None),
        (None, None),
        (7, None),
    ],
)
def test_only_addresses_are_believed(said: object, means: object) -> None:
    """A name would be looked up, which takes as long as it likes; anything else is what
    no instance says.
    """
    assert address_in(said) == means
