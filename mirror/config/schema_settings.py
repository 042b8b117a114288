"""Settings about schemas: a cluster's registry, and what a flow copies of it.

Main types: `RegistryConfig`, a part of `ClusterConfig`, with the registry's addresses
and mirror's login there; and `SchemaSync`, a part of `FlowConfig`. `RegistryConfig`
refuses what is set twice or has no effect; no file is read here. Messages do not repeat
an address: people write passwords into them. `rules` checks that both clusters have a
registry. `schemas` applies all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
import re
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, model_validator

from mirror.config import values
from mirror.config.section import (
    Effect,
    File,
    Number,
    Patterns,
    Secret,
    Section,
    Text,
    Whole,
    setting,
)
from mirror.config.values import listed, refuse, refuse_all

_ADDRESS = re.compile(r"https?://[^\s/?#@]+(/[^\s?#@]*)?")
_SECRET_HEADERS = re.compile("(?i)authorization|secret|password|token|key|cookie")
_PASSWORDS = ("password", "password_file")
_TOKENS = ("token", "token_file")
_OF_OAUTH = (
    *("oauth_client_id", "oauth_client_secret", "oauth_client_secret_file"),
    *("oauth_scope", "oauth_parameters", "oauth_ca_file", "oauth_ca_password"),
)
_TLS = ("ssl_ca_file", "ssl_certificate_file", "ssl_key_file")


_http = values.form(
    _ADDRESS,
    "not a valid address; use https://id.example.com/oauth2/token without user and "
    "password",
    shows=False,
    strip=True,
)


def _of_one_service(value: Any) -> tuple[str, ...]:
    """Addresses of one service, without a slash at the end."""
    given = listed(value)
    if not given:
        refuse('at least one address is needed, such as "https://registry.example.com"')
    wrong = []
    for index, each in enumerate(given):
        if "@" in each:
            wrong.append(
                f"[{index}]: has a user or a password in it, which logs would show; "
                "remove them, and use username and password_file"
            )
        elif not _ADDRESS.fullmatch(each):
            wrong.append(
                f"[{index}]: not a valid address; use https://registry.example.com"
            )
    refuse_all(wrong)
    return tuple(each.rstrip("/") for each in given)


class RegistryConfig(Section):
    """How to reach one schema registry. Holds credentials, which its repr hides."""

    url: Annotated[tuple[str, ...], BeforeValidator(_of_one_service)] = setting(
        description="Where Confluent's API is, such as "
        "https://registry-a.example.com; Apicurio has it under /apis/ccompat/v7. A "
        "list, or one text with commas: instances of one registry, tried in turn. At "
        "least one is required.",
    )
    username: Text | None = setting(
        default=None,
        description="For basic authentication. Null: no such login.",
    )
    password: Secret | None = setting(
        default=None,
        description="Better kept in password_file or in the environment. Null: read "
        "from password_file.",
    )
    password_file: File | None = setting(
        default=None,
        description="A file that holds only the password, read again for each "
        "request. Null: use password.",
    )
    token: Secret | None = setting(
        default=None,
        description="A bearer token; better kept in token_file or in the environment. "
        "Null: see token_file.",
    )
    token_file: File | None = setting(
        default=None,
        description="A file that holds only a bearer token, read again for each "
        "request. Null: none, or token.",
    )
    oauth_token_endpoint_url: Annotated[str, BeforeValidator(_http)] | None = setting(
        default=None,
        description="Where to request bearer tokens with client credentials. Null: no "
        "such login.",
    )
    oauth_client_id: Text | None = setting(
        default=None,
        description="The client id for the token endpoint. Null: none.",
    )
    oauth_client_secret: Secret | None = setting(
        default=None,
        description="The client secret; better kept in the file below or in the "
        "environment. Null: read from that file.",
    )
    oauth_client_secret_file: File | None = setting(
        default=None,
        description="A file that holds only the client secret, read again for each "
        "token. Null: use the setting above.",
    )
    oauth_scope: Text | None = setting(
        default=None,
        description="The scope to request. Null: the endpoint's default.",
    )
    oauth_parameters: Mapping[str, str] = setting(
        default={},
        repr=False,
        description="Further parameters for the token endpoint, such as {audience: "
        "registry}. Empty: none.",
    )
    oauth_ca_file: File | None = setting(
        default=None,
        description="Certificates to trust at the token endpoint: a PEM file, or a "
        "PKCS12 or JKS trust store. Null: the system's.",
    )
    oauth_ca_password: Secret | None = setting(
        default=None,
        description="Password of that trust store. Null: none, as for PEM.",
    )
    headers: Mapping[str, str] = setting(
        default={},
        repr=False,
        secret_keys=_SECRET_HEADERS,
        description="Further headers for each request, such as {target-sr-cluster: "
        "lsrc-1} for Confluent Cloud with OAuth. Empty: none.",
    )
    ssl_ca_file: File | None = setting(
        default=None,
        description="Certificates to trust: a PEM file, or a PKCS12 or JKS trust "
        "store. Null: the system's.",
    )
    ssl_ca_password: Secret | None = setting(
        default=None,
        description="Password of the trust store. Null: none, as for PEM.",
    )
    ssl_certificate_file: File | None = setting(
        default=None,
        description="The client certificate: a PEM file, or a PKCS12 or JKS key store. "
        "Null: none.",
    )
    ssl_certificate_password: Secret | None = setting(
        default=None,
        description="Password of the key store. Null: none, as for PEM.",
    )
    ssl_key_file: File | None = setting(
        default=None,
        description="PEM file with the client's private key. Null: the key is in "
        "ssl_certificate_file.",
    )
    ssl_key_password: Secret | None = setting(
        default=None,
        description="Password of the private key. Null: the key is not encrypted, or "
        "in a store that has the same password.",
    )
    ssl_check_hostname: bool = setting(
        default=True,
        description="Whether the registry's certificate must match the host in url.",
    )
    timeout_seconds: Number = setting(
        default=10.0,
        gt=0,
        description="How long one address may take for a whole answer; zero is "
        "refused.",
    )

    @model_validator(mode="after")
    def _credentials_fit(self) -> Self:
        self._check_login()
        self._check_tls()
        return self

    def _check_login(self) -> None:
        logins = {
            "username": self.filled("username", *_PASSWORDS),
            "token_file": self.filled(*_TOKENS),
            "oauth_token_endpoint_url": self.filled("oauth_token_endpoint_url"),
        }
        chosen = [name for name, given in logins.items() if given]
        if len(chosen) > 1:
            first, second = (logins[name][0] for name in chosen[:2])
            raise values.refusal(second, f"{first} is another login", "keep one")
        self.one_of(*_TOKENS, what="token")
        passwords = self.one_of(*_PASSWORDS, what="password")
        if self.username is not None and not passwords:
            raise values.refusal(
                "username", "a username needs a password", "add password_file"
            )
        if passwords and self.username is None:
            raise values.refusal(
                passwords[0], "it has no effect without a username", "add username"
            )
        self._check_oauth()

    def _check_oauth(self) -> None:
        endpoint = self.oauth_token_endpoint_url
        if endpoint is None:
            if given := self.filled(*_OF_OAUTH):
                raise values.refusal(
                    given[0], "nothing uses it", "add oauth_token_endpoint_url"
                )
            return
        secrets = self.one_of(
            "oauth_client_secret", "oauth_client_secret_file", what="secret"
        )
        if not self.filled("oauth_client_id") or not secrets:
            raise values.refusal(
                "oauth_token_endpoint_url",
                "it also needs oauth_client_id and oauth_client_secret_file",
                "add what is missing",
            )
        if self.filled("oauth_ca_file") and not endpoint.startswith("https:"):
            raise values.refusal(
                "oauth_ca_file",
                "oauth_token_endpoint_url is not an https: address",
                "make it one, or remove this",
            )

    def _check_tls(self) -> None:
        if (given := self.filled(*_TLS)) and not any(
            each.startswith("https:") for each in self.url
        ):
            raise values.refusal(
                given[0],
                "no address in url begins with https:",
                "make it one, or remove this",
            )
        if self.filled("ssl_key_file") and not self.filled("ssl_certificate_file"):
            raise values.refusal(
                "ssl_key_file",
                "a key needs its certificate",
                "add ssl_certificate_file",
            )


# ---- what a flow copies ----

context = values.form(
    r"(\.[^:/\s.]+)*",
    "is not the name of a context: it begins with a dot, such as .a, and has no colon, "
    "slash or space",
)


class SchemaSync(Section):
    """How the target's schema registry follows the source's."""

    on_change: ClassVar[Effect] = Effect.JOBS

    schemas: Literal["off", "copy", "require"] = setting(
        default="off",
        on_change=Effect.JOBS | Effect.LEASES,
        description="copy: keep the schemas of the source's registry in the target's, "
        "with their ids (schemas_ids), versions and texts; both clusters need "
        "schema_registry. require: the same, and no record is copied before its schema "
        "is in the target's registry. off: no schemas are copied.",
    )
    schemas_topics: Patterns = setting(
        default=(".*",),
        on_change=Effect.LEASES,
        description="Regular expressions that match the whole names of the source's "
        "topics in whose records to look for ids: with schemas: require, records of "
        "all others pass at once, and no drill looks at them. Empty: no records wait.",
    )
    schemas_subjects: Patterns = setting(
        default=(".*",),
        on_change=Effect.JOBS | Effect.LEASES,
        description="Regular expressions that must match a subject's whole name, "
        "with its context (:.context:name) or without. What such a subject refers to "
        "is copied too. Empty: no subject is copied.",
    )
    schemas_exclude: Patterns = setting(
        default=(),
        on_change=Effect.JOBS | Effect.LEASES,
        description="Subjects to leave out although `schemas_subjects` matches them, "
        "or another subject refers to them. Empty: none.",
    )
    schemas_context: Annotated[str, BeforeValidator(context)] = setting(
        default="",
        on_change=Effect.JOBS | Effect.LEASES,
        description="The context of the target's registry that gets the subjects, "
        "such as .a: where several sources use the same ids. Empty: each subject "
        "keeps its own context.",
    )
    schemas_ids: Literal["keep", "translate"] = setting(
        default="keep",
        on_change=Effect.JOBS | Effect.LEASES,
        description="keep: schemas have the same ids and version numbers in both "
        "registries; the target's must take mode IMPORT. translate: the target's "
        "registry chooses them, and records get its ids as they are copied. translate "
        "needs schemas: require, and no flow may lead back.",
    )
    schemas_id_gap: Whole = setting(
        default=1000,
        ge=0,
        description="How far above the source's highest id the target's registry goes "
        "on when it issues ids itself, so that it issues none that the source has "
        "used. Zero: right after the highest id that was copied. Without effect if "
        "schemas_ids is translate.",
    )
    schemas_deletes: bool = setting(
        default=True,
        description="Whether a version that is softly deleted on the source is "
        "deleted on the target too, if this flow has written it there. Off: it stays. "
        "Versions that are deleted for good always stay. Without effect if "
        "schemas_ids is translate: then all stay.",
    )
    schemas_seconds: Number = setting(
        default=10.0,
        gt=0,
        description="How often to look for new schemas; zero is refused, use schemas "
        "to turn it off.",
    )
    schemas_requests_per_second: Number = setting(
        default=1000.0,
        gt=0,
        description="How many requests each of the two registries gets at most, per "
        "second; zero is refused.",
    )

    @property
    def requires_schemas(self) -> bool:
        """Whether any record may wait for its schema."""
        return self.schemas == "require" and bool(self.schemas_topics)

    @property
    def translates_ids(self) -> bool:
        """Whether records get the ids of the target's registry."""
        return self.schemas_ids == "translate" and self.requires_schemas

    def needs_schemas(self, topic: str) -> bool:
        """Whether records of a topic of the source wait for their schemas."""
        return self.requires_schemas and self.may_have_schemas(topic)

    def may_have_schemas(self, topic: str) -> bool:
        """Whether to look for ids in records of a topic of the source."""
        return any(re.fullmatch(pattern, topic) for pattern in self.schemas_topics)
