"""The tokens of this process: one for each cluster that needs one.

Main functions: `token_of`, which returns a valid token and fetches one only if it must,
one at a time, and `forget`, for a token that brokers refused; `of_endpoint` for what is
no broker. A token is replaced after four fifths of its lifetime; if that fails, the old
one serves until it expires. `token_endpoint` and providers fetch tokens.
"""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points
from pathlib import Path
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import structlog

from mirror.clusters.auth.token import URL, Token, ends_of
from mirror.errors import AuthenticationError
from mirror.log import LogThrottle

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from mirror.clusters.auth.token_endpoint import Endpoint
    from mirror.config.cluster_settings import ClusterConfig

log = structlog.get_logger()

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
    """The token of an endpoint that is not a cluster's."""
    from mirror.clusters.auth import token_endpoint  # noqa: PLC0415  an HTTP client

    with _kept_lock:
        return _kept.setdefault(
            endpoint,
            KeptToken(lambda: token_endpoint.request(endpoint), alias=endpoint.alias),
        )


def _of(config: ClusterConfig) -> KeptToken:
    ask: Callable[[ClusterConfig], Token] = ask_provider
    if config.sasl_token_provider is None:
        from mirror.clusters.auth import token_endpoint  # noqa: PLC0415  as above

        ask = token_endpoint.ask
    with _kept_lock:
        return _kept.setdefault(
            _mark(config), KeptToken(lambda: ask(config), alias=config.alias)
        )


def _mark(config: ClusterConfig) -> Hashable:
    """Configurations with the same mark share a token."""
    parts: tuple[Any, ...] = (
        config.alias,
        config.sasl_oauthbearer_token_endpoint_url,
        config.sasl_oauthbearer_client_credentials_client_id,
        config.sasl_oauthbearer_client_credentials_client_secret,
        config.sasl_oauthbearer_client_credentials_client_secret_file,
        config.sasl_oauthbearer_scope,
        repr(config.sasl_oauthbearer_parameters),
        config.sasl_oauthbearer_ca_file,
        config.sasl_oauthbearer_ca_password,
        config.sasl_oauthbearer_timeout_seconds,
        config.sasl_token_provider,
        repr(config.sasl_token_options),
    )
    return parts


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
