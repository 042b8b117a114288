"""One question to a schema registry: from a method and a path to a JSON document.

Main type: `Channel`. It tries the addresses in turn and what may pass again, three
rounds at most; it follows no redirect, and no answer is larger or later than it may be.
What the registry refuses is a `RegistryError` with HTTP's status and Confluent's code.
"""

from __future__ import annotations

import base64
from contextlib import contextmanager
from dataclasses import dataclass
import hashlib
from http import HTTPStatus
import http.client
import json
import re
import select
import ssl
import time
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import SplitResult, quote, unquote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

from mirror.clusters.auth.security import context_of, secret_of
from mirror.clusters.bounded import Bounds, collect, parsed
from mirror.errors import MALFORMED, BoundsError, RegistryError, system_error
from mirror.patience import left
from mirror.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterator, Mapping

    from mirror.clusters.auth.tokens import KeptToken
    from mirror.config.schema_settings import RegistryConfig

Method = Literal["GET", "PUT", "POST", "DELETE"]

ONE = Bounds(size=16 << 20, values=100_000)
"""A text may have several megabytes, and twice that with its escapes."""
_ROUNDS = 3
_PAUSE = Backoff(0.2, 2.0)
_JSON = "application/vnd.schemaregistry.v1+json"
_HEADERS = {
    "Accept": f"{_JSON}, application/json",
    "Accept-Encoding": "gzip",
    "Content-Type": _JSON,
}
_HEADER = re.compile(r"([\x21-\x7e]([\t\x20-\x7e]*[\x21-\x7e])?)?")
_MAY_PASS = frozenset({408, 425, 429})
NOT_THERE = frozenset({404, 405, 501})
"""HTTP's statuses for a part of the API that a registry does not have."""
_NO_SUCH = range(40400, 40500)
_OF_WHAT_IS_THERE = frozenset({"GET", "DELETE"})
"""What is not there can be read and deleted without an error, but not be set."""
_MOST_WORDS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryAnswer:
    document: Any = None
    """None: nothing was answered, or it was not read."""
    raw: bytes = b""
    missing: int = 0
    """Confluent's code, if what was asked for is not there."""
    digest: bytes = b""
    """Of `raw`, where digests were given."""


