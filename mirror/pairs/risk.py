"""What a failover now would lose, from the source's ends and the target's progress.

Main function: `assess`. Records are counted in offsets, so they are an upper bound:
transaction markers, aborted records and what was compacted away count as well. Bytes
are records times the size that records of the partition, or of its topic, had
when they were copied. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.offsets.progress import NO_ID, RunningCount
from mirror.pairs.ends import NOT_KNOWN
from mirror.status.values import NOTHING, Counts, PartitionRisk, RiskStatus, TopicRisk

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirror.clusters.topics import TopicPartition
    from mirror.offsets.progress import Progress
    from mirror.pairs.ends import PartitionEnd, TopicEnds


NOT_BEGUN = -1
"""The position where nothing is copied yet: below every offset."""


def position(progress: Progress, key: TopicPartition, topic_id: str) -> int | None:
    """The next offset to copy of the topic with this id (hex), `NOT_BEGUN` if none of
    its records is; None: not known, as the source could not say where it begins.
    """
    found = progress.positions.get(key)
    if found is None:
        return None if key in progress.unsettled else NOT_BEGUN
    ids = (found.topic_id.hex, topic_id)
    if NO_ID.hex not in ids and ids[0] != ids[1]:
        return NOT_BEGUN  # it was re-created, and not copied from there yet
    return found.offset


def assess(
    ends: Mapping[str, TopicEnds], progress: Progress, *, at: float
) -> RiskStatus:
    """What is not copied yet of these topics, as seen `at` this time, or earlier if a
    partition did not answer.

    Raises:
        ClusterError: a running count in the progress is damaged.
    """
    sizes = _Sizes(progress)
    found: list[PartitionRisk] = []
    topics = []
    for topic, of_topic in sorted(ends.items()):
        partitions = [
            _partition(
                (topic, number),
                end,
                position(progress, (topic, number), of_topic.topic_id),
                sizes,
                at,
            )
            for number, end in enumerate(of_topic.partitions)
        ]
        topics.append(_topic(topic, partitions))
        found += [each for each in partitions if each.records or each.at < at]
    return RiskStatus(
        at=min((each.at for each in topics if each.at), default=at),
        records=sum(each.records for each in topics),
        bytes=_sum(each.bytes for each in topics),
        seconds=_longest(each.seconds for each in topics),
        unknown=sum(each.unknown for each in topics),
        topics=tuple(topics),
        partitions=tuple(found),
    )


def _partition(
    key: TopicPartition,
    end: PartitionEnd,
    copied: int | None,
    sizes: _Sizes,
    at: float,
) -> PartitionRisk:
    records, undecided, seconds, reason = 0, 0, 0.0, ""
    if copied is None:
        reason = "it is not known where the copy begins: it had no leader at that time"
    elif end.end == NOT_KNOWN:
        reason = "the source did not say where it ends"
    if reason:
        records, seconds = -1, -1.0
    elif copied is not None and copied < end.end:
        first = max(copied, end.start, 0)
        records = max(end.end - first, 0)
        undecided = min(max(end.end - end.stable, 0), records)
        seconds = at - end.since if end.since >= 0 else -1.0
    return PartitionRisk(
        topic=key[0],
        partition=key[1],
        records=records,
        open=undecided,
        bytes=sizes.estimate(key, records),
        seconds=seconds if records else 0.0,
        at=end.at,
        reason=reason,
    )


def _topic(topic: str, partitions: Sequence[PartitionRisk]) -> TopicRisk:
    known = [each for each in partitions if each.records >= 0]
    return TopicRisk(
        topic=topic,
        records=sum(each.records for each in known),
        bytes=_sum(each.bytes for each in known),
        seconds=_longest(each.seconds for each in known),
        unknown=len(partitions) - len(known),
        at=min((each.at for each in known), default=0.0),
    )


def _sum(each: Iterable[int]) -> int:
    """-1 if one is not known."""
    found = list(each)
    return sum(found) if min(found, default=0) >= 0 else -1


def _longest(each: Iterable[float]) -> float:
    """-1 if one is not known: it may be the longest."""
    found = list(each)
    return max(found, default=0.0) if min(found, default=0.0) >= 0 else -1.0


class _Sizes:
    """How many bytes a record takes, as far as records were copied."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._of_topics: dict[str, Counts] | None = None

    def estimate(self, key: TopicPartition, records: int) -> int:
        """The bytes of these records, from what was copied of the partition, or else
        of its topic; -1 if nothing was.
        """
        if records <= 0:
            return records
        counts = _copied(self._progress.running.get(key, b""))
        if not counts.records:
            counts = self._topics().get(key[0], NOTHING)
        if not counts.records:
            return -1
        return round(records * counts.bytes / counts.records)

    def _topics(self) -> dict[str, Counts]:
        if self._of_topics is None:
            self._of_topics = {}
            for (topic, _), written in self._progress.running.items():
                others = self._of_topics.get(topic, NOTHING)
                self._of_topics[topic] = others + _copied(written)
        return self._of_topics


def _copied(written: bytes) -> Counts:
    running = RunningCount.decode(written)
    return NOTHING if running is None else running.counts
