"""Every metric of a service: its name, its help text, and where its value comes from.

Main name: `METRICS`, the table. A new field of the status needs one entry here. Each
scrape reads the values from the frozen statuses, so topics that are no longer mirrored
have no series. `exposition` writes them out.
"""

from __future__ import annotations

from dataclasses import dataclass
import time
from typing import TYPE_CHECKING

from mirror.observing.of_pairs import PAIR_METRICS
from mirror.observing.readings import (
    acl_states,
    copies,
    failed_records,
    known,
    lag_to_copy,
    partition_states,
    phases,
    states,
    verified,
    within_sla,
)
from mirror.observing.series import (
    Fold,
    Metric,
    MetricType,
    of_flow,
    of_groups,
    of_jobs,
    of_partitions,
    of_risk,
    of_slots,
    of_spark,
    of_topics,
    of_transactions,
)
from mirror.status.errors import ERROR_METRICS
from mirror.status.states import PartitionState
from mirror.status.values import CLUSTER_METRICS, CONFIG_METRICS, WAITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirror.observing.series import Labels, Value
    from mirror.status.values import (
        Counts,
        FlowStatus,
        JvmStatus,
        ResourceStatus,
        SchemaStatus,
    )


# ---- metrics of what the driver's JVM and the container use ----
#
# Main name: `RESOURCE_METRICS`; they have no labels. `catalogue` lists them with
# the other metrics of the service. The driver's Python process has
# prometheus-client's own `process_*`, slots are in `catalogue`.


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceMetric:
    """A gauge, or a counter if its name ends in _total."""

    name: str
    help: str
    value: Callable[[ResourceStatus], float | None]
    """None: no value now."""


def _of_jvm(
    name: str, text: str, value: Callable[[JvmStatus], float]
) -> ResourceMetric:
    return ResourceMetric(
        name=name,
        help=text,
        value=lambda found: value(found.jvm) if found.jvm else None,
    )


RESOURCE_METRICS: tuple[ResourceMetric, ...] = (
    _of_jvm(
        "mirror_jvm_heap_bytes",
        "Heap that the driver's JVM uses, garbage included.",
        lambda jvm: jvm.heap_bytes,
    ),
    _of_jvm(
        "mirror_jvm_heap_limit_bytes",
        "How large that heap may become.",
        lambda jvm: jvm.heap_limit_bytes,
    ),
    _of_jvm(
        "mirror_jvm_gc_seconds_total",
        "Time that the driver's JVM has spent on collecting garbage.",
        lambda jvm: jvm.gc_seconds,
    ),
    _of_jvm(
        "mirror_jvm_cpu_seconds_total",
        "CPU time of the driver's JVM.",
        lambda jvm: jvm.cpu_seconds,
    ),
    _of_jvm(
        "mirror_jvm_memory_bytes",
        "All memory of the driver's JVM.",
        lambda jvm: jvm.memory_bytes,
    ),
    _of_jvm(
        "mirror_jvm_open_files",
        "Files and connections that the driver's JVM has open.",
        lambda jvm: jvm.open_files,
    ),
    _of_jvm(
        "mirror_jvm_open_files_limit",
        "How many it may have open.",
        lambda jvm: jvm.open_files_limit,
    ),
    ResourceMetric(
        name="mirror_memory_bytes",
        help="Memory in use of the driver's container, or of its machine if there is "
        "no limit, without caches that can be dropped.",
        value=lambda found: found.memory_bytes,
    ),
    ResourceMetric(
        name="mirror_memory_limit_bytes",
        help="How much there is; beyond it the system kills a process.",
        value=lambda found: found.memory_limit_bytes,
    ),
)


_C, _G = MetricType.COUNTER, MetricType.GAUGE

# ---- metrics of the background jobs: topics, ACLs, groups, proofs, and the jobs ----


