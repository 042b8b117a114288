"""Reads Java's PKCS12 and JKS stores without Java.

Functions: `certificates`, the certificates of a trust store, and `identity`, the key
and chain of a key store. The first bytes tell the format. We parse JKS ourselves, since
an executor may have no keytool, and a password must not become a process's argument.
Python's own TLS reads PEM. `cryptography` is imported only when there is a store: plain
clusters do without.
"""

from __future__ import annotations

from dataclasses import dataclass
import hashlib
import hmac
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.hazmat.primitives.serialization.pkcs12 import (
        PKCS12KeyAndCertificates,
    )
    from cryptography.x509 import Certificate

JKS = b"\xfe\xed\xfe\xed"
JCEKS = b"\xce\xce\xce\xce"
PKCS12 = b"\x30"
"""Every ASN.1 sequence starts with this byte; PEM never does."""
_WHITENER = b"Mighty Aphrodite"
_PROTECTED_BY_SUN = bytes.fromhex("060a2b060104012a02110101")
_SHA1 = 20


class StoreError(Exception):
    """A store that cannot be read; the message contains no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    certificates: tuple[bytes, ...]
    protected_key: bytes | None = None


def is_store(raw: bytes) -> bool:
    """Whether these bytes are a Java store, not PEM."""
    return raw.startswith((JKS, JCEKS, PKCS12))


def certificates(raw: bytes, password: str | None) -> str:
    """The trusted certificates as PEM.

    Raises:
        StoreError: the password is wrong, or the store is damaged or has none.
    """
    if raw.startswith(PKCS12):
        key_and_more = _pkcs12(raw, password)
        found = [each.certificate for each in key_and_more.additional_certs]
        if key_and_more.cert is not None:
            found.append(key_and_more.cert.certificate)
    else:
        found = _certificates(
            each for entry in _jks(raw, password) for each in entry.certificates
        )
    if not found:
        raise StoreError("contains no certificate")
    return _pem(found).decode("ascii")


def identity(
    raw: bytes, password: str | None, key_password: str | None, *, seal: str
) -> tuple[bytes, bytes]:
    """The first key of the store and its chain as PEM, the key encrypted with `seal`.

    Raises:
        StoreError: a password is wrong, or the store is damaged or has no key.
    """
    if raw.startswith(PKCS12):
        read = _pkcs12(raw, password)
        if read.key is None or read.cert is None:
            raise StoreError("contains no key for its certificate")
        chain = [
            read.cert.certificate,
            *(each.certificate for each in read.additional_certs),
        ]
        return _identity(read.key, chain, seal)
    for entry in _jks(raw, password):
        if entry.protected_key is not None:
            from cryptography.hazmat.primitives import (  # noqa: PLC0415  rarely needed
                serialization,
            )

            opened = _unprotected(entry.protected_key, key_password or password or "")
            key = serialization.load_der_private_key(opened, None)
            return _identity(key, _certificates(entry.certificates), seal)
    raise StoreError("contains no key for its certificate")


def _identity(
    key: PrivateKeyTypes, chain: Sequence[Certificate], seal: str
) -> tuple[bytes, bytes]:
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415  as above
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
    )

    sealed = key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(seal.encode())
    )
    return sealed, _pem(chain)


def _certificates(found: Iterable[bytes]) -> list[Certificate]:
    from cryptography import x509  # noqa: PLC0415  as above

    return [x509.load_der_x509_certificate(each) for each in found]


def _pem(found: Sequence[Certificate]) -> bytes:
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415  as above
        Encoding,
    )

    return b"".join(each.public_bytes(Encoding.PEM) for each in found)


def _pkcs12(raw: bytes, password: str | None) -> PKCS12KeyAndCertificates:
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415  as above
        pkcs12,
    )

    try:
        return pkcs12.load_pkcs12(raw, None if password is None else password.encode())
    except ValueError as error:
        raise StoreError(
            "is a PKCS12 store that this password does not open, or is damaged"
        ) from error


def _jks(raw: bytes, password: str | None) -> list[_Entry]:
    if raw.startswith(JCEKS):
        raise StoreError(
            "is a JCEKS store, which cannot be read; convert it with keytool "
            "-importkeystore -deststoretype PKCS12"
        )
    body, digest = raw[:-_SHA1], raw[-_SHA1:]
    if password is not None:
        whitened = _sha1(_utf16(password) + _WHITENER + body)
        if not hmac.compare_digest(whitened, digest):
            raise StoreError(
                "is a JKS store that this password does not open, or is damaged"
            )
    try:
        return _entries(_Reader(body))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise StoreError("is a damaged JKS store") from error


class _Reader:
    """The part of Java's DataInputStream that a store needs."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self._raw, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def take(self, length: int) -> bytes:
        if length < 0 or self._at + length > len(self._raw):
            raise IndexError
        self._at += length
        return self._raw[self._at - length : self._at]

    def block(self) -> bytes:
        return self.take(self.number(">I"))

    def certificate(self, version: int) -> bytes:
        if version > 1:
            self.take(self.number(">H"))  # its kind: X.509
        return self.block()


def _entries(reader: _Reader) -> list[_Entry]:
    reader.take(len(JKS))
    version = reader.number(">I")
    found = []
    for _ in range(reader.number(">I")):
        tag = reader.number(">I")
        reader.take(reader.number(">H"))  # the alias
        reader.take(8)  # when it was made
        if tag == 1:
            key = reader.block()
            count = reader.number(">I")
            chain = tuple(reader.certificate(version) for _ in range(count))
            found.append(_Entry(certificates=chain, protected_key=key))
        else:
            found.append(_Entry(certificates=(reader.certificate(version),)))
    return found


def _unprotected(wrapped: bytes, password: str) -> bytes:
    """Decrypt a key that Sun's KeyProtector encrypted; returns it as PKCS8."""
    start = wrapped.find(_PROTECTED_BY_SUN)
    if start < 0:
        raise StoreError("contains a key that is encrypted in an unknown way")
    # AlgorithmIdentifier ends with NULL; then an octet string with a long length.
    at = start + len(_PROTECTED_BY_SUN)
    at += 2 if wrapped[at : at + 2] == b"\x05\x00" else 0
    size = wrapped[at + 1]
    at += 2 + (size & 0x7F if size & 0x80 else 0)
    salt, hidden, check = (
        wrapped[at : at + _SHA1],
        wrapped[at + _SHA1 : -_SHA1],
        wrapped[-_SHA1:],
    )
    secret, link, stream = _utf16(password), salt, b""
    while len(stream) < len(hidden):
        link = _sha1(secret + link)
        stream += link
    plain = bytes(a ^ b for a, b in zip(hidden, stream, strict=False))
    if not hmac.compare_digest(_sha1(secret + plain), check):
        raise StoreError("contains a key that this key password does not decrypt")
    return plain


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be")


def _sha1(data: bytes) -> bytes:
    # The format has no other digest; TLS does not depend on it.
    return hashlib.sha1(data, usedforsecurity=False).digest()
