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
    from mirror.status.clusters import ClusterStatus
    from mirror.status.pairs import PairStatus

FORMAT_VERSION = 1
_TOTALS = ("lag", "lag_seconds", "records", "faulted", "paused", "lost")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """One source partition. Counters are since the service started.

    `counts` are in `/status` among the other fields, not below a name of their own.
    """

    topic: str
    partition: int
    target_topic: str
    slot: int
    state: PartitionState
    reason: str
    since: float
    """Since when it is in this state, epoch seconds."""
    position: int
    """The next source offset to copy, -1 while not known."""
    end_offset: int
    lag: int
    """Source offsets not copied yet, as of the last lease."""
    lag_seconds: float = -1.0
    """The age of the oldest record not copied yet, 0 if there is none; -1 while not
    known. As of the last lease, plus the time by which the next one is overdue."""
    counts: Counts = NOTHING
    bytes_in: int = 0
    """Record batches fetched from the source, those of failed transactions too."""
    latency_p50_ms: float
    """Record timestamp to commit on the target, last lease; -1 without records."""
    latency_p99_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotStatus:
    """One slot during the last lease."""

    number: int
    partitions: int
    busy: float
    """CPU seconds per second; near 1 it is saturated."""
    records_per_second: float
    bytes_per_second: float
    memory_bytes: int = 0
    """What its process uses; 0 while unknown, as for the two below."""
    open_files: int = 0
    open_files_limit: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """One background job of a flow, as of its last run."""

    name: str
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
    wanted: str | None
    """None: it should not be set on the topic."""
    found: str | None
    """None: it is not set on the topic, or not known to the target's brokers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDrift:
    """How a copy differs from its topic, as of the last check."""

    topic: str
    target_topic: str
    partitions: int
    target_partitions: int
    """Zero while there is no copy."""
    merged: bool = False
    """Other flows write this copy too: it may have more partitions."""
    configs: tuple[ConfigDrift, ...] = ()
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
    reason: str = ""
    bindings: int = 0
    """How many ACLs copies should have."""
    added: int = 0
    removed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """One consumer group of a flow's source, as of the last look at the groups."""

    group: str
    type: str
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
    state: FlowState
    source: str = ""
    target: str = ""
    reason: str = ""
    since: float = 0.0
    leader: str = ""
    """The instance that runs it, host:process; empty while not known."""
    restarts: int = 0
    leases: int = 0
    slots: int = 0
    lease_gap_ms: float = -1.0
    """Milliseconds without copying between the last two leases; -1 while not known."""
    slot_loads: tuple[SlotStatus, ...] = ()
    records_per_second: float = 0.0
    """Copied, over the last half minute."""
    bytes_per_second: float = 0.0
    catching_up: bool = False
    remaining_seconds: float = -1.0
    """Time until it has caught up at the current rate; -1 if it is not behind, or if
    its lag does not shrink."""
    reported_at: float = 0.0
    """When the last lease reported, epoch seconds; 0 for never."""
    report_due: float = 0.0
    """When the next report is due at the latest."""
    overdue: float = 0.0
    """By how many seconds the next report is overdue."""
    sla_seconds: float = 60.0
    transactions: TransactionStatus = field(default_factory=TransactionStatus)
    bounds: tuple[float, ...] = ()
    """Upper bounds of the buckets of `times`, in seconds."""
    times: tuple[TopicTimes, ...] = ()
    spark: SparkStatus = field(default_factory=SparkStatus)
    problems: tuple[str, ...] = ()
    """Topics that match and cannot be mirrored, each with its reason."""
    drift: tuple[TopicDrift, ...] = ()
    """Copies that differ from their topics."""
    acls: AclStatus = AclStatus()
    schemas: SchemaStatus = field(default_factory=SchemaStatus)
    """What its target's schema registry has of the source's."""
    gone: tuple[str, ...] = ()
    """Mirrored topics that no longer exist on the source, each with what is known
    about it. Their copies stay."""
    jobs: tuple[JobStatus, ...] = ()
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
    groups: tuple[GroupStatus, ...] = ()
    """Those in trouble first, 200 at most."""
    share_groups: tuple[str, ...] = ()
    """Share groups (KIP-932) that match: they have no offsets and are not covered."""
    partitions: tuple[PartitionStatus, ...] = ()

    @property
    def lag(self) -> int:
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
        return sum(partition.counts.records for partition in self.partitions)

    @property
    def faulted(self) -> int:
        return sum(
            partition.state == PartitionState.FAULTED for partition in self.partitions
        )

    @property
    def paused(self) -> int:
        return sum(
            partition.state == PartitionState.PAUSED for partition in self.partitions
        )

    @property
    def lost(self) -> int:
        return sum(partition.counts.lost for partition in self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStatus:
    """The whole service."""

    started: float
    flows: tuple[FlowStatus, ...] = ()
    config: ConfigStatus = field(default_factory=ConfigStatus)
    pairs: tuple[PairStatus, ...] = ()
    clusters: tuple[ClusterStatus, ...] = ()
    resources: ResourceStatus = field(default_factory=ResourceStatus)
    version: str = __version__
    format_version: int = field(default=FORMAT_VERSION)

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dumps`, with totals."""
        document = asdict(self)
        for flow, shown in zip(self.flows, document["flows"], strict=True):
            for name in _TOTALS:
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
