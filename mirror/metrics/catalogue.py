"""Every metric of a service: its name, its help text, and where its value comes from.

Main name: `METRICS`, the table. A new field of the status needs one entry here, or in
`of_jobs` if a background job reports it. Each scrape reads the values from the frozen
statuses, so topics that are no longer mirrored have no series. `exposition` writes
them out.
"""

from __future__ import annotations

from mirror.metrics.of_jobs import JOB_METRICS
from mirror.metrics.of_pairs import PAIR_METRICS
from mirror.metrics.of_resources import RESOURCE_METRICS
from mirror.metrics.of_schemas import SCHEMA_METRICS
from mirror.metrics.readings import (
    copies,
    failed_records,
    known,
    lag_to_copy,
    partition_states,
    phases,
    states,
    within_sla,
)
from mirror.metrics.series import (
    Fold,
    Metric,
    MetricType,
    of_flow,
    of_partitions,
    of_slots,
    of_spark,
    of_topics,
    of_transactions,
)
from mirror.status.clusters import CLUSTER_METRICS
from mirror.status.config import CONFIG_METRICS
from mirror.status.errors import ERROR_METRICS

_C, _G = MetricType.COUNTER, MetricType.GAUGE

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
