"""Java clients' options for OAUTHBEARER, as mirror's settings.

Main function: `from_login`, which reads the options of OAuthBearerLoginModule that
Kafka's own handler and Strimzi's know. Whether they are complete is checked later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirror.config.mm2.keys import spelled, table
from mirror.config.traits import Where

if TYPE_CHECKING:
    from collections.abc import Mapping

_OPTIONS = table(Where.LOGIN)
_KEYS = spelled(Where.CREDENTIAL)
_URL = "sasl_oauthbearer_token_endpoint_url"
_AUDIENCE = "oauth.audience"
_TOKEN_FILE = "oauth.access.token.location"  # noqa: S105  an option's name
_EXTENSION = "extension_"
_UNSECURED = "unsecuredLogin"
_PASSED_OVER = (
    *("ssl.truststore.type", "oauth.ssl.truststore.type", "ssl.protocol"),
    *("oauth.username.claim", "oauth.access.token.is.jwt", "oauth.max.token.expiry"),
    "oauth.ssl.endpoint.identification.algorithm",
)


def from_login(options: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """The settings, and problems with options that cannot be served."""
    settings: dict[str, Any] = {}
    problems = []
    for option, text in options.items():
        if option in _OPTIONS:
            setting, read = _OPTIONS[option]
            settings[setting] = read(text)
        elif option == _AUDIENCE:
            settings["sasl_oauthbearer_parameters"] = {"audience": text}
        elif option == _TOKEN_FILE:
            settings[_URL] = f"file://{text}"
        elif option.startswith(_EXTENSION):
            extensions = settings.setdefault("sasl_oauthbearer_extensions", {})
            extensions[option.removeprefix(_EXTENSION)] = text
        elif option.startswith(_UNSECURED):
            problems.append(
                f"{option}: unsigned tokens are not supported; use "
                f"{_KEYS[_URL]}, or sasl_token_provider in a YAML file"
            )
        elif option not in _PASSED_OVER:
            problems.append(
                f"{option}: this option is not known; use "
                f"clientId, clientSecret, scope, {_EXTENSION}NAME"
            )
    return settings, problems
