"""Fills topics again that are gone or new on the cluster that is back.

Main function: `restore`. It pauses the topics in the flow home, creates what is missing
as on the active cluster, empties the rest and fills all (`homecoming`), up to where the
flow home stands. A run that was killed left topics that still count as re-created: the
next one empties and fills them again. Once the flow out is moved behind what came home,
nothing is left to do. Of two commands the later one fences the other, on both clusters.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mirror.batches import records, writing
from mirror.clusters.admin import topic_admin
from mirror.clusters.admin.deletion import delete_records
from mirror.clusters.transactions import Producer
from mirror.config import scopes
from mirror.driver import ownership
from mirror.driver.generation import Generation
from mirror.driver.ownership import rewrite_progress
from mirror.driver.rewriting import Rewriting
from mirror.driver.way_back import behind_copies, both_write
from mirror.metadata import topics as topic_job
from mirror.metadata.sides import Live
from mirror.offsets import progress
from mirror.offsets.progress import NO_ID, Position
from mirror.recovery import pauses
from mirror.switching import homecoming
from mirror.switching.homecoming import PartitionToFill
from mirror.switching.restorable import (
    copied_home,
    origins,
    require_no_own,
    require_possible,
)
from mirror.switching.stage import StepError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.offsets.progress import Progress
    from mirror.offsets.runs import Block
    from mirror.switching.stage import Stage

TopicPartition = tuple[str, int]


def restore(
    stage: Stage, topics: Collection[str], *, show: Callable[[str], None]
) -> None:
    """Fill these topics; `show` gets a line for each.

    Raises:
        FencedError: another command began meanwhile.
        MirrorError: a cluster refuses or does not answer; run it again.
    """
    require_possible(stage, topics)
    home, back = stage.flow, stage.target
    names = origins(stage, topics)
    producer = Producer(
        back,
        transactional_id=f"mirror.{home.name}.restore",
        transaction_timeout_ms=int(home.transaction_timeout_seconds * 1000),
    )
    producer.take_over()
    known = _fence_others(stage, topics)
    # The flow home writes copies of other names nowhere near these.
    paused = sorted(set(topics) & copied_home(stage).keys())
    for topic in paused:
        pauses.change(back, home, re.escape(topic), paused=True)
    # A driver reads the pauses after it takes over, so none copies these from here on.
    ownership.take_over(home, back)
    _make(stage, names)
    require_no_own(stage, names)
    # A later command fences this one before it writes: `retake` finds that, or all that
    # it writes is behind these.
    ends = _ends(back, topics)
    parts = _parts(stage, names, paused)
    require_no_own(stage, names, ends)
    former = Generation.parse(known.generation).source_ids
    ids = [back.cluster_id, *(each for each in former if each != back.cluster_id)]
    came_home: list[Block] = []
    for topic in sorted(topics):
        mine = [part for part in parts if part.topic == topic]
        producer.retake()
        _empty(back, mine, ends)
        count = 0
        for part in mine:
            written, blocks = homecoming.fill(stage, producer, part, ids)
            count += written
            came_home += blocks
        show(f"{topic} on {home.target} has {count} records again")
    _resume(stage, producer, parts, paused)
    _pass(stage, producer, names, came_home)


def _fence_others(stage: Stage, topics: Collection[str]) -> Progress:
    """Fence the last step of earlier commands, and return what the flow out has
    copied.

    Raises:
        StepError: one of them came to its end meanwhile.
    """
    out, active = stage.reverse, stage.source
    ownership.take_over(out, active)
    known = progress.read_proven(active, progress.topic_name(out.source))
    here = stage.target.topics(topics)
    for (topic, _), at in known.positions.items():
        if topic in here and NO_ID != at.topic_id == here[topic].topic_id:
            raise StepError(f"another command has filled {topic}: run this one again")
    return known


def _make(stage: Stage, names: Mapping[str, str]) -> None:
    """Create the topics that are missing, and add missing partitions, as the flow home
    would.

    Raises:
        ClusterError: a cluster refuses.
    """
    home, active, back = stage.flow, stage.source, stage.target
    here, there = back.topics(names), active.topics(names.values())
    missing = {
        topic: origin for topic, origin in names.items() if not here[topic].partitions
    }
    _, problems = topic_job.create(back, topic_job.like(Live(active), home, missing))
    if problems:
        raise StepError("; ".join(problems))
    for topic, origin in sorted(names.items()):
        count = there[origin].partitions
        if topic not in missing and here[topic].partitions < count:
            topic_admin.add_partitions(back, topic, count=count)
        back.wait_for_topic(topic, partitions=count)


def _parts(
    stage: Stage, names: Mapping[str, str], paused: Collection[str]
) -> list[PartitionToFill]:
    """
    Raises:
        StepError: the flow home stands in an earlier topic.
    """
    home, active, back = stage.flow, stage.source, stage.target
    known = progress.read_proven(back, progress.topic_name(home.source)).positions
    there, here = active.topics(names.values()), back.topics(names)
    keys = [
        (origin, n)
        for origin in names.values()
        for n in range(there[origin].partitions)
    ]
    starts = topic_admin.offsets_of_all(active, keys, timestamp=topic_admin.EARLIEST)
    ends = topic_admin.offsets_of_all(active, keys, timestamp=topic_admin.LATEST)
    parts = []
    for topic, origin in names.items():
        for number in range(there[origin].partitions):
            key = (origin, number)
            at = known.get(key) if topic in paused else None
            if at is not None and at.topic_id != there[origin].topic_id:
                raise StepError(
                    f"{home.name} does not stand in {origin}-{number} yet: let it copy "
                    "first"
                )
            end = ends[key] if at is None else at.offset
            parts.append(
                PartitionToFill(
                    topic=topic, partition=number, origin=origin,
                    origin_id=there[origin].topic_id, topic_id=here[topic].topic_id,
                    first=starts[key], end=max(starts[key], end),
                    begins=at is None and topic in paused,
                )
            )  # fmt: skip
    return parts


def _ends(cluster: Cluster, topics: Collection[str]) -> dict[TopicPartition, int]:
    here = cluster.topics(topics)
    keys = [(name, n) for name in topics for n in range(here[name].partitions)]
    return topic_admin.offsets_of_all(
        cluster, keys, timestamp=topic_admin.LATEST, committed=False
    )


def _empty(
    cluster: Cluster,
    parts: Sequence[PartitionToFill],
    ends: Mapping[TopicPartition, int],
) -> None:
    topic = parts[0].topic
    if cluster.topics([topic])[topic].topic_id != parts[0].topic_id:
        raise StepError(f"{topic} on {cluster.alias} was re-created meanwhile")
    before = {n: end for (name, n), end in ends.items() if name == topic and end}
    delete_records(cluster, topic, before)


def _resume(
    stage: Stage,
    producer: Producer,
    parts: Sequence[PartitionToFill],
    paused: Sequence[str],
) -> None:
    """Let the flow home go on, where it has not begun behind what came home. A later
    command fences this: else it would end that one's pauses.
    """
    home, back = stage.flow, stage.target
    producer.retake()
    batches = {}
    if paused:
        patterns = map(re.escape, paused)
        _, record = pauses.changed(back, home, patterns, paused=False)
        batches[pauses.topic_name(home.source)] = records.encode_all([record])
    begins = {
        (part.origin, part.partition): Position(
            offset=part.end, topic_id=part.origin_id
        )
        for part in parts
        if part.begins
    }
    if begins:
        batches[progress.topic_name(home.source)] = progress.encode(begins)
    if batches:
        writing.write(back, batches, producer)
        ownership.commit(back, producer, [(topic, 0) for topic in batches])


def _pass(
    stage: Stage,
    producer: Producer,
    names: Mapping[str, str],
    came_home: Sequence[Block],
) -> None:
    """Move the flow out behind what came home: from now on the topics are what was
    copied, also of another cluster than before.
    """
    home, out = stage.flow, stage.reverse
    back, active = stage.target, stage.source
    copies = both_write(stage.config, home, out, active)
    here = back.topics(names)
    copies |= {
        (topic, n): (origin, n)
        for topic, origin in names.items()
        for n in range(here[topic].partitions)
    }

    def decide(known: Mapping[TopicPartition, Position]) -> Rewriting:
        producer.retake()
        moved = behind_copies(home, back, copies, known)
        others = {
            key: each
            for key, each in known.items()
            if not scopes.has_topic(stage.pair, key[0], home)
        }
        return Rewriting(
            positions=others | moved, blocks=came_home, copied=copies.keys()
        )

    rewrite_progress(out, active, decide, source_id=back.cluster_id)