class Channel:
    """Asks one registry; keeps its connections. Not thread-safe."""

    def __init__(
        self, config: RegistryConfig, alias: str, pace: Callable[[], None]
    ) -> None:
        self._config = config
        self._alias = alias
        self._pace = pace
        self._lines: dict[str, HttpLine] = {}
        """By address."""
        self._mark: Hashable = None
        self._first = 0
        """The address that answered last."""
        self.asked = 0
        self.failed = 0

    @property
    def where(self) -> str:
        """How messages call this registry."""
        return f"cluster {self._alias}: {PLACE} {self._url}"

    def ask(
        self,
        method: Method,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        known: Collection[bytes] | None = None,
        bounds: Bounds = ONE,
    ) -> RegistryAnswer:
        """What the registry answers. `known`: digests of answers that need not be read.

        Raises:
            RegistryError: it refuses, or none of its addresses answers.
            AuthenticationError: our own secrets cannot be used.
        """
        content = None if body is None else _encoded(body)
        renewed, pause = False, 0.0
        for attempt in range(_ROUNDS * len(self._config.url)):
            if attempt and attempt % len(self._config.url) == 0:
                pause = _PAUSE.after(pause)
                time.sleep(pause)
            try:
                answer = self._once(method, path, params or {}, content, bounds)
                return self._understood(method, answer, known, bounds)
            except BoundsError as error:
                raise RegistryError(
                    f"{self.where}: the answer to {method} {path} {error}",
                    too_large=True,
                ) from error
            except RegistryError as error:
                failure = error
            if failure.status == HTTPStatus.UNAUTHORIZED and not renewed:
                renewed = forget_token(self._config, self._alias)
                if renewed:
                    continue
            if not failure.retriable:
                break
            self._first += 1
        raise failure

    @contextmanager
    def reading(self, what: str) -> Iterator[None]:
        """For taking values out of an answer that is JSON.

        Raises:
            RegistryError: it is not what was asked for.
        """
        try:
            yield
        except MALFORMED as error:
            text = f"{self.where} answers {what} in a form of its own"
            raise RegistryError(text) from error

    def close(self) -> None:
        for line in self._lines.values():
            line.close()
        self._lines.clear()

    @property
    def _url(self) -> str:
        return self._config.url[self._first % len(self._config.url)]

    def _once(
        self,
        method: Method,
        path: str,
        params: Mapping[str, str],
        content: bytes | None,
        bounds: Bounds,
    ) -> HttpAnswer:
        self._pace()
        headers = {**_HEADERS, **self._config.headers}
        if authorization := authorization_of(self._config, self._alias):
            headers["Authorization"] = authorization
        if not all(map(_HEADER.fullmatch, headers.values())):
            # The client would say so with the whole value, which may be a secret.
            raise RegistryError(
                f"{self.where} was not asked: the login, or one of {PLACE}."
                "headers, has a line break or another character that no header may have"
            )
        self.asked += 1
        seconds = left(self._config.timeout_seconds)
        try:
            return self._line().ask(
                method, path, params, content,
                headers=headers, seconds=seconds, bounds=bounds,
            )  # fmt: skip
        except TimeoutError as error:
            self.failed += 1
            raise RegistryError(
                f"{self.where} does not answer within {round(seconds, 1):g} s",
                retriable=True,
            ) from error
        except BROKEN as error:
            self.failed += 1
            raise self._unreached(error) from error

    def _line(self) -> HttpLine:
        """A connection with the certificates that the files hold now."""
        mark = materials_mark(self._config)
        if mark != self._mark:
            self.close()
            self._mark = mark
        if (line := self._lines.get(self._url)) is None:
            tls = self._url.startswith("https:")
            where = f"cluster {self._alias}: {PLACE}"
            context = context_of(self._config, where) if tls else None
            line = self._lines[self._url] = HttpLine(self._url, context)
        return line

    def _understood(
        self,
        method: Method,
        answer: HttpAnswer,
        known: Collection[bytes] | None,
        bounds: Bounds,
    ) -> RegistryAnswer:
        status, raw, digest = answer.status, answer.raw, b""
        if known is not None:
            digest = hashlib.sha256(raw).digest()
            if answer.is_success and digest in known:
                return RegistryAnswer(raw=raw, digest=digest)
        if status // 100 == 3:
            raise RegistryError(
                f"{self.where} answers {status} with another address, and mirror "
                "follows none; url must be the registry's own",
                status=status,
            )
        document = None
        try:
            document = parsed(raw, bounds) if raw else None
        except BoundsError:
            if answer.is_success:
                raise
        except ValueError as error:
            if answer.is_success:
                self.failed += 1
                raise RegistryError(
                    f"{self.where} answers {status} with something other than JSON "
                    f"({answer.kind[:_MOST_WORDS]}), as a proxy does; url must be "
                    "where Confluent's API is",
                    status=status,
                    retriable=True,
                ) from error
        if answer.is_success:
            return RegistryAnswer(document=document, raw=raw, digest=digest)
        refused = self._refused(answer, document)
        if refused.error_code in _NO_SUCH and method in _OF_WHAT_IS_THERE:
            return RegistryAnswer(missing=refused.error_code)
        raise refused

    def _refused(self, answer: HttpAnswer, document: Any) -> RegistryError:
        status, code, said = answer.status, 0, answer.reason
        if isinstance(document, dict):
            given = document.get("error_code")
            code = given if isinstance(given, int) else 0
            said = document.get("message", said)
        said = " ".join(str(said)[: 2 * _MOST_WORDS].split())[:_MOST_WORDS]
        retriable = status in _MAY_PASS or status // 100 == 5
        self.failed += retriable
        text = f"{self.where}: HTTP {status}"
        if code not in {0, status}:
            text += f", error {code}"
        text += f": {said}" if said else ""
        if status in {401, 403}:
            text += f"; {login_advice(self._config)}"
        elif status == HTTPStatus.NOT_FOUND and code not in _NO_SUCH:
            text += "; url must be where Confluent's API is"
        return RegistryError(text, status=status, error_code=code, retriable=retriable)

    def _unreached(self, error: Exception) -> RegistryError:
        reason = system_error(error)
        if isinstance(reason, ssl.SSLCertVerificationError):
            return RegistryError(
                f"{self.where} has a certificate that is not trusted: "
                f"{reason.verify_message}; {PLACE}.ssl_ca_file must contain the "
                "CA that signed it, and url a name in it"
            )
        said = (str(reason) or type(reason).__name__)[:_MOST_WORDS]
        return RegistryError(f"{self.where} does not answer: {said}", retriable=True)


