"""The settings of the process itself: where it listens, logs and runs.

Main type: `ServiceConfig`; those of its HTTP port are in `http_settings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
import re
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator

from mirror.config import values
from mirror.config.http_settings import HttpSettings
from mirror.config.peer_settings import PeerConfig, checked_peers
from mirror.config.section import Number, Text
from mirror.config.traits import Effect, setting

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
    peers: Annotated[tuple[PeerConfig, ...], BeforeValidator(checked_peers)] = setting(
        default=(),
        description="The services of other sites, each with its url, token_file and "
        "ca_file, such as [{url: https://mirror.eu.example.com:8083, token_file: "
        "/run/secrets/eu}]. The page, `mirror topology` and `mirror status --all` show "
        "the flows of all of them. This service's own address may be among them. "
        "Empty: only its own flows are shown.",
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
