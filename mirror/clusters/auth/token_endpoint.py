"""Tokens from an OAuth token endpoint, for client credentials (RFC 6749, 4.4).

Main function: `ask`, which sends one request and returns a `Token`. It reads the secret
from its file each time, keeps nothing and does not retry: see `tokens`. Messages name
the setting to check, and never a secret or a token.
"""

from __future__ import annotations

import json
import ssl
import time
from typing import TYPE_CHECKING
from urllib.parse import quote_plus

import httpx

from mirror.clusters.auth.security import endpoint_context, secret_of
from mirror.clusters.auth.token import Token, ends_of
from mirror.errors import AuthenticationError, system_error

if TYPE_CHECKING:
    from mirror.config.cluster_settings import ClusterConfig

URL = "sasl_oauthbearer_token_endpoint_url"
_SECRET = "sasl_oauthbearer_client_credentials_client_secret"  # noqa: S105  a name
_CLIENT = "sasl_oauthbearer_client_credentials_client_id"
_UNTOLD_SECONDS = 300.0
"""How long to use a token whose lifetime is unknown."""
_LARGEST = 1 << 20
_MOST_WORDS = 200


def ask(config: ClusterConfig) -> Token:
    """Ask for a token.

    Raises:
        AuthenticationError: there is none, with the reason.
    """
    url = config.sasl_oauthbearer_token_endpoint_url or ""
    where = f"cluster {config.alias}: {URL} {url}"
    asked = time.time()
    form = {
        "grant_type": "client_credentials",
        **({"scope": s} if (s := config.sasl_oauthbearer_scope) else {}),
        **config.sasl_oauthbearer_parameters,
    }
    secret = secret_of(
        config,
        f"{_SECRET}_file",
        config.sasl_oauthbearer_client_credentials_client_secret_file,
        config.sasl_oauthbearer_client_credentials_client_secret,
    )
    # RFC 6749, 2.3.1: both are form-encoded before they are joined.
    client = config.sasl_oauthbearer_client_credentials_client_id or ""
    try:
        # No redirects: credentials go where they were meant to go.
        with httpx.stream(
            "POST",
            url,
            data=form,
            auth=(quote_plus(client), quote_plus(secret)),
            headers={"Accept": "application/json"},
            verify=endpoint_context(config) if url.startswith("https:") else False,
            timeout=config.sasl_oauthbearer_timeout_seconds,
        ) as answer:
            raw = next(answer.iter_bytes(_LARGEST), b"")
    except (httpx.HTTPError, httpx.InvalidURL, ImportError, ValueError) as error:
        # The last two: a proxy from the environment that httpx cannot use.
        raise AuthenticationError(f"{where} {_unreached(error)}") from error
    if not answer.is_success:
        raise AuthenticationError(f"{where} {_refused(answer, raw, config)}")
    return _token(raw, asked, where)


def _refused(answer: httpx.Response, raw: bytes, config: ClusterConfig) -> str:
    code = answer.status_code
    text = f"answered {code}: {_words(raw) or answer.reason_phrase}"
    client = config.sasl_oauthbearer_client_credentials_client_id
    if code in {400, 401, 403}:
        return (
            f"{text}; {_CLIENT} {client!r}, its secret and sasl_oauthbearer_scope must "
            "match a client of the endpoint"
        )
    if code in {301, 302, 303, 307, 308, 404, 405}:
        return f"{text}; it must be the address of the token endpoint"
    return text


def _unreached(error: Exception) -> str:
    if isinstance(error, httpx.TimeoutException):
        return "does not answer: no answer in time"
    reason = system_error(error)
    if isinstance(reason, ssl.SSLCertVerificationError):
        return (
            f"has a certificate that is not trusted: {reason.verify_message}; "
            "sasl_oauthbearer_ca_file must contain the CA that signed it"
        )
    return f"does not answer: {reason}"


def _words(raw: bytes) -> str:
    """The text of an error response: RFC 6749, 5.2, has two fields for it."""
    try:
        said = json.loads(raw)
    except ValueError:
        return ""
    if not isinstance(said, dict):
        return ""
    words = [str(said[key]) for key in ("error", "error_description") if said.get(key)]
    return " ".join(": ".join(words).split())[:_MOST_WORDS]


def _token(raw: bytes, asked: float, where: str) -> Token:
    try:
        said = json.loads(raw)
        text = said["access_token"]
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
    except (KeyError, TypeError, ValueError):
        ends = [] if ends_of(text) is not None else ends
    if (own := ends_of(text)) is not None:
        ends.append(own)
    return Token(text=text, made_at=asked, ends_at=min(ends))
