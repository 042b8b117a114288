"""Who may ask the service's HTTP port: names, methods, tokens and passwords.

Main type: `Access`. It checks in this order: the Host header (against DNS rebinding),
the method (anything that could change something always needs an authenticated caller),
then token or password. It reads the secrets for each request, so a rotated file takes
effect at once, and never logs or returns them.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from http import HTTPStatus
from ipaddress import ip_address
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import structlog

from mirror.errors import MirrorError
from mirror.log import LogThrottle
from mirror.observing.routing import READING, Refusal

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import SecretStr

    from mirror.config.service_settings import HttpSettings

    Environ = dict[str, Any]

log = structlog.get_logger()

PROBES = frozenset({"/healthz", "/readyz"})


class Access:
    """Who may ask a service with these settings."""

    def __init__(self, settings: HttpSettings) -> None:
        self._settings = settings
        self._names = _names(settings)
        self._throttle = LogThrottle()
        ways = {
            'Basic realm="mirror", charset="UTF-8"': settings.http_username is not None,
            'Bearer realm="mirror"': settings.http_token_given,
        }
        self._challenges = [
            ("WWW-Authenticate", way) for way, offered in ways.items() if offered
        ]

    def check(self, environ: Environ) -> None:
        """
        Raises:
            Refusal: the request is not answered.
        """
        self._check_name(environ)
        method = environ.get("REQUEST_METHOD", "GET")
        changes = method not in READING
        if changes and not self._settings.asks_who:
            raise Refusal(
                HTTPStatus.FORBIDDEN,
                f"{method} needs authentication, and this service has none configured: "
                "set service.http_token_file, or service.http_username and "
                "service.http_password_file",
            )
        if changes and _is_foreign(environ):
            raise Refusal(
                HTTPStatus.FORBIDDEN, f"{method} was sent by a page of another site"
            )
        path = environ.get("PATH_INFO", "/")
        if path in PROBES and self._settings.http_probes_open and not changes:
            return
        if self._settings.asks_who and not self._is_known(environ):
            raise Refusal(
                HTTPStatus.UNAUTHORIZED,
                "authenticate with this service's token or password (Authorization: "
                "Bearer or Basic)",
                *self._challenges,
            )

    def _check_name(self, environ: Environ) -> None:
        # A client that sends none is not a browser, and only browsers can be tricked.
        called = _name_in(environ.get("HTTP_HOST", ""))
        if called and called not in self._names and not _is_address(called):
            raise Refusal(
                HTTPStatus.MISDIRECTED_REQUEST,
                f"this service does not answer as {called}: use its IP address, or "
                "add the name to service.http_hosts",
            )

    def _is_known(self, environ: Environ) -> bool:
        settings = self._settings
        kind, _, shown = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
        if kind.lower() == "bearer" and settings.http_token_given:
            return _same(shown.strip(), self._secret("http_token"))
        if kind.lower() == "basic" and settings.http_username is not None:
            name, _, password = _decoded(shown).partition(":")
            wanted = self._secret("http_password")
            # Compare both, so that timing does not reveal which of them is wrong.
            return _same(name, settings.http_username) & _same(password, wanted)
        return False

    def _secret(self, name: str) -> str:
        setting = f"{name}_file"
        file, given = (getattr(self._settings, each) for each in (setting, name))
        try:
            secret = read_secret(file, given)
        except MirrorError as error:
            if self._throttle.due(str(error)):
                log.warning("every request is refused", setting=f"service.{setting}",
                            error=str(error))  # fmt: skip
            raise Refusal(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"service.{setting} cannot be used; the service's log says why",
            ) from error
        self._throttle.clear()
        return secret


def read_secret(file: Path | None, given: SecretStr | None) -> str:
    """A file's content without surrounding space, or the value given instead.

    Raises:
        MirrorError: the file cannot be read, or is empty, which anyone could present.
    """
    if file is None:
        return given.get_secret_value().strip() if given is not None else ""
    try:
        secret = file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise MirrorError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise MirrorError(f"{file} is not UTF-8 text") from error
    if not secret:
        raise MirrorError(f"{file} is empty")
    return secret


def _names(settings: HttpSettings) -> frozenset[str]:
    """The host names that the service accepts, besides IP addresses."""
    own = {_name_in(settings.http_host), socket.gethostname().lower()}
    return frozenset({"localhost", *own, *settings.http_hosts})


def _is_address(name: str) -> bool:
    """Whether it is an IP address. A page cannot rebind one, as it can its own name."""
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _name_in(host: str) -> str:
    """A host's name without its port; IPv6 addresses are in brackets."""
    name = host.strip().lower()
    if name.startswith("["):
        return name.partition("]")[0] + "]"
    if name.count(":") > 1:
        return f"[{name}]"
    return name.partition(":")[0].removesuffix(".")


def _is_foreign(environ: Environ) -> bool:
    """Whether a browser says that a page of another site sent the request: the
    browser would add a password that it remembers.
    """
    if environ.get("HTTP_SEC_FETCH_SITE", "none") not in {"none", "same-origin"}:
        return True
    origin = environ.get("HTTP_ORIGIN")
    if origin is None:
        return False
    try:
        sender = urlsplit(origin).netloc.lower()
    except ValueError:
        return True
    return bool(sender != environ.get("HTTP_HOST", "").lower())


def _decoded(shown: str) -> str:
    try:
        return base64.b64decode(shown.strip(), validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return ""


def _same(shown: str, wanted: str) -> bool:
    """In constant time."""
    ours, theirs = wanted.encode(), shown.encode("utf-8", "surrogateescape")
    return ours != b"" and bool(hmac.compare_digest(theirs, ours))
