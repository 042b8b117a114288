"""Slow or silent clients: they are cut off, and others are answered meanwhile."""

from __future__ import annotations

from contextlib import ExitStack, suppress
import socket
import ssl
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from mirror.config.service_settings import HttpSettings
from mirror.observing import server as server_module
from mirror.observing.server import StatusServer
from mirror.playground.certificates import CertificateAuthority
from mirror.status.store import StatusStore
from tests.harness.waiting import crowd, deadline_in
from tests.unit.test_http_access import ask, served, trusting, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.integration

_PATIENCE = 2.0
_MANY = 200
_LARGE = bytes(1 << 25)
"""An answer that does not fit into a socket's buffers."""
_IN_TIME = 5.0
"""For an answer: whoever is held up by one client after the other waits for minutes."""


class _Port:
    """A server's address, and how to speak to it."""

    def __init__(self, url: str, context: ssl.SSLContext | None) -> None:
        self.url, self.context = url, context
        address = urlsplit(url)
        self._address = (address.hostname or "", address.port or 0)

    def reached(self) -> socket.socket:
        return socket.create_connection(self._address, timeout=30)

    def spoken_to(self) -> socket.socket:
        reached = self.reached()
        if self.context is None:
            return reached
        return self.context.wrap_socket(reached, server_hostname="127.0.0.1")

    def answers_in_time(self) -> None:
        for path in ("/readyz", "/status") * 5:
            began = time.monotonic()
            assert ask(self.url, path, context=self.context)[0] in {200, 503}
            assert time.monotonic() - began < _IN_TIME * crowd()


@pytest.fixture(params=["http", "https"])
def port(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[_Port]:
    """A server that waits two seconds for a slow client."""
    monkeypatch.setattr(server_module, "_PATIENCE_SECONDS", _PATIENCE)
    access, context = HttpSettings(), None
    if request.param == "https":
        authority = CertificateAuthority()
        access = HttpSettings.model_validate(write(tmp_path, authority))
        context = trusting(authority)
    monkeypatch.setattr(
        server_module, "exposition", lambda *_, **__: lambda _: ("text/plain", _LARGE)
    )
    store = StatusStore(("A->B",))
    with StatusServer(store, "127.0.0.1", 0, access=access) as server:
        yield _Port(server.url, context)


@pytest.mark.parametrize(
    "begun",
    [
        b"GET /status HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
        b"POST /status HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n",
    ],
    ids=["headers", "body"],
)
def test_a_slow_client_is_cut_off(port: _Port, begun: bytes) -> None:
    """A byte now and then does not keep a connection, in the headers or in the body."""
    with port.spoken_to() as slow:
        slow.sendall(begun)
        slow.settimeout(0.2)
        deadline = deadline_in(30)
        while time.monotonic() < deadline:
            try:
                slow.sendall(b"x")
                assert slow.recv(100) == b""
            except TimeoutError:
                continue
            except OSError:  # it closed, and what came later was refused
                pass
            break
        assert time.monotonic() < deadline
        port.answers_in_time()


def test_a_client_that_does_not_read_is_cut_off(port: _Port) -> None:
    """A large answer that stays unread is dropped, and its connection closed."""
    with port.spoken_to() as idle:
        idle.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(_PATIENCE + 1)
        port.answers_in_time()
        idle.settimeout(30)
        read = 0
        with suppress(ConnectionError, ssl.SSLError):
            while part := idle.recv(1 << 20):
                read += len(part)
        assert 0 < read < len(_LARGE)


@pytest.mark.parametrize(
    ("named", "answer"), [("localhost:x", b" 200 "), ("evil:x", b" 421 ")]
)
def test_a_host_without_a_port_number(port: _Port, named: str, answer: bytes) -> None:
    """Whatever the Host header has for a port, the request is answered at once."""
    with port.spoken_to() as odd:
        odd.settimeout(_IN_TIME * crowd())
        odd.sendall(f"GET /healthz HTTP/1.1\r\nHost: {named}\r\n\r\n".encode())
        assert answer in odd.recv(100)


def test_silent_clients_hold_up_no_one(port: _Port) -> None:
    """With 200 connections open on which nothing comes, 20 of them with half a request,
    others are answered at once; then the silent ones are closed.
    """
    with ExitStack() as stack:
        silent = [stack.enter_context(port.reached()) for _ in range(_MANY)]
        for half in silent[:20]:
            half.sendall(b"\x16" if port.context else b"GET /status HTTP/1.1\r\nX-A: ")
        port.answers_in_time()
        for each in silent:
            with suppress(ConnectionError):  # closed with half a request unread
                assert each.recv(100) == b""


def test_more_connections_than_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest silent connections are closed as new ones come, long before their
    time is over, and a client that asks is answered.
    """
    monkeypatch.setattr(server_module, "MOST_CONNECTIONS", 50)
    with served() as url, ExitStack() as stack:
        port = _Port(url, None)
        silent = [stack.enter_context(port.reached()) for _ in range(_MANY)]
        port.answers_in_time()
        for each in silent[:-50]:
            each.settimeout(30)
            with suppress(ConnectionError):
                assert each.recv(100) == b""
        silent[-1].settimeout(0.2)
        with pytest.raises(TimeoutError):
            silent[-1].recv(100)
