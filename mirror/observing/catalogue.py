"""Every metric of a service: its name, its help text, and where its value comes from.

Main name: `METRICS`, the table. A new field of the status needs one entry here. Each
scrape reads the values from the frozen status, so topics that are no longer mirrored
have no series. `exposition` writes them out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
import platform
import time
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from mirror.status.states import AclState, FlowState, PartitionState
from mirror.status.values import TRANSFORM, WAITS, HistogramStatus

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirror.status.values import (
        FlowStatus,
        PairStatus,
        ServiceStatus,
        TopicTimes,
    )

T = TypeVar("T")


class MetricType(StrEnum):
    """Prometheus' types."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"


class Histogram(NamedTuple):
    """The value of a histogram."""

    times: HistogramStatus
    bounds: tuple[float, ...]


class Summary(NamedTuple):
    """The value of a summary."""

    number: int
    total: float


Labels = tuple[str, ...]
Value = float | Histogram | Summary
Rows = Iterable[tuple[Labels, Value | None]]
"""The values of a metric's labels and of the metric; None: no value now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric."""

    name: str
    """As queried: counters end in _total."""
    help: str
    labels: Labels = ()
    rows: Callable[[ServiceStatus], Rows]
    shape: MetricType = MetricType.GAUGE
    """Unless it is a counter."""
    fold: Callable[[Iterable[float]], float] = sum
    """How a topic's value is made from those of its partitions, if the label
    `partition`, which comes last, is left out."""

    @property
    def kind(self) -> MetricType:
        return MetricType.COUNTER if self.name.endswith("_total") else self.shape

    @property
    def sample_names(self) -> frozenset[str]:
        """The names of its time series."""
        endings = {
            MetricType.HISTOGRAM: ("_bucket", "_count", "_sum"),
            MetricType.SUMMARY: ("_count", "_sum"),
        }.get(self.kind, ("",))
        return frozenset(self.name + ending for ending in endings)


# ---- what metrics are of: the service, flows and what they have, pairs ----


@dataclass(frozen=True, slots=True)
class Per(Generic[T]):
    """Declares metrics with a value for each of these items of a status."""

    labels: Labels
    items: Callable[[ServiceStatus], Iterable[tuple[Labels, T]]]

    def __call__(
        self,
        name: str,
        text: str,
        value: Callable[[T], Value | None],
        *,
        shape: MetricType = MetricType.GAUGE,
        fold: Callable[[Iterable[float]], float] = sum,
    ) -> Metric:
        def rows(status: ServiceStatus) -> Rows:
            return ((labels, value(item)) for labels, item in self.items(status))

        return Metric(
            name=name, help=text, labels=self.labels, rows=rows, shape=shape, fold=fold
        )


def per_flow(
    labels: Labels, items: Callable[[FlowStatus], Iterable[tuple[Labels, T]]]
) -> Per[T]:
    """Of each flow, with the labels `source` and `target` before these."""
    return Per(
        ("source", "target", *labels),
        lambda status: (
            ((flow.source, flow.target, *own), item)
            for flow in status.flows
            for own, item in items(flow)
        ),
    )


def per_pair(
    labels: Labels, items: Callable[[PairStatus], Iterable[tuple[Labels, T]]]
) -> Per[T]:
    """Of each pair, with the label `pair` before these."""
    return Per(
        ("pair", *labels),
        lambda status: (
            ((pair.name, *own), item)
            for pair in status.pairs
            for own, item in items(pair)
        ),
    )


