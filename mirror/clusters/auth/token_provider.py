"""Tokens from a function that the user provides, such as a cloud vendor's signer.

Main function: `ask`. It imports the function by name and calls it with
`sasl_token_options`; the function returns a token and when it expires. `ask` checks the
result, so that a wrong one is a clear error instead of a broker's refusal.
"""

from __future__ import annotations

import importlib
import time
from typing import TYPE_CHECKING, Any

from mirror.clusters.auth.token import Token
from mirror.errors import AuthenticationError

if TYPE_CHECKING:
    from mirror.config.cluster_settings import ClusterConfig

_SECONDS, _MILLISECONDS = 10**9, 10**11
"""From these values on, a number is a time in epoch seconds, or in milliseconds; a
smaller number is a lifetime in seconds."""
_LONGEST_TEXT = 300


def ask(config: ClusterConfig) -> Token:
    """Call the function.

    Raises:
        AuthenticationError: it does not exist, fails, or returns something else.
    """
    where = f"cluster {config.alias}: sasl_token_provider {config.sasl_token_provider}"
    module, _, path = (config.sasl_token_provider or "").partition(":")
    asked = time.time()
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:
        raise AuthenticationError(
            f"{where} cannot be imported: {_one_line(error)}; install its module "
            "next to mirror, or put it in a folder on PYTHONPATH"
        ) from error
    try:
        answer = found(**config.sasl_token_options)
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


def _moment(end: float, now: float) -> float:
    if end >= _MILLISECONDS:
        return end / 1000
    return end if end >= _SECONDS else now + end


def _one_line(error: BaseException) -> str:
    said = next((line for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {said.strip()}"[:_LONGEST_TEXT]
