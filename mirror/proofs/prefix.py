"""Compares the beginning of a copy with the source, offset by offset.

Main function: `difference`, for `service.taking_up`. Copies may be without the header
that mirror adds, or have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import numpy as np

from mirror.config.schema import for_tasks
from mirror.errors import ClusterError
from mirror.offsets.runs import identical
from mirror.proofs.account import CopiedPartition, Scope
from mirror.proofs.comparing import compare_on
from mirror.proofs.ranges import whole_range
from mirror.proofs.sides import ProofTerms
from mirror.records import alignment

if TYPE_CHECKING:
    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.proofs.comparing import Compared
    from mirror.service.taking_up import Candidate

_FIELDS = {
    alignment.KEY: "key",
    alignment.VALUE: "value",
    alignment.TIMESTAMP: "timestamp",
}


def difference(
    config: MirrorConfig,
    flow: FlowConfig,
    clusters: tuple[Cluster, Cluster],
    copy: Candidate,
    place: tuple[int, int, int],
) -> str:
    """As of `service.taking_up.Compare`."""
    source, target = clusters
    reads, writes = for_tasks(config, flow)
    terms = ProofTerms(
        source=reads, target=writes,
        source_id=source.cluster_id, target_id=target.cluster_id,
        flow=flow.model_copy(update={"provenance": False}), scope=Scope(),
    )  # fmt: skip
    partition, first, end = place
    topic, *ids = copy.ids
    of = CopiedPartition(
        topic=topic, partition=partition, target_topic=copy.topic.target_topic,
        topic_id=UUID(ids[0]), copy_id=UUID(ids[1]),
        source_first=first, source_end=end, target_first=first, target_end=end,
    )  # fmt: skip
    work = whole_range(of, identical(first, end))
    found = compare_on(terms, work, source, target)
    if found.failure:
        raise ClusterError(found.failure)
    return _in_words(found)


def _in_words(found: Compared) -> str:
    where = f"of partition {found.range.of.partition}"
    rows, first = found.mismatches, found.range.source_first
    damages = (*found.source_damages, *found.target_damages)
    if damages:
        one = min(damages, key=lambda each: each.first)
        return f"offset {one.first} {where} cannot be read: {one.reason}"
    if len(rows):
        alone = rows[:, alignment.WHAT] == alignment.ONLY_TARGET
        offsets = np.where(alone, rows[:, alignment.TARGET], rows[:, alignment.SOURCE])
        row, at = rows[offsets.argmin()], int(offsets.min())
        match row[alignment.WHAT]:
            case alignment.ONLY_SOURCE:
                return f"offset {at} {where} has no record in it"
            case alignment.ONLY_TARGET:
                return f"offset {at} {where} has no record on the source"
        what = _FIELDS.get(int(row[alignment.FIELD]), "header")
        return f"offset {at} {where} has another {what} in it"
    if not found.own_times:
        return f"brokers wrote the timestamps {where} of it"
    if found.account.equal != found.range.source_end - first:
        return (
            f"some offset from {first} to {found.range.source_end - 1} {where} has no "
            "record"
        )
    return ""
