"""What of an earlier look at a tail still holds: the next one goes on behind that.

Main function: `still_there`. A log that is another topic's now, or lost some of what
was read, is read again as a whole; leaders' epochs tell that also where it has grown
since, as far as records have them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.clusters.admin import topic_admin
from mirror.offsets.progress import Position
from mirror.relay import gaps

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.tails.tail import TailPartition

TopicPartition = tuple[str, int]


def still_there(
    source: Cluster,
    seen: Iterable[TailPartition],
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, TailPartition]:
    """Those whose logs on the source still have all that was read. `ends`: where the
    logs end now.

    Raises:
        ClusterError: the source does not answer.
    """
    asked = {each.key: each for each in seen if each.key in ends}
    topics = source.topics({topic for topic, _ in asked})
    epochs = {key: each.epoch for key, each in asked.items() if each.epoch >= 0}
    common = topic_admin.epoch_ends(source, epochs, topics)
    return {
        key: each
        for key, each in asked.items()
        if key in common or key not in epochs
        if gaps.judge(
            Position(offset=each.end, leader_epoch=each.epoch, topic_id=each.topic_id),
            topic_id=topics[key[0]].topic_id,
            first=0,
            end=ends[key],
            common=common.get(key),
        )
        is None
    }
