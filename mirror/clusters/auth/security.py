"""One cluster's TLS and SASL settings as objects that a connection can use.

Main functions: `tls_context`, and `sasl_client` for PLAIN and SCRAM; for what is no
broker, `context_of` its settings, and `trusting` for a server that asks for no client
certificate. Files, also those of passwords (`secret_of`), are read at the moment
of connecting, so that the next connection picks up a rotated one. This module opens no
socket and never puts a secret into a message.
"""

from __future__ import annotations

import secrets
import ssl
import tempfile
from typing import TYPE_CHECKING, Any

from kafka.net.sasl import get_sasl_mechanism

from mirror.clusters.auth.stores import StoreError, certificates, identity, is_store
from mirror.config.cluster_settings import ClusterConfig
from mirror.errors import AuthenticationError

if TYPE_CHECKING:
    from pathlib import Path

    from cryptography.x509 import Certificate
    from pydantic import SecretStr

    from mirror.config.schema_settings import RegistryConfig


def secret_of(where: str, file: Path | None, given: SecretStr | None) -> str:
    """A password, from its file if one is set; `where` names the cluster and the
    setting of that file.

    Raises:
        AuthenticationError: the file cannot be read, or is empty.
    """
    if file is None:
        return "" if given is None else given.get_secret_value()
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        raise AuthenticationError(f"{where} cannot be read: {error}") from error
    if not text:
        raise AuthenticationError(f"{where} {file} is empty")
    return text


_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"


def context_of(config: ClusterConfig | RegistryConfig, where: str) -> ssl.SSLContext:
    """A context for connections, of stores in PEM, PKCS12 or JKS; `where` begins the
    message if there is none.

    Raises:
        AuthenticationError: a certificate or key file cannot be used.
    """
    try:
        context = ssl.create_default_context(cadata=_trusted(config))
        context.check_hostname = config.ssl_check_hostname
        _identify(context, config)
    except (OSError, StoreError, ValueError) as error:
        raise AuthenticationError(
            f"{where}: the certificate files cannot be used: {error}"
        ) from error
    return context


def trusting(
    file: Path | None, password: SecretStr | None, where: str
) -> ssl.SSLContext:
    """A context that trusts what is in a file, or the system's certificates. `where`
    names the setting.

    Raises:
        AuthenticationError: the file cannot be used.
    """
    try:
        trusted = None if file is None else _authorities(file, password)
        return ssl.create_default_context(cadata=trusted)
    except (OSError, StoreError, ValueError) as error:
        raise AuthenticationError(f"{where} cannot be used: {error}") from error


def text_of(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


def _trusted(config: ClusterConfig | RegistryConfig) -> str | None:
    if config.ssl_ca_file is not None:
        return _authorities(config.ssl_ca_file, config.ssl_ca_password)
    return config.ssl_ca_certificates if isinstance(config, ClusterConfig) else None


def _authorities(file: Path, password: SecretStr | None) -> str:
    if file.is_dir():
        found = [
            each.read_text("ascii", errors="ignore")
            for each in sorted(file.iterdir())
            if each.is_file() and _CERTIFICATE in each.read_bytes()
        ]
        if not found:
            raise StoreError(f"the folder {file} has no file with a PEM certificate")
        return "\n".join(found)
    raw = file.read_bytes()
    if is_store(raw):
        try:
            return certificates(raw, text_of(password))
        except StoreError as error:
            raise StoreError(f"{file} {error}") from error
    if not raw.strip():  # Python would fall back to the system's certificates
        raise StoreError(f"{file} is empty")
    return raw.decode("ascii", errors="ignore")


def _identify(context: ssl.SSLContext, config: ClusterConfig | RegistryConfig) -> None:
    """Load our own key and certificate, which Python only reads from files."""
    file = config.ssl_certificate_file
    if file is not None and is_store(raw := file.read_bytes()):
        seal = secrets.token_hex(16)
        try:
            key, chain = identity(
                raw,
                text_of(config.ssl_certificate_password),
                text_of(config.ssl_key_password),
                seal=seal,
            )
        except StoreError as error:
            raise StoreError(f"{file} {error}") from error
        _load(context, key + chain, seal)
    elif file is not None:
        context.load_cert_chain(
            str(file),
            str(config.ssl_key_file) if config.ssl_key_file else None,
            password=text_of(config.ssl_key_password) or "",
        )
    elif (
        isinstance(config, ClusterConfig)
        and config.ssl_certificate_chain
        and config.ssl_key
    ):
        pem = f"{config.ssl_key.get_secret_value()}\n{config.ssl_certificate_chain}\n"
        _load(context, pem.encode(), text_of(config.ssl_key_password) or "")


def _load(context: ssl.SSLContext, pem: bytes, password: str) -> None:
    """Use a file that only this user can read and that is deleted at once."""
    with tempfile.NamedTemporaryFile(prefix="mirror-", suffix=".pem") as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name, password=password)


# ---- of a cluster ----


def uses_tls(config: ClusterConfig) -> bool:
    return config.security_protocol in ("SSL", "SASL_SSL")


def uses_sasl(config: ClusterConfig) -> bool:
    return config.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")


def tls_context(config: ClusterConfig) -> ssl.SSLContext:
    """The TLS context for connections to this cluster.

    Raises:
        AuthenticationError: a certificate or key file cannot be used.
    """
    return context_of(config, f"cluster {config.alias}")


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
            passwords = (config.ssl_certificate_password, config.ssl_key_password)
            seal = secrets.token_hex(16)
            _, pem = identity(raw, *map(text_of, passwords), seal=seal)
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
