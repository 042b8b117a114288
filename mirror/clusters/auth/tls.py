"""Certificates and keys from a configuration as a TLS context.

Main type: `Materials`, the files and passwords. Main functions: `context_of`, and
`trusting` for a server that asks for no client certificate. Files are read at the
moment of connecting, so that the next connection picks up a rotated one. This module
opens no socket and never puts a secret into a message.
"""

from __future__ import annotations

from dataclasses import dataclass
import secrets
import ssl
import tempfile
from typing import TYPE_CHECKING

from mirror.clusters.auth.stores import StoreError, is_store
from mirror.errors import AuthenticationError

_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import SecretStr


@dataclass(frozen=True, slots=True, kw_only=True)
class Materials:
    """What a connection trusts and presents; PEM, PKCS12 or JKS."""

    ca_file: Path | None = None
    ca_password: SecretStr | None = None
    ca_text: str | None = None
    certificate_file: Path | None = None
    certificate_password: SecretStr | None = None
    chain: str | None = None
    key_file: Path | None = None
    key: SecretStr | None = None
    key_password: SecretStr | None = None
    check_hostname: bool = True


def context_of(materials: Materials, where: str) -> ssl.SSLContext:
    """A context for connections; `where` begins the message if there is none.

    Raises:
        AuthenticationError: a certificate or key file cannot be used.
    """
    try:
        context = ssl.create_default_context(cadata=_trusted(materials))
        context.check_hostname = materials.check_hostname
        _identify(context, materials)
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


def _trusted(materials: Materials) -> str | None:
    if materials.ca_file is None:
        return materials.ca_text
    return _authorities(materials.ca_file, materials.ca_password)


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
        from mirror.clusters.auth.stores import certificates  # noqa: PLC0415  rarely needed

        try:
            return certificates(raw, text_of(password))
        except StoreError as error:
            raise StoreError(f"{file} {error}") from error
    if not raw.strip():  # Python would fall back to the system's certificates
        raise StoreError(f"{file} is empty")
    return raw.decode("ascii", errors="ignore")


def _identify(context: ssl.SSLContext, materials: Materials) -> None:
    """Load our own key and certificate, which Python only reads from files."""
    file = materials.certificate_file
    if file is not None and is_store(raw := file.read_bytes()):
        from mirror.clusters.auth.stores import identity  # noqa: PLC0415  rarely needed

        seal = secrets.token_hex(16)
        try:
            ours = identity(
                raw,
                text_of(materials.certificate_password),
                text_of(materials.key_password),
                seal=seal,
            )
        except StoreError as error:
            raise StoreError(f"{file} {error}") from error
        _load(context, ours.key + ours.chain, seal)
    elif file is not None:
        context.load_cert_chain(
            str(file),
            str(materials.key_file) if materials.key_file else None,
            password=text_of(materials.key_password) or "",
        )
    elif materials.chain and materials.key:
        pem = f"{materials.key.get_secret_value()}\n{materials.chain}\n"
        _load(context, pem.encode(), text_of(materials.key_password) or "")


def _load(context: ssl.SSLContext, pem: bytes, password: str) -> None:
    """Use a file that only this user can read and that is deleted at once."""
    with tempfile.NamedTemporaryFile(prefix="mirror-", suffix=".pem") as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name, password=password)
