"""Tokens from an OAuth token endpoint, for client credentials (RFC 6749, 4.4).

Main functions: `ask`, for a cluster's brokers, and `request`, for any `Endpoint`: one
request, which returns a `Token`. They read the secret from its file each time, keep
nothing and do not retry: see `tokens`. Messages name the setting to check, and never a
secret or a token.
"""

from __future__ import annotations

from dataclasses import dataclass
import ssl
import time
from typing import TYPE_CHECKING
from urllib.parse import quote_plus

import httpx

from mirror.clusters.auth.secret_files import secret_of
from mirror.clusters.auth.tls import trusting
from mirror.clusters.auth.token import URL, Token, ends_of
from mirror.clusters.bounded import UNPACKED, Bounds, body, parsed
from mirror.errors import AuthenticationError, BoundsError, system_error

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import SecretStr

    from mirror.config.cluster_settings import ClusterConfig

_UNTOLD_SECONDS = 300.0
"""How long to use a token whose lifetime is unknown."""
_BOUNDS = Bounds(size=1 << 20, values=10_000)
"""Brokers take a token of half a megabyte by default (sasl.server.max.receive.size)."""
_MOST_WORDS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What the settings are called, for messages."""

    url: str = URL
    client: str = "sasl_oauthbearer_client_credentials_client_id"
    secret_file: str = "sasl_oauthbearer_client_credentials_client_secret_file"  # noqa: S105  a name
    scope: str = "sasl_oauthbearer_scope"
    ca_file: str = "sasl_oauthbearer_ca_file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where to ask, and as whom. Two that are equal share a token."""

    alias: str
    url: str
    client: str
    secret: SecretStr | None
    secret_file: Path | None
    scope: str | None
    parameters: tuple[tuple[str, str], ...]
    ca_file: Path | None
    ca_password: SecretStr | None
    timeout: float
    names: Names = Names()

    @property
    def where(self) -> str:
        return f"cluster {self.alias}: {self.names.url} {self.url}"


def ask(config: ClusterConfig) -> Token:
    """Ask for a token for a cluster's brokers.

    Raises:
        AuthenticationError: there is none, with the reason.
    """
    return request(
        Endpoint(
            alias=config.alias,
            url=config.sasl_oauthbearer_token_endpoint_url or "",
            client=config.sasl_oauthbearer_client_credentials_client_id or "",
            secret=config.sasl_oauthbearer_client_credentials_client_secret,
            secret_file=config.sasl_oauthbearer_client_credentials_client_secret_file,
            scope=config.sasl_oauthbearer_scope,
            parameters=tuple(config.sasl_oauthbearer_parameters.items()),
            ca_file=config.sasl_oauthbearer_ca_file,
            ca_password=config.sasl_oauthbearer_ca_password,
            timeout=config.sasl_oauthbearer_timeout_seconds,
        )
    )


def request(endpoint: Endpoint) -> Token:
    """Ask for a token.

    Raises:
        AuthenticationError: there is none, with the reason.
    """
    where, url, names = endpoint.where, endpoint.url, endpoint.names
    asked, until = time.time(), time.monotonic() + endpoint.timeout
    form = {
        "grant_type": "client_credentials",
        **({"scope": endpoint.scope} if endpoint.scope else {}),
        **dict(endpoint.parameters),
    }
    place = f"cluster {endpoint.alias}: {names.secret_file}"
    secret = secret_of(place, endpoint.secret_file, endpoint.secret)
    try:
        # No redirects: credentials go where they were meant to go.
        with httpx.stream(
            "POST",
            url,
            data=form,
            # RFC 6749, 2.3.1: both are form-encoded before they are joined.
            auth=(quote_plus(endpoint.client), quote_plus(secret)),
            headers={"Accept": "application/json", **UNPACKED},
            verify=_context(endpoint) if url.startswith("https:") else False,
            timeout=endpoint.timeout,
        ) as answer:
            raw = body(answer, _BOUNDS, until=until)
    except BoundsError as error:
        raise AuthenticationError(f"{where}: its answer {error}") from error
    except (
        httpx.HTTPError,
        httpx.InvalidURL,
        ImportError,
        ValueError,
        TimeoutError,
    ) as error:
        # Two of them: a proxy from the environment that httpx cannot use.
        raise AuthenticationError(f"{where} {_unreached(error, names)}") from error
    if not answer.is_success:
        raise AuthenticationError(f"{where} {_refused(answer, raw, endpoint)}")
    return _token(raw, asked, where)


def _context(endpoint: Endpoint) -> ssl.SSLContext:
    place = f"cluster {endpoint.alias}: {endpoint.names.ca_file}"
    return trusting(endpoint.ca_file, endpoint.ca_password, place)


def _refused(answer: httpx.Response, raw: bytes, endpoint: Endpoint) -> str:
    code, names = answer.status_code, endpoint.names
    text = f"answered {code}: {_words(raw) or answer.reason_phrase}"
    if code in {400, 401, 403}:
        return (
            f"{text}; {names.client} {endpoint.client!r}, its secret and {names.scope} "
            "must match a client of the endpoint"
        )
    if code in {301, 302, 303, 307, 308, 404, 405}:
        return f"{text}; it must be the address of the token endpoint"
    return text


def _unreached(error: Exception, names: Names) -> str:
    if isinstance(error, (httpx.TimeoutException, TimeoutError)):
        return "does not answer: no answer in time"
    reason = system_error(error)
    if isinstance(reason, ssl.SSLCertVerificationError):
        return (
            f"has a certificate that is not trusted: {reason.verify_message}; "
            f"{names.ca_file} must contain the CA that signed it"
        )
    return f"does not answer: {reason}"


def _words(raw: bytes) -> str:
    """The text of an error response: RFC 6749, 5.2, has two fields for it."""
    try:
        said = parsed(raw, _BOUNDS)
    except (ValueError, BoundsError):
        return ""
    if not isinstance(said, dict):
        return ""
    words = [
        str(said[key])[:_MOST_WORDS]
        for key in ("error", "error_description")
        if said.get(key)
    ]
    return " ".join(": ".join(words).split())[:_MOST_WORDS]


def _token(raw: bytes, asked: float, where: str) -> Token:
    try:
        said = parsed(raw, _BOUNDS)
        text = said["access_token"]
    except BoundsError as error:
        raise AuthenticationError(f"{where}: its answer {error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise AuthenticationError(
            f"{where} answered without an access_token; it must be the address of the "
            "token endpoint"
        ) from error
    if not isinstance(text, str) or not text:
        raise AuthenticationError(f"{where}: the access_token is not a string")
    ends = [asked + _UNTOLD_SECONDS]
    try:
        ends = [asked + float(said["expires_in"])]
    except (KeyError, TypeError, ValueError, OverflowError):
        ends = [] if ends_of(text) is not None else ends
    if (own := ends_of(text)) is not None:
        ends.append(own)
    return Token(text=text, made_at=asked, ends_at=min(ends))