of_service = Per((), lambda status: [((), status)])
of_jvm = Per((), lambda s: [((), s.resources.jvm)] if s.resources.jvm else [])
of_flow = per_flow((), lambda f: [((), f)])
of_partitions = per_flow(
    ("topic", "partition"),
    lambda f: (((p.topic, str(p.partition)), p) for p in f.partitions),
)
of_slots = per_flow(("slot",), lambda f: (((str(s.number),), s) for s in f.slot_loads))
of_jobs = per_flow(("job_name",), lambda f: (((j.name,), j) for j in f.jobs))
of_groups = per_flow(("group",), lambda f: (((g.group,), g) for g in f.groups))
of_risk = per_flow(("topic",), lambda f: (((t.topic,), t) for t in f.risk.topics))
of_transactions = per_flow((), lambda f: [((), f.transactions)])
of_spark = per_flow((), lambda f: [((), f.spark)] if f.spark.batches else [])
of_schemas = per_flow((), lambda f: [((), f.schemas)] if f.schemas.is_on else [])
of_required = per_flow(
    ("topic", "partition"),
    lambda f: (
        ((p.topic, str(p.partition)), p.counts)
        for p in f.partitions
        if f.schemas.is_required
    ),
)
of_pair = per_pair((), lambda pair: [((), pair)])
of_members = per_pair(
    ("cluster",), lambda pair: (((m.cluster,), (pair, m)) for m in pair.members)
)
of_passive = per_pair(
    ("cluster",),
    lambda pair: (
        ((m.cluster,), pair.passive) for m in pair.members if m.cluster != pair.active
    ),
)
of_last_drill = per_pair((), lambda pair: [((), each) for each in pair.drills[:1]])


def of_topics(
    name: str, text: str, value: Callable[[TopicTimes], HistogramStatus]
) -> Metric:
    """A histogram of each topic."""
    topics = per_flow(
        ("topic",),
        lambda f: (((t.topic,), Histogram(value(t), f.bounds)) for t in f.times),
    )
    return topics(name, text, lambda found: found, shape=MetricType.HISTOGRAM)


# ---- values that a status has only in pieces ----


def known(value: float, unit: float = 1.0) -> float | None:
    """-1 in a status means not known; the metric then has no value."""
    return value * unit if value >= 0 else None


def one_of(states: Iterable[str], now: str) -> Iterator[tuple[Labels, bool]]:
    """A series for each state, true for the one that it is in."""
    for state in states:
        yield (str(state),), state == now


def by_name(values: Mapping[str, float]) -> Iterator[tuple[Labels, float]]:
    """A series for each name."""
    for name, value in values.items():
        yield (name,), value


def partition_states(flow: FlowStatus) -> Iterator[tuple[Labels, int]]:
    counts: dict[Labels, int] = {}
    for each in flow.partitions:
        for state in PartitionState:  # also where there are none
            counts.setdefault((each.topic, str(state)), 0)
        counts[each.topic, str(each.state)] += 1
    yield from counts.items()


def within_sla(flow: FlowStatus) -> float | None:
    if flow.state in {FlowState.STOPPED, FlowState.STANDBY, FlowState.RESTING}:
        return None
    if flow.partitions and all(
        each.state == PartitionState.PAUSED for each in flow.partitions
    ):
        return None
    if not flow.reported_at:
        # Not known yet: a flow that is starting has not broken its SLA.
        return None if flow.state is FlowState.STARTING else 0.0
    return float(flow.lag_seconds <= flow.sla_seconds)


def lag_to_copy(flow: FlowStatus) -> int:
    """In offsets, without partitions that are paused on purpose."""
    return sum(
        each.lag for each in flow.partitions if each.state != PartitionState.PAUSED
    )


def failed_records(flow: FlowStatus) -> Iterator[tuple[Labels, int]]:
    """By topic and reason; with dead letters, on which the transform failed."""
    counts: Counter[Labels] = Counter()
    for each in flow.partitions:
        for reason, count in each.failed.items():
            counts[each.topic, reason] += count
        if each.counts.dead_letters:
            counts[each.topic, TRANSFORM] += each.counts.dead_letters
    yield from counts.items()


def copies(flow: FlowStatus) -> Iterator[tuple[Labels, int]]:
    for name in sorted({(each.topic, each.target_topic) for each in flow.partitions}):
        yield name, 1


def waiting_for_schemas(flow: FlowStatus) -> int | None:
    if not flow.schemas.is_required:
        return None
    return sum(
        each.state is PartitionState.FAULTED and each.reason.startswith(WAITS)
        for each in flow.partitions
    )


def readiness(pair: PairStatus) -> Iterator[tuple[Labels, bool]]:
    for drill in pair.drills[:1]:
        verdict = drill.verdict.replace(" ", "_")
        yield from one_of(("READY", "DEGRADED", "NOT_READY"), verdict)


# ---- the table ----


