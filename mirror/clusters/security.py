"""Security: one cluster's TLS and SASL settings as objects a connection can use.

Main functions: `tls_context` and `sasl_client`. Passwords are read here, at the
moment of connecting, so that a rotated file is picked up by the next connection.
This module opens no socket and never puts a secret into a message.
"""

from __future__ import annotations

import secrets
import ssl
import tempfile
from typing import TYPE_CHECKING, Any

from kafka.net.sasl import get_sasl_mechanism

from mirror.clusters.store_kind import StoreError, is_store
from mirror.errors import AuthenticationError

if TYPE_CHECKING:
    from pydantic import SecretStr

    from mirror.config.cluster_settings import ClusterConfig


def uses_tls(config: ClusterConfig) -> bool:
    return config.security_protocol in ("SSL", "SASL_SSL")


def uses_sasl(config: ClusterConfig) -> bool:
    return config.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")


def tls_context(config: ClusterConfig) -> ssl.SSLContext:
    """The TLS context for connections to this cluster.

    Raises:
        AuthenticationError: a certificate or key file cannot be used.
    """
    try:
        context = ssl.create_default_context(cadata=_trusted(config))
        context.check_hostname = config.ssl_check_hostname
        _identify(context, config)
    except (OSError, StoreError, ValueError) as error:
        raise AuthenticationError(
            f"cluster {config.alias}: the certificate files cannot be used: {error}"
        ) from error
    return context


def _trusted(config: ClusterConfig) -> str | None:
    if config.ssl_ca_file is None:
        return config.ssl_ca_certificates
    raw = config.ssl_ca_file.read_bytes()
    if is_store(raw):
        from mirror.clusters.stores import certificates  # noqa: PLC0415  rarely needed

        try:
            return certificates(raw, _text(config.ssl_ca_password))
        except StoreError as error:
            raise StoreError(f"{config.ssl_ca_file} {error}") from error
    if not raw.strip():  # which Python would take for the system's certificates
        raise StoreError(f"{config.ssl_ca_file} is empty")
    return raw.decode("ascii", errors="ignore")


def _identify(context: ssl.SSLContext, config: ClusterConfig) -> None:
    """Load our own key and certificate, which Python only takes from files."""
    file = config.ssl_certificate_file
    if file is not None and is_store(raw := file.read_bytes()):
        from mirror.clusters.stores import identity  # noqa: PLC0415  rarely needed

        seal = secrets.token_hex(16)
        try:
            ours = identity(
                raw,
                _text(config.ssl_certificate_password),
                _text(config.ssl_key_password),
                seal=seal,
            )
        except StoreError as error:
            raise StoreError(f"{file} {error}") from error
        _load(context, ours.key + ours.chain, seal)
    elif file is not None:
        context.load_cert_chain(
            str(file),
            str(config.ssl_key_file) if config.ssl_key_file else None,
            password=_text(config.ssl_key_password) or "",
        )
    elif config.ssl_certificate_chain and config.ssl_key:
        pem = f"{config.ssl_key.get_secret_value()}\n{config.ssl_certificate_chain}\n"
        _load(context, pem.encode(), _text(config.ssl_key_password) or "")


def _load(context: ssl.SSLContext, pem: bytes, password: str) -> None:
    """Through a file that only this user can read, and that is gone at once."""
    with tempfile.NamedTemporaryFile(prefix="mirror-", suffix=".pem") as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name, password=password)


def _text(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


def sasl_client(config: ClusterConfig, host: str) -> Any:
    """A fresh SASL exchange (kafka-python's `SaslMechanism`) for one connection."""
    return get_sasl_mechanism(config.sasl_mechanism)(
        host=host,
        security_protocol=config.security_protocol,
        sasl_mechanism=config.sasl_mechanism,
        sasl_plain_username=config.sasl_username,
        sasl_plain_password=_password(config),
    )


def _password(config: ClusterConfig) -> str:
    if config.sasl_password_file is not None:
        try:
            return config.sasl_password_file.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise AuthenticationError(
                f"cluster {config.alias}: sasl_password_file cannot be read: {error}"
            ) from error
    return config.sasl_password.get_secret_value() if config.sasl_password else ""
