"""Takes a flow over from MirrorMaker 2: the plan, and its execution.

Main functions: `plan`, which finds out how far MirrorMaker 2 got and changes nothing;
and `apply`, which writes the plan to progress and offset map, in one transaction.
`activity` checks beforehand that MirrorMaker 2 is stopped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror.adoption import connect_offsets
from mirror.adoption.partitions import AdoptionSurvey
from mirror.clusters import codes
from mirror.driver.ownership import make_topics, rewrite_progress
from mirror.driver.rewriting import Rewriting
from mirror.errors import FencedError, MirrorError
from mirror.offsets import progress, runs
from mirror.offsets.offset_map import OffsetMap
from mirror.offsets.runs import Block

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from mirror.adoption.initial_runs import Pair
    from mirror.adoption.partitions import Adopted
    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig
    from mirror.metadata.topics import MirroredTopic
    from mirror.offsets.progress import Position


MOST_RECORDS = 1_000_000
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """What happens to a flow."""

    flow: str
    partitions: tuple[Adopted, ...]
    not_copied: tuple[str, ...] = ()
    """Topics that MirrorMaker 2 copied and the flow does not."""
    present: int = 0
    """Partitions for which the flow already has a position of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionTerms:
    """Where MirrorMaker 2 keeps its positions, and how far to look."""

    offsets_topic: str
    connector: str
    most_records: int = MOST_RECORDS


def plan(
    flow: FlowConfig,
    source: Cluster,
    target: Cluster,
    topics: Iterable[MirroredTopic],
    terms: AdoptionTerms,
    *,
    selected: AbstractSet[str],
) -> Adoption:
    """Find where the partitions of some topics continue.

    `selected`: all topics that the flow copies.

    Raises:
        MirrorError: a cluster or the leader of a partition does not answer.
    """
    chosen = tuple(topics)
    kept = connect_offsets.read(
        target, terms.offsets_topic, connector=terms.connector, source_alias=flow.source
    )
    known = _present(flow, target)
    survey = AdoptionSurvey(
        flow, source, target, kept=kept, most_records=terms.most_records, known=known
    )
    partitions = survey.resume_points(chosen)
    if not kept.last and not any(each.copy_end for each in partitions):
        raise MirrorError(
            f"cluster {target.alias}: {terms.offsets_topic} has no position of "
            f"connector {terms.connector} for cluster {flow.source}, and there are no "
            "copies; choose the positions with --connector and --offsets-topic"
        )
    return Adoption(
        flow=flow.name,
        partitions=partitions,
        not_copied=tuple(sorted({topic for topic, _ in kept.last} - selected)),
        present=sum((each.topic, each.partition) in known for each in partitions),
    )


def apply(
    flow: FlowConfig,
    target: Cluster,
    adoption: Adoption,
    *,
    replace: bool,
) -> None:
    """Write what was planned; all of it, or nothing.

    Raises:
        FencedError: a run of the flow began meanwhile; nothing was written.
        MirrorError: the flow has positions of its own and `replace` is off, or the
            target refuses.
    """

    def decide(known: Mapping[TopicPartition, Position]) -> Rewriting:
        taken = [e for e in adoption.partitions if (e.topic, e.partition) in known]
        if taken and not replace:
            raise MirrorError(has_progress(adoption.flow, len(taken)))
        return Rewriting(
            positions={
                (each.topic, each.partition): each.position
                for each in adoption.partitions
            },
            blocks=[
                Block(
                    topic=each.topic,
                    partition=each.partition,
                    target_topic=each.target_topic,
                    topic_id=each.position.topic_id,
                    runs=each.runs,
                )
                for each in adoption.partitions
                if each.runs is not None
            ],
        )

    make_topics(flow, target)
    for attempt in range(_ATTEMPTS):
        try:
            rewrite_progress(flow, target, decide)
            break
        except FencedError:
            # The fenced service came back before we were done.
            if attempt == _ATTEMPTS - 1:
                raise


def has_progress(flow: str, count: int) -> str:
    """Why a flow is not taken over."""
    return (
        f"flow {flow} has positions of its own for {count} partitions, so it has "
        "already copied: pass --replace to overwrite them with MirrorMaker 2's"
    )


def _present(flow: FlowConfig, target: Cluster) -> dict[TopicPartition, Pair]:
    """Partitions that the flow has copied itself: its position, and the offset of the
    copy that everything else follows.
    """
    name = progress.topic_name(flow.source)
    if target.topics([name])[name].error != codes.NONE:
        return {}
    positions = progress.read(target, name).positions
    the_map = runs.topic_name(flow.source, flow.separator)
    if target.topics([the_map])[the_map].error != codes.NONE:
        return {key: (position.offset, 0) for key, position in positions.items()}
    offsets = OffsetMap.of(flow, target)
    offsets.refresh()
    return {
        key: (
            position.offset,
            max(offsets.translate(*key, position.offset).offset, 0),
        )
        for key, position in positions.items()
    }
