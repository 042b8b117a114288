"""What a running service knows of itself, as values: the answer of `/status`.

Main types: `ServiceStatus`, `FlowStatus`, `SlotStatus`, `JobStatus`, `GroupStatus`,
`PartitionStatus`. The JSON form is versioned; fields may be added, never renamed,
within a version. `store` has the newest values.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
import operator
from typing import TYPE_CHECKING, Any

from mirror import __version__
from mirror.status.states import AclState, FlowState, PartitionState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.status.states import SchemaState


# ---- what was done to the records of a partition: every counter, declared once ----
#
# Main type: `Counts`. It is made where records are handled, travels with the
# transaction, the progress and the report, and is part of the partition's status. A
# further counter is a field here, at the end; `observing.catalogue` gives it a name
# for Prometheus.


_STATUS_NAME = "name in the status"


@dataclass(frozen=True, slots=True)
class Counts:
    """Counters of one partition, over some time.

    The progress topic has them in this order: new ones come last, and none ever goes.
    """

    records: int = 0
    """Copied."""
    bytes: int = 0
    """Of record batches sent to the target."""
    skipped: int = 0
    """Records of aborted transactions, and transaction markers."""
    looped: int = field(default=0, metadata={_STATUS_NAME: "filtered"})
    """Records left out because they came through the target before."""
    unexplained: int = 0
    """How many of these no flow of this configuration can have brought there."""
    lost: int = 0
    """Offsets that vanished at the source; the loss ledger has their ranges."""
    removed: int = 0
    """Records that the flow's transform left out."""
    dead_letters: int = 0
    """Records on which it failed, which went to the dead-letter topic."""
    away: int = 0
    """Records left out because they were written away from the home of their key."""
    unknown_ids: int = 0
    """Records copied that begin like a registry's, with an id that none knows."""
    translated: int = 0
    """Records copied with the target's ids of schemas instead of the source's."""
    fillers: int = 0
    """Records without a value, written where the source has an offset without one."""

    def __add__(self, other: Counts) -> Counts:
        if self is NOTHING or other is NOTHING:
            return other if self is NOTHING else self
        return Counts(*map(operator.add, self.each, other.each))

    @classmethod
    def in_order(cls, *each: int) -> Counts:
        """In the order of declaration; zero where there are fewer, and what a later
        release counts besides is left out.
        """
        return cls(*each[: len(NAMES)])

    def beyond(self, other: Counts) -> Counts:
        """By how much each of these is greater; zero where it is not."""
        pairs = zip(self.each, other.each, strict=True)
        return Counts(*(max(mine - its, 0) for mine, its in pairs))

    @property
    def each(self) -> tuple[int, ...]:
        """In the order of declaration."""
        return _each(self)

    @property
    def by_status_name(self) -> dict[str, int]:
        """As `/status` calls them."""
        return dict(zip(_STATUS_NAMES, self.each, strict=True))


TRANSFORM = "TRANSFORM"
"""Why dead letters, and records that wait for a better transform, failed."""
NOTHING = Counts()
NAMES = tuple(each.name for each in fields(Counts))
_each = operator.attrgetter(*NAMES)
_STATUS_NAMES = tuple(
    each.metadata.get(_STATUS_NAME, each.name) for each in fields(Counts)
)


