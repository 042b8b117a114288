"""What a running service knows of itself, as values: the answer of `/status`.

Main types: `ServiceStatus`, `FlowStatus`, `SlotStatus`, `JobStatus`, `GroupStatus`,
`PartitionStatus`. The JSON form is versioned; fields may be added, never renamed,
within a version. `store` has the newest values.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from mirror import __version__
from mirror.status.config import ConfigStatus
from mirror.status.counts import NOTHING, Counts
from mirror.status.measures import SparkStatus, TopicTimes, TransactionStatus
from mirror.status.resources import ResourceStatus
from mirror.status.risk import RiskStatus
from mirror.status.schemas import SchemaStatus
from mirror.status.states import AclState, FlowState, PartitionState
from mirror.status.verify import VerifyStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.status.clusters import ClusterStatus
    from mirror.status.errors import ErrorStatus
    from mirror.status.pairs import PairStatus

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
    """Where the source partition ended in the last lease."""
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
    """Share groups (KIP-932) that match: they have no offsets and are not covered."""
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
