"""Every metric of a service: its name, its meaning, and where its value comes from.

Main name: `METRICS`, the table; a further field of the status needs one entry here, or
in `of_jobs` if a job beside the data brings it.
Values are read from the frozen statuses when somebody asks, so what is no longer
mirrored has no series. How they are written out is `exposition`'s duty.
"""

from __future__ import annotations

from mirror.metrics.of_jobs import JOB_METRICS
from mirror.metrics.readings import (
    copies,
    known,
    lag_to_copy,
    partition_states,
    phases,
    states,
    within_sla,
)
from mirror.metrics.series import (
    Fold,
    Kind,
    Metric,
    of_flow,
    of_partitions,
    of_slots,
    of_spark,
    of_topics,
    of_transactions,
)
from mirror.status.config import CONFIG_METRICS

_C, _G = Kind.COUNTER, Kind.GAUGE

METRICS: tuple[Metric, ...] = (
    # ---- What was copied
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
        "Records left out because they came through the target before.",
        lambda p: p.counts.looped,
    ),
    of_partitions(
        "mirror_unexplained_loops_total",
        _C,
        "Of these, records that no flow of this configuration brought to the source: "
        "another mirror did, or a producer made their mirror.via header.",
        lambda p: p.counts.unexplained,
    ),
    of_partitions(
        "mirror_skipped_records_total",
        _C,
        "Records of aborted transactions and transaction markers, which are never "
        "copied.",
        lambda p: p.counts.skipped,
    ),
    of_partitions(
        "mirror_lost_records_total",
        _C,
        "Offsets that vanished at the source before they could be copied.",
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
    # ---- How late it is
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
        "Source offsets that a flow has to copy, those of paused partitions aside.",
        lag_to_copy,
    ),
    of_flow(
        "mirror_flow_lag_seconds",
        _G,
        "The lag in seconds of the flow's latest partition, paused ones aside.",
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
        "1 if no partition is further behind than the SLA allows, else 0; none while "
        "the flow is stopped or paused on purpose.",
        within_sla,
    ),
    of_topics(
        "mirror_replication_latency_seconds",
        "From a record's timestamp to its commit on the target; each record counts "
        "as the newest of its partition in its transaction.",
        lambda t: t.latency,
    ),
    of_topics(
        "mirror_record_age_seconds",
        "From a record's timestamp to its fetch from the source, counted likewise.",
        lambda t: t.age,
    ),
    # ---- How the flow is
    Metric(
        name="mirror_flow_state",
        kind=_G,
        labels=("state",),
        rows=states,
        help="1 for the state that the flow is in, 0 for the others.",
    ),
    of_flow(
        "mirror_flow_state_since_timestamp_seconds",
        _G,
        "When the flow came into its state.",
        lambda f: f.since,
    ),
    of_flow(
        "mirror_flow_restarts_total",
        _C,
        "How often the flow failed and was run again.",
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
        "How long nothing is known of the flow beyond what is usual, 0 if all is well.",
        lambda f: f.overdue,
    ),
    of_flow(
        "mirror_flow_catching_up",
        _G,
        "1 while the flow works off a backlog.",
        lambda f: float(f.catching_up),
    ),
    of_flow(
        "mirror_flow_backfill_remaining_seconds",
        _G,
        "Until the flow has caught up, if it goes on like this; none if it need not, "
        "or if its lag does not shrink.",
        lambda f: known(f.remaining_seconds),
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
        help="Always 1: what a topic's copy is called on the target.",
    ),
    # ---- Its transactions, leases and slots
    of_transactions(
        "mirror_transaction_duration_seconds",
        Kind.SUMMARY,
        "Transactions committed on the target, from the first write to the commit.",
        lambda t: (t.committed, t.seconds),
    ),
    of_transactions(
        "mirror_transactions_aborted_total",
        _C,
        "Transactions given up; what they held is copied again.",
        lambda t: t.aborted,
    ),
    of_transactions(
        "mirror_takeovers_total",
        _C,
        "How often a slot began anew: at its start, when it came to another process, "
        "and after any error.",
        lambda t: t.takeovers,
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
        "In which no slot worked, around the last lease.",
        lambda f: known(f.lease_gap_ms, 0.001),
    ),
    of_flow(
        "mirror_flow_slots", _G, "Slots that share the partitions.", lambda f: f.slots
    ),
    of_slots(
        "mirror_slot_busy_ratio",
        _G,
        "CPU seconds per second of a slot in the last lease; near 1 it cannot do more.",
        lambda s: s.busy,
    ),
    of_slots(
        "mirror_slot_partitions", _G, "Partitions of a slot.", lambda s: s.partitions
    ),
    of_slots(
        "mirror_slot_written_bytes_per_second",
        _G,
        "What a slot sent to the target in the last lease.",
        lambda s: s.bytes_per_second,
    ),
    *JOB_METRICS,
    # ---- Spark's own view of the streaming query
    of_spark(
        "mirror_spark_batches_total",
        _C,
        "Micro-batches that Spark finished; each is a lease.",
        lambda s: s.batches,
    ),
    of_spark(
        "mirror_spark_batch_timestamp_seconds",
        _G,
        "When Spark began the last micro-batch.",
        lambda s: s.began_at or None,
    ),
    Metric(
        name="mirror_spark_batch_phase_seconds",
        kind=_G,
        labels=("phase",),
        rows=phases,
        help="How long the phases of Spark's last micro-batch took, by Spark's names.",
    ),
    of_spark(
        "mirror_spark_query_failures_total",
        _C,
        "Streaming queries that ended with an exception.",
        lambda s: s.failures,
    ),
)

SERVICE_METRICS = {
    "mirror_build_info": "Always 1: the versions that run here.",
    "mirror_started_timestamp_seconds": "When the service was started.",
    **CONFIG_METRICS,
}
"""Those of the service itself, without source and target."""


def names() -> frozenset[str]:
    """What can be asked for: the names of all time series."""
    return frozenset(SERVICE_METRICS).union(*(m.sample_names for m in METRICS))
