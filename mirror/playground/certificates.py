"""Certificates for secured brokers: good ones, and ones that clients must refuse.

Main type: `CertificateAuthority`, which issues `Certificate`s as PEM text, meant for
minutes on a loopback address and not for a real cluster. It writes no files and knows
no broker settings (see `secured`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LOCAL_HOSTS = ("localhost", "127.0.0.1")
_LIFE = timedelta(days=30)
_CLOCK_SLACK = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A private key and the chain that vouches for it, as PEM text."""

    key_pem: str
    chain_pem: str

    @property
    def bundle_pem(self) -> str:
        """Key and chain in one text, as Kafka's PEM key stores want them."""
        return self.key_pem + self.chain_pem


class CertificateAuthority:
    """Signs certificates; clients trust its own, `pem`."""

    def __init__(self, name: str = "playground") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = _name(name)
        now, public = datetime.now(UTC), self._key.public_key()
        extensions = {
            x509.BasicConstraints(ca=True, path_length=0): True,
            _SIGNING: True,
            x509.SubjectKeyIdentifier.from_public_key(public): False,
        }
        start = now - _CLOCK_SLACK - _LIFE
        self.pem = self._sign(self._subject, public, start, now + _LIFE, extensions)

    def issue(
        self, name: str, *, hosts: Sequence[str] = LOCAL_HOSTS, expired: bool = False
    ) -> Certificate:
        """Issue a certificate for a server or a client.

        Args:
            name: common name; a broker takes a client's as its user.
            hosts: host names and addresses that the certificate is good for.
            expired: it expired an hour ago.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        start = now - _LIFE if expired else now - _CLOCK_SLACK
        end = now - _CLOCK_SLACK if expired else now + _LIFE
        issuer = self._key.public_key()
        extensions = {
            x509.BasicConstraints(ca=False, path_length=None): True,
            x509.SubjectAlternativeName(list(map(_general_name, hosts))): False,
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer): False,
            _BOTH_SIDES: False,
        }
        pem = self._sign(_name(name), key.public_key(), start, end, extensions)
        return Certificate(
            key_pem=key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ).decode(),
            chain_pem=pem + self.pem,
        )

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        start: datetime,
        end: datetime,
        extensions: Mapping[x509.ExtensionType, bool],
    ) -> str:
        """`extensions`: whether each is critical."""
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(end)
        )
        for extension, critical in extensions.items():
            builder = builder.add_extension(extension, critical=critical)
        certificate = builder.sign(self._key, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM).decode()


_BOTH_SIDES = x509.ExtendedKeyUsage(
    [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
)
# Python 3.13 checks strictly: a CA must declare that it may sign.
_SIGNING = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
