"""How requests to a schema registry prove who sends them, and whom they trust.

Main functions: `authorization`, the header of the next request, and `context`, for TLS.
Secrets are read from their files each time; `mark` changes with the files that a
context was made of. Messages never contain a secret.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from mirror.clusters.auth import tokens
from mirror.clusters.auth.secret_files import secret_of
from mirror.clusters.auth.tls import Materials, context_of
from mirror.clusters.auth.token_endpoint import Endpoint, Names

if TYPE_CHECKING:
    from collections.abc import Hashable
    import ssl

    from mirror.config.registry_settings import RegistryConfig

PLACE = "schema_registry"
_NAMES = Names(
    url=f"{PLACE}.oauth_token_endpoint_url",
    client=f"{PLACE}.oauth_client_id",
    secret_file=f"{PLACE}.oauth_client_secret_file",
    scope=f"{PLACE}.oauth_scope",
    ca_file=f"{PLACE}.oauth_ca_file",
)


def authorization(config: RegistryConfig, alias: str) -> str:
    """The value of the header Authorization; empty without a login.

    Raises:
        AuthenticationError: a secret cannot be read, or no token was to be had.
    """
    where = f"cluster {alias}: {PLACE}"
    if config.username is not None:
        password = secret_of(
            f"{where}.password_file", config.password_file, config.password
        )
        pair = f"{config.username}:{password}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"
    if config.oauth_token_endpoint_url is not None:
        return f"Bearer {tokens.of_endpoint(_endpoint(config, alias)).get()}"
    token = secret_of(f"{where}.token_file", config.token_file, config.token)
    return f"Bearer {token}" if token else ""


def forget(config: RegistryConfig, alias: str) -> bool:
    """The registry refused our token: the next request gets a new one. Returns whether
    there can be another.
    """
    if config.oauth_token_endpoint_url is None:
        return False
    tokens.of_endpoint(_endpoint(config, alias)).forget()
    return True


def context(config: RegistryConfig, alias: str) -> ssl.SSLContext:
    """The TLS context for connections.

    Raises:
        AuthenticationError: a certificate or key file cannot be used.
    """
    materials = Materials(
        ca_file=config.ssl_ca_file,
        ca_password=config.ssl_ca_password,
        certificate_file=config.ssl_certificate_file,
        certificate_password=config.ssl_certificate_password,
        key_file=config.ssl_key_file,
        key_password=config.ssl_key_password,
        check_hostname=config.ssl_check_hostname,
    )
    return context_of(materials, f"cluster {alias}: {PLACE}")


def mark(config: RegistryConfig) -> Hashable:
    """The same as long as the files for TLS are."""
    found = []
    for file in (config.ssl_ca_file, config.ssl_certificate_file, config.ssl_key_file):
        try:
            status = file.stat() if file else None
        except OSError:
            status = None  # opening it will say why
        found.append(status and (status.st_ino, status.st_mtime_ns, status.st_size))
    return tuple(found)


def advice(config: RegistryConfig) -> str:
    """Which settings a refused login is about."""
    if config.username is not None:
        return f"{PLACE}.username and its password must be those of a user there"
    if config.oauth_token_endpoint_url is not None:
        return (
            f"{_NAMES.client} must be a client that the registry accepts: check its "
            "scope and audience"
        )
    if config.token is not None or config.token_file is not None:
        return f"{PLACE}.token_file must hold a token that the registry accepts"
    return f"it asks for a login; set {PLACE}.username, token_file or another one"


def _endpoint(config: RegistryConfig, alias: str) -> Endpoint:
    return Endpoint(
        alias=alias,
        url=config.oauth_token_endpoint_url or "",
        client=config.oauth_client_id or "",
        secret=config.oauth_client_secret,
        secret_file=config.oauth_client_secret_file,
        scope=config.oauth_scope,
        parameters=tuple(config.oauth_parameters.items()),
        ca_file=config.oauth_ca_file,
        ca_password=config.oauth_ca_password,
        timeout=config.timeout_seconds,
        names=_NAMES,
    )
