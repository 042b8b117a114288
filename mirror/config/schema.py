"""The configuration: frozen, typed values that every other room is given.

Main type: `MirrorConfig`, made of `ClusterConfig`, `FlowConfig`, `ServiceConfig`.
Each field says what its zero, null or empty value means. What one setting or one
section can tell about itself is checked here; `rules` checks what takes a look
over the whole, `load` reads files and the environment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    model_validator,
)

from mirror.config import values
from mirror.config.cluster_settings import ClusterConfig  # noqa: TC001  pydantic reads it
from mirror.config.group_settings import GroupSettings
from mirror.config.section import Alias, Number, Patterns, Section, Whole
from mirror.config.service_settings import ServiceConfig
from mirror.config.topic_sync import TopicSync
from mirror.errors import ConfigError
from mirror.policy import choice
from mirror.policy.choice import PolicyName, make_policy
from mirror.policy.rename_rule import Rule  # noqa: TC001  pydantic reads it
from mirror.policy.selection import TopicFilter

if TYPE_CHECKING:
    from mirror.policy.naming import ReplicationPolicy

TOPICS_EXCLUDE = (r"mm2.*\.internal", r".*\.replica", r"__.*")
"""What MirrorMaker 2 leaves out when it is told nothing."""


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
    policy: PolicyName = Field(default="default", description=choice.DESCRIPTION)
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
        "automatically, from 5 to 30.",
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
    max_unpacked_bytes: Whole = Field(
        default=128 << 20,
        ge=1 << 20,
        le=1 << 30,
        description="What a compressed record batch may unpack to. One that exceeds "
        "it sets its partition aside: a kilobyte may hold gigabytes, and brokers only "
        "limit what is packed. A slot that meets one needs about four times as much "
        "memory beside its own.",
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
        least = self.min_insync_replicas
        if least is not None and 0 < self.replication_factor < least:
            raise values.refusal(
                "min_insync_replicas",
                f"{least} replicas of {self.replication_factor} can never be in sync, "
                "so nothing could be written",
                f"right would be {max(self.replication_factor - 1, 1)}, or a larger "
                "replication_factor",
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

    def feeders(self, flow: FlowConfig) -> tuple[str, ...]:
        """The clusters that enabled flows copy to a flow's source."""
        sources = {f.source for f in self.enabled_flows if f.target == flow.source}
        return tuple(sorted(sources))

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
