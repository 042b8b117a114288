"""A flow back starts behind the copies that it would leave out anyway.

Main function: `pass_copies`, which a switch calls. `Beginning` takes a flow over, and
calls it after a failover, which could not reach the flow's positions. Where both flows
of a pair write one topic, the flow back finds there what the other flow copied; the map
explains that, so it need not be read. Positions only move forward, and never past a
record that was born there, so this may be done at any time, and again.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from mirror.errors import ClusterError, FencedError
from mirror.offsets.progress import NO_ID, Position
from mirror.offsets.reverse_start import find_starts
from mirror.service.ownership import rewrite_progress, take_ownership
from mirror.service.rewriting import Rewriting
from mirror.topics.merging import Merging
from mirror.topics.topics import select

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.offsets.runs import Block
    from mirror.service.ownership import Owned
    from mirror.service.pairs import PairFollower
    from mirror.service.rivalry import Instance
    from mirror.topics.topics import TopicsResult


class Beginning:
    """How the runs of one flow begin."""

    def __init__(self, pairs: PairFollower, instance: Instance) -> None:
        self._pairs = pairs
        self._instance = instance
        self._passed = 0.0
        """When the last failover was after which copies were passed."""

    def own(
        self, config: MirrorConfig, flow: FlowConfig, source: Cluster, target: Cluster,
        *, slots: int, found: TopicsResult, over: Callable[[], bool],
    ) -> Owned:  # fmt: skip
        """Become the only writer, as `take_ownership`, which says what it raises.
        `over`: whether the run ends anyway.
        """
        from mirror.service.feeding import take_turn  # noqa: PLC0415  no switch needs it

        epoch = take_turn(config, flow, source, target, self._pairs, over=over)
        partitions = {
            (topic.topic, partition): topic.topic_id
            for topic in found.topics
            for partition in range(topic.partitions)
        }
        begins = self._pairs.begins(flow.source, flow.target)
        roles = self._pairs.epochs(flow.source, flow.target)

        def take() -> Owned:
            return take_ownership(
                *(flow, source, target),
                slots=slots,
                partitions=partitions,
                begins=begins,
                epoch=epoch,
                roles=roles,
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
        ends = (flow.target, flow.source)
        there = next(f for f in config.enabled_flows if (f.source, f.target) == ends)
        try:
            took = pass_copies(
                *(config, there, flow, source, target),
                renewed=False,
            )
        except FencedError:
            raise
        except ClusterError as error:
            import structlog  # noqa: PLC0415  a switch need not wait for it

            # It costs time only: the flow reads the copies and leaves them out.
            log = structlog.get_logger()
            log.warning("copies are not passed", flow=flow.name, error=str(error))
            return True
        self._passed = when
        return took


def pass_copies(  # noqa: PLR0913  all that it moves by
    config: MirrorConfig,
    flow: FlowConfig,
    reverse: FlowConfig,
    source: Cluster,
    target: Cluster,
    *,
    renewed: bool,
    fresh: Mapping[TopicPartition, Position] = MappingProxyType({}),
    blocks: Sequence[Block] = (),
) -> bool:
    """Move the flow back, `reverse`, to the first record of each partition that `flow`
    did not copy there, or to the end. Whether there was something to move: then earlier
    runs of the flow back are fenced.

    `source` and `target` are those of the flow back. `renewed`: also where its position
    is in an earlier topic of the name; else `on_recreated_topic` decides about these.
    `fresh`: where it begins with partitions that have no position. `blocks`: what its
    offset map learns with that.

    Raises:
        FencedError: a run of the flow back started meanwhile; nothing was written.
        ClusterError: a cluster refuses, or there is no map. Nothing was written, or
            everything.
    """
    copies = both_write(config, flow, reverse, target)
    if not (copies or fresh):
        return False

    def decide(known: Mapping[TopicPartition, Position]) -> Rewriting:
        moved = behind_copies(flow, source, copies, known, renewed=renewed)
        begun = {key: each for key, each in fresh.items() if key not in known}
        return Rewriting(positions=moved | begun, blocks=blocks)

    rewrite_progress(reverse, target, decide)
    return True


def both_write(
    config: MirrorConfig, flow: FlowConfig, reverse: FlowConfig, source: Cluster
) -> dict[TopicPartition, TopicPartition]:
    """The partitions of copies that are copied back under the same name, with those
    that the flow reads on its source. What further flows write there counts as written
    there.

    Raises:
        ClusterError: the source does not answer.
    """
    writers = Merging(config.enabled_flows, pair=(flow.name, reverse.name))
    return {
        (topic.target_topic, number): (topic.topic, number)
        for topic in select(source, flow).topics
        if writers.back(flow, topic.topic) is not None
        for number in range(topic.partitions)
    }


def behind_copies(
    flow: FlowConfig,
    source: Cluster,
    copies: Mapping[TopicPartition, TopicPartition],
    known: Mapping[TopicPartition, Position],
    *,
    renewed: bool = True,
) -> dict[TopicPartition, Position]:
    """Where the flow back moves on to, given its positions: past what `flow` copied to
    the flow back's source. Raises as `pass_copies`.
    """
    ids = {name: each.topic_id for name, each in source.topics().items()}
    # A position in an earlier topic of this name says nothing.
    ours = {key: each for key, each in known.items() if key in copies}
    before = {
        key: each.offset
        for key, each in ours.items()
        if each.topic_id == NO_ID or each.topic_id == ids.get(key[0])
    }
    other = ours.keys() - before
    asked = copies if renewed else {k: copies[k] for k in copies.keys() - other}
    starts = find_starts(flow, source, asked, before)
    return {
        key: Position(offset=start.offset, topic_id=ids[key[0]])
        for key, start in starts.items()
        if start.offset > before.get(key, 0) or key in other
    }
