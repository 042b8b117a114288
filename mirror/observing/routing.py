"""From a request's path to its answer: the table behind the service's HTTP port.

Main types: `Routes`, a WSGI application made from a table of paths, and the values
that travel, `Request` and `Response`. It only reads: methods other than GET and HEAD
are refused. Who may ask is decided around it, in `access`.
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
_METHODS = ("GET", "HEAD")


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


class Routes:
    """A WSGI application that answers from a table."""

    def __init__(self, table: Mapping[str, Callable[[Request], Response]]) -> None:
        self._table = dict(table)

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        method = environ.get("REQUEST_METHOD", "GET")
        answer = self._answer(method, environ)
        headers = [
            ("Content-Type", answer.kind),
            ("Content-Length", str(len(answer.body))),
            *answer.headers,
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
        if method not in _METHODS:
            error = {"error": f"{method} is not allowed here"}
            refused = as_json(error, HTTPStatus.METHOD_NOT_ALLOWED)
            return replace(refused, headers=(("Allow", ", ".join(_METHODS)),))
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
