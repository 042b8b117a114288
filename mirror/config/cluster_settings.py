"""The settings of one cluster: where it is, and how to prove who we are.

Main type: `ClusterConfig`. Whether its credentials fit together is `credentials`'
to say; nothing is read or connected here.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  pydantic reads it when it runs
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, model_validator

from mirror.config import credentials, values
from mirror.config.mm2 import readers
from mirror.config.section import Alias, File, Number, Secret, Section, Text
from mirror.config.traits import Effect, Where, keys, setting


class ClusterConfig(Section):
    """How to reach one cluster. Holds credentials: its repr hides them."""

    alias: Alias = setting(
        from_key=True,
        description="The cluster's short name, taken from the key it stands under. "
        "Part of the copies' names, so upper and lower case matter.",
    )
    bootstrap_servers: Annotated[
        tuple[str, ...], BeforeValidator(values.bootstrap_servers)
    ] = setting(
        on_change=Effect.RESTART,
        mm2=keys("bootstrap.servers", where=Where.CLUSTER, read=readers.servers),
        description="Brokers to ask first, each host:port; a list, or one text with "
        "commas. At least one is needed.",
    )
    security_protocol: Annotated[
        Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"],
        BeforeValidator(values.upper),
    ] = setting(
        default="PLAINTEXT",
        mm2=keys("security.protocol", where=Where.CREDENTIAL),
        description="Upper or lower case is the same.",
    )
    sasl_mechanism: (
        Annotated[
            Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"],
            BeforeValidator(values.sasl_mechanism),
        ]
        | None
    ) = setting(
        default=None,
        mm2=keys("sasl.mechanism", where=Where.CREDENTIAL),
        description="Needed by SASL_*; null otherwise.",
    )
    sasl_username: Text | None = setting(
        default=None,
        mm2=keys("sasl.jaas.config", where=Where.CREDENTIAL),
        description="Needed by PLAIN and SCRAM; null otherwise.",
    )
    sasl_password: Secret | None = setting(
        default=None,
        mm2=keys("sasl.jaas.config", where=Where.CREDENTIAL),
        description="Better kept in sasl_password_file or in the environment. "
        "Null: sasl_password_file has it.",
    )
    sasl_password_file: File | None = setting(
        default=None,
        description="A file that holds the password and nothing else, read again for "
        "each connection. Null: sasl_password has it.",
    )
    sasl_oauthbearer_token_endpoint_url: (
        Annotated[str, BeforeValidator(values.token_endpoint)] | None
    ) = setting(
        default=None,
        mm2=keys("sasl.oauthbearer.token.endpoint.url", where=Where.CREDENTIAL)
        + keys("oauth.token.endpoint.uri", where=Where.LOGIN),
        description="For OAUTHBEARER: where tokens are asked for with client "
        "credentials, https://...; or file:///... for a file that holds a token, read "
        "again for each connection. Null: sasl_token_provider has them.",
    )
    sasl_oauthbearer_client_credentials_client_id: Text | None = setting(
        default=None,
        mm2=keys(
            "sasl.oauthbearer.client.credentials.client.id", where=Where.CREDENTIAL
        )
        + keys("clientId", "oauth.client.id", where=Where.LOGIN),
        description="Our name at the token endpoint. Null for a file or a provider.",
    )
    sasl_oauthbearer_client_credentials_client_secret: Secret | None = setting(
        default=None,
        mm2=keys(
            "sasl.oauthbearer.client.credentials.client.secret", where=Where.CREDENTIAL
        )
        + keys("clientSecret", "oauth.client.secret", where=Where.LOGIN),
        description="Our password there; better kept in the file below or in the "
        "environment. Null: the file has it.",
    )
    sasl_oauthbearer_client_credentials_client_secret_file: File | None = setting(
        default=None,
        description="A file that holds this password and nothing else, read again for "
        "each token. Null: the setting above has it.",
    )
    sasl_oauthbearer_scope: Text | None = setting(
        default=None,
        mm2=keys("sasl.oauthbearer.scope", where=Where.CREDENTIAL)
        + keys("scope", "oauth.scope", where=Where.LOGIN),
        description="The scope to ask for. Null: the endpoint's default.",
    )
    sasl_oauthbearer_parameters: Mapping[str, str] = setting(
        default={},
        repr=False,
        description="What else to send to the token endpoint, such as {audience: "
        "kafka}. Empty: nothing.",
    )
    sasl_oauthbearer_extensions: Mapping[
        Annotated[str, BeforeValidator(values.sasl_extension)], str
    ] = setting(
        default={},
        description="SASL extensions to send to the brokers with a token, such as "
        "{logicalCluster: lkc-1}. Empty: none.",
    )
    sasl_oauthbearer_ca_file: File | None = setting(
        default=None,
        mm2=keys(
            "ssl.truststore.location",
            "oauth.ssl.truststore.location",
            where=Where.LOGIN,
        ),
        description="The certificates to trust at the token endpoint: a PEM file, or a "
        "PKCS12 or JKS trust store. Null: the system's.",
    )
    sasl_oauthbearer_ca_password: Secret | None = setting(
        default=None,
        mm2=keys(
            "ssl.truststore.password",
            "oauth.ssl.truststore.password",
            where=Where.LOGIN,
        ),
        description="Opens that trust store. Null: it has none, as PEM.",
    )
    sasl_oauthbearer_timeout_seconds: Number = setting(
        default=10.0,
        gt=0,
        description="How long the token endpoint may take to answer; zero is refused.",
    )
    sasl_token_provider: Annotated[str, BeforeValidator(values.function)] | None = (
        setting(
            default=None,
            description="For OAUTHBEARER: a function, package.module:function, that "
            "returns a token and when it ends, such as a cloud's signer. Null: "
            "sasl_oauthbearer_token_endpoint_url is asked.",
        )
    )
    sasl_token_options: Mapping[str, Any] = setting(
        default={},
        repr=False,
        description="Keyword arguments for that function. Empty: none.",
    )
    ssl_ca_file: File | None = setting(
        default=None,
        mm2=keys("ssl.truststore.location", where=Where.CREDENTIAL),
        description="The certificates to trust: a PEM file, or a PKCS12 or JKS trust "
        "store. Null: ssl_ca_certificates, or else the system's.",
    )
    ssl_ca_password: Secret | None = setting(
        default=None,
        mm2=keys("ssl.truststore.password", where=Where.CREDENTIAL),
        description="Opens the trust store. Null: it has none, as a PEM file.",
    )
    ssl_ca_certificates: Text | None = setting(
        default=None,
        mm2=keys(
            "ssl.truststore.certificates", where=Where.CREDENTIAL, read=readers.pem
        ),
        instead_of="ssl_ca_file",
        description="The certificates to trust as PEM text. Null: see ssl_ca_file.",
    )
    ssl_certificate_file: File | None = setting(
        default=None,
        mm2=keys("ssl.keystore.location", where=Where.CREDENTIAL),
        description="Our own certificate: a PEM file, or a PKCS12 or JKS key store. "
        "Null: none is shown, or ssl_certificate_chain.",
    )
    ssl_certificate_password: Secret | None = setting(
        default=None,
        mm2=keys("ssl.keystore.password", where=Where.CREDENTIAL),
        description="Opens the key store. Null: it has none, as PEM.",
    )
    ssl_certificate_chain: Text | None = setting(
        default=None,
        mm2=keys(
            "ssl.keystore.certificate.chain", where=Where.CREDENTIAL, read=readers.pem
        ),
        instead_of="ssl_certificate_file",
        description="Our own certificate as PEM text, with those that vouch for it. "
        "Null: see ssl_certificate_file.",
    )
    ssl_key_file: File | None = setting(
        default=None,
        description="PEM file of our private key. Null: it stands in "
        "ssl_certificate_file, or in ssl_key.",
    )
    ssl_key: Secret | None = setting(
        default=None,
        mm2=keys("ssl.keystore.key", where=Where.CREDENTIAL, read=readers.pem),
        description="Our private key as PEM text, for ssl_certificate_chain. Null: "
        "see ssl_key_file.",
    )
    ssl_key_password: Secret | None = setting(
        default=None,
        mm2=keys("ssl.key.password", where=Where.CREDENTIAL),
        description="Opens the private key. Null: it is not encrypted, or in a store "
        "by that store's password.",
    )
    ssl_check_hostname: bool = setting(
        default=True,
        mm2=keys(
            "ssl.endpoint.identification.algorithm",
            where=Where.CREDENTIAL,
            read=readers.whether_set,
        ),
        description="Whether a broker's certificate must name the host we called.",
    )
    request_timeout_seconds: Number = setting(
        default=30.0,
        gt=0,
        mm2=keys("request.timeout.ms", where=Where.CLUSTER, read=readers.milliseconds),
        description="How long a broker may take to answer; zero is refused.",
    )

    @model_validator(mode="after")
    def _credentials_fit(self) -> Self:
        credentials.check(self)
        return self
