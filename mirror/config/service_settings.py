"""The settings of the process itself: where it listens, logs and runs.

Main type: `ServiceConfig`.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
import re
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, model_validator

from mirror.config import values
from mirror.config.mm2 import readers
from mirror.config.section import (
    Effect,
    File,
    Number,
    Secret,
    Section,
    Text,
    Where,
    Whole,
    keys,
    setting,
)

# ---- the settings of the service's HTTP port: address, TLS and access ----
#
# Main type: `HttpSettings`, a part of `ServiceConfig`. `observing` applies
# them; no file is read here.


class HttpSettings(Section):
    """Where the HTTP port listens, and who may use it."""

    on_change: ClassVar[Effect] = Effect.RESTART

    http_host: Text = setting(
        default="127.0.0.1",
        mm2=keys("listeners", where=Where.SERVICE, read=readers.listening_host),
        description="Address to listen on; 0.0.0.0 means all.",
    )
    http_port: Whole = setting(
        default=8083,
        ge=0,
        le=65535,
        mm2=keys("listeners", where=Where.SERVICE, read=readers.listening_port),
        description="0: any free port.",
    )
    http_hosts: Annotated[tuple[str, ...], BeforeValidator(values.hosts)] = setting(
        default=(),
        description="Further host names that requests may use for this service, "
        "without a port, such as those of a proxy or an ingress; a list, or one text "
        "with commas. IP addresses, localhost, http_host and the machine's own name "
        "always work; any other name is refused, which stops pages of other sites "
        "from reading the port.",
    )
    http_certificate_file: File | None = setting(
        default=None,
        description="PEM file with the port's certificate and its intermediate CAs; "
        "read again when it changes. Null: HTTP without TLS.",
    )
    http_key_file: File | None = setting(
        default=None,
        description="PEM file with its private key. Null: the key is in "
        "http_certificate_file.",
    )
    http_ca_file: File | None = setting(
        default=None,
        description="PEM file with the certificates that mirror's own commands trust "
        "when they connect to this port. Null: those in http_certificate_file and the "
        "system's.",
    )
    http_token: Secret | None = setting(
        default=None,
        description="Requests must carry this token (Authorization: Bearer). Better "
        "kept in http_token_file or in the environment. Null: see http_token_file.",
    )
    http_token_file: File | None = setting(
        default=None,
        description="A file that holds only the token, read again for each request. "
        "Null: no token, or http_token.",
    )
    http_username: Text | None = setting(
        default=None,
        description="Requests may carry this name and http_password instead, as "
        "browsers send them (Authorization: Basic). Null: not accepted.",
    )
    http_password: Secret | None = setting(
        default=None,
        description="Better kept in http_password_file or in the environment. Null: "
        "read from http_password_file.",
    )
    http_password_file: File | None = setting(
        default=None,
        description="A file that holds only the password, read again for each request. "
        "Null: use http_password.",
    )
    http_probes_open: bool = setting(
        default=True,
        description="Whether /healthz and /readyz need no credentials, as an "
        "orchestrator's probes expect. Off: they require a token or password like all "
        "other paths.",
    )

    @property
    def asks_who(self) -> bool:
        """Whether requests need credentials."""
        return self.http_token_given or self.http_username is not None

    @property
    def http_token_given(self) -> bool:
        return self.http_token is not None or self.http_token_file is not None

    @property
    def listens_locally(self) -> bool:
        """Whether only this machine can reach the port."""
        if self.http_host.lower() == "localhost":
            return True
        try:
            return ip_address(self.http_host.strip("[]")).is_loopback
        except ValueError:
            return False

    @property
    def open_to_others(self) -> bool:
        """Whether other machines can read the port without credentials."""
        return not (self.listens_locally or self.asks_who)

    @model_validator(mode="after")
    def _http_fits(self) -> Self:
        self.one_of("http_token", "http_token_file", what="token")
        password = self.one_of("http_password", "http_password_file", what="password")
        if password and self.http_username is None:
            raise values.refusal(
                password[0], "it has no effect without a username", "add http_username"
            )
        if self.http_username is not None and not password:
            raise values.refusal(
                "http_username",
                "a username needs a password",
                "add http_password_file (or http_password)",
            )
        for name in ("http_token", "http_password"):
            secret = getattr(self, name)
            if secret is not None and not secret.get_secret_value().strip():
                raise values.refusal(name, "it is empty", "remove it, or set it")
        for name in ("http_key_file", "http_ca_file"):
            if getattr(self, name) is not None and self.http_certificate_file is None:
                raise values.refusal(
                    name, "it has no effect without TLS", "add http_certificate_file"
                )
        return self


SPARK_SECRET = re.compile(r"(?i)secret|password|token|access[.]?key")
"""The settings that Spark itself hides (`spark.redaction.regex`)."""


class ServiceConfig(HttpSettings):
    """The process itself: where it listens, logs and runs."""

    on_change: ClassVar[Effect] = Effect.RESTART

    audit_topic: Text | None = setting(
        default=None,
        description="ALIAS/TOPIC, such as A/mirror-audit.internal: the topic, on this "
        "cluster, that keeps who changed what with a command and what the service "
        "noticed; `mirror events --config` reads it. mirror creates it with a year of "
        "retention, unless it exists. Null: a command leaves no event, and the service "
        "keeps the newest of its own in memory.",
    )
    metrics_per: Literal["partition", "topic"] = setting(
        default="partition",
        description="What /metrics has time series for. topic: fewer series, with sums "
        "and maxima over a topic's partitions, for flows with thousands of partitions.",
    )
    group: Text | None = setting(
        default="mirror",
        description="Instances with the same group share the flows: one instance leads "
        "each flow, and the others take over when it is gone. This is a consumer group "
        "on each target. Null: this instance leads all its flows, and must be the only "
        "one.",
    )
    state_dir: Path | None = setting(
        default=None,
        description="Folder for Spark's checkpoints. They only count leases and may be "
        "lost; several services may share the folder. A relative path starts at the "
        "working directory. Null: `mirror` in $XDG_STATE_HOME, or in ~/.local/state; "
        "for a service of systemd, `state` in its StateDirectory.",
    )
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], BeforeValidator(values.lower)
    ] = setting(
        default="info", on_change=Effect.LEASES, description="error: only failures."
    )
    log_format: Literal["auto", "console", "json"] = setting(
        default="auto",
        on_change=Effect.LEASES,
        description="auto: console on a terminal, json elsewhere.",
    )
    reload_seconds: Number | None = setting(
        default=2.0,
        gt=0,
        on_change=Effect.NONE,
        description="How often to check whether the configuration file has changed; "
        "changes take effect without a restart. Null: only on SIGHUP; zero is refused.",
    )
    spark: Mapping[str, Annotated[str, BeforeValidator(values.spark)]] = setting(
        default={},
        repr=False,
        secret_keys=SPARK_SECRET,
        description="Further settings for Spark, by their own names. Empty: none.",
    )
    spark_master: Text | None = setting(
        default=None,
        description="Null: inside this process, with all cores of the machine.",
    )

    @property
    def audit(self) -> tuple[str, str] | None:
        """The alias and the topic of `audit_topic`."""
        if self.audit_topic is None:
            return None
        alias, _, topic = self.audit_topic.partition("/")
        return alias, topic