def _encoded(body: Mapping[str, Any]) -> bytes:
    """JSON in UTF-8; in ASCII if a text has half a character, which UTF-8 has not."""
    try:
        return json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(body).encode()


# ---- one kept HTTP connection: a request, and its whole answer ----
#
# Main type: `HttpLine`. It bounds an answer in size and time, follows no redirect
# and goes through the proxy that the environment names. The standard library's
# client takes a fifth of the CPU of one with pools, cookies and redirects, and a
# first copy asks some 200,000 times.


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


# ---- how requests to a schema registry prove who sends them, and whom they trust ----
#
# Main function: `authorization_of`, the header of the next request. Secrets are read
# from their files each time; `materials_mark` changes with the files that a TLS context
# was made of. Messages never contain a secret.


PLACE = "schema_registry"


def authorization_of(config: RegistryConfig, alias: str) -> str:
    """The value of the header Authorization; empty without a login.

    Raises:
        AuthenticationError: a secret cannot be read, or no token was to be had.
    """
    where = f"cluster {alias}: {PLACE}"
    if config.username is not None:
        password = secret_of(
            f"{where}.password_file", config.password_file, config.password
        )
        pair = f"{config.username}:{password}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"
    if config.oauth_token_endpoint_url is not None:
        return f"Bearer {_kept_token(config, alias).get()}"
    token = secret_of(f"{where}.token_file", config.token_file, config.token)
    return f"Bearer {token}" if token else ""


def forget_token(config: RegistryConfig, alias: str) -> bool:
    """The registry refused our token: the next request gets a new one. Returns whether
    there can be another.
    """
    if config.oauth_token_endpoint_url is None:
        return False
    _kept_token(config, alias).forget()
    return True


def materials_mark(config: RegistryConfig) -> Hashable:
    """The same as long as the files for TLS are."""
    found = []
    for file in (config.ssl_ca_file, config.ssl_certificate_file, config.ssl_key_file):
        try:
            status = file.stat() if file else None
        except OSError:
            status = None  # opening it will say why
        found.append(status and (status.st_ino, status.st_mtime_ns, status.st_size))
    return tuple(found)


def login_advice(config: RegistryConfig) -> str:
    """Which settings a refused login is about."""
    if config.username is not None:
        return f"{PLACE}.username and its password must be those of a user there"
    if config.oauth_token_endpoint_url is not None:
        return (
            f"{PLACE}.oauth_client_id must be a client that the registry accepts: "
            "check its scope and audience"
        )
    if config.token is not None or config.token_file is not None:
        return f"{PLACE}.token_file must hold a token that the registry accepts"
    return f"it asks for a login; set {PLACE}.username, token_file or another one"


def _kept_token(config: RegistryConfig, alias: str) -> KeptToken:
    from mirror.clusters.auth import tokens  # noqa: PLC0415  rarely needed

    return tokens.of_endpoint(
        tokens.Endpoint(
            alias=alias,
            url=config.oauth_token_endpoint_url or "",
            client=config.oauth_client_id or "",
            secret=config.oauth_client_secret,
            secret_file=config.oauth_client_secret_file,
            scope=config.oauth_scope,
            parameters=tuple(config.oauth_parameters.items()),
            ca_file=config.oauth_ca_file,
            ca_password=config.oauth_ca_password,
            timeout=config.timeout_seconds,
            names=tokens.Names(
                url=f"{PLACE}.oauth_token_endpoint_url",
                client=f"{PLACE}.oauth_client_id",
                secret_file=f"{PLACE}.oauth_client_secret_file",
                scope=f"{PLACE}.oauth_scope",
                ca_file=f"{PLACE}.oauth_ca_file",
            ),
        )
    )
