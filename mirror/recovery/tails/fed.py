"""Clusters that a pair feeds, which may have records of a tail already.

Main function: `clusters_fed`. Before a failover the flow out of the cluster that died
may have been ahead of the flow to the other one. A record that is replayed carries a
header `mirror.via` for each cluster that has it, so that the flow there leaves it out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mirror.copying import provenance
from mirror.errors import MirrorError
from mirror.offsets import progress
from mirror.service.ownership import Generation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.pair_settings import PairConfig
    from mirror.config.schema import FlowConfig
    from mirror.copying.provenance import Bytes
    from mirror.offsets.progress import Position
    from mirror.recovery.tails.tail import Offsets, TailPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Fed:
    """A cluster that the pair feeds."""

    stamp: Bytes
    """The header by which flows to it leave records out."""
    read: Mapping[TopicPartition, Position]
    """How far it has the logs of the tail."""

    def end(self, part: TailPartition) -> int:
        """The offset below which it has all records of a partition; 0: it has none."""
        position = self.read.get(part.key)
        if position is None or position.topic_id != part.topic_id:
            return 0
        return position.offset


def clusters_fed(
    pair: PairConfig, flow: FlowConfig, epoch: int, reach: Callable[[str], Cluster]
) -> tuple[Fed, ...]:
    """The clusters that the pair feeds; `flow` has the tail, `epoch` is of the role
    that made its target active.

    Raises:
        MirrorError: one does not answer, or its flow may still write.
    """
    found = []
    for alias in pair.feeds:
        target = reach(alias)
        name = progress.topic_name(flow.source)
        if target.topic(name) is None:
            continue
        known = progress.read(target, name)
        if Generation.parse(known.generation).epoch < epoch:
            raise MirrorError(
                f"{flow.target}->{alias} has not gone on for {flow.source}->{alias} "
                f"yet, so it is not known which records {alias} has: let the service "
                "run, and try again"
            )
        made = provenance.via(
            source_alias=alias, source_id=target.cluster_id, target_id=""
        )
        found.append(Fed(stamp=made.stamp, read=known.positions))
    return tuple(found)


def cuts(fed: Sequence[Fed], part: TailPartition, offsets: Offsets) -> tuple[int, ...]:
    """Where, in ascending offsets, the clusters that have the records change."""
    ends = {int(np.searchsorted(offsets, each.end(part))) for each in fed}
    return tuple(sorted(ends - {0, len(offsets)}))


def headers(fed: Sequence[Fed], part: TailPartition, offset: int) -> tuple[Bytes, ...]:
    """What a record gets in front of the flow's own header."""
    return tuple(each.stamp for each in fed if offset < each.end(part))
