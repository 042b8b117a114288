"""The settings of one cluster: its address and mirror's credentials there.

Main type: `ClusterConfig`. `check` says whether its credentials fit its protocol, and
each other. It refuses what is missing, set twice, or has no effect: a login that is set
is meant to be used. A password of a store or key that is not set is harmless, and
passes. Nothing is read or connected here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BeforeValidator, PrivateAttr, model_validator

from mirror.config import values
from mirror.config.mm2 import readers
from mirror.config.schema_settings import RegistryConfig
from mirror.config.section import (
    Alias,
    Effect,
    File,
    FileOrFolder,
    Number,
    Secret,
    Section,
    Text,
    Where,
    keys,
    setting,
)
from mirror.config.values import refusal

if TYPE_CHECKING:
    from collections.abc import Sequence


ANONYMOUS = "User:ANONYMOUS"
"""Whom brokers take a client for that does not log in."""
_credential = partial(keys, where=Where.CREDENTIAL)
_Extension = Annotated[str, BeforeValidator(values.sasl_extension)]
_login_option = partial(keys, where=Where.LOGIN)


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
        mm2=keys("bootstrap.servers", where=Where.CLUSTER, read=readers.servers),
        description="Brokers to connect to first, each host:port; a list, or one text "
        "with commas. At least one is required.",
    )
    security_protocol: Annotated[
        Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"],
        BeforeValidator(values.upper),
    ] = setting(
        default="PLAINTEXT",
        mm2=_credential("security.protocol"),
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
        mm2=_credential("sasl.mechanism"),
        description="Required for SASL_*; null otherwise. GSSAPI is Kerberos, which "
        "needs mirror[kerberos].",
    )
    sasl_username: Text | None = setting(
        default=None,
        mm2=_credential("sasl.jaas.config"),
        description="Required for PLAIN and SCRAM; null otherwise.",
    )
    sasl_password: Secret | None = setting(
        default=None,
        mm2=_credential("sasl.jaas.config"),
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
        mm2=_credential("sasl.oauthbearer.token.endpoint.url")
        + _login_option("oauth.token.endpoint.uri"),
        description="For OAUTHBEARER: https://... requests tokens with client "
        "credentials; file:///... is a file that holds a token, read again for each "
        "connection. Null: use sasl_token_provider.",
    )
    sasl_oauthbearer_client_credentials_client_id: Text | None = setting(
        default=None,
        mm2=_credential("sasl.oauthbearer.client.credentials.client.id")
        + _login_option("clientId", "oauth.client.id"),
        description="The client id for the token endpoint. Null for a token file or a "
        "provider.",
    )
    sasl_oauthbearer_client_credentials_client_secret: Secret | None = setting(
        default=None,
        mm2=_credential("sasl.oauthbearer.client.credentials.client.secret")
        + _login_option("clientSecret", "oauth.client.secret"),
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
        mm2=_credential("sasl.oauthbearer.scope")
        + _login_option("scope", "oauth.scope"),
        description="The scope to request. Null: the endpoint's default.",
    )
    sasl_oauthbearer_parameters: Mapping[str, str] = setting(
        default={},
        repr=False,
        description="Further parameters for the token endpoint, such as {audience: "
        "kafka}. Empty: none.",
    )
    sasl_oauthbearer_extensions: Mapping[_Extension, str] = setting(
        default={},
        description="SASL extensions to send to the brokers with each token, such as "
        "{logicalCluster: lkc-1}. Empty: none.",
    )
    sasl_oauthbearer_ca_file: FileOrFolder | None = setting(
        default=None,
        mm2=_login_option("ssl.truststore.location", "oauth.ssl.truststore.location"),
        description="Certificates to trust at the token endpoint: a PEM file, or a "
        "PKCS12 or JKS trust store. Null: the system's.",
    )
    sasl_oauthbearer_ca_password: Secret | None = setting(
        default=None,
        mm2=_login_option("ssl.truststore.password", "oauth.ssl.truststore.password"),
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
        mm2=_credential("sasl.jaas.config"),
        description="For GSSAPI: mirror's own name in its realm, such as "
        "mirror@EXAMPLE.COM. Required there; null otherwise.",
    )
    sasl_kerberos_keytab_file: File | None = setting(
        default=None,
        mm2=_credential("sasl.jaas.config"),
        description="For GSSAPI: the keytab with that principal's key, read again for "
        "each ticket. Required there; null otherwise.",
    )
    sasl_kerberos_service_name: Text | None = setting(
        default=None,
        mm2=_credential("sasl.kerberos.service.name"),
        description="For GSSAPI: the first part of the brokers' principals. Null: "
        "kafka.",
    )
    ssl_ca_file: FileOrFolder | None = setting(
        default=None,
        mm2=_credential("ssl.truststore.location"),
        description="Certificates to trust: a PEM file, a folder of them, or a "
        "PKCS12 or JKS trust store. Null: ssl_ca_certificates, or else the system's.",
    )
    ssl_ca_password: Secret | None = setting(
        default=None,
        mm2=_credential("ssl.truststore.password"),
        description="Password of the trust store. Null: none, as for PEM.",
    )
    ssl_ca_certificates: Text | None = setting(
        default=None,
        mm2=_credential("ssl.truststore.certificates", read=readers.pem),
        instead_of="ssl_ca_file",
        description="Certificates to trust, as PEM text. Null: see ssl_ca_file.",
    )
    ssl_certificate_file: File | None = setting(
        default=None,
        mm2=_credential("ssl.keystore.location"),
        description="The client certificate: a PEM file, or a PKCS12 or JKS key store. "
        "Null: ssl_certificate_chain, or else none.",
    )
    ssl_certificate_password: Secret | None = setting(
        default=None,
        mm2=_credential("ssl.keystore.password"),
        description="Password of the key store. Null: none, as for PEM.",
    )
    ssl_certificate_chain: Text | None = setting(
        default=None,
        mm2=_credential("ssl.keystore.certificate.chain", read=readers.pem),
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
        mm2=_credential("ssl.keystore.key", read=readers.pem),
        description="The client's private key as PEM text, for ssl_certificate_chain. "
        "Null: see ssl_key_file.",
    )
    ssl_key_password: Secret | None = setting(
        default=None,
        mm2=_credential("ssl.key.password"),
        description="Password of the private key. Null: the key is not encrypted, or "
        "in a store that has the same password.",
    )
    ssl_check_hostname: bool = setting(
        default=True,
        mm2=_credential(
            "ssl.endpoint.identification.algorithm", read=readers.whether_set
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
        check(self)
        return self


# ---- whether credentials fit the protocol, and each other ----

_TLS_SETTINGS = (
    *("ssl_ca_file", "ssl_ca_certificates", "ssl_certificate_file", "ssl_key_file"),
    *("ssl_certificate_chain", "ssl_key"),
)
_PASSWORDS = ("sasl_password", "sasl_password_file")
_LOGIN = ("sasl_username", *_PASSWORDS)
_ENDPOINT = "sasl_oauthbearer_token_endpoint_url"
_PROVIDER = "sasl_token_provider"
_CLIENT = "sasl_oauthbearer_client_credentials_client_id"
_SECRET = "sasl_oauthbearer_client_credentials_client_secret"  # noqa: S105  a name
_OF_ENDPOINT = (
    *(_CLIENT, _SECRET, f"{_SECRET}_file"),
    *("sasl_oauthbearer_scope", "sasl_oauthbearer_parameters"),
    *("sasl_oauthbearer_ca_file", "sasl_oauthbearer_ca_password"),
)
_OF_TOKENS = (
    *(_ENDPOINT, *_OF_ENDPOINT, "sasl_oauthbearer_extensions"),
    *(_PROVIDER, "sasl_token_options"),
)
_TICKETS = ("sasl_kerberos_principal", "sasl_kerberos_keytab_file")
_OF_KERBEROS = (*_TICKETS, "sasl_kerberos_service_name")


def check(cluster: ClusterConfig) -> None:
    """Check that the protocol has what it needs, and nothing that it does not use."""
    protocol = cluster.security_protocol
    if protocol.startswith("SASL"):
        if cluster.sasl_mechanism == "OAUTHBEARER":
            _check_tokens(cluster)
        elif cluster.sasl_mechanism == "GSSAPI":
            _check_tickets(cluster)
        else:
            _check_password(cluster)
    elif given := cluster.filled("sasl_mechanism", *_LOGIN, *_OF_TOKENS, *_OF_KERBEROS):
        raise refusal(
            given[0],
            f"security_protocol {protocol} does not use it",
            "set security_protocol to SASL_SSL or SASL_PLAINTEXT",
        )
    _check_tls(cluster)
    _check_principal(cluster)


def _check_password(cluster: ClusterConfig) -> None:
    protocol = cluster.security_protocol
    passwords = cluster.one_of(*_PASSWORDS, what="password")
    missing = [
        name for name in ("sasl_mechanism", "sasl_username") if not cluster.filled(name)
    ]
    if not passwords:
        missing.append("sasl_password_file (or sasl_password)")
    if missing:
        raise refusal(
            "security_protocol", f"{protocol} also needs {_and(missing)}", "add it"
        )
    for other, settings in (("OAUTHBEARER", _OF_TOKENS), ("GSSAPI", _OF_KERBEROS)):
        _refuse(cluster, settings, f"set sasl_mechanism to {other}")


def _check_tickets(cluster: ClusterConfig) -> None:
    """GSSAPI: whose tickets, and the key that gets them."""
    _refuse(cluster, _LOGIN, f"use {_and([*_TICKETS])}")
    _refuse(cluster, _OF_TOKENS, "set sasl_mechanism to OAUTHBEARER")
    missing = [name for name in _TICKETS if not cluster.filled(name)]
    if missing:
        raise refusal("sasl_mechanism", f"GSSAPI also needs {_and(missing)}", "add it")


def _refuse(cluster: ClusterConfig, settings: Sequence[str], right: str) -> None:
    """Refuse settings that this mechanism does not use."""
    if useless := cluster.filled(*settings):
        raise refusal(
            useless[0],
            f"sasl_mechanism {cluster.sasl_mechanism} does not use it",
            right,
        )


def _check_tokens(cluster: ClusterConfig) -> None:
    """OAUTHBEARER: exactly one source of tokens, and complete."""
    _refuse(cluster, _LOGIN, f"use {_CLIENT} and its secret")
    _refuse(cluster, _OF_KERBEROS, "set sasl_mechanism to GSSAPI")
    url = cluster.sasl_oauthbearer_token_endpoint_url
    if url is None and cluster.sasl_token_provider is None:
        raise refusal(
            "sasl_mechanism",
            "OAUTHBEARER needs a source of tokens",
            f"add {_ENDPOINT}, or {_PROVIDER}",
        )
    if url is not None and cluster.sasl_token_provider is not None:
        raise refusal(_PROVIDER, f"{_ENDPOINT} says the same", "keep one")
    if cluster.sasl_token_options and cluster.sasl_token_provider is None:
        raise refusal("sasl_token_options", "nothing uses it", f"add {_PROVIDER}")
    if url is None or url.startswith("file:"):
        source = _PROVIDER if url is None else "a token in a file"
        if useless := cluster.filled(*_OF_ENDPOINT):
            raise refusal(useless[0], f"{source} does not use it", "remove it")
    else:
        _check_client(cluster, url)


def _check_client(cluster: ClusterConfig, url: str) -> None:
    """The client id and secret for a token endpoint."""
    secrets = cluster.one_of(_SECRET, f"{_SECRET}_file", what="secret")
    missing = [] if cluster.filled(_CLIENT) else [_CLIENT]
    if not secrets:
        missing.append(f"{_SECRET}_file (or {_SECRET})")
    if missing:
        raise refusal(_ENDPOINT, f"it also needs {_and(missing)}", "add it")
    if cluster.filled("sasl_oauthbearer_ca_file") and not url.startswith("https:"):
        raise refusal(
            "sasl_oauthbearer_ca_file",
            f"{_ENDPOINT} is not an https: address",
            "make it one, or remove this",
        )


def _check_tls(cluster: ClusterConfig) -> None:
    protocol = cluster.security_protocol
    files = cluster.filled(*_TLS_SETTINGS)
    if files and not protocol.endswith("SSL"):
        raise refusal(
            files[0],
            f"security_protocol {protocol} does not use it",
            "set security_protocol to SSL or SASL_SSL",
        )
    for one, other in (
        ("ssl_ca_certificates", "ssl_ca_file"),
        ("ssl_certificate_chain", "ssl_certificate_file"),
    ):
        if one in files and other in files:
            raise refusal(one, f"{other} says the same", "keep one")
    for one, other in (
        ("ssl_certificate_chain", "ssl_key"),
        ("ssl_key", "ssl_certificate_chain"),
    ):
        if one in files and other not in files:
            raise refusal(one, f"it has no effect without {other}", f"add {other}")
    if "ssl_key_file" in files and "ssl_certificate_file" not in files:
        raise refusal(
            "ssl_key_file", "a key needs its certificate", "add ssl_certificate_file"
        )


def _check_principal(cluster: ClusterConfig) -> None:
    kind, colon, name = (cluster.principal or "User:mirror").partition(":")
    if not (kind and colon and name) or name == "*":
        raise refusal(
            "principal",
            f'"{cluster.principal}" is not what ACLs call a single user',
            "use its kind and name, such as User:mirror",
        )


def _and(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)
