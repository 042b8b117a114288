"""From a request's path to its answer: the table behind the service's HTTP port.

Main types: `Routes`, made from a table of paths, and the values that travel: `Request`,
`Response`, and `Later`, for an answer that takes its time. It only reads: methods other
than GET and HEAD are refused. `access` decides who may ask.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from http import HTTPStatus
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Later:
    """An answer that no thread waits for."""

    known: Future[Any]
    """What it depends on; it is cancelled if that does not come in time."""
    seconds: float
    answer: Callable[[Any | None], Response]
    """Makes the answer of what is known, or of None."""


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


def headers_of(answer: Response) -> list[tuple[str, str]]:
    """All headers of an answer."""
    given = {name.lower() for name, _ in answer.headers}
    return [
        ("Content-Type", answer.kind),
        ("Content-Length", str(len(answer.body))),
        *answer.headers,
        *(each for each in _HEADERS.items() if each[0].lower() not in given),
    ]


class Routes:
    """Answers from a table."""

    def __init__(
        self,
        table: Mapping[str, Callable[[Request], Response | Later]],
        check: Callable[[dict[str, Any]], None] = lambda _: None,
    ) -> None:
        """`check` raises `Refusal` for a request that is not to be answered."""
        self._table = dict(table)
        self._check = check

    def answer(self, environ: dict[str, Any]) -> Response | Later:
        """The answer to a request, which is given as WSGI does."""
        try:
            self._check(environ)
            return self._answer(environ)
        except Refusal as refusal:
            return refusal.answer

    def _below(self, path: str) -> Callable[[Request], Response | Later] | None:
        """The handler of everything below a path that ends with a slash."""
        return next(
            (
                handler
                for known, handler in self._table.items()
                if known != "/" and known.endswith("/") and path.startswith(known)
            ),
            None,
        )

    def _answer(self, environ: dict[str, Any]) -> Response | Later:
        method = environ.get("REQUEST_METHOD", "GET")
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
        except Refusal:
            raise
        except Exception:
            # A caller must not see or cause more than the failure of its own request.
            log.exception("request failed", path=path)
            return as_json(
                {"error": "this is a bug in mirror; see its log"},
                HTTPStatus.INTERNAL_SERVER_ERROR,
            )
