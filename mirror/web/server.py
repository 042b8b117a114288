"""The service's HTTP port: pages, status, metrics, events, probes.

Main type: `StatusServer`, a context manager around Tornado's server, whose loop has a
thread of its own: slow or silent clients cost no thread, and are cut off; `connections`
bounds how many there are. What it shows
comes from the `StatusStore`; nothing can be changed through it. Whom it answers is
`access`'s duty, TLS that of `tls`.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any, Self, cast

import structlog
from tornado.netutil import bind_sockets
from tornado.wsgi import WSGIContainer

from mirror.config.service_settings import HttpSettings
from mirror.errors import MirrorError
from mirror.host import process_name
from mirror.metrics.exposition import exposition
from mirror.status.events import FORMAT_VERSION as EVENTS_VERSION
from mirror.status.history import History
from mirror.status.sites import estate_document, site_document
from mirror.status.states import FlowState
from mirror.web.access import guarded
from mirror.web.active import is_active
from mirror.web.connections import BoundedServer
from mirror.web.page.pages import Pages
from mirror.web.peers import PATH
from mirror.web.routing import Response, Routes, as_json
from mirror.web.tls import certificates

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from tornado.http1connection import HTTP1Connection
    from tornado.httputil import HTTPServerRequest
    from tornado.iostream import IOStream

    from mirror.status.store import StatusStore
    from mirror.status.values import FlowStatus
    from mirror.web.routing import Request

    Handler = Callable[[Request], Response]

log = structlog.get_logger()

_PATIENCE_SECONDS = 30.0
"""For a request's headers, for its body, and for reading the answer."""
_LARGEST_BODY = 1 << 16
_LOOK_SECONDS = 0.1
_AT_ONCE = 8
"""Requests that are worked on; others wait."""
_NOT_READY = frozenset({FlowState.STARTING, FlowState.STOPPED, FlowState.FAILED})
"""A flow that starts is one if this instance leads it: its clusters may not answer."""


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
        self._certificates = certificates(settings)
        self._open_to_others = settings.open_to_others
        self._store = store
        self.history = History(store)
        self._metrics = exposition(store, per_partition=per_partition)
        self._application = guarded(Routes(self._table()), settings)
        try:
            self._sockets = bind_sockets(port, host)
        except OSError as error:
            raise MirrorError(
                f"service.http_port: cannot listen on {host}:{port}: {error.strerror}; "
                "choose another port, or 0 for any free one"
            ) from error
        scheme = "http" if self._certificates is None else "https"
        self.url = f"{scheme}://{host}:{self._sockets[0].getsockname()[1]}"
        self._listening = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve()), name="mirror-http", daemon=True
        )

    def __enter__(self) -> Self:
        if self._open_to_others:
            log.warning(
                "other machines can read the HTTP port without a token: set "
                "service.http_token_file, or service.http_host to 127.0.0.1",
                url=self.url,
            )
        self._thread.start()
        while not self._listening.wait(_LOOK_SECONDS):
            if not self._thread.is_alive():
                raise MirrorError(f"cannot serve {self.url}: the log has the reason")
        self.history.start()
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.history.close()
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        self._loop.set_exception_handler(_failed)
        workers = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="mirror-http")
        answering = _Answering(self._application, workers)
        server = BoundedServer(
            answering,
            no_keep_alive=True,
            ssl_options=self._certificates and self._certificates.context,
            idle_connection_timeout=_PATIENCE_SECONDS,
            body_timeout=_PATIENCE_SECONDS,
            max_body_size=_LARGEST_BODY,
        )
        answering.asked = server.asked
        server.add_sockets(self._sockets)
        self._listening.set()
        await self._closing.wait()
        server.stop()
        await server.close_all_connections()
        workers.shutdown(wait=False)

    def _table(self) -> dict[str, Handler]:
        """Handlers by path."""
        return {
            **Pages(self._store, self.history).table(),
            "/status": lambda _: as_json(self._store.read().to_json()),
            PATH: lambda _: as_json(site_document(self._store.own_site())),
            "/estate": lambda _: as_json(estate_document(self._store.sites())),
            "/events": self._happened,
            "/metrics": self._scraped,
            "/healthz": lambda _: self._alive(),
            "/readyz": lambda _: self._ready(),
            "/active/": self._active,
        }

    def _active(self, asked: Request) -> Response:
        """Whether a cluster is active, for load balancers: /active/A<->B/B."""
        name, _, cluster = asked.path.removeprefix("/active/").rpartition("/")
        return is_active(self._store.pairs, name, cluster, now=time.monotonic())

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
        """Whether this process can serve: it leads each flow or could take it over at
        once. What the flows do is not asked: a cluster that does not answer must not
        stop the replacement of one instance after the other.
        """
        waiting = {
            flow.name: f"{flow.state} {flow.reason}".strip()
            for flow in self._store.read().flows
            if flow.state in _NOT_READY and not _is_led_here(flow)
        }
        if reason := self._store.standstill():
            waiting["service"] = reason
        ready = HTTPStatus.SERVICE_UNAVAILABLE if waiting else HTTPStatus.OK
        return as_json({"ready": not waiting, "waiting": waiting}, ready)


def _is_led_here(flow: FlowStatus) -> bool:
    return flow.state is FlowState.STARTING and flow.leader == process_name()


def _failed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error of the loop; a client that hangs up before TLS begins is none."""
    if isinstance(error := context.get("exception"), OSError):
        log.debug("request ended early", error=str(error))
        # Close its socket now, which `ssl` leaves to the garbage collector.
        traceback.clear_frames(error.__traceback__)
    else:
        loop.default_exception_handler(context)


class _Answering(WSGIContainer):
    """Calls the application, and closes connections whose answer is not read."""

    asked: Callable[[IOStream], None]

    def environ(self, request: HTTPServerRequest) -> dict[str, Any]:
        # Tornado fails on a name such as "localhost:x". What the client sent is in
        # HTTP_HOST, which `access` checks.
        request.host = ""
        return super().environ(request)

    async def handle_request(self, request: HTTPServerRequest) -> None:
        connection = cast("HTTP1Connection", request.connection)
        self.asked(connection.stream)
        try:
            await super().handle_request(request)
        finally:  # also after an error, when Tornado would wait for an answer forever
            loop = asyncio.get_running_loop()
            loop.call_later(_PATIENCE_SECONDS, connection.close)
