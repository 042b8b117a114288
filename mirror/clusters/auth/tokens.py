"""The tokens of this process: one for each cluster that needs one.

Main functions: `token_of`, which returns a valid token and fetches one only if it must,
one at a time, and `forget`, for a token that brokers refused; `of_endpoint` for what is
no broker. A token is replaced after four fifths of its lifetime; if that fails, the old
one serves until it expires. Tokens come from an OAuth token endpoint (`request_token`),
a provider (`ask_provider`) or a file. Messages name the setting to check, and never a
secret or a token.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
import importlib
from importlib.metadata import entry_points
from pathlib import Path
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus, unquote, urlsplit

import structlog

from mirror.clusters.auth.security import secret_of, trusting
from mirror.clusters.bounded import UNPACKED, Bounds, body, parsed
from mirror.errors import AuthenticationError, BoundsError, system_error
from mirror.log import LogThrottle

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    import httpx
    from pydantic import SecretStr

    from mirror.config.cluster_settings import ClusterConfig

log = structlog.get_logger()

URL = "sasl_oauthbearer_token_endpoint_url"
"""The setting that says where a cluster's token comes from."""
_CLAIMS = Bounds(size=1 << 20, values=10_000)
_REFRESH_AT = 0.8
"""A token is replaced after this part of its lifetime, as in Java's clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """Times are epoch seconds. The repr hides the token."""

    text: str = field(repr=False)
    made_at: float
    ends_at: float

    def is_good(self, now: float) -> bool:
        return now < self.ends_at

    def is_fresh(self, now: float) -> bool:
        """Whether it need not be replaced yet."""
        return now < self.made_at + (self.ends_at - self.made_at) * _REFRESH_AT


def ends_of(text: str) -> float | None:
    """When a JWT expires, in epoch seconds; None if it does not say, or is no JWT."""
    parts = text.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = parsed(base64.urlsafe_b64decode(parts[1] + "=" * 3), _CLAIMS)
    except (ValueError, BoundsError):
        return None
    ends = claims.get("exp") if isinstance(claims, dict) else None
    if isinstance(ends, bool) or not isinstance(ends, (int, float)):
        return None
    try:
        return float(ends)
    except OverflowError:
        return None


# ---- kept tokens ----


_FAILED_SECONDS = 1.0
"""How long a failure holds for all waiting threads, so that they do not all retry."""
_AGAIN_SECONDS = 10.0
"""How long to keep the old token before the next attempt to replace it."""


class KeptToken:
    """One cluster's token. Thread-safe."""

    def __init__(self, fetch: Callable[[], Token], *, alias: str) -> None:
        self._fetch = fetch
        self._alias = alias
        self._token: Token | None = None
        self._try_at = 0.0
        self._failure = ""
        self._failed_until = 0.0
        self._lock = threading.Lock()
        self._throttle = LogThrottle()

    def get(self) -> str:
        """A valid token.

        Raises:
            AuthenticationError: there is none, and none could be fetched.
        """
        now = time.time()
        token = self._token
        usable = token is not None and token.is_good(now)
        resting = time.monotonic() < self._try_at
        if token is not None and usable and (token.is_fresh(now) or resting):
            return token.text
        # Threads with a usable token do not wait for the one that fetches another.
        if self._lock.acquire(blocking=not usable):
            try:
                return self._renewed().text
            finally:
                self._lock.release()
        assert token is not None
        return token.text

    def forget(self) -> None:
        self._token = None
        self._failed_until = 0.0

    def _renewed(self) -> Token:
        now = time.time()
        token = self._token
        if token is not None and token.is_fresh(now):
            return token  # another thread was faster
        if time.monotonic() < self._failed_until:
            raise AuthenticationError(self._failure)
        try:
            made = self._fetched()
        except AuthenticationError as error:
            if token is None or not token.is_good(now):
                self._failure = str(error)
                self._failed_until = time.monotonic() + _FAILED_SECONDS
                raise
            self._try_at = time.monotonic() + _AGAIN_SECONDS
            if self._throttle.due(str(error)):
                log.warning("no new token yet: the old one stays in use",
                            cluster=self._alias, error=str(error),
                            seconds=round(token.ends_at - now))  # fmt: skip
            return token
        self._throttle.clear()
        self._token = made
        return made

    def _fetched(self) -> Token:
        made = self._fetch()
        late = time.time() - made.ends_at
        if late >= 0:
            raise AuthenticationError(
                f"cluster {self._alias}: the token received expired {late:.0f} s "
                "ago; the clocks of this machine and of the token issuer must agree"
            )
        return made


_kept: dict[Hashable, KeptToken] = {}
_kept_lock = threading.Lock()


def token_of(config: ClusterConfig) -> str:
    """A valid token for a cluster's brokers.

    Raises:
        AuthenticationError: there is none, and none could be fetched.
    """
    url = config.sasl_oauthbearer_token_endpoint_url or ""
    if url.startswith("file:"):
        return _in_file(config, url)
    return _of(config).get()


def forget(config: ClusterConfig) -> None:
    """Brokers refused this cluster's token: the next connection gets a new one."""
    _of(config).forget()


def of_endpoint(endpoint: Endpoint) -> KeptToken:
    """The token of an endpoint."""
    with _kept_lock:
        return _kept.setdefault(
            endpoint,
            KeptToken(lambda: request_token(endpoint), alias=endpoint.alias),
        )


