"""The configuration: frozen, typed values that every other room gets.

Main type: `MirrorConfig`, made of `ClusterConfig`, `FlowConfig`, `ServiceConfig`. Each
setting is declared once, here or in a module that this one is made of, with its traits;
its description says what zero, null or empty means. Models check one setting or one
section; `rules` checks the whole, `load` reads files and the environment.

A flow's login is another entry of `clusters` with another user of the same cluster.
`for_tasks` says how tasks reach a flow's clusters; everything else logs in as the
cluster's own user. `principals` are all that mirror is to a cluster: a fence keeps none
of them out. `login_problems` finds names that lead to no login.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, PrivateAttr, model_validator

from mirror.config import values
from mirror.config.cluster_settings import ClusterConfig
from mirror.config.group_settings import GroupSettings
from mirror.config.mm2 import readers
from mirror.config.pair_settings import PairConfig
from mirror.config.schema_settings import SchemaSync
from mirror.config.section import (
    Alias,
    Differs,
    Effect,
    Number,
    Patterns,
    Section,
    Text,
    Where,
    Whole,
    keys,
    setting,
)
from mirror.config.service_settings import ServiceConfig
from mirror.config.values import near
from mirror.errors import ConfigError
from mirror.policy import choice, naming
from mirror.policy.choice import PolicyName, Rule, make_policy
from mirror.policy.naming import SCHEMAS
from mirror.policy.selection import TopicFilter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.policy.naming import ReplicationPolicy


# ---- settings of a flow about where it reads, and how fast ----
#
# Main type: `TrafficSettings`, a part of `FlowConfig`. `copying.source` and
# `service.leases` apply them.


LINGER_MS = 6
AT_LEAST_ONCE_LINGER_MS = 3


class TrafficSettings(Section):
    """Where and how fast a flow reads."""

    on_change: ClassVar[Effect] = Effect.LEASES

    rack: Text | None = setting(
        default=None,
        mm2=keys(
            "consumer.client.rack",
            "client.rack",
            where=Where.SOURCE | Where.TOP_AS_MEANT,
        ),
        description="The rack or zone that mirror runs in, as broker.rack of the "
        "source's brokers names it. Records are then read from a replica there, if the "
        "brokers' replica.selector.class chooses by rack. Null: from leaders.",
    )
    linger_ms: Whole | None = setting(
        default=None,
        ge=0,
        le=1000,
        description="While few records come, how long the source's brokers wait for "
        "more of them, so that one transaction copies what would need several. It "
        "costs that much latency and saves most of a small flow's CPU; neither a "
        "record that comes alone nor a load that fills transactions waits. 0: never. "
        f"Null: {LINGER_MS}, or {AT_LEAST_ONCE_LINGER_MS} without exactly_once or with "
        "offsets: same, where a small transaction costs less.",
    )
    max_bytes_per_second: Whole | None = setting(
        default=None,
        ge=10_000,
        description="The most that the flow reads from its source, all tasks together, "
        "counted as the record batches are on the wire. Its lag grows if more is "
        "written. Null: without a limit; zero is refused.",
    )


# ---- settings of a flow about the copies' configs and ACLs ----
#
# Main type: `TopicSync`, a part of `FlowConfig`. `topics` applies them.


CONFIG_PROPERTIES_EXCLUDE = (
    r"follower\.replication\.throttled\.replicas",
    r"leader\.replication\.throttled\.replicas",
    r"message\.timestamp\.difference\.max\.ms",
    r"log\.message\.timestamp\.before\.max\.ms",
    r"log\.message\.timestamp\.after\.max\.ms",
    r"message\.timestamp\.before\.max\.ms",
    r"message\.timestamp\.after\.max\.ms",
    r"message\.timestamp\.type",
    r"unclean\.leader\.election\.enable",
    r"min\.insync\.replicas",
)
"""MirrorMaker 2's list in Kafka 4.3, which calls two configs by their broker names; the
topic names are here as well. A limit on timestamps would refuse records that are copied
long after they were written."""


class TopicSync(Section):
    """How copies follow their topics."""

    on_change: ClassVar[Effect] = Effect.JOBS

    sync_topic_configs: bool = setting(
        default=True,
        mm2=keys("sync.topic.configs.enabled"),
        description="Whether to keep the copies' configs the same as their topics'. "
        "Off: copies get them when they are created; later differences are only shown.",
    )
    sync_topic_configs_seconds: Number = setting(
        default=60.0,
        gt=0,
        mm2=keys("sync.topic.configs.interval.seconds")
        + keys("sync.topic.configs.interval", read=readers.duration),
        mm2_default=Differs("600", "60"),
        description="How often to compare the configs of topics and copies; zero is "
        "refused, use sync_topic_configs to turn it off.",
    )
    config_properties_exclude: Patterns = setting(
        default=CONFIG_PROPERTIES_EXCLUDE,
        mm2=keys("config.properties.exclude", "config.properties.blacklist"),
        description="Regular expressions that must match a config's whole name: these "
        "configs are neither copied nor compared. Empty: none is left out.",
    )
    use_defaults_from: Literal["target", "source"] = setting(
        default="target",
        mm2=keys("use.defaults.from", where=Where.ONE_FLOW),
        description="Where configs that a topic does not set come from. target: the "
        "defaults of the target's brokers; source: those of the source's brokers.",
    )
    config_strategy: Literal["first", "intersection", "target"] = setting(
        default="first",
        mm2=keys("sync.topic.configs.strategy", read=readers.lower),
        description="For a copy that several flows write. first: as the first of these "
        "flows has it; intersection: only what all sources agree on; target: as it is "
        "on the target. The setting of the first of these flows applies.",
    )
    sync_topic_acls: bool = setting(
        default=True,
        mm2=keys("sync.topic.acls.enabled", "sync.acls.enabled"),
        description="Whether to give the ACLs of topics to their copies: principals "
        "that may read a topic may read its copy; write access is not copied. Off: no "
        "ACLs are copied.",
    )
    sync_topic_acls_seconds: Number = setting(
        default=60.0,
        gt=0,
        mm2=keys("sync.topic.acls.interval.seconds")
        + keys("sync.topic.acls.interval", read=readers.duration),
        mm2_default=Differs("600", "60"),
        description="How often to compare ACLs; zero is refused, use sync_topic_acls "
        "to turn it off.",
    )
    sync_prefixed_acls: bool = setting(
        default=False,
        description="Whether to copy ACLs for all topics with a common prefix "
        "(PREFIXED) as well. Off: they are left out, as in MirrorMaker 2.",
    )
    protect: Literal["none", "acl"] = setting(
        default="none",
        description="Whether to keep others from writing to the copies. acl: each "
        "principal that an ACL of the target lets write to a copy is denied WRITE "
        "there, mirror excepted, and 30 seconds later at most one that an ACL is added "
        "for. No ACL stops a super user. none: ACLs stay as they are, and what acl has "
        "changed is taken back.",
    )


# ---- the settings of a flow that say how much a running service proves ----
#
# Main type: `ProofSettings`, a part of `FlowConfig`. `proofs.in_service` compares
# what they allow.


class ProofSettings(Section):
    """Proofs beside the copying."""

    on_change: ClassVar[Effect] = Effect.JOBS

    verify: Literal["off", "new", "rolling"] = setting(
        default="off",
        description="Compare copies with their records while the service runs. new: "
        "what was copied since the last proof; rolling: also the past, again and "
        "again; off: never, since it reads both clusters.",
    )
    verify_share: Number = setting(
        default=0.05,
        gt=0,
        description="The bytes that verify may read on both clusters, per byte copied; "
        "at least 10 kB per second. To compare everything takes about 2.5; with less, "
        "it compares evenly spread ranges. Zero is refused.",
    )


TOPICS_EXCLUDE = (r"mm2.*\.internal", r".*\.replica", r"__.*")
"""MirrorMaker 2's default."""