METRICS: tuple[Metric, ...] = (
    # ---- The service itself
    Metric(
        name="mirror_build_info",
        help="Always 1; its labels are the running versions.",
        labels=("version", "python"),
        rows=lambda s: [((s.version, platform.python_version()), 1)],
    ),
    of_service(
        "mirror_started_timestamp_seconds",
        "When the service was started.",
        lambda s: s.started,
    ),
    of_service(
        "mirror_config_last_reload_successful",
        "1 if the last configuration read was accepted, 0 if it was refused and the "
        "previous one stays in use.",
        lambda s: not s.config.refused,
    ),
    of_service(
        "mirror_config_last_reload_success_timestamp_seconds",
        "When the configuration in use was read.",
        lambda s: s.config.loaded_at,
    ),
    # ---- What the driver's JVM and the container use. The driver's Python process has
    # prometheus-client's own `process_*`.
    of_jvm(
        "mirror_jvm_heap_bytes",
        "Heap that the driver's JVM uses, garbage included.",
        lambda jvm: jvm.heap_bytes,
    ),
    of_jvm(
        "mirror_jvm_heap_limit_bytes",
        "How large that heap may become.",
        lambda jvm: jvm.heap_limit_bytes,
    ),
    of_jvm(
        "mirror_jvm_gc_seconds_total",
        "Time that the driver's JVM has spent on collecting garbage.",
        lambda jvm: jvm.gc_seconds,
    ),
    of_jvm(
        "mirror_jvm_cpu_seconds_total",
        "CPU time of the driver's JVM.",
        lambda jvm: jvm.cpu_seconds,
    ),
    of_jvm(
        "mirror_jvm_memory_bytes",
        "All memory of the driver's JVM.",
        lambda jvm: jvm.memory_bytes,
    ),
    of_jvm(
        "mirror_jvm_open_files",
        "Files and connections that the driver's JVM has open.",
        lambda jvm: jvm.open_files,
    ),
    of_jvm(
        "mirror_jvm_open_files_limit",
        "How many it may have open.",
        lambda jvm: jvm.open_files_limit,
    ),
    of_service(
        "mirror_memory_bytes",
        "Memory in use of the driver's container, or of its machine if there is "
        "no limit, without caches that can be dropped.",
        lambda s: s.resources.memory_bytes,
    ),
    of_service(
        "mirror_memory_limit_bytes",
        "How much there is; beyond it the system kills a process.",
        lambda s: s.resources.memory_limit_bytes,
    ),
    # ---- Records and bytes
    of_partitions(
        "mirror_records_total",
        "Records copied.",
        lambda p: p.counts.records,
    ),
    of_partitions(
        "mirror_written_bytes_total",
        "Bytes of record batches sent to the target.",
        lambda p: p.counts.bytes,
    ),
    of_partitions(
        "mirror_read_bytes_total",
        "Bytes of record batches fetched from the source.",
        lambda p: p.bytes_in,
    ),
    of_partitions(
        "mirror_filtered_records_total",
        "Records left out because they already came through the target.",
        lambda p: p.counts.looped,
    ),
    of_partitions(
        "mirror_unexplained_loops_total",
        "Looped records that no flow of this configuration brought to the source: "
        "another mirror did, or a producer set their mirror.via header.",
        lambda p: p.counts.unexplained,
    ),
    of_partitions(
        "mirror_away_records_total",
        "Records left out because they were written away from the home of their key "
        "(leave_out_away).",
        lambda p: p.counts.away,
    ),
    of_partitions(
        "mirror_skipped_records_total",
        "Records of aborted transactions, and transaction markers; neither is copied.",
        lambda p: p.counts.skipped,
    ),
    of_partitions(
        "mirror_filler_records_total",
        "Records without a value, written where the source has an offset without a "
        "record, by flows with fill: visible.",
        lambda p: p.counts.fillers,
    ),
    of_partitions(
        "mirror_lost_records_total",
        "Offsets deleted on the source before they could be copied.",
        lambda p: p.counts.lost,
    ),
    of_partitions(
        "mirror_transform_removed_records_total",
        "Records that the flow's transform left out.",
        lambda p: p.counts.removed,
    ),
    of_partitions(
        "mirror_dead_letter_records_total",
        "Records on which the transform failed, sent to the dead-letter topic.",
        lambda p: p.counts.dead_letters,
    ),
    per_flow(("topic", "reason"), failed_records)(
        "mirror_failed_records_total",
        "Records that could not be copied when it was their turn, by reason: they "
        "hold up their partition or became dead letters. Each counts once, however "
        "often it is tried.",
        float,
    ),
    # ---- Lag and latency
    of_partitions(
        "mirror_lag_records",
        "Source offsets not copied yet, as of the last lease.",
        lambda p: p.lag,
    ),
    of_partitions(
        "mirror_lag_seconds",
        "Age of the oldest record not copied yet, 0 if there is none.",
        lambda p: known(p.lag_seconds),
        fold=max,
    ),
    of_flow(
        "mirror_flow_lag_records",
        "Source offsets not copied yet, without paused partitions.",
        lag_to_copy,
    ),
    of_flow(
        "mirror_flow_lag_seconds",
        "Lag in seconds of the partition furthest behind, without paused ones.",
        lambda f: known(f.lag_seconds),
    ),
    of_flow(
        "mirror_flow_sla_seconds",
        "How far behind the flow may be: its setting sla_seconds.",
        lambda f: f.sla_seconds,
    ),
    of_flow(
        "mirror_flow_within_sla",
        "1 if no partition is further behind than the SLA allows, else 0; no value "
        "while the flow is stopped or paused on purpose.",
        within_sla,
    ),
    of_topics(
        "mirror_replication_latency_seconds",
        "Time from a record's timestamp to its commit on the target; every record "
        "counts with the time of its partition's newest in the transaction.",
        lambda t: t.latency,
    ),
    of_topics(
        "mirror_record_age_seconds",
        "Time from a record's timestamp to its fetch from the source, measured the "
        "same way.",
        lambda t: t.age,
    ),
    # ---- State of the flow
    per_flow(("state",), lambda f: one_of(FlowState, f.state))(
        "mirror_flow_state",
        "1 for the flow's current state, 0 for the others.",
        float,
    ),
    of_flow(
        "mirror_flow_state_since_timestamp_seconds",
        "When the flow entered its current state.",
        lambda f: f.since,
    ),
    of_flow(
        "mirror_flow_restarts_total",
        "How often the flow failed and was restarted.",
        lambda f: f.restarts,
    ),
    of_flow(
        "mirror_flow_report_timestamp_seconds",
        "When the flow's last lease reported.",
        lambda f: f.reported_at or None,
    ),
    of_flow(
        "mirror_flow_report_overdue_seconds",
        "Seconds by which the flow's next report is overdue, 0 if it is not.",
        lambda f: f.overdue,
    ),
    of_flow(
        "mirror_flow_catching_up",
        "1 while the flow is catching up.",
        lambda f: float(f.catching_up),
    ),
    of_flow(
        "mirror_flow_backfill_remaining_seconds",
        "Time until the flow has caught up at the current rate; no value if it is "
        "not behind, or if its lag does not shrink.",
        lambda f: known(f.remaining_seconds),
    ),
    of_flow(
        "mirror_flow_max_bytes_per_second",
        "How much the flow may read: its setting max_bytes_per_second; no value "
        "without it.",
        lambda f: f.max_bytes_per_second or None,
    ),
    of_flow(
        "mirror_flow_limit_used_ratio",
        "The share of max_bytes_per_second that the flow read over the last half "
        "minute; near 1 the limit decides how fast it copies. No value without it.",
        lambda f: f.limit_used if f.max_bytes_per_second else None,
    ),
    of_flow(
        "mirror_flow_problem_topics",
        "Topics that match the flow's filters and cannot be copied.",
        lambda f: len(f.problems),
    ),
    per_flow(("topic", "state"), partition_states)(
        "mirror_partitions",
        "Source partitions by state.",
        float,
    ),
    per_flow(("topic", "target_topic"), copies)(
        "mirror_topic_info",
        "Always 1; its labels map a topic to the name of its copy.",
        float,
    ),
    # ---- Transactions, leases and slots
    of_transactions(
        "mirror_transaction_duration_seconds",
        "Time of transactions committed on the target, from their first batch to the "
        "commit.",
        lambda t: Summary(t.committed, t.seconds),
        shape=MetricType.SUMMARY,
    ),
    of_transactions(
        "mirror_transactions_aborted_total",
        "Transactions aborted; their records are copied again.",
        lambda t: t.aborted,
    ),
    of_transactions(
        "mirror_takeovers_total",
        "How often a slot took over its partitions: at its start, when it moved to "
        "another process, and after any error.",
        lambda t: t.takeovers,
    ),
    of_transactions(
        "mirror_handovers_total",
        "How often a slot copied on from one lease into the next, without a pause.",
        lambda t: t.handovers,
    ),
    of_flow(
        "mirror_flow_leases",
        "Leases since the flow was last started.",
        lambda f: f.leases,
    ),
    of_flow(
        "mirror_flow_lease_gap_seconds",
        "Seconds without copying between the last two leases.",
        lambda f: known(f.lease_gap_ms, 0.001),
    ),
    of_flow("mirror_flow_slots", "Slots that share the partitions.", lambda f: f.slots),
    of_slots(
        "mirror_slot_busy_ratio",
        "CPU seconds per second of a slot in the last lease; near 1 it is saturated.",
        lambda s: s.busy,
    ),
    of_slots("mirror_slot_partitions", "Partitions of a slot.", lambda s: s.partitions),
    of_slots(
        "mirror_slot_written_bytes_per_second",
        "Bytes per second that a slot sent to the target in the last lease.",
        lambda s: s.bytes_per_second,
    ),
    of_slots(
        "mirror_slot_memory_bytes",
        "Memory of a slot's process, at the end of its last lease.",
        lambda s: s.memory_bytes or None,
    ),
    of_slots(
        "mirror_slot_open_files",
        "Files and connections that a slot's process has open.",
        lambda s: s.open_files or None,
    ),
    of_slots(
        "mirror_slot_open_files_limit",
        "How many it may have open.",
        lambda s: s.open_files_limit or None,
    ),
    # ---- Topics, ACLs, groups, heartbeats
    of_flow(
        "mirror_flow_gone_topics",
        "Mirrored topics that no longer exist on the source.",
        lambda f: len(f.gone),
    ),
    of_flow(
        "mirror_flow_drifted_topics",
        "Copies whose partitions or configs differ from their topics', as of the last "
        "check.",
        lambda f: sum(each.differs for each in f.drift),
    ),
    per_flow(("state",), lambda f: one_of(AclState, f.acls.state))(
        "mirror_acl_state",
        "1 for the state of the flow's ACL sync, 0 for the others.",
        float,
    ),
    of_flow(
        "mirror_acls_added_total",
        "ACLs added to copies.",
        lambda f: f.acls.added,
    ),
    of_flow(
        "mirror_acls_removed_total",
        "ACLs removed from copies because their topics no longer have them.",
        lambda f: f.acls.removed,
    ),
    of_flow(
        "mirror_checkpoint_timestamp_seconds",
        "When the source's groups were last translated successfully.",
        lambda f: f.checkpoint_at or None,
    ),
    of_flow(
        "mirror_heartbeat_timestamp_seconds",
        "When this flow last wrote a heartbeat to the target.",
        lambda f: f.heartbeat_at or None,
    ),
    of_flow(
        "mirror_copied_heartbeat_timestamp_seconds",
        "When the newest copied heartbeat was written on the source.",
        lambda f: f.copied_heartbeat_at or None,
    ),
    of_flow(
        "mirror_standby_timestamp_seconds",
        "When the source was last looked at for the standby topic on the target.",
        lambda f: f.standby_at or None,
    ),
    of_risk(
        "mirror_data_at_risk_records",
        "Source offsets that a failover would lose, paused partitions included, as "
        "of the last look at the source.",
        lambda t: t.records,
    ),
    of_risk(
        "mirror_data_at_risk_unknown_partitions",
        "Partitions of which nothing is known; the records leave them out.",
        lambda t: t.unknown,
    ),
    of_risk(
        "mirror_data_at_risk_bytes",
        "Their size, estimated from what was copied; no value without an estimate.",
        lambda t: known(t.bytes),
    ),
    of_risk(
        "mirror_data_at_risk_seconds",
        "How long before that look the oldest of them was accepted, at most; no value "
        "if it is not known.",
        lambda t: known(t.seconds),
    ),
    # ---- Proofs: no values with `verify: off`
    per_flow(("result",), lambda f: by_name(f.verify.records))(
        "mirror_verified_records_total",
        "Source records that the service has compared with their copies, by what "
        "they turned out to be.",
        float,
    ),
    of_flow(
        "mirror_verify_findings",
        "Findings that stand: records that are missing or wrong in copies.",
        lambda f: f.verify.findings if f.verify.is_on else None,
    ),
    of_flow(
        "mirror_verified_share_ratio",
        "How much of what was copied lately was compared, 0 to 1; no value before the "
        "first comparison.",
        lambda f: known(f.verify.share),
    ),
    of_flow(
        "mirror_verify_proven_timestamp_seconds",
        "Of what was copied by then, that share was compared; when verify began if "
        "that was not yet.",
        lambda f: f.verify.proven_at or None,
    ),
    of_flow(
        "mirror_groups",
        "Groups whose offsets the flow translates.",
        lambda f: f.group_count,
    ),
    of_flow(
        "mirror_share_groups",
        "Share groups that match and are not covered: a cluster does not tell or set "
        "their offsets.",
        lambda f: len(f.share_groups),
    ),
    of_groups(
        "mirror_group_behind_records",
        "Source offsets that a group has read and that are not copied yet: what it "
        "would miss on the target now.",
        lambda g: g.behind,
    ),
    of_groups(
        "mirror_group_lag_records",
        "Source offsets that a group has not read yet on the source, up to where its "
        "partitions ended in the last lease; no value if that is not known.",
        lambda g: known(g.lag),
    ),
    of_groups(
        "mirror_group_unknown_partitions",
        "Partitions in which a group has no offset on the target.",
        lambda g: g.unknown,
    ),
    of_groups(
        "mirror_position_age_seconds",
        "How old a group's position on the target is: for so long its checkpoints have "
        "not followed what it commits.",
        lambda g: max(time.time() - g.position_at, 0.0) if g.position_at else None,
    ),
    of_groups(
        "mirror_group_failing",
        "1 if a group could not be read, or its offsets could not be set.",
        lambda g: float(bool(g.reason)),
    ),
    # ---- The jobs themselves
    of_jobs(
        "mirror_job_last_success_timestamp_seconds",
        "When a job last succeeded.",
        lambda j: j.succeeded_at or None,
    ),
    of_jobs(
        *("mirror_job_failing", "1 if the job's last run failed."),
        lambda j: float(bool(j.error)),
    ),
    of_jobs(
        "mirror_job_failures_total",
        "Failed runs of a job since the flow was last started.",
        lambda j: j.failures,
    ),
    of_jobs(
        "mirror_job_last_duration_seconds",
        "How long a job's last run took.",
        lambda j: j.seconds,
    ),
    # ---- Schemas: no values with `schemas: off`; the last three with `require`
    per_flow(("state",), lambda f: by_name(f.schemas.states))(
        "mirror_schema_subjects",
        "Subjects of the source's schema registry that the flow copies, by state.",
        float,
    ),
    of_schemas(
        "mirror_schema_versions_copied_total",
        "Versions written to the target's schema registry.",
        lambda s: s.versions_copied,
    ),
    of_schemas(
        "mirror_schema_sync_timestamp_seconds",
        "When a look at both schema registries last came to its end, or when the "
        "service began to copy schemas.",
        lambda s: s.synced_at,
    ),
    of_schemas(
        "mirror_schema_request_failures_total",
        "Requests to schema registries without an answer, or that failed there.",
        lambda s: s.request_failures,
    ),
    of_flow(
        "mirror_schema_waiting_partitions",
        "Partitions set aside because their next record's schema is not on the target, "
        "or may not be.",
        waiting_for_schemas,
    ),
    of_required(
        "mirror_schema_unknown_ids_total",
        "Records copied that begin like a registry's, with an id that neither registry "
        "knows.",
        lambda c: c.unknown_ids,
    ),
    of_required(
        "mirror_schema_translated_records_total",
        "Records copied with the target's ids of schemas instead of the source's, by "
        "flows with schemas_ids: translate.",
        lambda c: c.translated,
    ),
    # ---- Spark's own view of the streaming query
    of_spark(
        "mirror_spark_batches_total",
        "Micro-batches that Spark completed; each is a lease.",
        lambda s: s.batches,
    ),
    of_spark(
        "mirror_spark_batch_timestamp_seconds",
        "When Spark started the last micro-batch.",
        lambda s: s.began_at or None,
    ),
    per_flow(("phase",), lambda f: by_name(dict(f.spark.phases)))(
        "mirror_spark_batch_phase_seconds",
        "Duration of each phase of Spark's last micro-batch, by Spark's names.",
        float,
    ),
    of_spark(
        "mirror_spark_query_failures_total",
        "Streaming queries that ended with an exception.",
        lambda s: s.failures,
    ),
    # ---- Pairs: roles, the open run, and what happens on the passive cluster
    of_members(
        "mirror_active",
        "1 for the active cluster of a pair, 0 for the other one.",
        lambda m: m[1].cluster == m[0].active,
    ),
    of_pair(
        "mirror_pair_epoch",
        "Grows with each role; 0 while only the configuration says it.",
        lambda p: p.epoch,
    ),
    of_members(
        "mirror_journal_read_timestamp_seconds",
        "When the cluster's journal was last read; no value if it never was.",
        lambda m: m[1].read_at or None,
    ),
    of_pair(
        "mirror_switch_step",
        "The step, 1 to 9, at which an open switch or failover is, else 0.",
        lambda p: p.step,
    ),
    of_pair(
        "mirror_switch_block_seconds",
        "How long the open switch or failover has kept producers from writing, or "
        "else the last one did; no value if none has.",
        lambda p: known(p.block_seconds),
    ),
    of_members(
        "mirror_fence_owed",
        "1 for a cluster that a failover left and whose producers are not fenced "
        "yet, else 0.",
        lambda m: m[1].cluster == m[0].fence_owed,
    ),
    of_passive(
        "mirror_writes_on_passive_records_total",
        "Offsets that applications have used on the passive cluster since it is "
        "passive, without topics to which the other cluster is copied as well.",
        lambda passive: known(passive.writes),
    ),
    per_pair(("state",), readiness)(
        "mirror_readiness",
        "1 for what the last drill of a failover from the active cluster found: "
        "READY, DEGRADED or NOT_READY, 0 for the others; no value before the first.",
        float,
    ),
    of_last_drill(
        "mirror_readiness_ratio",
        "The share of groups and partitions that, by the last drill, would go on "
        "exactly after a failover.",
        lambda drill: drill.ratio,
    ),
    of_pair(
        "mirror_drill_timestamp_seconds",
        "When the last drill began; no value if the service is not to drill.",
        lambda p: p.drills[0].at if p.drilled and p.drills else None,
    ),
    of_passive(
        "mirror_tail_records",
        "Records of the passive cluster that a failover left uncopied and no one "
        "has settled, counted every 30 seconds in steps of 200,000 offsets, up to "
        "1,000,000 records.",
        lambda passive: known(passive.tail),
    ),
    # ---- Clusters
    Metric(
        name="mirror_cluster_answers",
        help="1 if a broker of the cluster answered this instance when it last asked, "
        "about every ten seconds, else 0.",
        labels=("cluster", "side"),
        rows=lambda s: (
            ((each.alias, side), each.answers)
            for each in s.clusters
            for side in each.sides
        ),
    ),
    Metric(
        name="mirror_cluster_errors_total",
        help="Errors that brokers of the cluster answered to this service, by Kafka's "
        "names; and connections that failed, as UNREACHABLE, TIMEOUT, DISCONNECTED or "
        "TLS.",
        labels=("cluster", "api", "error"),
        rows=lambda s: (
            ((each.cluster, each.api, each.error), each.count) for each in s.errors
        ),
    ),
)


def names() -> frozenset[str]:
    """The names of all time series."""
    return frozenset[str]().union(*(metric.sample_names for metric in METRICS))