JOB_METRICS: tuple[Metric, ...] = (
    # ---- Topics, ACLs, groups, heartbeats
    of_flow(
        "mirror_flow_gone_topics",
        _G,
        "Mirrored topics that no longer exist on the source.",
        lambda f: len(f.gone),
    ),
    of_flow(
        "mirror_flow_drifted_topics",
        _G,
        "Copies whose partitions or configs differ from their topics', as of the last "
        "check.",
        lambda f: sum(each.differs for each in f.drift),
    ),
    Metric(
        name="mirror_acl_state",
        kind=_G,
        labels=("state",),
        rows=acl_states,
        help="1 for the state of the flow's ACL sync, 0 for the others.",
    ),
    of_flow(
        "mirror_acls_added_total",
        _C,
        "ACLs added to copies.",
        lambda f: f.acls.added,
    ),
    of_flow(
        "mirror_acls_removed_total",
        _C,
        "ACLs removed from copies because their topics no longer have them.",
        lambda f: f.acls.removed,
    ),
    of_flow(
        "mirror_checkpoint_timestamp_seconds",
        _G,
        "When the source's groups were last translated successfully.",
        lambda f: f.checkpoint_at or None,
    ),
    of_flow(
        "mirror_heartbeat_timestamp_seconds",
        _G,
        "When this flow last wrote a heartbeat to the target.",
        lambda f: f.heartbeat_at or None,
    ),
    of_flow(
        "mirror_copied_heartbeat_timestamp_seconds",
        _G,
        "When the newest copied heartbeat was written on the source.",
        lambda f: f.copied_heartbeat_at or None,
    ),
    of_flow(
        "mirror_standby_timestamp_seconds",
        _G,
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
    Metric(
        name="mirror_verified_records_total",
        kind=_C,
        labels=("result",),
        rows=verified,
        help="Source records that the service has compared with their copies, by what "
        "they turned out to be.",
    ),
    of_flow(
        "mirror_verify_findings",
        _G,
        "Findings that stand: records that are missing or wrong in copies.",
        lambda f: f.verify.findings if f.verify.is_on else None,
    ),
    of_flow(
        "mirror_verified_share_ratio",
        _G,
        "How much of what was copied lately was compared, 0 to 1; no value before the "
        "first comparison.",
        lambda f: known(f.verify.share),
    ),
    of_flow(
        "mirror_verify_proven_timestamp_seconds",
        _G,
        "Of what was copied by then, that share was compared; when verify began if "
        "that was not yet.",
        lambda f: f.verify.proven_at or None,
    ),
    of_flow(
        "mirror_groups",
        _G,
        "Groups whose offsets the flow translates.",
        lambda f: f.group_count,
    ),
    of_flow(
        "mirror_share_groups",
        _G,
        "Share groups that match: they have no offsets and are not covered.",
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
        _G,
        "When a job last succeeded.",
        lambda j: j.succeeded_at or None,
    ),
    of_jobs(
        *("mirror_job_failing", _G, "1 if the job's last run failed."),
        lambda j: float(bool(j.error)),
    ),
    of_jobs(
        "mirror_job_failures_total",
        _C,
        "Failed runs of a job since the flow was last started.",
        lambda j: j.failures,
    ),
    of_jobs(
        "mirror_job_last_duration_seconds",
        _G,
        "How long a job's last run took.",
        lambda j: j.seconds,
    ),
)


# ---- metrics of schemas ----
#
# Main name: `SCHEMA_METRICS`, a part of `catalogue`. A flow with `schemas: off` has
# no values, and the last three are of flows with `schemas: require`.


def _states(flow: FlowStatus) -> Iterator[tuple[Labels, Value]]:
    for state, count in flow.schemas.states.items():
        yield (state,), float(count)


def _of_schemas(
    name: str, kind: MetricType, text: str, value: Callable[[SchemaStatus], float]
) -> Metric:
    return of_flow(
        name, kind, text, lambda f: value(f.schemas) if f.schemas.is_on else None
    )


def _waiting(flow: FlowStatus) -> float:
    return float(
        sum(
            each.state is PartitionState.FAULTED and each.reason.startswith(WAITS)
            for each in flow.partitions
        )
    )


def _of_partitions(name: str, text: str, value: Callable[[Counts], int]) -> Metric:
    def rows(flow: FlowStatus) -> Iterator[tuple[Labels, Value]]:
        if flow.schemas.is_required:
            for each in flow.partitions:
                labels = each.topic, str(each.partition)
                yield labels, float(value(each.counts))

    return Metric(
        name=name, kind=MetricType.COUNTER, labels=("topic", "partition"), rows=rows,
        fold=Fold.SUM, help=text,
    )  # fmt: skip


SCHEMA_METRICS: tuple[Metric, ...] = (
    Metric(
        name="mirror_schema_subjects",
        kind=MetricType.GAUGE,
        labels=("state",),
        rows=_states,
        help="Subjects of the source's schema registry that the flow copies, by state.",
    ),
    _of_schemas(
        "mirror_schema_versions_copied_total",
        MetricType.COUNTER,
        "Versions written to the target's schema registry.",
        lambda s: s.versions_copied,
    ),
    _of_schemas(
        "mirror_schema_sync_timestamp_seconds",
        MetricType.GAUGE,
        "When a look at both schema registries last came to its end, or when the "
        "service began to copy schemas.",
        lambda s: s.synced_at,
    ),
    _of_schemas(
        "mirror_schema_request_failures_total",
        MetricType.COUNTER,
        "Requests to schema registries without an answer, or that failed there.",
        lambda s: s.request_failures,
    ),
    of_flow(
        "mirror_schema_waiting_partitions",
        MetricType.GAUGE,
        "Partitions set aside because their next record's schema is not on the target, "
        "or may not be.",
        lambda f: _waiting(f) if f.schemas.is_required else None,
    ),
    _of_partitions(
        "mirror_schema_unknown_ids_total",
        "Records copied that begin like a registry's, with an id that neither registry "
        "knows.",
        lambda c: c.unknown_ids,
    ),
    _of_partitions(
        "mirror_schema_translated_records_total",
        "Records copied with the target's ids of schemas instead of the source's, by "
        "flows with schemas_ids: translate.",
        lambda c: c.translated,
    ),
)


METRICS: tuple[Metric, ...] = (
    # ---- Records and bytes
    of_partitions(
        "mirror_records_total",
        _C,
        "Records copied.",
        lambda p: p.counts.records,
    ),
    of_partitions(
        "mirror_written_bytes_total",
        _C,
        "Bytes of record batches sent to the target.",
        lambda p: p.counts.bytes,
    ),
    of_partitions(
        "mirror_read_bytes_total",
        _C,
        "Bytes of record batches fetched from the source.",
        lambda p: p.bytes_in,
    ),
    of_partitions(
        "mirror_filtered_records_total",
        _C,
        "Records left out because they already came through the target.",
        lambda p: p.counts.looped,
    ),
    of_partitions(
        "mirror_unexplained_loops_total",
        _C,
        "Looped records that no flow of this configuration brought to the source: "
        "another mirror did, or a producer set their mirror.via header.",
        lambda p: p.counts.unexplained,
    ),
    of_partitions(
        "mirror_away_records_total",
        _C,
        "Records left out because they were written away from the home of their key "
        "(leave_out_away).",
        lambda p: p.counts.away,
    ),
    of_partitions(
        "mirror_skipped_records_total",
        _C,
        "Records of aborted transactions, and transaction markers; neither is copied.",
        lambda p: p.counts.skipped,
    ),
    of_partitions(
        "mirror_lost_records_total",
        _C,
        "Offsets deleted on the source before they could be copied.",
        lambda p: p.counts.lost,
    ),
    of_partitions(
        "mirror_transform_removed_records_total",
        _C,
        "Records that the flow's transform left out.",
        lambda p: p.counts.removed,
    ),
    of_partitions(
        "mirror_dead_letter_records_total",
        _C,
        "Records on which the transform failed, sent to the dead-letter topic.",
        lambda p: p.counts.dead_letters,
    ),
    Metric(
        name="mirror_failed_records_total",
        kind=_C,
        labels=("topic", "reason"),
        rows=failed_records,
        help="Records that could not be copied when it was their turn, by reason: they "
        "hold up their partition or became dead letters. Each counts once, however "
        "often it is tried.",
    ),
    # ---- Lag and latency
    of_partitions(
        "mirror_lag_records",
        _G,
        "Source offsets not copied yet, as of the last lease.",
        lambda p: p.lag,
    ),
    of_partitions(
        "mirror_lag_seconds",
        _G,
        "Age of the oldest record not copied yet, 0 if there is none.",
        lambda p: known(p.lag_seconds),
        Fold.MAX,
    ),
    of_flow(
        "mirror_flow_lag_records",
        _G,
        "Source offsets not copied yet, without paused partitions.",
        lag_to_copy,
    ),
    of_flow(
        "mirror_flow_lag_seconds",
        _G,
        "Lag in seconds of the partition furthest behind, without paused ones.",
        lambda f: known(f.lag_seconds),
    ),
    of_flow(
        "mirror_flow_sla_seconds",
        _G,
        "How far behind the flow may be: its setting sla_seconds.",
        lambda f: f.sla_seconds,
    ),
    of_flow(
        "mirror_flow_within_sla",
        _G,
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
    Metric(
        name="mirror_flow_state",
        kind=_G,
        labels=("state",),
        rows=states,
        help="1 for the flow's current state, 0 for the others.",
    ),
    of_flow(
        "mirror_flow_state_since_timestamp_seconds",
        _G,
        "When the flow entered its current state.",
        lambda f: f.since,
    ),
    of_flow(
        "mirror_flow_restarts_total",
        _C,
        "How often the flow failed and was restarted.",
        lambda f: f.restarts,
    ),
    of_flow(
        "mirror_flow_report_timestamp_seconds",
        _G,
        "When the flow's last lease reported.",
        lambda f: f.reported_at or None,
    ),
    of_flow(
        "mirror_flow_report_overdue_seconds",
        _G,
        "Seconds by which the flow's next report is overdue, 0 if it is not.",
        lambda f: f.overdue,
    ),
    of_flow(
        "mirror_flow_catching_up",
        _G,
        "1 while the flow is catching up.",
        lambda f: float(f.catching_up),
    ),
    of_flow(
        "mirror_flow_backfill_remaining_seconds",
        _G,
        "Time until the flow has caught up at the current rate; no value if it is "
        "not behind, or if its lag does not shrink.",
        lambda f: known(f.remaining_seconds),
    ),
    of_flow(
        "mirror_flow_max_bytes_per_second",
        _G,
        "How much the flow may read: its setting max_bytes_per_second; no value "
        "without it.",
        lambda f: f.max_bytes_per_second or None,
    ),
    of_flow(
        "mirror_flow_limit_used_ratio",
        _G,
        "The share of max_bytes_per_second that the flow read over the last half "
        "minute; near 1 the limit decides how fast it copies. No value without it.",
        lambda f: f.limit_used if f.max_bytes_per_second else None,
    ),
    of_flow(
        "mirror_flow_problem_topics",
        _G,
        "Topics that match the flow's filters and cannot be copied.",
        lambda f: len(f.problems),
    ),
    Metric(
        name="mirror_partitions",
        kind=_G,
        labels=("topic", "state"),
        rows=partition_states,
        help="Source partitions by state.",
    ),
    Metric(
        name="mirror_topic_info",
        kind=_G,
        labels=("topic", "target_topic"),
        rows=copies,
        help="Always 1; its labels map a topic to the name of its copy.",
    ),
    # ---- Transactions, leases and slots
    of_transactions(
        "mirror_transaction_duration_seconds",
        MetricType.SUMMARY,
        "Time of transactions committed on the target, from their first batch to the "
        "commit.",
        lambda t: (t.committed, t.seconds),
    ),
    of_transactions(
        "mirror_transactions_aborted_total",
        _C,
        "Transactions aborted; their records are copied again.",
        lambda t: t.aborted,
    ),
    of_transactions(
        "mirror_takeovers_total",
        _C,
        "How often a slot took over its partitions: at its start, when it moved to "
        "another process, and after any error.",
        lambda t: t.takeovers,
    ),
    of_transactions(
        "mirror_handovers_total",
        _C,
        "How often a slot copied on from one lease into the next, without a pause.",
        lambda t: t.handovers,
    ),
    of_flow(
        "mirror_flow_leases",
        _G,
        "Leases since the flow was last started.",
        lambda f: f.leases,
    ),
    of_flow(
        "mirror_flow_lease_gap_seconds",
        _G,
        "Seconds without copying between the last two leases.",
        lambda f: known(f.lease_gap_ms, 0.001),
    ),
    of_flow(
        "mirror_flow_slots", _G, "Slots that share the partitions.", lambda f: f.slots
    ),
    of_slots(
        "mirror_slot_busy_ratio",
        _G,
        "CPU seconds per second of a slot in the last lease; near 1 it is saturated.",
        lambda s: s.busy,
    ),
    of_slots(
        "mirror_slot_partitions", _G, "Partitions of a slot.", lambda s: s.partitions
    ),
    of_slots(
        "mirror_slot_written_bytes_per_second",
        _G,
        "Bytes per second that a slot sent to the target in the last lease.",
        lambda s: s.bytes_per_second,
    ),
    of_slots(
        "mirror_slot_memory_bytes",
        _G,
        "Memory of a slot's process, at the end of its last lease.",
        lambda s: s.memory_bytes or None,
    ),
    of_slots(
        "mirror_slot_open_files",
        _G,
        "Files and connections that a slot's process has open.",
        lambda s: s.open_files or None,
    ),
    of_slots(
        "mirror_slot_open_files_limit",
        _G,
        "How many it may have open.",
        lambda s: s.open_files_limit or None,
    ),
    *JOB_METRICS,
    *SCHEMA_METRICS,
    # ---- Spark's own view of the streaming query
    of_spark(
        "mirror_spark_batches_total",
        _C,
        "Micro-batches that Spark completed; each is a lease.",
        lambda s: s.batches,
    ),
    of_spark(
        "mirror_spark_batch_timestamp_seconds",
        _G,
        "When Spark started the last micro-batch.",
        lambda s: s.began_at or None,
    ),
    Metric(
        name="mirror_spark_batch_phase_seconds",
        kind=_G,
        labels=("phase",),
        rows=phases,
        help="Duration of each phase of Spark's last micro-batch, by Spark's names.",
    ),
    of_spark(
        "mirror_spark_query_failures_total",
        _C,
        "Streaming queries that ended with an exception.",
        lambda s: s.failures,
    ),
)

SERVICE_METRICS = {
    "mirror_build_info": "Always 1; its labels are the running versions.",
    "mirror_started_timestamp_seconds": "When the service was started.",
    **CONFIG_METRICS,
    **{metric.name: metric.help for metric in RESOURCE_METRICS},
}
"""Metrics of the service itself, without source and target."""


def names() -> frozenset[str]:
    """The names of all time series."""
    of_flows = (m.sample_names for m in METRICS)
    of_pairs = {metric.name for metric in PAIR_METRICS}
    return frozenset(SERVICE_METRICS).union(
        CLUSTER_METRICS, ERROR_METRICS, of_pairs, *of_flows
    )