# ---- measurements of a flow besides its partitions ----
#
# `service/flow_status` adds them up.


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramStatus:
    """Copied records by seconds. Counters are since the service started."""

    counts: tuple[int, ...] = ()
    """Records per bucket; the last one is beyond the flow's last bound."""
    sum_seconds: float = 0.0
    """Of all these records together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTimes:
    """How long records of one topic took, each as the newest of its transaction."""

    topic: str
    """Its name on the source."""
    target_topic: str
    """The name of the copy."""
    latency: HistogramStatus
    """From a record's timestamp to its commit on the target."""
    age: HistogramStatus
    """From a record's timestamp to its fetch from the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionStatus:
    """The transactions of one flow. Counters are since the service started."""

    committed: int = 0
    """How many were committed."""
    seconds: float = 0.0
    """Their total time."""
    aborted: int = 0
    """How many were aborted; their records are copied again."""
    takeovers: int = 0
    """How often a slot took over: at its start, and after any error."""
    handovers: int = 0
    """How often a slot copied on from one lease into the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkStatus:
    """Spark's report on a flow's streaming query, whose micro-batches are leases."""

    batches: int = 0
    """Since the service started."""
    failures: int = 0
    """Queries that ended with an exception, since the service started."""
    began_at: float = 0.0
    """When the last micro-batch began, epoch seconds."""
    phases: tuple[tuple[str, float], ...] = ()
    """Seconds that each of its phases took, by Spark's names."""


# ---- what a failover would lose, as values: a part of the status ----
#
# -1 means not known. `pairs.risk` computes them.


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRisk:
    """What is not copied of one source partition."""

    topic: str
    """Its name on the source."""
    partition: int
    """Its number."""
    records: int
    """Offsets that the source accepted and that are not copied: at most as many
    records, since some may be transaction markers, or compacted away."""
    open: int = 0
    """How many of them stand behind the beginning of an open transaction."""
    bytes: int
    """Estimated from the records that were copied of the partition, or of its topic."""
    seconds: float
    """How long before `at` the oldest of them was accepted, at most."""
    at: float
    """When the source last said where the partition ends, epoch seconds; 0: never."""
    reason: str = ""
    """Why the records are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRisk:
    """The sum over a topic's partitions, and their largest `seconds`."""

    topic: str
    """Its name on the source."""
    records: int
    """As of its partitions."""
    bytes: int
    """-1: no estimate for some of its records."""
    seconds: float
    """The largest of its partitions."""
    unknown: int = 0
    """Partitions of which nothing is known; the sums leave them out."""
    at: float = 0.0
    """As of when, epoch seconds: the earliest of the others' times; 0: there are
    none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskStatus:
    """The sum over a flow's topics, and their largest `seconds`."""

    at: float = 0.0
    """As of when, epoch seconds: the earliest of the topics' times; 0: never looked.
    What the source accepted later is not known."""
    records: int = 0
    """Over all topics."""
    bytes: int = 0
    """Over all topics; -1: no estimate for some."""
    seconds: float = 0.0
    """The largest of its topics; -1: not known."""
    unknown: int = 0
    """Partitions of which nothing is known."""
    topics: tuple[TopicRisk, ...] = ()
    """Each topic of the flow."""
    partitions: tuple[PartitionRisk, ...] = ()
    """Only those that are not completely copied, not known, or did not answer."""


# ---- what a service has proven of a flow's copies: `proofs.in_service` ----


OFF = "off"
RESULTS = (
    *("equal", "filtered", "removed", "dead_letters", "lost", "compacted", "expired"),
    "wrong",
)
"""What a source record may turn out to be; as in an account."""
UNPROVEN = "unproven"
"""It could not be compared, for now or ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingStatus:
    """One record that is missing or wrong, or consecutive ones with the same fate."""

    kind: str
    """What is wrong, such as `MISSING`."""
    topic: str
    """Its name on the source."""
    partition: int
    """Its number."""
    source: int | None
    """The first source offset."""
    target_topic: str
    """The name of the copy."""
    target: int | None
    """The first target offset."""
    count: int
    """How many records."""
    detail: str
    """What differs, in words."""
    found_at: float
    """Epoch seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyStatus:
    """The proofs of one flow. Counters are since the service started."""

    mode: str = OFF
    """The flow's setting."""
    proven_at: float = 0.0
    """Of all that was copied by then, `share` was compared; epoch seconds. Until that
    is so for the first time, when the service began to prove; 0: never."""
    share: float = -1.0
    """How much of what was copied lately was compared, 0 to 1; -1: nothing yet."""
    records: Mapping[str, int] = field(default_factory=dict)
    """Source records that were compared, by result."""
    read_bytes: int = 0
    """From both clusters."""
    findings: int = 0
    """Those that stand: nothing proved since that they are gone."""
    shown: tuple[FindingStatus, ...] = ()
    """The first of them, 100 at most."""
    waiting: str = ""
    """Why nothing is compared now, or some partitions are not; empty: no reason."""
    rounds: int = 0
    """With `rolling`: how often the whole past was compared."""
    round_share: float = -1.0
    """How much of it was compared in this round, 0 to 1; -1: not rolling."""

    @property
    def is_on(self) -> bool:
        return self.mode != OFF


