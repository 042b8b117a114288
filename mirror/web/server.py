"""The service's HTTP port: pages, status, metrics, events, probes.

Main type: `StatusServer`, a context manager that runs the standard library's WSGI
server in a thread. It shows the `StatusStore` and changes nothing. `access` checks the
callers, `tls` does TLS.
"""

from __future__ import annotations

from http import HTTPStatus
import socketserver
import sys
import threading
from typing import TYPE_CHECKING, Any, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import structlog

from mirror.config.http_settings import HttpSettings
from mirror.errors import MirrorError
from mirror.metrics.exposition import exposition
from mirror.status.events import FORMAT_VERSION as EVENTS_VERSION
from mirror.status.history import History
from mirror.status.states import FlowState
from mirror.web.access import guarded
from mirror.web.page.pages import Pages
from mirror.web.routing import Response, Routes, as_json
from mirror.web.tls import certificates

if TYPE_CHECKING:
    from collections.abc import Callable
    import socket
    from types import TracebackType

    from mirror.status.store import StatusStore
    from mirror.web.routing import Request
    from mirror.web.tls import Certificates

    Handler = Callable[[Request], Response]

log = structlog.get_logger()

_READY = frozenset({FlowState.RUNNING, FlowState.STANDBY})
"""A flow that another instance leads counts as ready."""


class StatusServer:
    """Answers while the context is open."""

    def __init__(
        self,
        store: StatusStore,
        host: str,
        port: int,
        *,
        per_partition: bool = True,
        access: HttpSettings | None = None,
    ) -> None:
        """Bind; port 0 takes any free one. `per_partition`: metrics have a series per
        partition instead of per topic. `access`: who may ask; None: the default.

        Raises:
            MirrorError: cannot bind the address, or cannot use the certificate.
        """
        settings = access or HttpSettings(http_host=host)
        tls = certificates(settings)
        self._store = store
        self.history = History(store)
        self._metrics = exposition(store, per_partition=per_partition)
        try:
            self._server = make_server(
                host,
                port,
                guarded(Routes(self._table()), settings),
                server_class=_Server,
                handler_class=_Handler,
            )
        except OSError as error:
            raise MirrorError(
                f"service.http_port: cannot listen on {host}:{port}: {error.strerror}; "
                "choose another port, or 0 for any free one"
            ) from error
        self._server.certificates = tls
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://{host}:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            # How often it checks whether to stop.
            kwargs={"poll_interval": 0.1},
            name="mirror-http",
            daemon=True,
        )

    def __enter__(self) -> Self:
        self._thread.start()
        self.history.start()
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.history.close()
        self._server.shutdown()
        self._server.server_close()

    def _table(self) -> dict[str, Handler]:
        """Handlers by path."""
        return {
            **Pages(self._store, self.history).table(),
            "/status": lambda _: as_json(self._store.read().to_json()),
            "/events": self._happened,
            "/metrics": self._scraped,
            "/healthz": lambda _: self._alive(),
            "/readyz": lambda _: self._ready(),
        }

    def _scraped(self, asked: Request) -> Response:
        kind, body = self._metrics(asked.accept)
        return Response(kind=kind, body=body)

    def _happened(self, asked: Request) -> Response:
        try:
            since = int(asked.query.get("since") or 0)
        except ValueError:
            wrong = "since must be an event's id, or milliseconds since 1970"
            return as_json({"error": wrong}, HTTPStatus.BAD_REQUEST)
        kind = asked.query.get("kind")
        found = self._store.trail.read(
            since=since, flow=asked.query.get("flow"), kinds=[kind] if kind else ()
        )
        return as_json(
            {
                "format_version": EVENTS_VERSION,
                "last": found[-1].id if found else since,
                "events": [event.document() for event in found],
            }
        )

    def _alive(self) -> Response:
        if reason := self._store.standstill():
            found = {"status": "stands still", "reason": reason}
            return as_json(found, HTTPStatus.SERVICE_UNAVAILABLE)
        return as_json({"status": "alive"})

    def _ready(self) -> Response:
        waiting = {
            flow.name: f"{flow.state} {flow.reason}".strip()
            for flow in self._store.read().flows
            if flow.state not in _READY
        }
        ready = HTTPStatus.SERVICE_UNAVAILABLE if waiting else HTTPStatus.OK
        return as_json({"ready": not waiting, "waiting": waiting}, ready)


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True
    certificates: Certificates | None = None

    def get_request(self) -> tuple[socket.socket, Any]:
        accepted, address = super().get_request()
        if self.certificates is not None:
            accepted = self.certificates.wrap(accepted)
        return accepted, address

    def handle_error(self, _request: Any, client_address: Any) -> None:
        """Called while the error is handled; a client that hangs up is not logged."""
        error = sys.exception()
        if isinstance(error, OSError):
            log.debug("request ended early", client=str(client_address[0]),
                      error=str(error))  # fmt: skip
        else:
            log.error("request failed", exc_info=error)


class _Handler(WSGIRequestHandler):
    timeout = 30.0
    """A connection that is silent for longer is closed, to free its thread."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing: a line per poll would drown what matters."""
