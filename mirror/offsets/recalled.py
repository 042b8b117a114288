"""Checkpoints of groups in copies that another flow copies back, from the target alone.

Main function: `recall`. The map of the flow back is on the source, which may be gone.
But when a checkpoint was written, the group had read all that the target had below its
offset, copied or not. From there on the flow's own map and the target's log say what
was copied since that the group has read on the source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mirror.offsets.covers import Covers, edges
from mirror.offsets.joint import OtherLog, both_ways
from mirror.offsets.translation import Exactness, Translated

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig
    from mirror.offsets.offset_map import OffsetMap

TopicPartition = tuple[str, int]


class RecalledCheckpoint(NamedTuple):
    """What a checkpoint says of one of the source's partitions."""

    topic: str
    partition: int
    upstream: int
    downstream: int

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition


def recall(
    flow: FlowConfig,
    target: Cluster,
    offset_map: OffsetMap,
    known: Iterable[RecalledCheckpoint],
    copies: Mapping[str, str],
) -> dict[RecalledCheckpoint, Translated]:
    """Where groups go on now. `copies`: the target's topic of each of the source's. It
    refreshes the map. Where a copy's leader does not answer, the checkpoint counts.

    Raises:
        ClusterError: the target does not answer.
    """
    # Smaller offsets first: a cover forgets what is behind.
    asked = sorted(set(known))
    if not asked:
        return {}
    begins: dict[TopicPartition, int] = {}
    for each in sorted(asked, key=lambda each: -each.downstream):
        begins[each.key] = each.downstream
    places = {key: (copies[key[0]], key[1]) for key in begins}
    found = edges(target, set(places.values()))
    offset_map.refresh()
    covers = Covers(flow, target, {topic for topic, _ in begins}, begins)
    covers.follow()
    answers = {}
    for each in sorted(asked, key=lambda each: (each.key, each.downstream)):
        copy = places[each.key]
        if (log := found.get(copy)) is None:
            offset = each.downstream
            answers[each] = Translated(offset=offset, exactness=Exactness.EARLIER)
            continue
        there = offset_map.translate(*each.key, each.upstream)
        born = covers.start(each.key, copy, log, each.downstream)
        read = Translated(offset=each.downstream, exactness=Exactness.TIP)
        answers[each] = both_ways(
            there, read, OtherLog(start=log.start, end=log.cut, born=born)
        )
    return answers
