"""From a request's path to its answer: the table behind the service's HTTP port.

Main types: `Routes`, a WSGI application made from a table of paths, and the values
that travel, `Request` and `Response`. It only reads: methods other than GET and HEAD
are refused. `access` decides who may ask.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from http import HTTPStatus
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

log = structlog.get_logger()

JSON = "application/json; charset=utf-8"
READING = ("GET", "HEAD")
"""Methods that change nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request."""

    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    """The last value of each name."""
    accept: str = ""
    """The Accept header."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """The answer to it."""

    body: bytes
    kind: str = JSON
    """The media type of the body."""
    status: HTTPStatus = HTTPStatus.OK
    headers: tuple[tuple[str, str], ...] = ()
    """Headers besides the type and the length of the body."""


def as_json(document: Any, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """An answer for programs."""
    return Response(body=json.dumps(document).encode() + b"\n", status=status)


_HEADERS = {
    # Reveals no more than necessary about what runs here.
    "Server": "mirror",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Headers of every answer, unless the application sets another value."""


class Refusal(Exception):  # noqa: N818  an answer, not a failure
    """An answer given instead of the handler's."""

    def __init__(
        self, status: HTTPStatus, reason: str, *headers: tuple[str, str]
    ) -> None:
        super().__init__(reason)
        self.answer = replace(as_json({"error": reason}, status), headers=headers)


class Routes:
    """A WSGI application that answers from a table."""

    def __init__(
        self,
        table: Mapping[str, Callable[[Request], Response]],
        check: Callable[[dict[str, Any]], None] = lambda _: None,
    ) -> None:
        """`check` raises `Refusal` for a request that is not to be answered."""
        self._table = dict(table)
        self._check = check

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        method = environ.get("REQUEST_METHOD", "GET")
        try:
            self._check(environ)
            answer = self._answer(method, environ)
        except Refusal as refusal:
            answer = refusal.answer
        given = {name.lower() for name, _ in answer.headers}
        headers = [
            ("Content-Type", answer.kind),
            ("Content-Length", str(len(answer.body))),
            *answer.headers,
            *(each for each in _HEADERS.items() if each[0].lower() not in given),
        ]
        start_response(f"{answer.status.value} {answer.status.phrase}", headers)
        return [] if method == "HEAD" else [answer.body]

    def _below(self, path: str) -> Callable[[Request], Response] | None:
        """The handler of everything below a path that ends with a slash."""
        return next(
            (
                handler
                for known, handler in self._table.items()
                if known != "/" and known.endswith("/") and path.startswith(known)
            ),
            None,
        )

    def _answer(self, method: str, environ: dict[str, Any]) -> Response:
        # WSGI decodes UTF-8 bytes as Latin-1.
        path = environ.get("PATH_INFO", "").encode("latin-1").decode(errors="replace")
        if method not in READING:
            error = {"error": f"{method} is not allowed here"}
            refused = as_json(error, HTTPStatus.METHOD_NOT_ALLOWED)
            return replace(refused, headers=(("Allow", ", ".join(READING)),))
        handler = self._table.get(path or "/") or self._below(path)
        if handler is None:
            return as_json(
                {"error": f"nothing at {path}", "paths": list(self._table)},
                HTTPStatus.NOT_FOUND,
            )
        asked = Request(
            path=path or "/",
            query=dict(
                parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True)
            ),
            accept=environ.get("HTTP_ACCEPT", ""),
        )
        try:
            return handler(asked)
        except Exception:
            # A caller must not see or cause more than the failure of its own request.
            log.exception("request failed", path=path)
            return as_json(
                {"error": "this is a bug in mirror; see its log"},
                HTTPStatus.INTERNAL_SERVER_ERROR,
            )