class LoginSettings(Section):
    """Whom the brokers take a flow's tasks for."""

    source_login: Alias | None = setting(
        default=None,
        description="Another entry of `clusters`, with another user of the source: the "
        "flow's tasks read records as that user. The driver, its jobs and commands log "
        "in as the source's own, who then needs no right to read records. Null: tasks, "
        "too, log in as the source's own.",
    )
    target_login: Alias | None = setting(
        default=None,
        description="Another entry of `clusters`, with another user of the target: the "
        "flow's tasks write records as that user, and `verify` reads copies. Null: as "
        "the target's own.",
    )


class FlowConfig(
    LoginSettings, TopicSync, SchemaSync, GroupSettings, TrafficSettings,
    ProofSettings,
):  # fmt: skip
    """One direction of copying, from a source cluster to a target cluster."""

    on_change: ClassVar[Effect] = Effect.RUN

    source: Alias = setting(
        from_key=True, description="Alias, taken from the flow's name."
    )
    target: Alias = setting(
        from_key=True, description="Alias, taken from the flow's name."
    )
    homes: tuple[tuple[str, bool], ...] = setting(
        default=(),
        from_key=True,
        description="Of a pair with leave_out_away: how keys begin, longest first, and "
        "whether their home is elsewhere.",
    )
    enabled: bool = setting(
        default=True,
        mm2=keys("enabled", where=Where.ONE_FLOW),
        description="Off: the flow does not run.",
    )
    topics: Patterns = setting(
        default=(".*",),
        on_change=Effect.LOOK,
        mm2=keys("topics", "topics.whitelist"),
        description="Regular expressions that must match a topic's whole name; a "
        "list, or one text with commas. A registry's topic `_schemas` is copied under "
        "its own name only if this lists it. Empty: no topic is copied.",
    )
    topics_exclude: Patterns = setting(
        default=TOPICS_EXCLUDE,
        on_change=Effect.LOOK,
        mm2=keys("topics.exclude", "topics.blacklist"),
        description="Topics to leave out although `topics` matches them. Empty: "
        "none but internal topics, which are never copied.",
    )
    tasks: Whole | None = setting(
        default=None,
        ge=1,
        mm2=keys("tasks.max"),
        mm2_default=Differs("1", "chosen by load"),
        description="How many tasks copy in parallel. Null: chosen automatically, by "
        "partitions, cores and load.",
    )
    policy: PolicyName = setting(
        default="default",
        on_change=Effect.RESTART,
        mm2=keys("replication.policy.class", read=readers.policy),
        description=choice.DESCRIPTION,
    )
    rename: Annotated[tuple[Rule, ...], BeforeValidator(values.rename)] = setting(
        default=(),
        on_change=Effect.RESTART,
        description="For policy rename: a list of rules {match, to}. The first rule "
        "whose `match` matches a topic's whole name gives the copy's name; \\1 or $1 "
        "in `to` stands for a group. A topic that no rule matches keeps its name. "
        "Empty: no rules, which policy rename refuses.",
    )
    separator: Annotated[str, BeforeValidator(values.separator)] = setting(
        default=".",
        on_change=Effect.RESTART,
        mm2=keys("replication.policy.separator"),
        description="Stands between alias and topic in the copy's name. Not empty.",
    )
    append_to_existing: bool = setting(
        default=False,
        on_change=Effect.RUN,
        description="Whether a partition without progress may append to a copy that "
        "has records already. Off: it waits, since another tool may have copied them; "
        "see mirror adopt. Flows of pairs, and flows that share copies by their names, "
        "append anyway, as with exactly_once: false.",
    )
    internal_topic_separator: bool = setting(
        default=True,
        on_change=Effect.RESTART,
        mm2=keys("replication.policy.internal.topic.separator.enabled"),
        description="Whether the topics that tools of MirrorMaker 2 read (checkpoints, "
        "offset syncs) have `separator` in their names, too. Off: they have dots.",
    )
    provenance: bool = setting(
        default=True,
        description="Whether to add a header to each record that says where it was "
        "read, which stops loops. Off: records are copied byte for byte.",
    )
    offsets: Literal["translated", "same"] = setting(
        default="translated",
        on_change=Effect.RESTART,
        description="same: records of a copy have the offsets that they have on the "
        "source, where that is possible (mirror plan says for which topics, and why "
        "not for others). translated: copies have offsets of their own, and groups "
        "are translated.",
    )
    offsets_exclude: Patterns = setting(
        default=(),
        description="With offsets: same, topics that are translated all the same. "
        "Empty: none.",
    )
    fill: Literal["refuse", "visible"] = setting(
        default="refuse",
        on_change=Effect.RESTART,
        description="With offsets: same, what a copy gets where the source has an "
        "offset without a record: markers of transactions, aborted and compacted "
        "records. visible: a record with a null value and the header mirror.filler, "
        "which consumers see; then compacted topics and topics with transactions keep "
        "the source's offsets. refuse: nothing, so on_hole decides.",
    )
    on_hole: Literal["stop", "translate"] = setting(
        default="stop",
        on_change=Effect.RESTART,
        description="With offsets: same, when the source has an offset without a "
        "record to copy that fill does not fill, such as the marker of a first "
        "transaction. stop: set the "
        "partition aside until an operator decides; translate: the topic's copy has "
        "offsets of its own from there on.",
    )
    most_padded_offsets: Whole = setting(
        default=100_000_000,
        ge=0,
        description="With offsets: same, where a log of the source begins at n, its "
        "copy is padded up to n first, at some million offsets a second. A topic of "
        "which a partition begins later is translated. 0: nothing is padded.",
    )
    exactly_once: bool = setting(
        default=True,
        on_change=Effect.RESTART,
        mm2=keys(
            "exactly.once.source.support",
            where=Where.FLOW | Where.TARGET,
            read=readers.exactly_once,
        )
        + keys("exactly.once.support", read=readers.exactly_once),
        mm2_default=Differs("false", "copies without repeating records"),
        description="Off: at least once; records may appear twice after a failure.",
    )
    lease_seconds: Number | None = setting(
        default=None,
        ge=0.5,
        le=300,
        on_change=Effect.LEASES,
        description="How long tasks copy before assignments may change. Null: chosen "
        "automatically, from 5 to 30.",
    )
    replication_factor: Whole = setting(
        default=-1,
        ge=-1,
        le=32767,
        on_change=Effect.JOBS,
        mm2=keys("replication.factor", "target.topic.creation.replication.factor"),
        mm2_default=Differs("2", "the brokers' default"),
        description="Replicas of topics created on the target. -1: the brokers' "
        "default; 0 is refused.",
    )
    least_partitions: Whole = setting(
        default=1,
        ge=1,
        on_change=Effect.LOOK,
        mm2=keys("target.topic.creation.default.partitions"),
        description="Minimum number of partitions of a copy when it is created; it has "
        "more if its topic has more.",
    )
    min_insync_replicas: Whole | None = setting(
        default=None,
        ge=1,
        on_change=Effect.LOOK,
        mm2=keys("target.topic.creation.min.insync.replicas"),
        description="min.insync.replicas of copies that are created. Null: the "
        "brokers' default; zero is refused.",
    )
    compression: Literal["source", "none", "gzip", "snappy", "lz4", "zstd"] = setting(
        default="source",
        on_change=Effect.LEASES,
        mm2=keys(
            "producer.override.compression.type",
            where=Where.ONE_FLOW | Where.TOP_AS_MEANT,
            read=readers.lower,
        )
        + keys(
            "producer.compression.type",
            where=Where.TARGET | Where.TOP_AS_MEANT,
            read=readers.lower,
        )
        + keys("compression.type", where=Where.TOP_AS_MEANT, read=readers.lower),
        description="source: keep the compression of the source's batches; none: no "
        "compression.",
    )
    max_unpacked_bytes: Whole = setting(
        default=128 << 20,
        ge=1 << 20,
        le=1 << 30,
        on_change=Effect.LEASES,
        description="How large a compressed record batch may become when unpacked. A "
        "larger one sets its partition aside: a kilobyte can unpack to gigabytes, and "
        "brokers limit only the compressed size. A slot that meets such a batch needs "
        "about four times this much extra memory.",
    )
    isolation_level: Literal["read_committed", "read_uncommitted"] = setting(
        default="read_committed",
        on_change=Effect.LEASES,
        mm2=keys("consumer.isolation.level", where=Where.SOURCE),
        mm2_default=Differs("read_uncommitted", "leaves out what was aborted"),
        description="read_uncommitted also copies records of transactions that are "
        "still open or were aborted.",
    )
    start: Annotated[
        Literal["earliest", "latest"] | int, BeforeValidator(values.start)
    ] = setting(
        default="earliest",
        on_change=Effect.JOBS,
        mm2=keys("consumer.auto.offset.reset", where=Where.SOURCE, read=readers.lower),
        description="Where to begin partitions that exist when the flow starts for the "
        "very first time: earliest, latest, or a time (ISO 8601, UTC where it names no "
        "zone, or epoch milliseconds; 0 is 1970). Partitions found later always begin "
        "at the earliest.",
    )
    on_loss: Literal["continue", "stop"] = setting(
        default="continue",
        on_change=Effect.LEASES,
        description="When the source lost records before they were copied. continue: "
        "note it in the loss ledger and go on after them; stop: set the partition "
        "aside until an operator decides.",
    )
    on_recreated_topic: Literal["continue", "stop"] = setting(
        default="continue",
        on_change=Effect.LEASES,
        description="When a source topic was deleted and created again. continue: its "
        "copy goes on with the new topic's first record; stop: set it aside until an "
        "operator decides.",
    )
    refresh_topics_seconds: Number = setting(
        default=5.0,
        gt=0,
        on_change=Effect.LOOK,
        mm2=keys("refresh.topics.interval.seconds")
        + keys("refresh.topics.interval", read=readers.duration),
        mm2_default=Differs("600", "5"),
        description="How often to look for new topics and partitions; zero is refused.",
    )
    sla_seconds: Number = setting(
        default=60.0,
        gt=0,
        on_change=Effect.LOOK,
        description="How far behind a copy may be before that is an alert; zero is "
        "refused. It does not change how records are copied.",
    )
    transaction_timeout_seconds: Number = setting(
        default=60.0,
        ge=1,
        le=900,
        description="After this time the target's brokers abort a transaction that "
        "hangs.",
    )
    transform: Annotated[str, BeforeValidator(values.function)] | None = setting(
        default=None,
        on_change=Effect.LEASES,
        description="A function of your own, package.module:function, that gets Arrow "
        "record batches and returns the rows to copy. Null: records are copied as they "
        "are.",
    )
    transform_options: Mapping[str, Any] = setting(
        default={},
        repr=False,
        on_change=Effect.LEASES,
        description="Keyword arguments for the function. Empty: none.",
    )
    dead_letter_topic: Annotated[str, BeforeValidator(values.topic)] | None = setting(
        default=None,
        description="Topic on the target for records on which the function fails; "
        "created with one partition if it does not exist. Null: the partition is set "
        "aside until the function works.",
    )

    _aliases: tuple[str, ...] | None = PrivateAttr(default=None)

    @property
    def name(self) -> str:
        """The flow's name everywhere: source->target."""
        return f"{self.source}->{self.target}"

    @property
    def replication_policy(self) -> ReplicationPolicy:
        """Names the copies."""
        return make_policy(
            self.policy, source_alias=self.source, separator=self.separator,
            rules=self.rename, aliases=self._aliases,
        )  # fmt: skip

    @property
    def mm2_separator(self) -> str:
        """Stands in the names of checkpoints and offset syncs."""
        return self.separator if self.internal_topic_separator else "."

    @property
    def topic_filter(self) -> TopicFilter:
        """Which topics are copied."""
        return TopicFilter(
            include=self.topics,
            exclude=self.topics_exclude,
            separator=self.separator,
            heartbeats=self.heartbeats_replication,
            aliases=self._aliases,
            schemas=self.replication_policy.target_topic(SCHEMAS) != SCHEMAS,
        )

    def among(self, aliases: Iterable[str]) -> Self:
        """The flow in a configuration of these clusters: their heartbeats are none of
        an application's topics.
        """
        made = self.model_copy()
        made._aliases = tuple(aliases)  # noqa: SLF001  its own class
        return made

    def is_heartbeats(self, topic: str) -> bool:
        """Whether a topic of the source is heartbeats, to which services write."""
        return naming.is_heartbeats(topic, self.separator, self._aliases)

    @model_validator(mode="after")
    def _replicas_make_sense(self) -> Self:
        if self.replication_factor == 0:
            raise values.refusal(
                "replication_factor",
                "0 replicas are not possible",
                "use 3, or -1 for the brokers' default",
            )
        least = self.min_insync_replicas
        if least is not None and 0 < self.replication_factor < least:
            raise values.refusal(
                "min_insync_replicas",
                f"{least} replicas of {self.replication_factor} can never be in sync, "
                "so nothing could be written",
                f"use {max(self.replication_factor - 1, 1)}, or a larger "
                "replication_factor",
            )
        return self

    @model_validator(mode="after")
    def _transform_is_there(self) -> Self:
        for name in ("transform_options", "dead_letter_topic"):
            if getattr(self, name) and self.transform is None:
                raise values.refusal(
                    name, "nothing uses it", "add transform, or remove it"
                )
        return self

    @model_validator(mode="after")
    def _same_offsets_are_possible(self) -> Self:
        if self.fill != "refuse" and self.offsets != "same":
            raise values.refusal(
                "fill", "only copies with offsets: same have holes to fill",
                "remove fill, or set offsets: same",
            )  # fmt: skip
        for name, possible, why in (
            ("exactly_once", self.exactly_once, "it notes progress in transactions"),
            ("start", self.start == "earliest", "a copy begins at the first record"),
            ("transform", self.transform is None, "a function may drop records"),
        ):
            if self.offsets == "same" and not possible:
                raise values.refusal(
                    "offsets", f"same is not possible with this {name}: {why}",
                    f"remove {name}, or use offsets: translated",
                )  # fmt: skip
        return self