# ---- what a running service knows of its flows' schemas, as a part of the status ----


MOST_SUBJECTS = 200
"""How many subjects a status names."""
WAITS = "schema "
"""What the reasons of partitions begin with that wait for a schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectStatus:
    """One subject, as of the last look."""

    subject: str
    """On the target, with its context."""
    state: SchemaState
    """How its copy is doing."""
    reason: str
    """Why it is in this state, or what differs on purpose; empty if nothing does."""
    versions: int
    """How many the target should have."""
    there: int
    """How many of them it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaStatus:
    """The schemas of one flow. Counters are since the service started."""

    mode: str = "off"
    """The flow's setting `schemas`."""
    states: Mapping[str, int] = field(default_factory=dict)
    """How many subjects are in each state."""
    synced_at: float = 0.0
    """When a look last came to its end, epoch seconds, or when the service began to
    copy schemas; 0 while it does not."""
    versions_copied: int = 0
    """Versions written to the target."""
    versions_deleted: int = 0
    """Versions deleted there, softly, as on the source."""
    levels_set: int = 0
    """Compatibility levels set there."""
    request_failures: int = 0
    """Requests without an answer, or that failed in a registry."""
    subjects: tuple[SubjectStatus, ...] = ()
    """Those that are not SYNCED, and those with a reason; 200 at most."""

    @property
    def is_on(self) -> bool:
        return self.mode != "off"

    @property
    def is_required(self) -> bool:
        """Whether records wait for their schemas."""
        return self.mode == "require"


# ---- what the service's own processes use of what they may use ----
#
# `service/service` looks; slots report for themselves (`SlotStatus`), since they may
# run on other machines.


