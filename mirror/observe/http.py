"""The service's HTTP port: `/status`, `/metrics`, `/healthz`, `/readyz`, read-only.

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
from mirror.observe.exposition import exposition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from mirror.observe.status import Board

_JSON = "application/json; charset=utf-8"
_PATHS = ("/status", "/metrics", "/healthz", "/readyz")
_READY = frozenset({"RUNNING", "STANDBY", "PAUSED"})
"""A flow that is paused, or led elsewhere, is as ready as it is meant to be."""


class StatusServer:
    """Answers while the context is open."""

    def __init__(
        self, board: Board, host: str, port: int, *, per_partition: bool = True
    ) -> None:
        """Bind; port 0 takes any free one. `per_partition`: metrics have so many
        series, else one per topic.

        Raises:
            MirrorError: the address cannot be bound.
        """
        self._board = board
        self._metrics = exposition(board, per_partition=per_partition)
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
        path = environ.get("PATH_INFO", "/")
        if path == "/metrics":
            status = HTTPStatus.OK
            kind, body = self._metrics(environ.get("HTTP_ACCEPT", ""))
        else:
            status, document = self._route(path)
            kind, body = _JSON, json.dumps(document).encode() + b"\n"
        headers = [("Content-Type", kind), ("Cache-Control", "no-store")]
        start_response(f"{status.value} {status.phrase}", headers)
        return [body]

    def _route(self, path: str) -> tuple[HTTPStatus, Any]:
        if path == "/status":
            return HTTPStatus.OK, self._board.read().to_json()
        if path == "/healthz":
            reason = self._board.standstill()
            if reason:
                found = {"status": "stands still", "reason": reason}
                return HTTPStatus.SERVICE_UNAVAILABLE, found
            return HTTPStatus.OK, {"status": "alive"}
        if path == "/readyz":
            waiting = {
                flow.name: f"{flow.state} {flow.reason}".strip()
                for flow in self._board.read().flows
                if flow.state.value not in _READY
            }
            ready = HTTPStatus.SERVICE_UNAVAILABLE if waiting else HTTPStatus.OK
            return ready, {"ready": not waiting, "waiting": waiting}
        return HTTPStatus.NOT_FOUND, {
            "error": f"nothing at {path}",
            "paths": list(_PATHS),
        }


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing: a line per poll would drown what matters."""
