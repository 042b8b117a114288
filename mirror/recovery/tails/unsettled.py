"""How many records of a tail are not settled, cheap enough to ask all the time.

Main type: `Unsettled`, for one role of a pair: each look reads what is new in the
source's logs, up to a bound, so a long tail is counted over several looks. Main
function: `unsettled`, the whole tail at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.clusters.admin import topic_admin
from mirror.offsets import progress, runs
from mirror.pairs import losses, roles
from mirror.recovery.tails.survey import survey, topics_of
from mirror.recovery.tails.tail import Tail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig
    from mirror.pairs.journal import Entry

_MOST_READ = 200_000
"""Offsets that one look reads."""
_MOST_KEPT = 1_000_000
"""Records that are remembered, 32 bytes each, or 64 in partitions of which some are
settled; behind them nothing is counted."""


class Unsettled:
    """Counts the tail of one flow again and again."""

    def __init__(self) -> None:
        self._tail = Tail(partitions=())
        self._ends: object = None

    def look(self, flow: FlowConfig, source: Cluster, target: Cluster) -> int:
        """How many records are known to be unsettled; both clusters are connected.

        Raises:
            ClusterError: a cluster does not answer, or not for all partitions.
        """
        ends = _ends(flow, source, target)
        if ends != self._ends or any(each.open for each in self._tail.partitions):
            room = _MOST_KEPT - self._tail.remembered
            most = max(min(_MOST_READ, room), 0)
            self._tail = survey(flow, source, target, seen=self._tail, most=most)
            self._ends = ends
        return self._tail.records


def unsettled(
    flow: FlowConfig,
    source: Cluster,
    target: Cluster,
    entries: Sequence[Entry],
    *,
    seen: Tail | None = None,
) -> Tail:
    """What is not settled of the flow. Only a failover out of its source leaves a tail;
    after anything else no log is read. `entries`: of both journals, about the pair;
    `seen`: as `survey`.

    Raises:
        ClusterError: a cluster does not answer, or not for all partitions.
    """
    if not roles.leaves_tail(entries, flow.source):
        return Tail(partitions=())
    return survey(flow, source, target, seen=seen)


def _ends(flow: FlowConfig, source: Cluster, target: Cluster) -> object:
    """Where all ends that the count depends on: the source's logs, and what settles."""
    keys = [
        (each.topic, number)
        for each in topics_of(flow, source).values()
        for number in range(each.partitions)
    ]
    own = [
        (progress.topic_name(flow.source), 0),
        (runs.topic_name(flow.source, flow.separator), 0),
        (losses.topic_name(flow.source), 0),
    ]
    return tuple(
        topic_admin.list_offsets(cluster, where, timestamp=topic_admin.LATEST)
        for cluster, where in ((source, keys), (target, own))
    )
