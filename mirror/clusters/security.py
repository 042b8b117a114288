"""Security: one cluster's TLS and SASL settings as objects a connection can use.

Main functions: `tls_context` and `sasl_client`. Passwords are read here, at the
moment of connecting, so that a rotated file is picked up by the next connection.
This module opens no socket and never puts a secret into a message.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

from kafka.net.sasl import get_sasl_mechanism

from mirror.errors import AuthenticationError

if TYPE_CHECKING:
    from mirror.config.schema import ClusterConfig


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
        context = ssl.create_default_context(
            cafile=str(config.ssl_ca_file) if config.ssl_ca_file else None
        )
        context.check_hostname = config.ssl_check_hostname
        if config.ssl_certificate_file:
            password = config.ssl_key_password
            context.load_cert_chain(
                str(config.ssl_certificate_file),
                str(config.ssl_key_file) if config.ssl_key_file else None,
                password=password.get_secret_value() if password else "",
            )
    except OSError as error:
        raise AuthenticationError(
            f"cluster {config.alias}: the certificate files cannot be used: {error}"
        ) from error
    return context


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