def _of(config: ClusterConfig) -> KeptToken:
    """Configurations with the same endpoint, or the same provider, share a token."""
    if config.sasl_token_provider is None:
        return of_endpoint(endpoint_of(config))
    mark = (config.alias, config.sasl_token_provider, repr(config.sasl_token_options))
    with _kept_lock:
        return _kept.setdefault(
            mark, KeptToken(lambda: ask_provider(config), alias=config.alias)
        )


def _in_file(config: ClusterConfig, url: str) -> str:
    """Read the file each time: another program renews it."""
    path = Path(unquote(urlsplit(url).path))
    where = f"cluster {config.alias}: {URL} {url}"
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeError) as error:
        raise AuthenticationError(f"{where} cannot be read: {error}") from error
    if not text:
        raise AuthenticationError(f"{where} is empty; it must contain a token")
    ends = ends_of(text)
    if ends is not None and ends <= time.time():
        raise AuthenticationError(
            f"{where} contains a token that expired {time.time() - ends:.0f} s ago; "
            "renew it"
        )
    return text


# ---- an OAuth token endpoint, for client credentials (RFC 6749, 4.4) ----
#
# Each request reads the secret from its file; nothing is kept or tried again here.


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


def endpoint_of(config: ClusterConfig) -> Endpoint:
    """Where tokens for a cluster's brokers are requested."""
    return Endpoint(
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


def request_token(endpoint: Endpoint) -> Token:
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
    import httpx  # noqa: PLC0415  an HTTP client, rarely needed

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
    import httpx  # noqa: PLC0415  as above

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


# ---- a provider that is registered by name, such as a cloud vendor's signer ----
#
# Main function: `ask_provider`. Providers are `aws-msk-iam`, Amazon's own signer,
# which mirror does not install, and what installed packages register in the
# entry-point group `mirror.token_providers`; nothing else is called, so that a
# configuration cannot run any function of any module. A provider gets
# `sasl_token_options` and returns a token and when it expires. `ask_provider` checks
# the result, so that a wrong one is a clear error instead of a broker's refusal.


_SECONDS, _MILLISECONDS = 10**9, 10**11
"""From these values on, a number is a time in epoch seconds, or in milliseconds; a
smaller number is a lifetime in seconds."""
_LONGEST_TEXT = 300
GROUP = "mirror.token_providers"


def _amazon(
    *, region: str, role_arn: str | None = None, profile: str | None = None
) -> Any:
    """For Amazon MSK with IAM: a token and when it expires, for the machine's own
    identity, a role or a profile.

    Raises:
        RuntimeError: the signer is not installed, or the options do not fit.
    """
    if role_arn and profile:
        raise RuntimeError("role_arn and profile exclude each other: keep one")
    try:
        signer: Any = importlib.import_module(
            "aws_msk_iam_sasl_signer.MSKAuthTokenProvider"
        )
    except ImportError as error:
        raise RuntimeError(
            "pip install aws-msk-iam-sasl-signer-python next to mirror, in the service "
            f"and in Spark's workers ({error})"
        ) from error
    if role_arn:
        return signer.generate_auth_token_from_role_arn(region, role_arn)
    if profile:
        return signer.generate_auth_token_from_profile(region, profile)
    return signer.generate_auth_token(region)


_OWN = {"aws-msk-iam": _amazon}


def ask_provider(config: ClusterConfig) -> Token:
    """Call the provider.

    Raises:
        AuthenticationError: it does not exist, fails, or returns something else.
    """
    where = f"cluster {config.alias}: sasl_token_provider {config.sasl_token_provider}"
    provider = _named(config.sasl_token_provider or "", where)
    asked = time.time()
    try:
        answer = provider(**config.sasl_token_options)
    except (Exception, SystemExit) as error:
        raise AuthenticationError(f"{where} failed: {_one_line(error)}") from error
    match answer:
        case (str() as text, int() | float() as end, *_) if text and end > 0:
            ends_at = _moment(end, asked)
        case _:
            raise AuthenticationError(
                f"{where} returned {type(answer).__name__} instead of a pair: the "
                "token, and its lifetime in seconds or when it expires (epoch seconds "
                "or milliseconds)"
            )
    if ends_at <= asked:
        raise AuthenticationError(
            f"{where} returned a token that expired {asked - ends_at:.0f} s ago"
        )
    return Token(text=text, made_at=asked, ends_at=ends_at)


def _named(name: str, where: str) -> Callable[..., Any]:
    if name in _OWN:
        return _OWN[name]
    registered = entry_points(group=GROUP)
    if name not in registered.names:
        known = ", ".join(sorted({*_OWN, *registered.names}))
        raise AuthenticationError(
            f"{where} is not registered here; there is {known}: install the package "
            f"with this entry point of the group {GROUP} next to mirror"
        )
    try:
        found: Callable[..., Any] = registered[name].load()
    except (Exception, SystemExit) as error:
        raise AuthenticationError(
            f"{where} cannot be imported: {_one_line(error)}; its entry point is "
            f"{registered[name].value}"
        ) from error
    return found


def _moment(end: float, now: float) -> float:
    if end >= _MILLISECONDS:
        return end / 1000
    return end if end >= _SECONDS else now + end


def _one_line(error: BaseException) -> str:
    said = next((line for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {said.strip()}"[:_LONGEST_TEXT]
