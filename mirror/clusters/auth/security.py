"""One cluster's TLS and SASL settings as objects that a connection can use.

Main functions: `tls_context`, and `sasl_client` for PLAIN and SCRAM. They read
passwords at the moment of connecting, so that the next connection picks up a rotated
file. This module opens no socket and never puts a secret into a message.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from kafka.net.sasl import get_sasl_mechanism

from mirror.clusters.auth.secret_files import secret_of
from mirror.clusters.auth.stores import StoreError, is_store
from mirror.clusters.auth.tls import Materials, context_of, text_of

if TYPE_CHECKING:
    import ssl

    from cryptography.x509 import Certificate

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
    materials = Materials(
        ca_file=config.ssl_ca_file,
        ca_password=config.ssl_ca_password,
        ca_text=config.ssl_ca_certificates,
        certificate_file=config.ssl_certificate_file,
        certificate_password=config.ssl_certificate_password,
        chain=config.ssl_certificate_chain,
        key_file=config.ssl_key_file,
        key=config.ssl_key,
        key_password=config.ssl_key_password,
        check_hostname=config.ssl_check_hostname,
    )
    return context_of(materials, f"cluster {config.alias}")


def own_certificate(config: ClusterConfig) -> Certificate | None:
    """The certificate that we present to brokers, to find out what is wrong with it;
    None if there is none or it cannot be read.
    """
    from cryptography import x509  # noqa: PLC0415  rarely needed

    file = config.ssl_certificate_file
    try:
        if file is None:
            pem = (config.ssl_certificate_chain or "").encode()
        elif is_store(raw := file.read_bytes()):
            from mirror.clusters.auth.stores import identity  # noqa: PLC0415  rarely needed

            passwords = (config.ssl_certificate_password, config.ssl_key_password)
            seal = secrets.token_hex(16)
            pem = identity(raw, *map(text_of, passwords), seal=seal).chain
        else:
            pem = raw
        return x509.load_pem_x509_certificates(pem)[0]
    except (OSError, StoreError, ValueError):
        return None


def sasl_client(config: ClusterConfig, host: str) -> Any:
    """A fresh SASL exchange (kafka-python's `SaslMechanism`) for one connection.

    Raises:
        AuthenticationError: a password cannot be read.
    """
    password = secret_of(
        f"cluster {config.alias}: sasl_password_file",
        config.sasl_password_file,
        config.sasl_password,
    )
    user = config.sasl_username or ""
    if (config.sasl_mechanism or "").startswith("SCRAM"):
        # RFC 5802, 5.1: unescaped, these two would end the name.
        user = user.replace("=", "=3D").replace(",", "=2C")
    return get_sasl_mechanism(config.sasl_mechanism)(
        host=host,
        security_protocol=config.security_protocol,
        sasl_mechanism=config.sasl_mechanism,
        sasl_plain_username=user,
        sasl_plain_password=password,
    )