class MirrorConfig(Section):
    """The whole configuration. Flows already include the `defaults`."""

    clusters: Mapping[str, ClusterConfig]
    flows: Mapping[str, FlowConfig]
    recovery: Mapping[str, PairConfig] = {}
    """Pairs of clusters, by name: A<->B, or A<->B/orders."""
    service: ServiceConfig = ServiceConfig()
    everywhere: tuple[FlowConfig, ...] = ()
    """Filled in by `select`: all enabled flows, also those of other processes."""

    @model_validator(mode="after")
    def _flows_know_clusters(self) -> Self:
        self.__dict__["flows"] = {
            name: flow.among(self.clusters) for name, flow in self.flows.items()
        }
        return self

    @model_validator(mode="after")
    def _clusters_know_replicas(self) -> Self:
        into: dict[str, int] = {}
        out: dict[str, int] = {}
        for flow in self.enabled_flows:
            for alias, asked in ((flow.target, into), (flow.source, out)):
                asked[alias] = max(asked.get(alias, -1), flow.replication_factor)
        # The other cluster of a flow may have more brokers: flows into this one know.
        self.__dict__["clusters"] = {
            alias: cluster.with_own_replicas(
                out.get(alias, -1) if into.get(alias, -1) < 0 else into[alias]
            )
            for alias, cluster in self.clusters.items()
        }
        return self

    @property
    def enabled_flows(self) -> tuple[FlowConfig, ...]:
        """All that are enabled, in the configuration's order, wherever they run:
        flows that write one topic must agree on it.
        """
        return self.everywhere or tuple(
            flow for flow in self.flows.values() if flow.enabled
        )

    def pairs_of(self, source: str, target: str) -> tuple[PairConfig, ...]:
        """The pairs of two clusters: none, one, or several with names."""
        ends = {source, target}
        return tuple(p for p in self.recovery.values() if ends == set(p.members))

    def pair_feeding(self, source: str, target: str) -> PairConfig | None:
        """The pair that feeds the target of this flow out of its active cluster."""
        pairs = self.recovery.values()
        return next((p for p in pairs if p.is_fed_by(source, target)), None)

    def may_append(self, flow: FlowConfig) -> bool:
        """Whether records in a copy need not be the flow's own, by what is configured;
        without exactly-once they may be, although there is no progress.
        """
        # Where other flows meet, topics of one name are written on several clusters.
        beside = any(
            other.name != flow.name and flow.target in (other.source, other.target)
            for other in self.enabled_flows
        )
        return (
            flow.append_to_existing
            or not flow.exactly_once
            or bool(self.pairs_of(flow.source, flow.target))
            or self.pair_feeding(flow.source, flow.target) is not None
            or (beside and not flow.replication_policy.names_source)
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


SECTIONS: Mapping[str, type[Section]] = {
    "clusters": ClusterConfig,
    "flows": FlowConfig,
    "defaults": FlowConfig,
    "recovery": PairConfig,
    "service": ServiceConfig,
}
"""What stands under each key of a file."""


# ---- who mirror is to a cluster ----


_NAMES = ("source_login", "target_login")


def for_tasks(
    config: MirrorConfig, flow: FlowConfig
) -> tuple[ClusterConfig, ClusterConfig]:
    """Source and target of a flow, with the users that its tasks log in as. Registries
    are the clusters' own, as logins have none, and only where tasks ask them.
    """
    clusters = config.clusters
    source, target = (
        clusters[login or alias].model_copy(
            update={
                "alias": alias,
                "schema_registry": clusters[alias].schema_registry
                if flow.requires_schemas
                else None,
            }
        )
        for alias, login in login_ends(flow)
    )
    return source, target


def login_ends(
    flow: FlowConfig,
) -> tuple[tuple[str, str | None], tuple[str, str | None]]:
    """Source and target of a flow, each with its tasks' login, if it names one."""
    return (flow.source, flow.source_login), (flow.target, flow.target_login)


def principals(config: MirrorConfig, alias: str) -> dict[str, str | None]:
    """Whom the brokers of a cluster take mirror for, by the entry that says so, its own
    first; None: only they know.
    """
    flows = (*config.flows.values(), *config.everywhere)
    logins = {
        login
        for flow in flows
        for end, login in login_ends(flow)
        if login and end == alias
    }
    return {
        each: config.clusters[each].own_principal for each in (alias, *sorted(logins))
    }


def login_problems(config: MirrorConfig, names: Mapping[str, str]) -> Iterator[str]:
    """Logins that are none; `names`: how the user wrote each flow's name."""
    pairs = (pair.members for pair in config.recovery.values())
    used = {
        *(alias for flow in config.flows.values() for alias, _ in login_ends(flow)),
        *(alias for members in pairs for alias in members),
        (config.service.audit or ("",))[0],
    }
    logins_of: dict[str, str] = {}
    for name, flow in config.flows.items():
        for setting_name, (alias, login) in zip(_NAMES, login_ends(flow), strict=True):
            where = f"{names[name]}.{setting_name}"
            if login is None:
                continue
            if login not in config.clusters:
                yield f'{where}: there is no cluster "{login}"' + near(
                    login, config.clusters
                )
            elif login in used:
                yield (
                    f"{where}: {login} is a cluster of its own here; name an entry of "
                    f"clusters that has another user of {alias}, and that no flow, "
                    "pair or audit topic uses"
                )
            elif (other := logins_of.setdefault(login, alias)) != alias:
                yield (
                    f"{where}: {login} is a login of {other}, and cannot be one of "
                    f"{alias} as well"
                )
            else:
                yield from _left_over(config.clusters[alias], config.clusters[login])


def _left_over(own: ClusterConfig, login: ClusterConfig) -> Iterator[str]:
    """What a login cannot have. A YAML anchor merged into it also brings the cluster's
    registry, which changes nothing, and its principal, which is another user's.
    """
    if login.schema_registry not in (None, own.schema_registry):
        yield (
            f"clusters.{login.alias}.schema_registry: not used by a login, whose tasks "
            f"ask that of {own.alias}: leave it out here, or write null after a merged "
            "anchor (<<)"
        )
    if (
        login.principal is not None
        and login.principal == own.principal
        and login.sasl_username != own.sasl_username
    ):
        yield (
            f"clusters.{login.alias}.principal: {login.principal} is that of "
            f"{own.alias}, where mirror logs in as {own.sasl_username}; write that of "
            f"{login.sasl_username}, or null after a merged anchor (<<)"
        )