@dataclass(frozen=True, slots=True, kw_only=True)
class JvmStatus:
    """The driver's JVM."""

    heap_bytes: int
    """In use, garbage included."""
    heap_limit_bytes: int
    """How large the heap may become."""
    gc_seconds: float
    """Time spent on collecting garbage, since it started."""
    cpu_seconds: float
    """CPU time since it started."""
    memory_bytes: int
    """All of its memory, as the system counts it."""
    open_files: int
    """Files and connections that it has open."""
    open_files_limit: int
    """How many it may have open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceStatus:
    """As of the last look, some seconds ago."""

    jvm: JvmStatus | None = None
    """None: not known yet, or the JVM does not answer."""
    memory_bytes: int | None = None
    """What the container uses, or the machine if the container has no limit, without
    caches that can be dropped; None: not known."""
    memory_limit_bytes: int | None = None
    """How much there is; null: not known."""


# ---- the part `config` of `/status` ----
#
# Instances with the same `version` use the same settings; the settings themselves are
# not shown.


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigStatus:
    """The configuration in use, and whether the last one read was accepted."""

    file: str = ""
    """The file that it comes from."""
    version: str = ""
    """Twelve digits of a hash of all settings in use, without secrets."""
    loaded_at: float = 0.0
    """When it was read, epoch seconds."""
    reloads: int = 0
    """How often it was replaced since the service started."""
    refused_at: float = 0.0
    """When a newer one was refused, epoch seconds; 0: none was."""
    refused: tuple[str, ...] = ()
    """What is wrong with the refused one."""


# ---- the pairs of a service: which cluster is active, and the run that is open ----
#
# The role comes from both journals; each member also shows what its own journal says,
# which is what `/active` answers with.


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStatus:
    """One cluster of a pair, by its own journal."""

    cluster: str
    """Its alias."""
    active: str = ""
    """The active cluster; empty while the journal has no role, or has lost it."""
    read_at: float = 0.0
    """When its journal was last read, epoch seconds; 0 for never."""
    read_monotonic: float = 0.0
    """The same, monotonic."""
    error: str = ""
    """Why it could not be read last time; empty if it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassiveStatus:
    """What the last look at the passive cluster found."""

    error: str = ""
    """Why it could not be looked at, or fenced; empty if it was."""
    writes: int = -1
    """Offsets that applications have used there since it is passive; -1: not known."""
    tail: int = -1
    """Records there that a failover left uncopied and no one has settled, as far as
    they are counted; -1: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """One run of the journal."""

    name: str
    """The run's id."""
    text: str
    """How far it got, such as `SWITCH A->B: end DONE`."""
    began: float
    """Epoch seconds."""
    by: str
    """Who ran it: user and host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillStatus:
    """One drill of the journal."""

    source: str
    """The cluster that would be left."""
    target: str
    """The cluster that would take over."""
    at: float
    """When it began, epoch seconds."""
    by: str
    """Who ran it: user and host."""
    verdict: str
    """READY, DEGRADED or NOT READY."""
    text: str
    """Its first line."""
    ratio: float
    """The share of groups and partitions that would go on exactly."""
    findings: tuple[str, ...] = ()
    """The most serious ones, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairStatus:
    """One pair."""

    name: str
    """As in the configuration, such as `A<->B`."""
    active: str
    """The active cluster's alias."""
    epoch: int
    """Grows with each role; 0 while only the configuration says it."""
    since: float
    """Since when it is active, epoch seconds; 0 if not known."""
    run: str = ""
    """The open switch or failover, such as `SWITCH A->B: fence BEGUN`."""
    step: int = 0
    """The number of that run's step, 1 to 9; 0 if no run is open."""
    block_seconds: float = -1.0
    """How long the open run has kept producers from writing, or else the last one did;
    -1 if none has."""
    feeds: tuple[str, ...] = ()
    """The flows out of the active cluster to those that the pair feeds; the flows out
    of the other one rest."""
    fence_owed: str = ""
    """The cluster that a failover left without a fence; empty if there is none."""
    pending: str = ""
    """What a switch or failover that was given up has left to undo, as a cluster did
    not answer; empty if nothing."""
    passive: PassiveStatus = PassiveStatus()
    """What the last look at the passive cluster found."""
    runs: tuple[RunStatus, ...] = ()
    """The last ones, the newest first."""
    drills: tuple[DrillStatus, ...] = ()
    """The last ones of a failover from the active cluster, the newest first."""
    drilled: bool = True
    """Whether the service is to drill the pair from time to time."""
    remark: str = ""
    """What is odd about its role, such as a configuration that says another."""
    problem: str = ""
    """Why it is not known which cluster is active, and what to type: the journals have
    lost entries. Empty if it is known."""
    members: tuple[MemberStatus, ...] = ()
    """Both clusters, each by its own journal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorStatus:
    """One error of one API."""

    cluster: str
    """Its alias."""
    api: str
    """Kafka's name for the request; Connect: the connection itself."""
    error: str
    """Kafka's name for the code, or what happened to the connection."""
    count: int
    """Since the service started."""


# ---- the part `clusters`: whether each one answers, as this instance sees it ----


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """What a cluster said when it was last asked."""

    alias: str
    """As in the configuration."""
    sides: tuple[str, ...]
    """Whether flows have it as their source, their target, or both."""
    answers: bool
    """Whether a broker of it answered."""
    since: float
    """Since when it does, or does not; epoch seconds."""
    reason: str = ""
    """Why it does not answer; empty if it does."""
    cluster_id: str = ""
    """As it said when it last answered; empty while not known."""


