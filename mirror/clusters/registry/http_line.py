"""One kept HTTP connection to a schema registry: a request, and its whole answer.

Main type: `HttpLine`. It bounds an answer in size and time, follows no redirect and
goes through the proxy that the environment names. The standard library's client takes
a fifth of the CPU of one with pools, cookies and redirects, and a first copy asks some
200,000 times.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
import http.client
import select
import time
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, quote, unquote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

from mirror.clusters.bounded import collect

if TYPE_CHECKING:
    from collections.abc import Mapping
    import ssl

    from mirror.clusters.bounded import Bounds

BROKEN = (OSError, http.client.HTTPException, ValueError)
"""What comes if there is no whole answer."""
_PART = 1 << 20
_IN_A_PATH = "/%:+@,!$&'()*;=~"


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    status: int
    reason: str
    kind: str
    """What the content is said to be."""
    raw: bytes

    @property
    def is_success(self) -> bool:
        return self.status // 100 == 2

    @property
    def is_redirect(self) -> bool:
        return self.status // 100 == 3


class HttpLine:
    """To one address. Not thread-safe."""

    def __init__(self, url: str, context: ssl.SSLContext | None) -> None:
        """`context`: for an address with https."""
        self._address = urlsplit(url)
        self._context = context
        self._begins = ""
        """How every path begins."""
        self._headers: dict[str, str] = {}
        """For the proxy."""
        self._connection: http.client.HTTPConnection | None = None

    def ask(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        content: bytes | None,
        *,
        headers: Mapping[str, str],
        seconds: float,
        bounds: Bounds,
    ) -> HttpAnswer:
        """What is answered.

        Raises:
            TimeoutError: not within that time.
            BoundsError: it is larger than it may be.
            Exception: one of `BROKEN`.
        """
        until = time.monotonic() + seconds
        line = self._ready(seconds)
        target = f"{self._begins}{path}"
        if params:
            target = f"{target}?{urlencode(params)}"
        whole = False
        try:
            line.request(
                method, target, body=content, headers={**headers, **self._headers}
            )
            with line.getresponse() as answer:
                raw = _whole(answer, until, bounds)
            whole = True
        finally:
            if not whole:  # what is left of this answer is not the next one
                self.close()
        kind = answer.headers.get("Content-Type", "no type")
        return HttpAnswer(answer.status, answer.reason, kind, raw)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ready(self, seconds: float) -> http.client.HTTPConnection:
        """A connection that the other side has not closed while it rested."""
        if self._connection is None:
            self._connection = self._made()
        self._connection.timeout = seconds
        if (sock := self._connection.sock) is not None:
            poller = select.poll()  # `select` takes no descriptor above 1,023
            poller.register(sock, select.POLLIN)
            if poller.poll(0):
                self._connection.close()  # the next request opens it again
            else:
                sock.settimeout(seconds)
        return self._connection

    def _made(self) -> http.client.HTTPConnection:
        address, context = self._address, self._context
        self._headers = {}
        self._begins = quote(address.path, safe=_IN_A_PATH)
        proxy = _proxy_for(address)
        where = proxy or address
        host, port = where.hostname or "", where.port or (80 if proxy else None)
        if context is not None:
            made = http.client.HTTPSConnection(host, port, context=context)
            if proxy is not None:
                made.set_tunnel(
                    address.hostname or "", address.port or 443, _login(proxy)
                )
            return made
        if proxy is not None:
            self._headers = _login(proxy)
            self._begins = f"http://{address.netloc}{self._begins}"
        return http.client.HTTPConnection(host, port)


def _whole(answer: http.client.HTTPResponse, until: float, bounds: Bounds) -> bytes:
    raw = collect(
        iter(lambda: answer.read1(_PART), b""),
        bounds,
        until=until,
        declared=answer.length,
        encoding=answer.headers.get("Content-Encoding", ""),
    )
    if answer.length:
        raise http.client.IncompleteRead(raw)
    return raw


def _proxy_for(address: SplitResult) -> SplitResult | None:
    """What the environment says, in `http_proxy`, `https_proxy` and `no_proxy`.

    Raises:
        ValueError: another kind of proxy than HTTP's.
    """
    given = getproxies()
    found = given.get(address.scheme) or given.get("all")
    if not found or proxy_bypass(address.netloc):
        return None
    proxy = urlsplit(found if "://" in found else f"http://{found}")
    if proxy.scheme != "http" or not proxy.hostname:
        raise ValueError(
            f"the environment names a proxy of kind {proxy.scheme!r}; mirror uses "
            "those that begin with http://"
        )
    return proxy


def _login(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    coded = base64.b64encode(pair.encode()).decode()
    return {"Proxy-Authorization": f"Basic {coded}"}
