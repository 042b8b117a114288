"""A connection to a registry, against a plain HTTP server that answers as tests say."""

from __future__ import annotations

from contextlib import closing
import gzip
import http.server
import select
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from mirror.clusters.bounded import Bounds
from mirror.errors import RegistryError
from mirror.retry import Backoff
from mirror.schemas.registry import channel
from mirror.schemas.registry.channel import BROKEN, HttpAnswer, HttpLine
from mirror.schemas.registry.registry import RequestPace
from tests.harness.registries import registry
from tests.harness.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.unit

BOUNDS = Bounds(size=1 << 20, values=10)


class Server:
    """`said` is the next answers' headers and body; `asked` is what came."""

    def __init__(self) -> None:
        self.said: tuple[dict[str, str], bytes] = ({}, b"{}")
        self.ends = False
        """Whether it closes each connection without saying so."""
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.connections = 0
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                server.connections += 1
                super().setup()

            def do_GET(self) -> None:
                server.asked.append(f"{self.command} {self.path}")
                server.headers.append(dict(self.headers))
                headers, body = server.said
                self.send_response(200)
                if "Transfer-Encoding" not in headers:
                    headers = {"Content-Length": str(len(body)), **headers}
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)
                self.close_connection |= server.ends

            def do_CONNECT(self) -> None:
                server.asked.append(f"{self.command} {self.path}")
                server.headers.append(dict(self.headers))
                self.send_error(407)

            def log_message(self, *_: Any) -> None:
                """Nothing on the terminal."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    made = Server()
    yield made
    made.close()


def ask(line: HttpLine, path: str = "/subjects", **params: str) -> HttpAnswer:
    return line.ask("GET", path, params, None, headers={}, seconds=10, bounds=BOUNDS)


def test_a_connection_is_kept(server: Server) -> None:
    """Requests share a connection; one that the other side has closed while it rested
    is opened again, without a failure.
    """
    line = HttpLine(f"{server.url}/apis/v 7/", None)
    for number in range(3):
        assert ask(line, "subjects", deleted="true").raw == b"{}"
        assert server.connections == 1, number
    assert server.asked[0] == "GET /apis/v%207/subjects?deleted=true"
    server.ends = True
    ask(line)
    for number in range(2, 5):
        assert line._connection is not None
        closed = [line._connection.sock]
        assert select.select(closed, [], [], PATIENCE_SECONDS)[0] == closed
        assert ask(line).status == 200
        assert server.connections == number
    line.close()


@pytest.mark.parametrize(
    ("headers", "body", "found"),
    [
        ({"Content-Encoding": "gzip"}, gzip.compress(b"[1]"), b"[1]"),
        ({"Content-Encoding": "gzip"}, b"", b""),
        ({"Transfer-Encoding": "chunked"}, b"2\r\n[1\r\n1\r\n]\r\n0\r\n\r\n", b"[1]"),
    ],
    ids=["gzip", "gzip of nothing", "chunks"],
)
def test_a_whole_answer(
    server: Server, headers: dict[str, str], body: bytes, found: bytes
) -> None:
    """However it travels, and the connection serves the next request."""
    server.said = (headers, body)
    line = HttpLine(server.url, None)
    assert [ask(line).raw, ask(line).raw] == [found, found]
    assert server.connections == 1
    line.close()


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"Content-Encoding": "gzip"}, gzip.compress(b"[1]")[:-9]),
        ({"Content-Encoding": "gzip"}, b"[1]"),
        ({"Content-Encoding": "br"}, b"[1]"),
        ({"Content-Encoding": "gzip, gzip"}, b"[1]"),
        ({"Content-Length": "9", "Connection": "close"}, b"[1]"),
        ({"Transfer-Encoding": "chunked"}, b"x\r\n"),
    ],
    ids=["half gzip", "no gzip", "brotli", "twice", "half", "no chunk"],
)
def test_no_whole_answer(server: Server, headers: dict[str, str], body: bytes) -> None:
    """It is an error, and the next request is not answered with the rest of it."""
    server.said = (headers, body)
    server.ends = True
    line = HttpLine(server.url, None)
    with pytest.raises(BROKEN):
        ask(line)
    server.said, server.ends = ({}, b"[2]"), False
    assert ask(line).raw == b"[2]"
    line.close()


def test_a_proxy_of_the_environment(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests go through it, with its login, unless `no_proxy` names the registry;
    TLS goes through a tunnel. A refusal, and a proxy of another kind, are errors that
    show no password.
    """
    proxy = server.url.replace("://", "://me:s%40cret@")
    monkeypatch.setenv("http_proxy", proxy)
    with closing(HttpLine("http://registry.example:81/a", None)) as line:
        ask(line, "/b")
    assert server.asked.pop() == "GET http://registry.example:81/a/b"
    asked = server.headers.pop()
    assert asked["Proxy-Authorization"] == "Basic bWU6c0BjcmV0"
    assert asked["Host"] == "registry.example:81"

    monkeypatch.setenv("https_proxy", proxy)
    monkeypatch.setattr(channel, "_PAUSE", Backoff(0.0, 0.0))
    with (
        registry("https://registry.example") as client,
        pytest.raises(RegistryError, match="407") as refused,
    ):
        client.contexts()
    assert set(server.asked) == {"CONNECT registry.example:443"}
    assert server.headers[0]["Proxy-Authorization"] == "Basic bWU6c0BjcmV0"

    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("http_proxy", "socks5://me:s%40cret@127.0.0.1:1")
    with closing(HttpLine(server.url, None)) as line:
        assert ask(line).raw == b"{}"
    monkeypatch.delenv("no_proxy")
    with (
        registry(server.url) as client,
        pytest.raises(RegistryError, match="kind 'socks5'") as unusable,
    ):
        client.contexts()
    for error in (refused, unusable):
        assert "cret" not in str(error.value)


def test_requests_keep_below_a_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second's worth of them goes at once, what follows at the rate; a rest saves up
    no more than a second's worth.
    """
    now = [100.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", sleep)
    wait = RequestPace(4)
    sent = []
    for rest in (0, 0, 0, 0, 0, 0, 60, 0, 0, 0, 0):
        now[0] += rest
        wait()
        sent.append(now[0] - 100)

    assert sent == [0, 0, 0, 0, 0.25, 0.5, *[60.5] * 4, 60.75]
