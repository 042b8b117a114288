"""A bound on the HTTP port's connections.

Main type: `BoundedServer`, Tornado's server with at most `MOST_CONNECTIONS`. When one
more comes, it closes the one that has waited longest without a complete request. So
clients that open connections and say nothing lose them, and those that ask at once,
such as probes, are answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from tornado.httpserver import HTTPServer

if TYPE_CHECKING:
    from tornado.http1connection import HTTP1ServerConnection
    from tornado.iostream import IOStream

MOST_CONNECTIONS = 256
"""More than browsers, probes and scrapers use; each takes a file descriptor."""


class BoundedServer(HTTPServer):
    """Has at most `MOST_CONNECTIONS` connections open."""

    def initialize(self, *args: Any, **settings: Any) -> None:
        super().initialize(*args, **settings)
        self._open: dict[IOStream, bool] = {}
        """Whether the request is complete; the oldest connection first."""

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

    def on_close(self, server_conn: object) -> None:
        self._open.pop(cast("HTTP1ServerConnection", server_conn).stream, None)
        super().on_close(server_conn)
