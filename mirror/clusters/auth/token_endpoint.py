"""Tokens from an OAuth token endpoint, for client credentials (RFC 6749, 4.4).

Main function: `ask`, which sends one request and returns a `Token`. It reads the secret
from its file each time, keeps nothing and does not retry: see `tokens`. Messages name
the setting to check, and never a secret or a token.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
from typing import TYPE_CHECKING, Any
import urllib.error
import urllib.parse
import urllib.request

from mirror.clusters.auth.security import endpoint_context, secret_of
from mirror.clusters.auth.token import Token, ends_of
from mirror.errors import AuthenticationError

if TYPE_CHECKING:
    from mirror.config.cluster_settings import ClusterConfig

URL = "sasl_oauthbearer_token_endpoint_url"
_SECRET = "sasl_oauthbearer_client_credentials_client_secret"  # noqa: S105  a name
_CLIENT = "sasl_oauthbearer_client_credentials_client_id"
_UNTOLD_SECONDS = 300.0
"""How long to use a token whose lifetime is unknown."""
_LARGEST = 1 << 20
_MOST_WORDS = 200


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Never sends credentials anywhere but to the configured endpoint."""

    def redirect_request(self, *_: Any) -> None:
        return None


def ask(config: ClusterConfig) -> Token:
    """Ask for a token.

    Raises:
        AuthenticationError: there is none, with the reason.
    """
    url = config.sasl_oauthbearer_token_endpoint_url or ""
    where = f"cluster {config.alias}: {URL} {url}"
    asked = time.time()
    handlers: list[Any] = [_NoRedirects()]
    if url.startswith("https:"):
        handlers.append(urllib.request.HTTPSHandler(context=endpoint_context(config)))
    request = _request(config, url)
    try:
        with urllib.request.build_opener(*handlers).open(
            request, timeout=config.sasl_oauthbearer_timeout_seconds
        ) as answer:
            raw = answer.read(_LARGEST)
    except urllib.error.HTTPError as error:
        with error:
            raise AuthenticationError(f"{where} {_refused(error, config)}") from error
    except (OSError, http.client.HTTPException) as error:
        raise AuthenticationError(f"{where} {_unreached(error)}") from error
    return _token(raw, asked, where)


def _request(config: ClusterConfig, url: str) -> urllib.request.Request:
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
    pair = ":".join(
        urllib.parse.quote_plus(text)
        for text in (config.sasl_oauthbearer_client_credentials_client_id or "", secret)
    )
    return urllib.request.Request(  # noqa: S310  the schema allows https and http only
        url,
        data=urllib.parse.urlencode(form).encode(),
        headers={
            "Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}",
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        },
    )


def _refused(error: urllib.error.HTTPError, config: ClusterConfig) -> str:
    said = _words(error.read(_LARGEST)) or error.reason
    text = f"answered {error.code}: {said}"
    client = config.sasl_oauthbearer_client_credentials_client_id
    if error.code in {400, 401, 403}:
        return (
            f"{text}; {_CLIENT} {client!r}, its secret and sasl_oauthbearer_scope must "
            "match a client of the endpoint"
        )
    if error.code in {301, 302, 303, 307, 308, 404, 405}:
        return f"{text}; it must be the address of the token endpoint"
    return text


def _unreached(error: Exception) -> str:
    reason = getattr(error, "reason", error)
    if isinstance(reason, ssl.SSLCertVerificationError):
        return (
            f"has a certificate that is not trusted: {reason.verify_message}; "
            "sasl_oauthbearer_ca_file must contain the CA that signed it"
        )
    text = "no answer in time" if isinstance(reason, TimeoutError) else reason
    return f"does not answer: {text}"


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
