"""An HTTP proxy in front of a real registry that makes its answers fail, late or wrong.

`RegistryProxy` forwards requests and answers, except where a `Fault` says otherwise:
it stands for what load balancers, proxies and dying servers do. `asked` counts what
came.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
import http.server
import threading
import time
from typing import TYPE_CHECKING, Any, Self
import urllib.error
import urllib.request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PAGE = b"<html><body>Service unavailable, please try later</body></html>"


@dataclass(slots=True, kw_only=True)
class Fault:
    """What happens to requests instead of an answer."""

    status: int = 0
    """Answer with this one."""
    body: bytes = b'{"error_code": 50003, "message": "forwarding failed"}'
    headers: dict[str, str] = field(default_factory=dict)
    half: bool = False
    """Cut the true answer in its middle."""
    drip_seconds: float = 0.0
    """Between each byte of the true answer."""
    repeated: int = 0
    """How often the body is repeated in one answer."""
    method: str = ""
    """Only of these requests; empty: all."""
    path: str = ""
    """Only of requests whose path begins so."""
    times: int = 10**9
    """How many requests; then the true answers come."""


class RegistryProxy:
    """A context manager; `url` leads to the registry behind it."""

    def __init__(self, behind: str) -> None:
        self.behind = behind
        self._fault: Fault | None = None
        self.asked: list[str] = []
        self._watch: tuple[str, Callable[[], object], bool] | None = None
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                proxy.serve(self, self.rfile.read(length))

            def do_PUT(self) -> None:
                self.do_GET()

            def do_POST(self) -> None:
                self.do_GET()

            def do_DELETE(self) -> None:
                self.do_GET()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.handle_error = lambda *_: None
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @contextmanager
    def fault(self, **what: Any) -> Iterator[Fault]:
        """It is in force while the block runs."""
        self._fault = Fault(**what)
        try:
            yield self._fault
        finally:
            self._fault = None

    @contextmanager
    def watched(
        self, begins: str, act: Callable[[], object], *, forwarded: bool
    ) -> Iterator[None]:
        """While the block runs, do something when a request that begins so comes, once
        it was `forwarded` or instead of that; it gets no answer.
        """
        self._watch = (begins, act, forwarded)
        try:
            yield
        finally:
            self._watch = None

    def serve(self, handler: http.server.BaseHTTPRequestHandler, body: bytes) -> None:
        self.asked.append(f"{handler.command} {handler.path}")
        watch = self._watch
        if watch is not None and self.asked[-1].startswith(watch[0]):
            if watch[2]:
                self._true_answer(handler, body)
            watch[1]()
            handler.close_connection = True
            return
        fault = self._fault
        if (
            fault
            and fault.times > 0
            and fault.method in {"", handler.command}
            and (handler.path.startswith(fault.path))
        ):
            fault.times -= 1
        else:
            fault = None
        if fault and fault.status:
            self._answer(handler, fault.status, fault.body, fault.headers)
            return
        status, raw = self._true_answer(handler, body)
        if fault and fault.repeated:
            handler.send_response(200)
            handler.end_headers()
            for _ in range(fault.repeated):
                handler.wfile.write(fault.body)
            return
        if fault and fault.half:
            head, raw = len(raw), raw[: len(raw) // 2]
            handler.send_response(status)
            handler.send_header("Content-Length", str(head))
            handler.end_headers()
            handler.wfile.write(raw)
            handler.close_connection = True
            return
        if fault and fault.drip_seconds:
            handler.send_response(status)
            handler.send_header("Content-Length", str(len(raw)))
            handler.end_headers()
            for place in range(len(raw)):
                handler.wfile.write(raw[place : place + 1])
                time.sleep(fault.drip_seconds)
            return
        self._answer(handler, status, raw, {})

    def _true_answer(
        self, handler: http.server.BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, bytes]:
        request = urllib.request.Request(
            f"{self.behind}{handler.path}",
            data=body or None,
            method=handler.command,
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    @staticmethod
    def _answer(
        handler: http.server.BaseHTTPRequestHandler,
        status: int,
        raw: bytes,
        headers: dict[str, str],
    ) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(raw)))
        handler.end_headers()
        handler.wfile.write(raw)
