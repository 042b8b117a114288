"""Where a flow goes on for another flow that fed the same copies from another cluster.

Main function: `places`. What the other flow has copied from its source stands in this
flow's source as well, where the flow between the two sources put it: its map translates
the position. Records that were born in this flow's source have come either through the
other flow, as the map of the way back says, or through this one, up to its position.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.errors import ClusterError
from mirror.offsets import group_survey, runs
from mirror.offsets.covers import edges, find_starts
from mirror.offsets.joint import OtherLog, both_ways
from mirror.offsets.joint_map import JointMap
from mirror.offsets.progress import NO_ID, Position
from mirror.offsets.reverse_start import Start
from mirror.offsets.translation import Exactness, Translated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig
    from mirror.offsets.covers import Edges
    from mirror.offsets.groups import CopyWriters
    from mirror.offsets.offset_map import OffsetMap


def places(
    there: FlowConfig,
    source: Cluster,
    other: Cluster | None,
    writers: CopyWriters,
    *,
    read: Mapping[TopicPartition, Position],
    own: Mapping[TopicPartition, Position],
) -> dict[TopicPartition, Translated]:
    """By partition of `source`, where everything before it has come.

    `there` is the flow between the two sources into this one, `other` its source; None
    if that is gone. `read`: how far the other flow has come, by the other source's
    partitions; `own`: how far this one, by those of `source`.

    Raises:
        ClusterError: the source does not answer.
    """
    if source.topic(runs.topic_name(there.source, there.separator)) is None:
        return {}  # nothing of the other source is here
    name = there.replication_policy.target_topic
    copies = {key: (name(key[0]), key[1]) for key in read}
    # Before the map is read: then it names all copies below these ends.
    logs = edges(source, list(copies.values()))
    known = group_survey.known_of(there, source)
    wanted = {
        key: {each.offset}
        for key, each in read.items()
        if copies[key] in logs and _is_of(known, key, each)
    }
    joint = None if other is None else _joint(there, known, other, source, writers)
    answers = (known if joint is None else joint).translate_all(wanted)
    alone = [key for key in wanted if joint is None or not joint.joins(key[0])]
    born = _born(there, source, {copies[key]: key for key in alone}, own)
    found = {copies[key]: answer for key in wanted for answer in answers[key].values()}
    return found | {
        copy: _behind_own(found[copy], logs[copy], born.get(copy))
        for copy in (copies[key] for key in alone)
    }


def _born(
    there: FlowConfig,
    source: Cluster,
    copies: Mapping[TopicPartition, TopicPartition],
    own: Mapping[TopicPartition, Position],
) -> dict[TopicPartition, Start]:
    """The first record from the own position on that was born in the source."""
    if not copies:
        return {}
    positions = {key: each.offset for key, each in own.items()}
    return find_starts(there, source, copies, positions)


def furthest(own: int, place: Translated) -> int:
    """Where a flow begins: everything before either of the two has come."""
    return own if place.exactness is Exactness.UNKNOWN else max(own, place.offset)


def _is_of(known: OffsetMap, key: TopicPartition, position: Position) -> bool:
    """Whether a position is of the topic that the map is of: not an earlier one."""
    ids = {known.source_id(*key), position.topic_id} - {NO_ID}
    return len(ids) < 2


def _joint(
    there: FlowConfig,
    known: OffsetMap,
    other: Cluster,
    source: Cluster,
    writers: CopyWriters,
) -> JointMap | None:
    """Both maps; None if the other source does not answer."""
    joint = JointMap(there, known, other, source, patient=True)
    try:
        joint.refresh(group_survey.copies(there, other, writers))
    except ClusterError:
        return None
    return None if joint.refused else joint


def _behind_own(answer: Translated, log: Edges, born: Start | None) -> Translated:
    """Without the map of the way back: what was born here came with this flow's own
    run, and what follows its position has not come.
    """
    if born is None:
        born = Start(log.start, sure=False)
    all_back = Translated(offset=0, exactness=Exactness.TIP)
    return both_ways(
        answer, all_back, OtherLog(start=log.start, end=log.cut, born=born)
    )
