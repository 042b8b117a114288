"""Whether a cluster's credentials fit its protocol, and each other.

Main function: `check`. It refuses what is missing, set twice, or has no effect: a login
that is set is meant to be used. A password of a store or key that is not set is
harmless, and passes. It opens no files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.config.values import refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.config.cluster_settings import ClusterConfig

_TLS_SETTINGS = (
    *("ssl_ca_file", "ssl_ca_certificates", "ssl_certificate_file", "ssl_key_file"),
    *("ssl_certificate_chain", "ssl_key"),
)
_PASSWORDS = ("sasl_password", "sasl_password_file")
_LOGIN = ("sasl_username", *_PASSWORDS)
_ENDPOINT = "sasl_oauthbearer_token_endpoint_url"
_PROVIDER = "sasl_token_provider"
_CLIENT = "sasl_oauthbearer_client_credentials_client_id"
_SECRET = "sasl_oauthbearer_client_credentials_client_secret"  # noqa: S105  a name
_OF_ENDPOINT = (
    *(_CLIENT, _SECRET, f"{_SECRET}_file"),
    *("sasl_oauthbearer_scope", "sasl_oauthbearer_parameters"),
    *("sasl_oauthbearer_ca_file", "sasl_oauthbearer_ca_password"),
)
_OF_TOKENS = (
    *(_ENDPOINT, *_OF_ENDPOINT, "sasl_oauthbearer_extensions"),
    *(_PROVIDER, "sasl_token_options"),
)
_TICKETS = ("sasl_kerberos_principal", "sasl_kerberos_keytab_file")
_OF_KERBEROS = (*_TICKETS, "sasl_kerberos_service_name")


def check(cluster: ClusterConfig) -> None:
    """Check that the protocol has what it needs, and nothing that it does not use."""
    protocol = cluster.security_protocol
    if protocol.startswith("SASL"):
        if cluster.sasl_mechanism == "OAUTHBEARER":
            _check_tokens(cluster)
        elif cluster.sasl_mechanism == "GSSAPI":
            _check_tickets(cluster)
        else:
            _check_password(cluster)
    elif given := _given(
        cluster, "sasl_mechanism", *_LOGIN, *_OF_TOKENS, *_OF_KERBEROS
    ):
        raise refusal(
            given[0],
            f"security_protocol {protocol} does not use it",
            "set security_protocol to SASL_SSL or SASL_PLAINTEXT",
        )
    _check_tls(cluster)
    _check_principal(cluster)


def _check_password(cluster: ClusterConfig) -> None:
    protocol = cluster.security_protocol
    passwords = _given(cluster, *_PASSWORDS)
    if len(passwords) > 1:
        raise refusal("sasl_password_file", "the password is set twice", "keep one")
    missing = [
        name
        for name in ("sasl_mechanism", "sasl_username")
        if not _given(cluster, name)
    ]
    if not passwords:
        missing.append("sasl_password_file (or sasl_password)")
    if missing:
        raise refusal(
            "security_protocol", f"{protocol} also needs {_and(missing)}", "add it"
        )
    for other, settings in (("OAUTHBEARER", _OF_TOKENS), ("GSSAPI", _OF_KERBEROS)):
        _refuse(cluster, settings, f"set sasl_mechanism to {other}")


def _check_tickets(cluster: ClusterConfig) -> None:
    """GSSAPI: whose tickets, and the key that gets them."""
    _refuse(cluster, _LOGIN, f"use {_and([*_TICKETS])}")
    _refuse(cluster, _OF_TOKENS, "set sasl_mechanism to OAUTHBEARER")
    missing = [name for name in _TICKETS if not _given(cluster, name)]
    if missing:
        raise refusal("sasl_mechanism", f"GSSAPI also needs {_and(missing)}", "add it")


def _refuse(cluster: ClusterConfig, settings: Sequence[str], right: str) -> None:
    """Refuse settings that this mechanism does not use."""
    if useless := _given(cluster, *settings):
        raise refusal(
            useless[0],
            f"sasl_mechanism {cluster.sasl_mechanism} does not use it",
            right,
        )


def _check_tokens(cluster: ClusterConfig) -> None:
    """OAUTHBEARER: exactly one source of tokens, and complete."""
    _refuse(cluster, _LOGIN, f"use {_CLIENT} and its secret")
    _refuse(cluster, _OF_KERBEROS, "set sasl_mechanism to GSSAPI")
    url = cluster.sasl_oauthbearer_token_endpoint_url
    if url is None and cluster.sasl_token_provider is None:
        raise refusal(
            "sasl_mechanism",
            "OAUTHBEARER needs a source of tokens",
            f"add {_ENDPOINT}, or {_PROVIDER}",
        )
    if url is not None and cluster.sasl_token_provider is not None:
        raise refusal(_PROVIDER, f"{_ENDPOINT} says the same", "keep one")
    if cluster.sasl_token_options and cluster.sasl_token_provider is None:
        raise refusal("sasl_token_options", "nothing uses it", f"add {_PROVIDER}")
    if url is None or url.startswith("file:"):
        source = _PROVIDER if url is None else "a token in a file"
        if useless := _given(cluster, *_OF_ENDPOINT):
            raise refusal(useless[0], f"{source} does not use it", "remove it")
    else:
        _check_client(cluster, url)


def _check_client(cluster: ClusterConfig, url: str) -> None:
    """The client id and secret for a token endpoint."""
    secrets = _given(cluster, _SECRET, f"{_SECRET}_file")
    if len(secrets) > 1:
        raise refusal(f"{_SECRET}_file", "the secret is set twice", "keep one")
    missing = [] if _given(cluster, _CLIENT) else [_CLIENT]
    if not secrets:
        missing.append(f"{_SECRET}_file (or {_SECRET})")
    if missing:
        raise refusal(_ENDPOINT, f"it also needs {_and(missing)}", "add it")
    if _given(cluster, "sasl_oauthbearer_ca_file") and not url.startswith("https:"):
        raise refusal(
            "sasl_oauthbearer_ca_file",
            f"{_ENDPOINT} is not an https: address",
            "make it one, or remove this",
        )


def _check_tls(cluster: ClusterConfig) -> None:
    protocol = cluster.security_protocol
    files = _given(cluster, *_TLS_SETTINGS)
    if files and not protocol.endswith("SSL"):
        raise refusal(
            files[0],
            f"security_protocol {protocol} does not use it",
            "set security_protocol to SSL or SASL_SSL",
        )
    for one, other in (
        ("ssl_ca_certificates", "ssl_ca_file"),
        ("ssl_certificate_chain", "ssl_certificate_file"),
    ):
        if one in files and other in files:
            raise refusal(one, f"{other} says the same", "keep one")
    for one, other in (
        ("ssl_certificate_chain", "ssl_key"),
        ("ssl_key", "ssl_certificate_chain"),
    ):
        if one in files and other not in files:
            raise refusal(one, f"it has no effect without {other}", f"add {other}")
    if "ssl_key_file" in files and "ssl_certificate_file" not in files:
        raise refusal(
            "ssl_key_file", "a key needs its certificate", "add ssl_certificate_file"
        )


def _check_principal(cluster: ClusterConfig) -> None:
    kind, colon, name = (cluster.principal or "User:mirror").partition(":")
    if not (kind and colon and name) or name == "*":
        raise refusal(
            "principal",
            f'"{cluster.principal}" is not what ACLs call a single user',
            "use its kind and name, such as User:mirror",
        )


def _given(cluster: ClusterConfig, *names: str) -> list[str]:
    """Those that are set."""
    return [name for name in names if getattr(cluster, name) not in (None, {})]


def _and(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)
