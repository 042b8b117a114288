"""What Java clients are told of OAUTHBEARER, as our settings.

Main function: `from_login`, which reads the options of OAuthBearerLoginModule as
Kafka's own handler knows them, and as Strimzi's does. Keys of a properties file stand
in `KEYS`. Where tokens come from is not asked here, nor whether all is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_URL = "sasl_oauthbearer_token_endpoint_url"
_CLIENT = "sasl_oauthbearer_client_credentials_client_id"
_SECRET = "sasl_oauthbearer_client_credentials_client_secret"  # noqa: S105  a name
_SCOPE = "sasl_oauthbearer_scope"
_PARAMETERS = "sasl_oauthbearer_parameters"
_EXTENSIONS = "sasl_oauthbearer_extensions"

SPELLED = {
    _URL: "sasl.oauthbearer.token.endpoint.url",
    _CLIENT: "sasl.oauthbearer.client.credentials.client.id",
    _SECRET: "sasl.oauthbearer.client.credentials.client.secret",
    _SCOPE: "sasl.oauthbearer.scope",
}
"""Which key each of our settings comes from."""
KEYS = tuple(SPELLED.values())

_OPTIONS = {
    "clientId": _CLIENT,
    "clientSecret": _SECRET,
    "scope": _SCOPE,
    "ssl.truststore.location": "sasl_oauthbearer_ca_file",
    "ssl.truststore.password": "sasl_oauthbearer_ca_password",
    "oauth.token.endpoint.uri": _URL,
    "oauth.client.id": _CLIENT,
    "oauth.client.secret": _SECRET,
    "oauth.scope": _SCOPE,
    "oauth.ssl.truststore.location": "sasl_oauthbearer_ca_file",
    "oauth.ssl.truststore.password": "sasl_oauthbearer_ca_password",
}
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
    """Our settings, and what of the options would be missed."""
    settings: dict[str, Any] = {}
    problems = []
    for option, text in options.items():
        if option in _OPTIONS:
            settings[_OPTIONS[option]] = text
        elif option == _AUDIENCE:
            settings[_PARAMETERS] = {"audience": text}
        elif option == _TOKEN_FILE:
            settings[_URL] = f"file://{text}"
        elif option.startswith(_EXTENSION):
            extensions = settings.setdefault(_EXTENSIONS, {})
            extensions[option.removeprefix(_EXTENSION)] = text
        elif option.startswith(_UNSECURED):
            problems.append(
                f"{option}: tokens that nobody signed are not made here; right would "
                f"be {SPELLED[_URL]}, or sasl_token_provider in a YAML file"
            )
        elif option not in _PASSED_OVER:
            problems.append(
                f"{option}: this option is not known; right would be "
                f"{', '.join(list(_OPTIONS)[:3])}, {_EXTENSION}NAME"
            )
    return settings, problems
