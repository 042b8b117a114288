"""How a run of a flow begins: as the only writer, from the right positions.

Main type: `Beginning`. A flow out of the active cluster of a pair first goes on for
another one that fed the same target (`take_turn`). After a failover, which could not
reach the flow's positions, it passes the copies that it would leave out anyway.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import structlog

from mirror.clusters.reach import Reach
from mirror.errors import ClusterError, FencedError, FlowError, OutdatedRoleError
from mirror.offsets import group_survey, progress, runs
from mirror.offsets.joint import JointMap, both_ways
from mirror.offsets.progress import NO_ID, Position, Progress, ProgressReader
from mirror.offsets.reverse_start import Start, edges, find_starts
from mirror.offsets.runs import Block
from mirror.offsets.translation import Exactness, OffsetMap, Translated
from mirror.pairs import roles
from mirror.policy.selection import select_topics
from mirror.service.ownership import (
    Generation,
    PositionUpdate,
    rewrite_progress,
    take_ownership,
)
from mirror.service.positions import pass_copies, topic_ids
from mirror.topics.merging import Merging

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    import uuid

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.pair_settings import PairConfig
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.offsets.groups import CopyWriters
    from mirror.offsets.reverse_start import Edges
    from mirror.service.ownership import Instance, Owned
    from mirror.service.pairs import PairFollower
    from mirror.topics.topics import TopicsResult


log = structlog.get_logger()

_PATIENCE_SECONDS = 30.0
"""How long the other flow may come no closer to the cut, and its source not answer."""
_PAUSE_SECONDS = 0.2


class Beginning:
    """How the runs of one flow begin."""

    def __init__(self, pairs: PairFollower, instance: Instance) -> None:
        self._pairs = pairs
        self._instance = instance
        self._passed = 0.0
        """When the last failover was after which copies were passed."""

    def take_over(
        self, config: MirrorConfig, flow: FlowConfig, source: Cluster, target: Cluster,
        *, slots: int, found: TopicsResult, over: Callable[[], bool],
    ) -> Owned:  # fmt: skip
        """Become the only writer, as `take_ownership`, which says what it raises.
        `over`: whether the run ends anyway.

        Raises:
            FencedError: a switch or failover has begun meanwhile.
        """
        epoch = take_turn(config, flow, source, target, self._pairs, over=over)
        partitions = topic_ids(found.topics)
        begins = self._pairs.begins(flow.source, flow.target)
        epochs = self._pairs.epochs(flow.source, flow.target)
        # After that: a run's note on the target refuses no driver that knows of it.
        if not self._pairs.may_copy(flow.source, flow.target):
            raise FencedError(f"flow {flow.name}: a run of its pair has begun")

        def take() -> Owned:
            return take_ownership(
                *(flow, source, target),
                slots=slots,
                partitions=partitions,
                begins=begins,
                epoch=epoch,
                roles=epochs,
                instance=self._instance,
                appends=config.may_append(flow),
            )

        owned = take()
        if self._pass_copies(config, flow, source, target):
            owned = take()
        return owned

    def _pass_copies(
        self, config: MirrorConfig, flow: FlowConfig, source: Cluster, target: Cluster
    ) -> bool:
        """Returns whether this took the flow over."""
        when = self._pairs.failed_over(flow.source, flow.target)
        if when <= self._passed:
            return False
        there = _flow(config, flow.target, flow.source)
        try:
            took = pass_copies(config, there, flow, source, target, renewed=False)
        except FencedError:
            raise
        except ClusterError as error:
            # It costs time only: the flow reads the copies and leaves them out.
            log.warning("copies are not passed", flow=flow.name, error=str(error))
            return True
        self._passed = when
        return took


# ---- one flow goes on for another that fed the same cluster out of a pair ----
#
# The flow out of the pair's active cluster takes the ids of the other flow over, so
# that this one can never write again behind it, and begins with the first record that
# has not come yet (`handed_over`). Where none has come that is the first one there is,
# whatever `start` says: for the target both are one flow, which begins once. Both
# flows' generations, on the target, name the role for which this was done: it is done
# once per role, and a service that does not know the role yet writes nothing.


def refuse_if_rested(
    config: MirrorConfig, flow: FlowConfig, pairs: PairFollower
) -> None:
    """Look on the target whether the flow may still copy up to the cut, before anything
    else: its source may be gone.

    Raises:
        OutdatedRoleError: the other flow has taken over.
        ClusterError: the target does not answer.
    """
    pair = config.pair_feeding(flow.source, flow.target)
    if pair is None or pairs.role(pair).active == flow.source:
        return
    with Reach(config.clusters, client_id=f"mirror.{flow.name}") as reach:
        _refuse_if_rested(flow, reach(flow.target), pairs, pair)


def take_turn(
    config: MirrorConfig,
    flow: FlowConfig,
    source: Cluster,
    target: Cluster,
    pairs: PairFollower,
    *,
    over: Callable[[], bool],
) -> int | None:
    """Before a flow's driver takes over: go on for the other flow, if a pair feeds the
    target and its role has changed. Returns the role for which this flow copies; None
    if no pair feeds the target. `over`: whether the run ends anyway.

    Raises:
        OutdatedRoleError: the other flow has taken over.
        FencedError: another run of one of both flows started meanwhile.
        ClusterError: the target or the source does not answer, or refuses.
    """
    pair = config.pair_feeding(flow.source, flow.target)
    if pair is None:
        return None
    role, cut = pairs.role(pair), pairs.cut(pair)
    if role.active != flow.source:
        return _refuse_if_rested(flow, target, pairs, pair)
    if _noted(flow, target).epoch < role.epoch:
        other = _flow(config, pair.other_than(flow.source), flow.target)
        if _noted(other, target).epoch == _former(pairs, pair):
            _await_cut(other, target, cut, over)
        # For the role that was waited for, even if there is a later one by now.
        pairs.note_rest(other.source, other.target, role.epoch)
        _continue(
            config, flow, other, source, target,
            epoch=role.epoch, planned=cut is not None, over=over,
        )  # fmt: skip
    return role.epoch


def _flow(config: MirrorConfig, source: str, target: str) -> FlowConfig:
    """One that another process may run."""
    ends = (source, target)
    return next(f for f in config.enabled_flows if (f.source, f.target) == ends)


def _refuse_if_rested(
    flow: FlowConfig, target: Cluster, pairs: PairFollower, pair: PairConfig
) -> int:
    """Only the flow that copied for the role before may copy up to the cut. Returns the
    epoch of that role.
    """
    former = _former(pairs, pair)
    if _noted(flow, target).epoch != former:
        epoch = pairs.role(pair).epoch
        raise OutdatedRoleError(f"flow {flow.name} rests", epoch=epoch)
    return former


def _former(pairs: PairFollower, pair: PairConfig) -> int:
    return roles.former_epoch(pairs.entries(pair))


def _noted(flow: FlowConfig, target: Cluster) -> Generation:
    return Generation.parse(_progress(flow, target).generation)


def _progress(flow: FlowConfig, target: Cluster) -> Progress:
    return progress.read_existing(target, progress.topic_name(flow.source))


def _await_cut(
    other: FlowConfig,
    target: Cluster,
    cut: Mapping[TopicPartition, int] | None,
    over: Callable[[], bool],
) -> None:
    """Let the other flow copy what its source had when it was fenced, also where it has
    no position yet: then no record that was born there is left to it. It ends as well
    if that flow cannot go on.
    """
    if not cut:
        return
    # The flow between the sources, which was drained to the cut, may select more.
    copied = {
        each.topic
        for each in select_topics(
            {topic for topic, _ in cut},
            other.topic_filter,
            other.replication_policy,
            other.target,
        ).mappings
    }
    least, since = None, time.monotonic()
    reader = ProgressReader(target, progress.topic_name(other.source))
    while not over():
        known = reader.read(wait=False).positions
        left = sum(
            max(end - (known[key].offset if key in known else 0), 0)
            for key, end in cut.items()
            if key in known or key[0] in copied
        )
        if not left:
            return
        now = time.monotonic()
        if least is None or left < least:
            least, since = left, now
        elif now - since > _PATIENCE_SECONDS:
            log.warning("flow goes on for another that is behind", flow=other.name,
                        offsets=left)  # fmt: skip
            return
        time.sleep(_PAUSE_SECONDS)
    raise FlowError(f"the run ends before {other.name} is at the cut")


def _continue(  # noqa: PLR0913  all that both flows go by
    config: MirrorConfig,
    flow: FlowConfig,
    other: FlowConfig,
    source: Cluster,
    target: Cluster,
    *,
    epoch: int,
    planned: bool,
    over: Callable[[], bool],
) -> None:
    """`planned`: the role comes from a switch, so the other source may be asked."""
    read = _stop(other, target, epoch)
    begun = _noted(other, target).begun
    own = _progress(flow, target).positions
    places: dict[TopicPartition, Translated] = {}
    if read:
        there = _flow(config, other.source, flow.source)
        with Reach(config.clusters, client_id=f"mirror.{flow.name}") as reach:
            places = handed_over(
                *(there, source),
                _reached(reach, other.source, over) if planned else None,
                Merging(config.enabled_flows),
                read=read,
                own=own,
            )
    ids = {name: each.topic_id for name, each in source.topics().items()}

    def decide(known: Mapping[TopicPartition, Position]) -> PositionUpdate:
        positions = begins(places, known, ids)
        return PositionUpdate(
            positions=positions,
            blocks=_jumps(flow, target, known, positions),
            epoch=epoch,
            begun=begun,
        )

    moved = rewrite_progress(flow, target, decide).positions
    # The same once more writes nothing: a replay may have made the map longer since.
    log.info("flow goes on for another", flow=flow.name, other=other.name,
             epoch=epoch, partitions=len(moved))  # fmt: skip


def _stop(
    other: FlowConfig, target: Cluster, epoch: int
) -> Mapping[TopicPartition, Position]:
    """Fence all runs of a flow that rests from this role on; returns its positions."""
    found: Mapping[TopicPartition, Position] = {}

    def decide(known: Mapping[TopicPartition, Position]) -> PositionUpdate:
        nonlocal found
        found = known
        return PositionUpdate(positions={}, epoch=epoch)

    rewrite_progress(other, target, decide)
    return found


def begins(
    places: Mapping[TopicPartition, Translated],
    own: Mapping[TopicPartition, Position],
    ids: Mapping[str, uuid.UUID],
) -> dict[TopicPartition, Position]:
    """Where partitions begin that go on behind their own position. A position in an
    earlier topic of the name says nothing: what has come from the new one, the place
    says, as when the topic was filled from the other cluster.
    """
    found = {}
    for key, place in places.items():
        known, topic_id = own.get(key), ids.get(key[0], NO_ID)
        if known is None or known.topic_id not in {NO_ID, topic_id}:
            first, moves = place.offset, place.exactness is not Exactness.UNKNOWN
        else:
            first = furthest(known.offset, place)
            moves = first > known.offset
        if moves:
            found[key] = Position(offset=first, topic_id=topic_id)
    return found


def _jumps(
    flow: FlowConfig,
    target: Cluster,
    own: Mapping[TopicPartition, Position],
    moved: Mapping[TopicPartition, Position],
) -> list[Block]:
    """What the flow's map says of the records that the other flow has brought: their
    copies are somewhere behind its own. So groups that stand there skip nothing.
    """
    passed = {
        key: own[key]
        for key, each in moved.items()
        if key in own and own[key].topic_id in {NO_ID, each.topic_id}
    }
    if not passed or target.topic(runs.topic_name(flow.source, flow.separator)) is None:
        return []
    known = OffsetMap.of(flow, target)
    known.refresh()
    copies = known.partitions()
    ids = target.topics({copies[key] for key in passed if key in copies})
    return [
        Block(
            topic=key[0],
            partition=key[1],
            target_topic=copies[key],
            topic_id=moved[key].topic_id,
            copy_id=ids[copies[key]].topic_id,
            runs=np.array(
                [[each.offset, known.translate(*key, each.offset).offset, 0]], np.int64
            ),
        )
        for key, each in passed.items()
        if key in copies
    ]


def _reached(reach: Reach, alias: str, over: Callable[[], bool]) -> Cluster | None:
    """The other source, which says what of this one's records has come through it; None
    if it does not answer for a while: then some may come twice.
    """
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return reach(alias)
        except ClusterError as error:
            if over():
                raise
            if time.monotonic() > until:
                log.warning("flow goes on without the other source", error=str(error))
                return None
        time.sleep(_PAUSE_SECONDS)


# ---- where a flow goes on for another one that fed the same copies ----
#
# Main function: `handed_over`. What the other flow has copied from its cluster stands
# in this flow's source as well, where the flow between the two sources put it: its
# map translates the position. Records that were born in this flow's source have come
# either through the other flow, as the map of the way back says, or through this one,
# up to its position.


def handed_over(
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
    return both_ways(answer, all_back, log, born)