FORMAT_VERSION = 1
TOTALS = ("lag", "lag_seconds", "records", "faulted", "paused", "lost")
"""Properties of a flow that its JSON has as well."""
HIDDEN = frozenset({"read_monotonic"})
"""Fields that say nothing to another process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """One source partition. Counters are since the service started.

    `counts` are in `/status` among the other fields, not below a name of their own.
    """

    topic: str
    """Its name on the source."""
    partition: int
    """Its number, which its copy has too."""
    target_topic: str
    """The name of the copy."""
    slot: int
    """The slot that copies it."""
    state: PartitionState
    """Copied, catching up, paused or set aside."""
    reason: str
    """Why it is set aside or paused; empty if it is not."""
    since: float
    """Since when it is in this state, epoch seconds."""
    position: int
    """The next source offset to copy, -1 while not known."""
    end_offset: int
    """Where the source partition ended in the last lease, -1 while not known."""
    lag: int
    """Source offsets not copied yet, as of the last lease."""
    lag_seconds: float = -1.0
    """The age of the oldest record not copied yet, 0 if there is none; -1 while not
    known. As of the last lease, plus the time by which the next one is overdue."""
    counts: Counts = NOTHING
    failed: Mapping[str, int] = field(default_factory=dict)
    """Records that could not be copied when it was their turn, by reason; each counts
    once. Dead letters are in `counts`."""
    bytes_in: int = 0
    """Record batches fetched from the source, those of failed transactions too."""
    latency_p50_ms: float
    """Record timestamp to commit on the target, last lease; -1 without records."""
    latency_p99_ms: float
    """The same, of the slowest hundredth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotStatus:
    """One slot during the last lease."""

    number: int
    """Slots are counted from 0."""
    partitions: int
    """How many it copies."""
    busy: float
    """CPU seconds per second; near 1 it is saturated."""
    records_per_second: float
    """Copied by it."""
    bytes_per_second: float
    """Sent by it to the target."""
    memory_bytes: int = 0
    """What its process uses; 0 while unknown, as for the two below."""
    open_files: int = 0
    """Files and connections of that process."""
    open_files_limit: int = 0
    """How many it may have open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """One background job of a flow, as of its last run."""

    name: str
    """Such as `topic-configs` or `checkpoints`."""
    succeeded_at: float = 0.0
    """When it last succeeded, epoch seconds; 0 for never."""
    seconds: float = 0.0
    """How long the last run took."""
    failures: int = 0
    """Failed runs since the flow was last started."""
    error: str = ""
    """Why the last run failed; empty if it did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigDrift:
    """One config of a copy with the wrong value."""

    name: str
    """The config's name in Kafka."""
    wanted: str | None
    """None: it should not be set on the topic."""
    found: str | None
    """None: it is not set on the topic, or not known to the target's brokers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDrift:
    """How a copy differs from its topic, as of the last check."""

    topic: str
    """Its name on the source."""
    target_topic: str
    """The name of the copy."""
    partitions: int
    """How many the topic has."""
    target_partitions: int
    """Zero while there is no copy."""
    merged: bool = False
    """Other flows write this copy too: it may have more partitions."""
    configs: tuple[ConfigDrift, ...] = ()
    """Configs of the copy with another value than they should have."""
    conflicts: tuple[str, ...] = ()
    """Configs on which the sources of a merged copy disagree, with their values; the
    flow's config_strategy resolves them."""
    problem: str = ""
    """Why its configs could not be compared or corrected."""

    @property
    def differs(self) -> bool:
        surplus = self.target_partitions > self.partitions and not self.merged
        missing = self.target_partitions < self.partitions
        return bool(
            surplus or missing or self.configs or self.conflicts or self.problem
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AclStatus:
    """ACLs of a flow's copies. Counters are since the service started."""

    state: AclState = AclState.OFF
    """Of the sync of ACLs."""
    reason: str = ""
    """Why ACLs are not synced; empty if they are, or off."""
    bindings: int = 0
    """How many ACLs copies should have."""
    added: int = 0
    """ACLs that mirror added to copies."""
    removed: int = 0
    """ACLs that mirror removed from copies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """One consumer group of a flow's source, as of the last look at the groups."""

    group: str
    """The group's id."""
    type: str
    """As Kafka names it, such as `consumer` or `classic`."""
    partitions: int
    """Those in which it has an offset."""
    source_offset: int
    """The sum over its partitions."""
    target_offset: int
    """The sum over its partitions that have an answer."""
    behind: int
    """Source offsets that it has read and that are not copied yet."""
    unknown: int
    """Partitions without an answer."""
    exactness: str
    """The worst of its partitions."""
    active_on_target: bool
    """It has members there, so its offsets are not set; false if they never are."""
    reason: str
    """Why it could not be read, or its offsets not set; empty if all is well."""
    lag: int = -1
    """Source offsets that it has not read yet, up to where its partitions ended in the
    last lease; -1: not known."""
    position_at: float = 0.0
    """When its checkpoints last followed what it had committed, epoch seconds; 0: not
    since the jobs began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowStatus:
    """One flow."""

    name: str
    """As in the configuration, such as `A->B`."""
    state: FlowState
    """How the flow is doing as a whole."""
    source: str = ""
    """The source's alias."""
    target: str = ""
    """The target's alias."""
    reason: str = ""
    """Why it is in this state, if that needs a reason."""
    since: float = 0.0
    """Since when it is in this state."""
    leader: str = ""
    """The instance that runs it, host:process; empty while not known."""
    restarts: int = 0
    """How often it failed and was started again."""
    leases: int = 0
    """Since the flow was last started."""
    slots: int = 0
    """How many slots share the partitions."""
    lease_gap_ms: float = -1.0
    """Milliseconds without copying between the last two leases; -1 while not known."""
    slot_loads: tuple[SlotStatus, ...] = ()
    """What each slot did in the last lease."""
    records_per_second: float = 0.0
    """Copied, over the last half minute."""
    bytes_per_second: float = 0.0
    """Sent to the target, over the last half minute."""
    catching_up: bool = False
    """Whether it is behind and works off what has piled up."""
    remaining_seconds: float = -1.0
    """Time until it has caught up at the current rate; -1 if it is not behind, or if
    its lag does not shrink."""
    max_bytes_per_second: int = 0
    """What it may read; 0: without a limit."""
    limit_used: float = 0.0
    """The share of that limit that it read over the last half minute. Near 1 the limit
    decides how fast it copies."""
    reported_at: float = 0.0
    """When the last lease reported, epoch seconds; 0 for never."""
    report_due: float = 0.0
    """When the next report is due at the latest."""
    overdue: float = 0.0
    """By how many seconds the next report is overdue."""
    sla_seconds: float = 60.0
    """The flow's setting: how far behind it may be."""
    transactions: TransactionStatus = field(default_factory=TransactionStatus)
    """Its transactions."""
    bounds: tuple[float, ...] = ()
    """Upper bounds of the buckets of `times`, in seconds."""
    times: tuple[TopicTimes, ...] = ()
    """How long the records of each topic took."""
    spark: SparkStatus = field(default_factory=SparkStatus)
    """What Spark reports of it."""
    problems: tuple[str, ...] = ()
    """Topics that match and cannot be mirrored, each with its reason."""
    drift: tuple[TopicDrift, ...] = ()
    """Copies that differ from their topics."""
    acls: AclStatus = AclStatus()
    """The sync of ACLs."""
    schemas: SchemaStatus = field(default_factory=SchemaStatus)
    """What its target's schema registry has of the source's."""
    gone: tuple[str, ...] = ()
    """Mirrored topics that no longer exist on the source, each with what is known
    about it. Their copies stay; one whose copy is deleted, too, is left out."""
    jobs: tuple[JobStatus, ...] = ()
    """What runs beside the data: configs, ACLs, groups, heartbeats."""
    checkpoint_at: float = 0.0
    """When groups were last read successfully, epoch seconds; 0 for never."""
    follows_commits: bool = False
    """Whether checkpoints follow commits within a second, or every look at groups."""
    heartbeat_at: float = 0.0
    """When the target last got a heartbeat, epoch seconds; 0 for never."""
    copied_heartbeat_at: float = 0.0
    """When the newest heartbeat that was copied was written on the source; 0: none."""
    risk: RiskStatus = field(default_factory=RiskStatus)
    """What a failover would lose, as of the last look."""
    standby_at: float = 0.0
    """When the source was last looked at for the standby topic, epoch seconds; 0:
    never. It has the ends of that time."""
    verify: VerifyStatus = field(default_factory=VerifyStatus)
    """What was proven of its copies."""
    group_count: int = 0
    """How many groups match."""
    groups: tuple[GroupStatus, ...] = ()
    """Those in trouble first, 200 at most."""
    share_groups: tuple[str, ...] = ()
    """Share groups (KIP-932) that match and are not covered: the source or the target
    does not tell or set their offsets, as brokers before 4.2 do not."""
    partitions: tuple[PartitionStatus, ...] = ()
    """Each source partition."""

    @property
    def lag(self) -> int:
        """The sum over its partitions."""
        return sum(partition.lag for partition in self.partitions)

    @property
    def lag_seconds(self) -> float:
        """That of the partition furthest behind, without those paused on purpose; -1
        while none is known.
        """
        late = (
            p.lag_seconds for p in self.partitions if p.state != PartitionState.PAUSED
        )
        return max(late, default=-1.0)

    def overdue_seconds(self, now: float) -> float:
        """By how many seconds the report on the partitions is overdue."""
        if not self.reported_at:
            return 0.0
        if self.state is FlowState.RUNNING and now <= self.report_due:
            return 0.0
        return max(now - self.reported_at, 0.0)

    @property
    def records(self) -> int:
        """Copied since the service started, over its partitions."""
        return sum(partition.counts.records for partition in self.partitions)

    @property
    def faulted(self) -> int:
        """How many partitions are set aside."""
        return sum(
            partition.state == PartitionState.FAULTED for partition in self.partitions
        )

    @property
    def paused(self) -> int:
        """How many partitions are paused."""
        return sum(
            partition.state == PartitionState.PAUSED for partition in self.partitions
        )

    @property
    def lost(self) -> int:
        """Source offsets that were deleted before they could be copied."""
        return sum(partition.counts.lost for partition in self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStatus:
    """The whole service."""

    started: float
    """When the service was started."""
    flows: tuple[FlowStatus, ...] = ()
    """Each flow, also those that another instance leads."""
    config: ConfigStatus = field(default_factory=ConfigStatus)
    """The configuration in use."""
    pairs: tuple[PairStatus, ...] = ()
    """Each pair of clusters (`recovery`)."""
    clusters: tuple[ClusterStatus, ...] = ()
    """Whether each cluster answers this instance."""
    errors: tuple[ErrorStatus, ...] = ()
    """How many errors brokers answered, by cluster, API and error."""
    resources: ResourceStatus = field(default_factory=ResourceStatus)
    """What the service's own processes use."""
    version: str = __version__
    """Of mirror."""
    format_version: int = field(default=FORMAT_VERSION)
    """It grows when a field changes its meaning or goes."""

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dumps`, with totals."""
        document = asdict(self)
        for flow, shown in zip(self.flows, document["flows"], strict=True):
            for name in TOTALS:
                shown[name] = getattr(flow, name)
            for partition, part in zip(
                flow.partitions, shown["partitions"], strict=True
            ):
                del part["counts"]
                part.update(partition.counts.by_status_name)
        for pair in document["pairs"]:
            for member in pair["members"]:
                del member["read_monotonic"]
        return document
