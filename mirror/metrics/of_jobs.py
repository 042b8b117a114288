"""Metrics of the background jobs: topics, ACLs, groups, proofs, and the jobs.

Main name: `JOB_METRICS`, a part of the table in `catalogue`.
"""

from __future__ import annotations

import time

from mirror.metrics.readings import acl_states, known, verified
from mirror.metrics.series import (
    Metric,
    MetricType,
    of_flow,
    of_groups,
    of_jobs,
    of_risk,
)

_C, _G = MetricType.COUNTER, MetricType.GAUGE

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
