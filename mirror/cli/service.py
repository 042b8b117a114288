"""Fetches what a running service knows, for the commands that show it.

Main type: `Service`, the options that say which service, and how to authenticate, with
`ask`. If there is no answer, or one in another format, it raises one sentence that says
so. The token goes nowhere but to that address.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
import re
import ssl
import time
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import httpx
import typer

from mirror.clusters.bounded import UNPACKED, Bounds, body, parsed
from mirror.errors import BoundsError, ConfigError, MirrorError, system_error

if TYPE_CHECKING:
    from mirror.config.service_settings import ServiceConfig

FORMAT_VERSION = 1
DEFAULT_URL = "http://127.0.0.1:8083"
_TIMEOUT_SECONDS = 10.0
_MOST_SECONDS = 60.0
_BOUNDS = Bounds(size=64 << 20, values=4_000_000)
"""The status of 100,000 partitions."""
_IN_A_HEADER = re.compile(r"[\t -~\x80-\xff]*")
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  asked, not bound

Url = Annotated[
    str | None,
    typer.Option("--url", "-u", help=f"Where to ask; {DEFAULT_URL} by default."),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        envvar="MIRROR_TOKEN_FILE",
        show_envvar=True,
        help="A file with the service's token; not needed with --config.",
    ),
]
CaFile = Annotated[
    Path | None,
    typer.Option(
        "--ca-file",
        metavar="FILE",
        envvar="MIRROR_CA_FILE",
        show_envvar=True,
        help="Certificates to trust (PEM); not needed with --config.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Where a service answers."""

    url: Url = None
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            help="Ask where this configuration's service listens.",
        ),
    ] = None
    token_file: TokenFile = None
    ca_file: CaFile = None

    def ask(self, path: str = "/status") -> dict[str, Any]:
        """Its answer at a path.

        Raises:
            MirrorError: no answer, or not from a service that this version can read.
        """
        if self.url is not None and self.config is not None:
            raise typer.BadParameter("--url and --config cannot be used together")
        way = (
            _Way(url=_address(self.url))
            if self.config is None
            else _configured(self.config)
        )
        if self.token_file is not None:
            from mirror.observing.access import read_secret

            token = read_secret(self.token_file, None)
            way = replace(way, authorization=f"Bearer {token}")
        if self.ca_file is not None:
            way = replace(way, trusted=self.ca_file)
        return _ask(way, path)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """The service's address, and how to authenticate there."""

    url: str
    authorization: str = field(default="", repr=False)
    trusted: Path | None = None
    """None: the system's."""


def _address(url: str | None) -> str:
    if url is None:
        return DEFAULT_URL
    whole = url if "://" in url else f"http://{url}"
    parts = urlsplit(whole)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise typer.BadParameter(f"--url: {url} is not a URL such as {DEFAULT_URL}")
    return whole.rstrip("/").removesuffix("/status")


def _configured(path: Path) -> _Way:
    from mirror.config.load import load

    service = load(path)[0].service
    if not service.http_port:
        problem = (
            "service.http_port: is 0, so the port is not known: pass --url, with the "
            'address from the line "service listens" in the service\'s log'
        )
        raise ConfigError([problem])
    host = _EVERYWHERE.get(service.http_host, service.http_host)
    host = f"[{host}]" if ":" in host else host
    scheme = "http" if service.http_certificate_file is None else "https"
    return _Way(
        url=f"{scheme}://{host}:{service.http_port}",
        authorization=_authorization(service),
        trusted=service.http_ca_file or service.http_certificate_file,
    )


def _authorization(service: ServiceConfig) -> str:
    """The credentials that this configuration's service accepts."""
    from mirror.observing.access import read_secret

    if service.http_token_given:
        return f"Bearer {read_secret(service.http_token_file, service.http_token)}"
    if service.http_username is None:
        return ""
    password = read_secret(service.http_password_file, service.http_password)
    pair = f"{service.http_username}:{password}".encode()
    return f"Basic {base64.b64encode(pair).decode()}"


def _ask(way: _Way, path: str) -> dict[str, Any]:
    where = f"{way.url}{path}"
    if not _IN_A_HEADER.fullmatch(way.authorization):
        raise MirrorError(
            f"the token for {way.url} has a line break or another character that an "
            "HTTP header cannot carry: does its file have anything but the token?"
        )
    headers = {name.encode(): text for name, text in UNPACKED.items()}
    if way.authorization:
        headers[b"Authorization"] = way.authorization
    try:
        # No redirects, so the token goes nowhere else. Proxies of the environment are
        # not meant for a service's own port.
        with httpx.stream(
            "GET",
            where,
            headers=[(name, text.encode("latin-1")) for name, text in headers.items()],
            verify=_tls(way),
            timeout=_TIMEOUT_SECONDS,
            trust_env=False,
        ) as answer:
            answer.raise_for_status()
            until = time.monotonic() + _MOST_SECONDS
            found = parsed(body(answer, _BOUNDS, until=until), _BOUNDS)
    except httpx.HTTPStatusError as error:
        raise MirrorError(_refused(where, error.response.status_code)) from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = system_error(error)
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise MirrorError(
                f"the certificate at {way.url} is not trusted "
                f"({reason.verify_message}): pass its CA with --ca-file, or the "
                "service's configuration with --config"
            ) from error
        raise MirrorError(
            f"no service answers at {way.url} ({_short(reason)}): is `mirror run` up, "
            "and is this its service.http_port?"
        ) from error
    except BoundsError as error:
        raise MirrorError(
            f"{where}: the answer {error}: is it a mirror service?"
        ) from error
    except TimeoutError as error:
        raise MirrorError(
            f"{where} takes longer than {_MOST_SECONDS:.0f} s to answer"
        ) from error
    except ValueError as error:
        raise MirrorError(
            f"{where} does not answer in JSON: is it a mirror service?"
        ) from error
    version = found.get("format_version") if isinstance(found, dict) else None
    if version != FORMAT_VERSION:
        raise MirrorError(
            f"{where} answers in format {version}, but this version of mirror reads "
            f"{FORMAT_VERSION}: use the version that runs there"
        )
    return dict(found)


def _tls(way: _Way) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if way.trusted is None:
        return context
    try:
        context.load_verify_locations(way.trusted)
    except OSError as error:
        reason = error.strerror or "it contains no certificate"
        raise MirrorError(f"{way.trusted} cannot be used: {reason}") from error
    # The port's own certificate may be trusted without its CA.
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    return context


def _refused(where: str, status: int) -> str:
    if status == HTTPStatus.UNAUTHORIZED:
        return (
            f"{where} asks for authentication: pass its token with --token-file, or "
            "its configuration with --config"
        )
    if status == HTTPStatus.MISDIRECTED_REQUEST:
        return f"{where} does not accept this host name: add it to service.http_hosts"
    what = "a mirror service"
    if status == HTTPStatus.NOT_FOUND:
        what += ", of this version or later"
    return f"{where} answers {status}: is it {what}?"


def _short(reason: object) -> str:
    return getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
