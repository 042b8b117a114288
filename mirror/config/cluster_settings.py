"""The settings of one cluster: its address and mirror's credentials there.

Main type: `ClusterConfig`. `credentials` checks that they fit together; nothing is read
or connected here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, PrivateAttr, model_validator

from mirror.config import credentials, values
from mirror.config.mm2 import readers
from mirror.config.registry_settings import RegistryConfig
from mirror.config.section import (
    Alias,
    File,
    FileOrFolder,
    Number,
    Secret,
    Section,
    Text,
)
from mirror.config.traits import Effect, Where, keys, setting

ANONYMOUS = "User:ANONYMOUS"
"""Whom brokers take a client for that does not log in."""


class ClusterConfig(Section):
    """How to reach one cluster. Holds credentials, which its repr hides."""

    alias: Alias = setting(
        from_key=True,
        description="The cluster's short name, taken from its key. Part of the copies' "
        "names, so case matters.",
    )
    bootstrap_servers: Annotated[
        tuple[str, ...], BeforeValidator(values.bootstrap_servers)
    ] = setting(
        on_change=Effect.RESTART,
        mm2=keys("bootstrap.servers", where=Where.CLUSTER, read=readers.servers),
        description="Brokers to connect to first, each host:port; a list, or one text "
        "with commas. At least one is required.",
    )
    security_protocol: Annotated[
        Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"],
        BeforeValidator(values.upper),
    ] = setting(
        default="PLAINTEXT",
        mm2=keys("security.protocol", where=Where.CREDENTIAL),
        description="Not case-sensitive.",
    )
    sasl_mechanism: (
        Annotated[
            Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"],
            BeforeValidator(values.sasl_mechanism),
        ]
        | None
    ) = setting(
        default=None,
        mm2=keys("sasl.mechanism", where=Where.CREDENTIAL),
        description="Required for SASL_*; null otherwise. GSSAPI is Kerberos, which "
        "needs mirror[kerberos].",
    )
    sasl_username: Text | None = setting(
        default=None,
        mm2=keys("sasl.jaas.config", where=Where.CREDENTIAL),
        description="Required for PLAIN and SCRAM; null otherwise.",
    )
    sasl_password: Secret | None = setting(
        default=None,
        mm2=keys("sasl.jaas.config", where=Where.CREDENTIAL),
        description="Better kept in sasl_password_file or in the environment. Null: "
        "read from sasl_password_file.",
    )
    sasl_password_file: File | None = setting(
        default=None,
        description="A file that holds only the password, read again for each "
        "connection. Null: use sasl_password.",
    )
    sasl_oauthbearer_token_endpoint_url: (
        Annotated[str, BeforeValidator(values.token_endpoint)] | None
    ) = setting(
        default=None,
        mm2=keys("sasl.oauthbearer.token.endpoint.url", where=Where.CREDENTIAL)
        + keys("oauth.token.endpoint.uri", where=Where.LOGIN),
        description="For OAUTHBEARER: https://... requests tokens with client "
        "credentials; file:///... is a file that holds a token, read again for each "
        "connection. Null: use sasl_token_provider.",
    )
    sasl_oauthbearer_client_credentials_client_id: Text | None = setting(
        default=None,
        mm2=keys(
            "sasl.oauthbearer.client.credentials.client.id", where=Where.CREDENTIAL
        )
        + keys("clientId", "oauth.client.id", where=Where.LOGIN),
        description="The client id for the token endpoint. Null for a token file or a "
        "provider.",
    )
    sasl_oauthbearer_client_credentials_client_secret: Secret | None = setting(
        default=None,
        mm2=keys(
            "sasl.oauthbearer.client.credentials.client.secret", where=Where.CREDENTIAL
        )
        + keys("clientSecret", "oauth.client.secret", where=Where.LOGIN),
        description="The client secret; better kept in the file below or in the "
        "environment. Null: read from that file.",
    )
    sasl_oauthbearer_client_credentials_client_secret_file: File | None = setting(
        default=None,
        description="A file that holds only the client secret, read again for each "
        "token. Null: use the setting above.",
    )
    sasl_oauthbearer_scope: Text | None = setting(
        default=None,
        mm2=keys("sasl.oauthbearer.scope", where=Where.CREDENTIAL)
        + keys("scope", "oauth.scope", where=Where.LOGIN),
        description="The scope to request. Null: the endpoint's default.",
    )
    sasl_oauthbearer_parameters: Mapping[str, str] = setting(
        default={},
        repr=False,
        description="Further parameters for the token endpoint, such as {audience: "
        "kafka}. Empty: none.",
    )
    sasl_oauthbearer_extensions: Mapping[
        Annotated[str, BeforeValidator(values.sasl_extension)], str
    ] = setting(
        default={},
        description="SASL extensions to send to the brokers with each token, such as "
        "{logicalCluster: lkc-1}. Empty: none.",
    )
    sasl_oauthbearer_ca_file: FileOrFolder | None = setting(
        default=None,
        mm2=keys(
            "ssl.truststore.location",
            "oauth.ssl.truststore.location",
            where=Where.LOGIN,
        ),
        description="Certificates to trust at the token endpoint: a PEM file, or a "
        "PKCS12 or JKS trust store. Null: the system's.",
    )
    sasl_oauthbearer_ca_password: Secret | None = setting(
        default=None,
        mm2=keys(
            "ssl.truststore.password",
            "oauth.ssl.truststore.password",
            where=Where.LOGIN,
        ),
        description="Password of that trust store. Null: none, as for PEM.",
    )
    sasl_oauthbearer_timeout_seconds: Number = setting(
        default=10.0,
        gt=0,
        description="How long the token endpoint may take to answer; zero is refused.",
    )
    sasl_token_provider: (
        Annotated[str, BeforeValidator(values.token_provider)] | None
    ) = setting(
        default=None,
        description="For OAUTHBEARER: what makes tokens: aws-msk-iam, or a name that "
        "an installed package registers in the entry-point group "
        "mirror.token_providers. Null: use sasl_oauthbearer_token_endpoint_url.",
    )
    sasl_token_options: Mapping[str, Any] = setting(
        default={},
        repr=False,
        description="Keyword arguments for that provider. Empty: none.",
    )
    sasl_kerberos_principal: Text | None = setting(
        default=None,
        mm2=keys("sasl.jaas.config", where=Where.CREDENTIAL),
        description="For GSSAPI: mirror's own name in its realm, such as "
        "mirror@EXAMPLE.COM. Required there; null otherwise.",
    )
    sasl_kerberos_keytab_file: File | None = setting(
        default=None,
        mm2=keys("sasl.jaas.config", where=Where.CREDENTIAL),
        description="For GSSAPI: the keytab with that principal's key, read again for "
        "each ticket. Required there; null otherwise.",
    )
    sasl_kerberos_service_name: Text | None = setting(
        default=None,
        mm2=keys("sasl.kerberos.service.name", where=Where.CREDENTIAL),
        description="For GSSAPI: the first part of the brokers' principals. Null: "
        "kafka.",
    )
    ssl_ca_file: FileOrFolder | None = setting(
        default=None,
        mm2=keys("ssl.truststore.location", where=Where.CREDENTIAL),
        description="Certificates to trust: a PEM file, a folder of them, or a "
        "PKCS12 or JKS trust store. Null: ssl_ca_certificates, or else the system's.",
    )
    ssl_ca_password: Secret | None = setting(
        default=None,
        mm2=keys("ssl.truststore.password", where=Where.CREDENTIAL),
        description="Password of the trust store. Null: none, as for PEM.",
    )
    ssl_ca_certificates: Text | None = setting(
        default=None,
        mm2=keys(
            "ssl.truststore.certificates", where=Where.CREDENTIAL, read=readers.pem
        ),
        instead_of="ssl_ca_file",
        description="Certificates to trust, as PEM text. Null: see ssl_ca_file.",
    )
    ssl_certificate_file: File | None = setting(
        default=None,
        mm2=keys("ssl.keystore.location", where=Where.CREDENTIAL),
        description="The client certificate: a PEM file, or a PKCS12 or JKS key store. "
        "Null: ssl_certificate_chain, or else none.",
    )
    ssl_certificate_password: Secret | None = setting(
        default=None,
        mm2=keys("ssl.keystore.password", where=Where.CREDENTIAL),
        description="Password of the key store. Null: none, as for PEM.",
    )
    ssl_certificate_chain: Text | None = setting(
        default=None,
        mm2=keys(
            "ssl.keystore.certificate.chain", where=Where.CREDENTIAL, read=readers.pem
        ),
        instead_of="ssl_certificate_file",
        description="The client certificate and its intermediate CAs, as PEM text. "
        "Null: see ssl_certificate_file.",
    )
    ssl_key_file: File | None = setting(
        default=None,
        description="PEM file with the client's private key. Null: the key is in "
        "ssl_certificate_file, or in ssl_key.",
    )
    ssl_key: Secret | None = setting(
        default=None,
        mm2=keys("ssl.keystore.key", where=Where.CREDENTIAL, read=readers.pem),
        description="The client's private key as PEM text, for ssl_certificate_chain. "
        "Null: see ssl_key_file.",
    )
    ssl_key_password: Secret | None = setting(
        default=None,
        mm2=keys("ssl.key.password", where=Where.CREDENTIAL),
        description="Password of the private key. Null: the key is not encrypted, or "
        "in a store that has the same password.",
    )
    ssl_check_hostname: bool = setting(
        default=True,
        mm2=keys(
            "ssl.endpoint.identification.algorithm",
            where=Where.CREDENTIAL,
            read=readers.whether_set,
        ),
        description="Whether a broker's certificate must match the host that mirror "
        "connects to.",
    )
    principal: Text | None = setting(
        default=None,
        on_change=Effect.NONE,
        description="Whom brokers take mirror for, as ACLs name it, such as "
        "User:mirror. Null: User:<sasl_username> with PLAIN and SCRAM, User:ANONYMOUS "
        "without a login; unknown with client certificates, OAUTHBEARER and GSSAPI, "
        "where `fence: acl` requires it.",
    )
    request_timeout_seconds: Number = setting(
        default=30.0,
        gt=0,
        mm2=keys("request.timeout.ms", where=Where.CLUSTER, read=readers.milliseconds),
        description="How long a broker may take to answer; zero is refused.",
    )
    schema_registry: RegistryConfig | None = setting(
        default=None,
        on_change=Effect.JOBS | Effect.LEASES,
        description="The cluster's schema registry, for flows that copy schemas: a "
        "mapping of its url and the other settings below. Null: none.",
    )

    _own_replicas: int = PrivateAttr(default=-1)

    @property
    def own_replicas(self) -> int:
        """Replicas of a topic that mirror creates for the cluster as a whole, such as
        the journal: the largest `replication_factor` of the flows into it, or else of
        those out of it; -1: the brokers' default. `MirrorConfig` fills it in.
        """
        return self._own_replicas

    def with_own_replicas(self, replicas: int) -> Self:
        made = self.model_copy()
        made._own_replicas = replicas  # noqa: SLF001  its own class
        return made

    def tool(self, name: str) -> list[str]:
        """The beginning of a command line of Kafka's own tools for this cluster."""
        words = [name, "--bootstrap-server", ",".join(self.bootstrap_servers)]
        if self.security_protocol != "PLAINTEXT":
            words += ["--command-config", f"{self.alias}-admin.properties"]
        return words

    @property
    def own_principal(self) -> str | None:
        """Whom brokers take mirror for; None: only they know."""
        if self.principal is not None:
            return self.principal
        if self.security_protocol.startswith("SASL"):
            return f"User:{self.sasl_username}" if self.sasl_username else None
        presented = self.ssl_certificate_file or self.ssl_certificate_chain
        return None if presented else ANONYMOUS

    @model_validator(mode="after")
    def _credentials_fit(self) -> Self:
        credentials.check(self)
        return self
