"""Every way into a secured cluster, for tests: the settings of brokers and clients.

`Doors` writes the certificates and keys of one set of clusters under a folder, and has
their brokers' settings (OAUTHBEARER as well, if there is an identity provider) and each
way's section of a configuration. Its authority can issue certificates that must be
refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import (
    AdminClient,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from mirror.playground.certificates import LOCAL_HOSTS, CertificateAuthority
from mirror.playground.secured import PASSWORDS, USER
from tests.harness.identity_provider import AUDIENCE, CLIENT, SECRET
from tests.harness.metadata import allow

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.playground.cluster import Access, PlaygroundCluster
    from tests.harness.identity_provider import IdentityProvider

Section = dict[str, Any]

WAYS = (
    "SSL one-way",
    "SSL mutual",
    *(
        f"{protocol} {mechanism}"
        for protocol in ("SASL_PLAINTEXT", "SASL_SSL")
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
    ),
)


class Doors:
    """Certificates, tokens and settings of a set of clusters."""

    def __init__(
        self,
        folder: Path,
        provider: IdentityProvider | None = None,
        *,
        session_seconds: float = 0,
    ) -> None:
        """`session_seconds`: brokers end sessions of tokens after so long, of
        SCRAM-SHA-256 after three times as long; 0: never.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.provider = provider
        self.authority = CertificateAuthority("doors")
        self.next = CertificateAuthority("next")
        """Trusted as well, like before a change from one authority to the other."""
        self.ca = folder / "ca.pem"
        self.trusted = folder / "trusted.pem"
        """The authorities that brokers trust; `ca` has those that clients trust."""
        self.broker = folder / "broker.pem"
        self.client = folder / "client.pem"
        self.jwks = folder / "jwks.json"
        for file in (self.ca, self.trusted):
            file.write_text(self.authority.pem + self.next.pem)
        self.show()
        self.client.write_text(self.authority.issue(USER, hosts=(USER,)).bundle_pem)
        self._session_seconds = session_seconds
        if provider is not None:
            self.jwks.write_text(provider.jwks)

    def show(self, *, hosts: tuple[str, ...] = LOCAL_HOSTS, expired: bool = False):
        """What brokers present from their next start on."""
        made = self.authority.issue("broker", hosts=hosts, expired=expired)
        self.broker.write_text(made.bundle_pem)

    @property
    def options(self) -> dict[str, Any]:
        """Arguments for `make_clusters`."""
        settings = {
            "ssl.keystore.location": str(self.broker),
            "ssl.truststore.location": str(self.trusted),
        }
        if self.provider is None:
            return {"secured": True, "settings": settings}
        module = "org.apache.kafka.common.security.oauthbearer"
        url = self.jwks.as_uri()
        for listener in ("scram", "sasl"):
            at = f"listener.name.{listener}"
            settings |= {
                f"{at}.sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256,PLAIN,"
                "OAUTHBEARER",
                f"{at}.oauthbearer.sasl.jaas.config": f"{module}."
                "OAuthBearerLoginModule required;",
                f"{at}.oauthbearer.sasl.server.callback.handler.class": f"{module}."
                "OAuthBearerValidatorCallbackHandler",
                f"{at}.oauthbearer.connections.max.reauth.ms": str(
                    int(self._session_seconds * 1000)
                ),
                f"{at}.scram-sha-256.connections.max.reauth.ms": str(
                    int(self._session_seconds * 3000)
                ),
            }
        settings |= {
            "sasl.oauthbearer.jwks.endpoint.url": url,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
        }
        allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
        return {
            "secured": True,
            "settings": settings,
            "jvm": (f"{allowed}.urls={url}", f"{allowed}.files={self.jwks}"),
        }

    def section(self, cluster: PlaygroundCluster, way: str) -> Section:
        """A cluster's section of a configuration for this way in."""
        protocol, _, kind = way.partition(" ")
        files: Section = {}
        if protocol.endswith("SSL"):
            files["ssl_ca_file"] = str(self.ca)
        if kind == "mutual":
            files["ssl_certificate_file"] = str(self.client)
        access: Access | None = {
            "one-way": cluster.one_way_tls,
            "mutual": cluster.mutual_tls,
        }.get(kind, cluster.sasl if protocol == "SASL_PLAINTEXT" else None)
        return {
            "bootstrap_servers": access.bootstrap if access else cluster.bootstrap,
            "security_protocol": protocol,
            **files,
            **(self._login(kind) if protocol.startswith("SASL") else {}),
        }

    def _login(self, mechanism: str) -> Section:
        if mechanism != "OAUTHBEARER":
            return {
                "sasl_mechanism": mechanism,
                "sasl_username": USER,
                "sasl_password": PASSWORDS[USER],
            }
        assert self.provider is not None
        client = "sasl_oauthbearer_client_credentials_client"
        return {
            "sasl_mechanism": mechanism,
            "sasl_oauthbearer_token_endpoint_url": self.provider.url,
            f"{client}_id": CLIENT,
            f"{client}_secret": SECRET,
        }


def admit(cluster: PlaygroundCluster) -> None:
    """Grant the user every right, and a password for SCRAM-SHA-256 as well."""
    admin = cluster.admin_bootstrap
    for kind, name in (
        (ResourceType.TOPIC, "*"),
        (ResourceType.GROUP, "*"),
        (ResourceType.TRANSACTIONAL_ID, "*"),
        (ResourceType.BROKER, "kafka-cluster"),
    ):
        allow(admin, USER, "ALL", name, kind=kind)
    set_password(cluster, PASSWORDS[USER], ScramMechanism.SCRAM_SHA_256)


def set_password(
    cluster: PlaygroundCluster,
    password: str,
    mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_512,
    user: str = USER,
) -> None:
    """Give a user a password, or another one; new connections need it."""
    admin = AdminClient({"bootstrap.servers": cluster.admin_bootstrap})
    entry = UserScramCredentialUpsertion(
        user, ScramCredentialInfo(mechanism, 4096), password.encode()
    )
    for future in admin.alter_user_scram_credentials([entry]).values():
        future.result(30)
