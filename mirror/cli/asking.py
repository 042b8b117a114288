"""Asking a running service for its status, for the commands that show something of it.

Main function: `ask`, with the options `Url` and `OfConfig` that say whom. It judges
nothing; whoever does not answer, or in another format, is told in one sentence.
"""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Annotated, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

import typer

from mirror.config.load import load
from mirror.errors import ConfigError, MirrorError

FORMAT_VERSION = 1
DEFAULT_URL = "http://127.0.0.1:8083"
_TIMEOUT_SECONDS = 10.0
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104  asked, not bound

Url = Annotated[
    str | None,
    typer.Option("--url", "-u", help=f"Where to ask; {DEFAULT_URL} by default."),
]
OfConfig = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="Ask where this configuration's service listens.",
    ),
]


def ask(url: str | None, config: Path | None) -> dict[str, Any]:
    """What the service answers at /status.

    Raises:
        MirrorError: nobody answers there, or not a service that this mirror knows.
    """
    if url is not None and config is not None:
        raise typer.BadParameter("--url and --config exclude each other")
    return _ask(_address(url) if config is None else _configured(config))


def _address(url: str | None) -> str:
    if url is None:
        return DEFAULT_URL
    whole = url if "://" in url else f"http://{url}"
    parts = urlsplit(whole)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise typer.BadParameter(f"--url: {url} is not like {DEFAULT_URL}")
    return whole.rstrip("/").removesuffix("/status")


def _configured(path: Path) -> str:
    service = load(path)[0].service
    if not service.http_port:
        problem = (
            "service.http_port: is 0, so the port is not known: ask with --url, the "
            'address stands in the service\'s log as "service listens"'
        )
        raise ConfigError([problem])
    host = _EVERYWHERE.get(service.http_host, service.http_host)
    return f"http://{host}:{service.http_port}"


def _ask(url: str) -> dict[str, Any]:
    # Whoever runs a proxy does not mean it for a service's own port.
    opener = build_opener(ProxyHandler({}))
    try:
        with opener.open(f"{url}/status", timeout=_TIMEOUT_SECONDS) as response:
            answer = json.load(response)
    except HTTPError as error:
        error.close()  # it is the answer, too
        raise MirrorError(
            f"{url}/status answers {error.code}: is that a mirror service?"
        ) from error
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise MirrorError(
            f"no service answers at {url} ({_short(reason)}): is `mirror run` up, and "
            "is that its service.http_port?"
        ) from error
    except ValueError as error:
        raise MirrorError(
            f"{url}/status does not answer in JSON: is that a mirror service?"
        ) from error
    found = answer.get("format_version") if isinstance(answer, dict) else None
    if found != FORMAT_VERSION:
        raise MirrorError(
            f"{url}/status answers in format {found}, this mirror reads "
            f"{FORMAT_VERSION}: use the mirror that runs there"
        )
    return dict(answer)


def _short(reason: object) -> str:
    return getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
