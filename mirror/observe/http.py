"""The service's HTTP port: `/status`, `/healthz`, `/readyz`, read-only.

Main type: `StatusServer`, a context manager around the standard library's WSGI
server in a thread of its own. What it shows comes from the `Board`; nothing can be
changed through it.
"""

from __future__ import annotations

from http import HTTPStatus
import json
import socketserver
import threading
from typing import TYPE_CHECKING, Any, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from mirror.errors import MirrorError
from mirror.observe.status import FlowState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from mirror.observe.status import Board

_JSON = [("Content-Type", "application/json; charset=utf-8")]


class StatusServer:
    """Answers while the context is open."""

    def __init__(self, board: Board, host: str, port: int) -> None:
        """Bind; port 0 takes any free one.

        Raises:
            MirrorError: the address cannot be bound.
        """
        self._board = board
        try:
            self._server = make_server(
                host, port, self._answer, server_class=_Server, handler_class=_Handler
            )
        except OSError as error:
            raise MirrorError(
                f"service.http_port: cannot listen on {host}:{port}: {error.strerror}; "
                "choose another port, or 0 for any free one"
            ) from error
        self.url = f"http://{host}:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="mirror-http", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        status, document = self._route(environ.get("PATH_INFO", "/"))
        # A copy: the server adds the length to the very list it is given.
        start_response(f"{status.value} {status.phrase}", list(_JSON))
        return [json.dumps(document).encode() + b"\n"]

    def _route(self, path: str) -> tuple[HTTPStatus, Any]:
        if path == "/status":
            return HTTPStatus.OK, self._board.read().to_json()
        if path == "/healthz":
            return HTTPStatus.OK, {"status": "alive"}
        if path == "/readyz":
            waiting = {
                flow.name: f"{flow.state} {flow.reason}".strip()
                for flow in self._board.read().flows
                if flow.state not in {FlowState.RUNNING, FlowState.STANDBY}
            }
            ready = HTTPStatus.SERVICE_UNAVAILABLE if waiting else HTTPStatus.OK
            return ready, {"ready": not waiting, "waiting": waiting}
        return HTTPStatus.NOT_FOUND, {
            "error": f"nothing at {path}",
            "paths": ["/status", "/healthz", "/readyz"],
        }


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing: a line per poll would drown what matters."""
