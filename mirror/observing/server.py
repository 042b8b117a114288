"""The service's HTTP port: pages, status, metrics, events, probes.

Main type: `StatusServer`, a context manager around Tornado's server, whose loop has a
thread of its own: slow or silent clients cost no thread, and are cut off;
`BoundedServer` bounds how many there are. What it shows comes from the `StatusStore`,
and receipts from the target; nothing can be changed through it. Whom it answers is
`access`'s duty.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
import ssl
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any, Self, cast

import structlog
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPHeaders, ResponseStartLine
from tornado.netutil import bind_sockets
from tornado.wsgi import WSGIContainer

from mirror.config.pair_settings import pair_name
from mirror.config.section_names import pair_parts
from mirror.config.service_settings import HttpSettings
from mirror.errors import MirrorError
from mirror.host import process_name
from mirror.log import LogThrottle
from mirror.observing.access import Access
from mirror.observing.exposition import exposition
from mirror.observing.page.pages import (
    History,
    Pages,
)
from mirror.observing.receipts import PATH, no_flow
from mirror.observing.routing import Later, Response, Routes, as_json, headers_of
from mirror.status.events import FORMAT_VERSION as EVENTS_VERSION
from mirror.status.states import FlowState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tornado.http1connection import HTTP1Connection, HTTP1ServerConnection
    from tornado.httputil import HTTPServerRequest
    from tornado.iostream import IOStream

    from mirror.observing.routing import Request
    from mirror.status.store import StatusStore
    from mirror.status.values import (
        PairStatus,
    )

    Handler = Callable[[Request], Response | Later]


# ---- TLS on the service's HTTP port, with certificates that may be rotated ----
#
# Main type: `Certificates`, a TLS context that looks at the files in every
# handshake and shows the new ones when they change. Of new files that cannot be
# used a warning is logged, and the old ones stay.


_Seen = tuple[tuple[int, int, int], ...]


class Certificates:
    """The port's own certificate and key. Not thread-safe: one thread accepts.

    `context` is what to listen with.
    """

    def __init__(self, certificate: Path, key: Path | None) -> None:
        """Read the files.

        Raises:
            MirrorError: they cannot be used.
        """
        self._certificate, self._key = certificate, key
        self._throttle = LogThrottle()
        try:
            self._seen = self._look()
            self.context = self._newest = self._load()
        except (OSError, ValueError) as error:
            raise MirrorError(
                "service.http_certificate_file: the certificate cannot be used: "
                f"{_short(error)}; it takes PEM files of a certificate and its key, "
                "without a password"
            ) from error

        # Called in each handshake before the certificate is shown, with a name or not.
        self.context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject, *_: object) -> None:
        self._refresh()
        connection.context = self._newest

    def _refresh(self) -> None:
        try:
            if (now := self._look()) == self._seen:
                return
            # Certificate and key are replaced one after the other: until they fit, the
            # old pair is shown.
            self._newest, self._seen = self._load(), now
        except (OSError, ValueError) as error:
            if self._throttle.due(_short(error)):
                log.warning("the HTTP port keeps its old certificate",
                            error=_short(error))  # fmt: skip
        else:
            self._throttle.clear()
            log.info("the HTTP port has a new certificate",
                     file=str(self._certificate))  # fmt: skip

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # Without an answer to the question for a password, OpenSSL asks the terminal.
        context.load_cert_chain(self._certificate, self._key, password="")
        return context

    def _look(self) -> _Seen:
        files = [file for file in (self._certificate, self._key) if file is not None]
        found = [file.stat() for file in files]
        return tuple((s.st_mtime_ns, s.st_ino, s.st_size) for s in found)


def _short(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "not PEM, or key and certificate do not match"
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename else ""
        return f"{name}{error.strerror}"
    return str(error)


# ---- A bound on the HTTP port's connections ----
#
# Main type: `BoundedServer`, Tornado's server with at most `MOST_CONNECTIONS`. When
# one more comes, it closes the one that has waited longest without a complete
# request. So clients that open connections and say nothing lose them, and those
# that ask at once, such as probes, are answered.


MOST_CONNECTIONS = 256
"""More than browsers, probes and scrapers use; each takes a file descriptor."""


class BoundedServer(HTTPServer):
    """Has at most `MOST_CONNECTIONS` connections open; those that wait for something
    have a bound of their own.
    """

    def initialize(self, *args: Any, **settings: Any) -> None:
        super().initialize(*args, **settings)
        self._open: dict[IOStream, bool] = {}
        """Whether the request is complete; the oldest connection first."""
        self._ends: dict[IOStream, asyncio.TimerHandle] = {}

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        if len(self._open) >= MOST_CONNECTIONS:
            # If every other client waits for its answer, the new one has to go.
            oldest = next((s for s, asked in self._open.items() if not asked), stream)
            self._open.pop(oldest, None)
            oldest.close()
            if oldest is stream:
                return
        self._open[stream] = False
        super().handle_stream(stream, address)

    def asked(self, stream: IOStream) -> None:
        """The request of this connection is complete."""
        if stream in self._open:
            self._open[stream] = True

    def waits(self, stream: IOStream) -> None:
        """This connection waits for something, and no longer counts."""
        self._open.pop(stream, None)

    def close_later(self, stream: IOStream, seconds: float) -> None:
        """Close it then, unless it is closed before."""
        if not stream.closed():
            loop = asyncio.get_running_loop()
            self._ends[stream] = loop.call_later(seconds, stream.close)

    def on_close(self, server_conn: object) -> None:
        stream = cast("HTTP1ServerConnection", server_conn).stream
        self._open.pop(stream, None)
        if (end := self._ends.pop(stream, None)) is not None:
            end.cancel()
        super().on_close(server_conn)


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
        receipts: Callable[[Request], Response | Later] | None = None,
    ) -> None:
        """Bind; port 0 takes any free one. `per_partition`: metrics have a series per
        partition instead of per topic. `access`: who may ask; None: the default.
        `receipts` answers below `/copied/`; None: there is no flow.

        Raises:
            MirrorError: cannot bind the address, or cannot use the certificate.
        """
        settings = access or HttpSettings(http_host=host)
        certificate = settings.http_certificate_file
        self._certificates = (
            Certificates(certificate, settings.http_key_file) if certificate else None
        )
        self._open_to_others = settings.open_to_others
        self._receipts = receipts or no_flow
        self._store = store
        self.history = History(store)
        self._metrics = exposition(store, per_partition=per_partition)
        self._application = Routes(self._table(), Access(settings).check)
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

    def __exit__(self, *_: object) -> None:
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
        answering.server = server
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
            "/events": self._happened,
            "/metrics": self._scraped,
            "/healthz": lambda _: self._alive(),
            "/readyz": lambda _: self._ready(),
            "/active/": self._active,
            PATH: self._receipts,
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
            if flow.state in _NOT_READY
            and (flow.state, flow.leader) != (FlowState.STARTING, process_name())
        }
        if reason := self._store.standstill():
            waiting["service"] = reason
        ready = HTTPStatus.SERVICE_UNAVAILABLE if waiting else HTTPStatus.OK
        return as_json({"ready": not waiting, "waiting": waiting}, ready)


def _failed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error of the loop; a client that hangs up before TLS begins is none."""
    if isinstance(error := context.get("exception"), OSError):
        log.debug("request ended early", error=str(error))
        # Close its socket now, which `ssl` leaves to the garbage collector.
        traceback.clear_frames(error.__traceback__)
    else:
        loop.default_exception_handler(context)


