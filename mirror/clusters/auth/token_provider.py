"""Tokens from a provider that is registered by name, such as a cloud vendor's signer.

Main function: `ask`. Providers are `aws-msk-iam`, Amazon's own signer, which mirror
does not install, and what installed packages register in the entry-point group
`mirror.token_providers`; nothing else is called, so that a configuration cannot run any
function of any module. A provider gets `sasl_token_options` and returns a token and
when it expires. `ask` checks the result, so that a wrong one is a clear error instead
of a broker's refusal.
"""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points
import time
from typing import TYPE_CHECKING, Any

from mirror.clusters.auth.token import Token
from mirror.errors import AuthenticationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.config.cluster_settings import ClusterConfig

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


def ask(config: ClusterConfig) -> Token:
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
