"""A flow back starts behind the copies that it would leave out anyway.

Main function: `pass_copies`, which a switch calls. `Beginning` takes a flow over, and
calls it after a failover, which could not reach the flow's positions. Where both flows
of a pair write one topic, the flow back finds there what the other flow copied; the map
explains that, so it need not be read. Positions only move forward, and never past a
record that was born there, so this may be done at any time, and again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from mirror.driver.ownership import Rewriting, rewrite_progress, take_ownership
from mirror.errors import ClusterError, FencedError
from mirror.metadata.merging import Merging
from mirror.metadata.topics import select
from mirror.offsets.covers import find_starts
from mirror.offsets.progress import NO_ID, Position

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.driver.pairs import PairFollower
    from mirror.metadata.topics import TopicsResult

TopicPartition = tuple[str, int]

log = structlog.get_logger()


class Beginning:
    """How the runs of one flow begin."""

    def __init__(self, pairs: PairFollower) -> None:
        self._pairs = pairs
        self._passed = 0
        """The epoch of the last failover after which copies were passed."""

    def own(
        self, config: MirrorConfig, flow: FlowConfig, source: Cluster, target: Cluster,
        *, slots: int, found: TopicsResult,
    ) -> str:  # fmt: skip
        """Become the only writer, as `take_ownership`, which says what it raises."""
        partitions = {
            (topic.topic, partition): topic.topic_id
            for topic in found.topics
            for partition in range(topic.partitions)
        }
        begins = self._pairs.begins(flow.source, flow.target)

        def take() -> str:
            return take_ownership(
                *(flow, source, target),
                slots=slots,
                partitions=partitions,
                begins=begins,
            )

        generation = take()
        if self._pass_copies(config, flow, source, target):
            generation = take()
        return generation

    def _pass_copies(
        self, config: MirrorConfig, flow: FlowConfig, source: Cluster, target: Cluster
    ) -> bool:
        """Returns whether this took the flow over."""
        epoch = self._pairs.failed_over(flow.source, flow.target)
        if epoch <= self._passed:
            return False
        try:
            took = pass_copies(config, flow, source, target, renewed=False)
        except FencedError:
            raise
        except ClusterError as error:
            # It costs time only: the flow reads the copies and leaves them out.
            log.warning("copies are not passed", flow=flow.name, error=str(error))
            return True
        self._passed = epoch
        return took


def pass_copies(
    config: MirrorConfig,
    reverse: FlowConfig,
    source: Cluster,
    target: Cluster,
    *,
    renewed: bool,
) -> bool:
    """Move the flow back to the first record of each partition that the flow in the
    other direction did not copy there, or to the end. Whether there was such a topic:
    then earlier runs of the flow back are fenced.

    `source` and `target` are its own. `renewed`: also where its position is in an
    earlier topic of the name; else `on_recreated_topic` decides about these.

    Raises:
        FencedError: a run of the flow back started meanwhile; nothing was written.
        ClusterError: a cluster refuses, or there is no map. Nothing was written, or
            everything.
    """
    ends = (reverse.target, reverse.source)
    flow = next((f for f in config.enabled_flows if (f.source, f.target) == ends), None)
    if flow is None:
        return False
    writers = Merging(config.enabled_flows)
    copies = {
        (topic.target_topic, number): (topic.topic, number)
        for topic in select(target, flow).topics
        if writers.back(flow, topic.topic) is not None
        for number in range(topic.partitions)
    }
    if not copies:
        return False
    ids = {name: each.topic_id for name, each in source.topics().items()}

    def decide(known: Mapping[TopicPartition, Position]) -> Rewriting:
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
        return Rewriting(
            positions={
                key: Position(offset=start.offset, topic_id=ids[key[0]])
                for key, start in starts.items()
                if start.offset > before.get(key, 0) or key in other
            }
        )

    rewrite_progress(reverse, target, decide)
    return True