class _Answering(WSGIContainer):
    """Answers requests, and closes connections whose answer is not read."""

    server: BoundedServer

    def __init__(self, routes: Routes, workers: ThreadPoolExecutor) -> None:
        super().__init__(lambda *_: ())  # only its environment of a request is used
        self._routes = routes
        self._workers = workers

    def environ(self, request: HTTPServerRequest) -> dict[str, Any]:
        # Tornado fails on a name such as "localhost:x". What the client sent is in
        # HTTP_HOST, which `access` checks.
        request.host = ""
        return super().environ(request)

    async def handle_request(self, request: HTTPServerRequest) -> None:
        connection = cast("HTTP1Connection", request.connection)
        stream = connection.stream
        self.server.asked(stream)
        try:
            environ = self.environ(request)
            loop = asyncio.get_running_loop()
            answer = await loop.run_in_executor(
                self._workers, self._routes.answer, environ
            )
            if isinstance(answer, Later):
                self.server.waits(stream)
                answer = await _within(answer, connection)
            if not stream.closed():
                self._write(connection, answer, body=request.method != "HEAD")
                self._log(answer.status, request)
        finally:  # also after an error, when Tornado would wait for an answer forever
            self.server.close_later(stream, _PATIENCE_SECONDS)

    def _write(
        self, connection: HTTP1Connection, answer: Response, *, body: bool
    ) -> None:
        status = answer.status
        line = ResponseStartLine("HTTP/1.1", status.value, status.phrase)
        headers = HTTPHeaders()
        for name, value in headers_of(answer):
            headers.add(name, value)
        connection.write_headers(line, headers, chunk=answer.body if body else b"")
        connection.finish()


async def _within(later: Later, connection: HTTP1Connection) -> Response:
    """The answer once it is known, or time is up, or the client is gone."""
    known = asyncio.wrap_future(later.known)

    def give_up() -> None:
        known.cancel()

    connection.set_close_callback(give_up)
    if connection.stream.closed():  # before that
        give_up()
    if not known.done():
        await asyncio.wait([known], timeout=later.seconds)
    # Cancelled here, it is cancelled where it would be known, too.
    found = known.result() if known.done() and not known.cancelled() else None
    known.cancel()
    return later.answer(found)


# ---- whether a cluster of a pair is active: the answer for load balancers and DNS ----
#
# Main function: `is_active`. Only the journal of the cluster asked about counts, so
# a cut between two regions takes neither out. Its role is unknown once that journal
# could not be read for 30 seconds.


_VALID_SECONDS = 30.0


def is_active(
    pairs: Sequence[PairStatus], name: str, cluster: str, *, now: float
) -> Response:
    """200 if it is, 503 if it is not or if that is unknown, 404 if there is none.

    `name`: the pair, its clusters in any order; `now`: monotonic.
    """
    parts = pair_parts(name)
    wanted = name if parts is None else pair_name(*parts)
    members = {
        member.cluster: member
        for pair in pairs
        if pair.name == wanted
        for member in pair.members
    }
    if (member := members.get(cluster)) is None:
        known = [f"{p.name}/{m.cluster}" for p in pairs for m in p.members]
        return as_json(
            {"error": f"no cluster {cluster} of a pair {name}", "known": known},
            HTTPStatus.NOT_FOUND,
        )
    read = member.read_at > 0
    late = now - member.read_monotonic
    told = {
        "pair": name,
        "cluster": cluster,
        "active": member.active,
        "read_seconds_ago": round(late, 1) if read else None,
        "error": member.error,
    }
    sure = read and late <= _VALID_SECONDS and member.active == cluster
    return as_json(told, HTTPStatus.OK if sure else HTTPStatus.SERVICE_UNAVAILABLE)
