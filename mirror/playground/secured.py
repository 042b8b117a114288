"""A secured cluster: TLS, passwords, client certificates, and rights.

Main type: `Security`, one cluster's certificates and users on disk, and the
broker settings and client settings that go with them. The plaintext listener on
the loopback address stays, so that tests can act as a super user. It starts no
broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from mirror.playground.node import Listener

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CertificateKind = Literal["valid", "expired", "wrong-host"]

USER = "mirror"
"""A user without rights until a test grants ACLs."""
# Kept fixed: brokers formatted with known users start from the cached seed.
PASSWORDS = {"admin": "admin-secret", USER: "mirror-secret"}
"""SCRAM-SHA-512 users, and PLAIN's; admin is a super user."""
PROTOCOLS = {
    "SCRAM": "SASL_SSL",
    "MUTUAL": "SSL",
    "ONEWAY": "SSL",
    "SASL": "SASL_PLAINTEXT",
}
"""The listeners for clients under test: with a password, with a certificate, without
either, and with a password without TLS."""
_MECHANISMS = "SCRAM-SHA-512,SCRAM-SHA-256,PLAIN"


class Security:
    """Files of one cluster's security under `folder`, made on construction."""

    def __init__(self, folder: Path, *, certificate: CertificateKind) -> None:
        # Plain clusters, and so the demo, do without the cryptography package.
        from mirror.playground.certificates import LOCAL_HOSTS, CertificateAuthority

        folder.mkdir(parents=True, exist_ok=True)
        self._authority = folder / "ca.pem"
        self._broker = folder / "broker.pem"
        self._client = folder / "client.pem"
        self._client_key = folder / "client.key"
        authority = CertificateAuthority()
        broker = authority.issue(
            "broker",
            hosts=("elsewhere.example",)
            if certificate == "wrong-host"
            else LOCAL_HOSTS,
            expired=certificate == "expired",
        )
        client = authority.issue(USER, hosts=(USER,))
        self._authority.write_text(authority.pem)
        self._broker.write_text(broker.bundle_pem)
        self._client.write_text(client.chain_pem)
        self._client_key.write_text(client.key_pem)

    def listeners(self, addresses: Mapping[str, str]) -> list[Listener]:
        """The listeners for clients under test, at these addresses by name."""
        return [
            Listener(
                name=name,
                address=addresses[name],
                advertised=addresses[name],
                protocol=protocol,
            )
            for name, protocol in PROTOCOLS.items()
        ]

    def broker_settings(self) -> dict[str, str]:
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._broker),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._authority),
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
            "listener.name.mutual.ssl.client.auth": "required",
            **_logins("scram"),
            **_logins("sasl"),
            "authorizer.class.name": (
                "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
            ),
            # ANONYMOUS is the user of the plaintext listener, brokers included.
            "super.users": "User:admin;User:ANONYMOUS",
            "allow.everyone.if.no.acl.found": "false",
        }

    def client(self, listener: str) -> dict[str, str]:
        """The settings of its clients; those of ONEWAY are anonymous, and may do
        everything.
        """
        settings = {"security_protocol": PROTOCOLS[listener]}
        if listener != "SASL":
            settings["ssl_ca_file"] = str(self._authority)
        if listener in {"SASL", "SCRAM"}:
            settings |= {
                "sasl_mechanism": "SCRAM-SHA-512",
                "sasl_username": USER,
                "sasl_password": PASSWORDS[USER],
            }
        if listener == "MUTUAL":
            settings |= {
                "ssl_certificate_file": str(self._client),
                "ssl_key_file": str(self._client_key),
            }
        return settings


def _logins(listener: str) -> dict[str, str]:
    """The passwords that a listener accepts; the cluster itself keeps SCRAM's."""
    module = "org.apache.kafka.common.security"
    users = " ".join(f'user_{name}="{text}"' for name, text in PASSWORDS.items())
    at = f"listener.name.{listener}"
    return {
        f"{at}.sasl.enabled.mechanisms": _MECHANISMS,
        **{
            f"{at}.scram-sha-{bits}.sasl.jaas.config": (
                f"{module}.scram.ScramLoginModule required;"
            )
            for bits in (256, 512)
        },
        f"{at}.plain.sasl.jaas.config": (
            f"{module}.plain.PlainLoginModule required {users};"
        ),
    }
