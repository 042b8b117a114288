"""The configuration: frozen, typed values that every other room is given.

Main type: `MirrorConfig`, made of `ClusterConfig`, `FlowConfig`, `ServiceConfig`.
Each field says what its zero, null or empty value means. What one setting or one
section can tell about itself is checked here; `rules` checks what takes a look
over the whole, `load` reads files and the environment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    model_validator,
)

from mirror.config import credentials, values
from mirror.config.group_settings import GroupSettings
from mirror.config.section import Alias, Number, Patterns, Secret, Section, Text, Whole
from mirror.config.topic_sync import TopicSync
from mirror.errors import ConfigError
from mirror.policy import ReplicationPolicy, TopicFilter, make_policy
from mirror.renaming import Rule  # noqa: TC001  pydantic reads it when it runs

TOPICS_EXCLUDE = (r"mm2.*\.internal", r".*\.replica", r"__.*")
"""What MirrorMaker 2 leaves out when it is told nothing."""


class ClusterConfig(Section):
    """How to reach one cluster. Holds credentials: its repr hides them."""

    alias: Alias = Field(
        description="The cluster's short name, taken from the key it stands under. "
        "Part of the copies' names, so upper and lower case matter."
    )
    bootstrap_servers: Annotated[
        tuple[str, ...], BeforeValidator(values.bootstrap_servers)
    ] = Field(
        description="Brokers to ask first, each host:port; a list, or one text with "
        "commas. At least one is needed."
    )
    security_protocol: Annotated[
        Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"],
        BeforeValidator(values.upper),
    ] = Field(default="PLAINTEXT", description="Upper or lower case is the same.")
    sasl_mechanism: (
        Annotated[
            Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"],
            BeforeValidator(values.sasl_mechanism),
        ]
        | None
    ) = Field(default=None, description="Needed by SASL_*; null otherwise.")
    sasl_username: Text | None = Field(
        default=None, description="Needed by SASL_*; null otherwise."
    )
    sasl_password: Secret | None = Field(
        default=None,
        description="Better kept in sasl_password_file or in the environment. "
        "Null: sasl_password_file has it.",
    )
    sasl_password_file: Path | None = Field(
        default=None,
        description="A file that holds the password and nothing else, read again for "
        "each connection. Null: sasl_password has it.",
    )
    ssl_ca_file: Path | None = Field(
        default=None,
        description="The certificates to trust: a PEM file, or a PKCS12 or JKS trust "
        "store. Null: ssl_ca_certificates, or else the system's.",
    )
    ssl_ca_password: Secret | None = Field(
        default=None,
        description="Opens the trust store. Null: it has none, as a PEM file.",
    )
    ssl_ca_certificates: Text | None = Field(
        default=None,
        description="The certificates to trust as PEM text. Null: see ssl_ca_file.",
    )
    ssl_certificate_file: Path | None = Field(
        default=None,
        description="Our own certificate: a PEM file, or a PKCS12 or JKS key store. "
        "Null: none is shown, or ssl_certificate_chain.",
    )
    ssl_certificate_password: Secret | None = Field(
        default=None, description="Opens the key store. Null: it has none, as PEM."
    )
    ssl_certificate_chain: Text | None = Field(
        default=None,
        description="Our own certificate as PEM text, with those that vouch for it. "
        "Null: see ssl_certificate_file.",
    )
    ssl_key_file: Path | None = Field(
        default=None,
        description="PEM file of our private key. Null: it stands in "
        "ssl_certificate_file, or in ssl_key.",
    )
    ssl_key: Secret | None = Field(
        default=None,
        description="Our private key as PEM text, for ssl_certificate_chain. Null: "
        "see ssl_key_file.",
    )
    ssl_key_password: Secret | None = Field(
        default=None,
        description="Opens the private key. Null: it is not encrypted, or in a store "
        "by that store's password.",
    )
    ssl_check_hostname: bool = Field(
        default=True,
        description="Whether a broker's certificate must name the host we called.",
    )
    request_timeout_seconds: Number = Field(
        default=30.0,
        gt=0,
        description="How long a broker may take to answer; zero is refused.",
    )

    @model_validator(mode="after")
    def _credentials_fit(self) -> Self:
        credentials.check(self)
        return self


class FlowConfig(TopicSync, GroupSettings):
    """One direction of copying, from a source cluster to a target cluster."""

    source: Alias = Field(description="Alias, taken from the flow's name.")
    target: Alias = Field(description="Alias, taken from the flow's name.")
    enabled: bool = Field(default=True, description="Off: kept, but does not run.")
    topics: Patterns = Field(
        default=(".*",),
        description="Regular expressions that must match a topic's whole name; a "
        "list, or one text with commas. Empty: no topic is copied.",
    )
    topics_exclude: Patterns = Field(
        default=TOPICS_EXCLUDE,
        description="Topics to leave out although `topics` matches them. Empty: "
        "none but internal topics, which are never copied.",
    )
    tasks: Whole | None = Field(
        default=None,
        ge=1,
        description="How many tasks copy side by side. Null: chosen automatically, by "
        "partitions, cores and load.",
    )
    policy: Literal["default", "identity", "rename"] = Field(
        default="default",
        description="default: the copy is called <source><separator><topic>; "
        "identity: the copy has the topic's own name; rename: as `rename` says.",
    )
    rename: Annotated[tuple[Rule, ...], BeforeValidator(values.rename)] = Field(
        default=(),
        description="For policy rename: rules {match, to}, of which the first whose "
        "`match` fits a topic's whole name says what the copy is called; \\1 or $1 in "
        "`to` stands for a group. A topic that none fits keeps its name. Empty: no "
        "rules, which policy rename refuses.",
    )
    separator: Annotated[str, BeforeValidator(values.separator)] = Field(
        default=".",
        description="Stands between alias and topic in the copy's name. Not empty.",
    )
    provenance: bool = Field(
        default=True,
        description="Whether each record gets a header that says where it was read, "
        "which stops loops. Off: records are copied byte for byte.",
    )
    exactly_once: bool = Field(
        default=True,
        description="Off: at least once; records may appear twice after a failure.",
    )
    lease_seconds: Number | None = Field(
        default=None,
        ge=0.5,
        le=300,
        description="How long tasks copy before assignments may change. Null: chosen "
        "automatically, from 10 to 30.",
    )
    replication_factor: Whole = Field(
        default=-1,
        ge=-1,
        le=32767,
        description="Replicas of topics created on the target. -1: the brokers' "
        "default; 0 is refused.",
    )
    least_partitions: Whole = Field(
        default=1,
        ge=1,
        description="Partitions that a copy has at least when it is created; more, if "
        "its topic has more.",
    )
    min_insync_replicas: Whole | None = Field(
        default=None,
        ge=1,
        description="min.insync.replicas of copies that are created. Null: the "
        "brokers' default; zero is refused.",
    )
    compression: Literal["source", "none", "gzip", "snappy", "lz4", "zstd"] = Field(
        default="source",
        description="source: as the source's batches are compressed; none: not at all.",
    )
    isolation_level: Literal["read_committed", "read_uncommitted"] = Field(
        default="read_committed",
        description="read_uncommitted also copies records of transactions that are "
        "still open or were aborted.",
    )
    start: Annotated[
        Literal["earliest", "latest"] | int, BeforeValidator(values.start)
    ] = Field(
        default="earliest",
        description="Where partitions begin that exist when the flow starts for the "
        "very first time: earliest, latest, or a moment (ISO 8601, UTC where it names "
        "no zone, or epoch milliseconds; 0 is 1970). Partitions found later always "
        "begin at the earliest.",
    )
    on_loss: Literal["continue", "stop"] = Field(
        default="continue",
        description="When the source lost records before they were copied. continue: "
        "note it in the loss ledger and go on behind them; stop: set the partition "
        "aside until somebody decides.",
    )
    on_recreated_topic: Literal["continue", "stop"] = Field(
        default="continue",
        description="When a source topic was deleted and made anew. continue: its "
        "copy goes on with the new topic's first record; stop: set it aside until "
        "somebody decides.",
    )
    refresh_topics_seconds: Number = Field(
        default=5.0,
        gt=0,
        description="How often to look for new topics and partitions; zero is refused.",
    )
    sla_seconds: Number = Field(
        default=60.0,
        gt=0,
        description="How far behind a copy may be before that is an alert; zero is "
        "refused. It changes nothing in how records are copied.",
    )
    transaction_timeout_seconds: Number = Field(
        default=60.0,
        ge=1,
        le=900,
        description="After this the target's brokers abort a transaction that hangs.",
    )
    transform: Annotated[str, BeforeValidator(values.function)] | None = Field(
        default=None,
        description="A function of your own, package.module:function, that is given "
        "Arrow record batches and returns the rows to copy. Null: records are copied "
        "as they are.",
    )
    transform_options: Mapping[str, Any] = Field(
        default={},
        repr=False,
        description="Keyword arguments for the function. Empty: none.",
    )
    dead_letter_topic: Annotated[str, BeforeValidator(values.topic)] | None = Field(
        default=None,
        description="Topic of the target that gets the records on which the function "
        "fails; made with one partition if there is none. Null: the partition is set "
        "aside until the function works.",
    )

    @property
    def name(self) -> str:
        """How the flow is called everywhere: source->target."""
        return f"{self.source}->{self.target}"

    @property
    def replication_policy(self) -> ReplicationPolicy:
        """What the copies are called."""
        return make_policy(
            self.policy,
            source_alias=self.source,
            separator=self.separator,
            rules=self.rename,
        )

    @property
    def topic_filter(self) -> TopicFilter:
        """Which topics are copied."""
        return TopicFilter(
            include=self.topics,
            exclude=self.topics_exclude,
            separator=self.separator,
            heartbeats=self.heartbeats_replication,
        )

    @model_validator(mode="after")
    def _replicas_make_sense(self) -> Self:
        if self.replication_factor == 0:
            raise values.refusal(
                "replication_factor",
                "0 replicas would hold nothing",
                "right would be 3, or -1 for the brokers' default",
            )
        return self

    @model_validator(mode="after")
    def _transform_is_there(self) -> Self:
        for setting in ("transform_options", "dead_letter_topic"):
            if getattr(self, setting) and self.transform is None:
                raise values.refusal(
                    setting, "nothing would use it", "add transform, or remove it"
                )
        return self


class ServiceConfig(Section):
    """The process itself: where it listens, logs and runs."""

    http_host: Text = Field(
        default="127.0.0.1", description="Address to listen on; 0.0.0.0 is all."
    )
    http_port: Whole = Field(
        default=8083, ge=0, le=65535, description="0: any port that is free."
    )
    metrics_per: Literal["partition", "topic"] = Field(
        default="partition",
        description="What /metrics has time series of. topic: fewer of them, sums and "
        "maxima over a topic's partitions, for flows of thousands.",
    )
    group: Text | None = Field(
        default="mirror",
        description="Instances with the same group share the flows: each flow is led "
        "by one, and others take over when that is gone. It is a consumer group on "
        "each target. Null: this instance leads all its flows, and must be the only "
        "one.",
    )
    state_dir: Path = Field(
        default=Path("mirror-state"),
        description="Spark's checkpoint directory. It only counts leases and may be "
        "lost. A relative path starts at the working directory.",
    )
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], BeforeValidator(values.lower)
    ] = Field(default="info", description="error: only what failed.")
    log_format: Literal["auto", "console", "json"] = Field(
        default="auto", description="auto: console on a terminal, json elsewhere."
    )
    spark: Mapping[str, Annotated[str, BeforeValidator(values.spark)]] = Field(
        default={},
        description="Further settings for Spark, by their own names. Empty: none.",
    )
    spark_master: Text | None = Field(
        default=None,
        description="Null: inside this process, with all cores of the machine.",
    )


class MirrorConfig(Section):
    """Everything. Flows are complete: `defaults` are already laid under each."""

    clusters: Mapping[str, ClusterConfig]
    flows: Mapping[str, FlowConfig]
    service: ServiceConfig = ServiceConfig()
    everywhere: tuple[FlowConfig, ...] = ()
    """Filled in by `select`: all enabled flows, also those of other processes."""

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, raw: Any) -> Any:
        return values.complete(raw) if isinstance(raw, Mapping) else raw

    @property
    def enabled_flows(self) -> tuple[FlowConfig, ...]:
        """All that are enabled, in the configuration's order, wherever they run:
        flows that meet in one topic have to agree on it.
        """
        return self.everywhere or tuple(
            flow for flow in self.flows.values() if flow.enabled
        )

    def select(self, clusters: Sequence[str]) -> MirrorConfig:
        """Only the enabled flows into these clusters.

        Raises:
            ConfigError: an alias is unknown, or no flow remains.
        """
        problems = [
            f'--clusters: there is no cluster "{alias}"'
            f"{values.near(alias, self.clusters)}"
            for alias in clusters
            if alias not in self.clusters
        ]
        flows = {
            name: flow
            for name, flow in self.flows.items()
            if flow.enabled and flow.target in clusters
        }
        if not problems and not flows:
            problems.append(
                f"--clusters: no enabled flow has {' or '.join(clusters)} as its target"
            )
        if problems:
            raise ConfigError(problems)
        return self.model_copy(
            update={"flows": flows, "everywhere": self.enabled_flows}
        )
