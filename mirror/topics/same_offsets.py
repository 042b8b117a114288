"""Which copies can have the source's offsets, and why others cannot.

Main function: `why_translated`. Offsets stay the same where every source offset has a
record to copy, or gets a filler, and only this flow writes the copy. The service and
the plan both ask; `service.same_offsets` decides and notes it.
"""

from __future__ import annotations

from dataclasses import dataclass
import re
from typing import TYPE_CHECKING

from mirror.clusters.admin import topic_admin
from mirror.clusters.admin.configs import is_compacted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.clusters.admin.configs import Config
    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic, TopicPartition
    from mirror.config.schema import FlowConfig
    from mirror.topics.merging import Merging
    from mirror.topics.topics import MirroredTopic


HAS_RECORDS = "its copy has records already"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edges:
    """The first offset and the end of each partition whose leader answered."""

    first: Mapping[TopicPartition, int]
    end: Mapping[TopicPartition, int]

    @classmethod
    def read(
        cls,
        cluster: Cluster,
        partitions: Iterable[TopicPartition],
        *,
        committed: bool = False,
    ) -> Edges:
        """`committed`: the end of what is.

        Raises:
            ClusterError: the cluster does not answer.
        """
        asked = list(partitions)
        first = topic_admin.list_offsets(cluster, asked, timestamp=topic_admin.EARLIEST)
        end = topic_admin.list_offsets(
            cluster, first, timestamp=topic_admin.LATEST, committed=committed
        )
        return cls(first=first, end=end)


def is_excluded(flow: FlowConfig, topic: str) -> bool:
    """Whether a topic is to be translated although others are not."""
    return any(re.fullmatch(each, topic) for each in flow.offsets_exclude)


def why_translated(
    flow: FlowConfig,
    topic: MirroredTopic,
    configs: Mapping[str, Config],
    merging: Merging,
    *,
    in_pair: bool,
) -> str:
    """Why a copy cannot have its topic's offsets, by settings and configs alone; empty
    if it can. `in_pair`: one flow rests while the one back copies.
    """
    if is_excluded(flow, topic.topic):
        return "offsets_exclude names it"
    if flow.is_heartbeats(topic.topic):
        return "services write heartbeats on both clusters"
    by_turns = in_pair and merging.back(flow, topic.topic) is not None
    if not (by_turns or merging.is_alone(flow, topic.topic)):
        return "other flows write the same copy, or copy it back"
    if is_compacted(configs) and flow.fill == "refuse":
        return (
            "it is compacted, which removes records between others; fill: visible "
            "keeps the source's offsets"
        )
    return ""


def why_begun(
    topic: MirroredTopic, source: Edges, target: Edges, copy: Topic, *, most: int
) -> tuple[str, bool]:
    """Why a copy, which may be missing, cannot begin where the source's log begins,
    empty if it can; and whether that is known: leaders may not answer now. `most`: how
    many offsets may be padded.
    """
    for number in range(topic.partitions):
        key, at = (topic.topic, number), (topic.target_topic, number)
        missing = number >= copy.partitions
        if key not in source.end or not (missing or at in target.end):
            return f"the leader of {topic.topic}-{number} or its copy is away", False
        if not missing and target.end[at]:
            is_empty = target.first[at] == target.end[at]
            if not is_empty or target.end[at] > source.first[key]:
                return HAS_RECORDS, True
        if source.first[key] > most:
            return (
                f"the log of {topic.topic}-{number} begins at {source.first[key]}: "
                f"most_padded_offsets is {most}"
            ), True
    return "", True


def why_no_prefix(
    topic: MirroredTopic,
    source: Edges,
    target: Edges,
    copy: Topic,
    kept: Mapping[TopicPartition, int],
) -> tuple[str, bool]:
    """Why a copy with records cannot be the beginning of the source's log, by where
    both logs begin and end, empty if it can; and whether that is known. `kept`: the
    first offset that the copy would keep, of source partitions that begin before it.
    """
    for number in range(topic.partitions):
        key, at = (topic.topic, number), (topic.target_topic, number)
        missing = number >= copy.partitions
        if key not in source.end or not (
            missing or (at in target.end and at in target.first)
        ):
            return f"the leader of {topic.topic}-{number} or its copy is away", False
        begins, ends = (0, 0) if missing else (target.first[at], target.end[at])
        first, end = source.first[key], source.end[key]
        if not first <= ends <= end:
            return (
                f"partition {number} of it ends at offset {ends}, and the source's log "
                f"is from {first} to {end}"
            ), True
        if begins > max(first, kept.get(key, 0)):
            return (
                f"partition {number} of it begins at offset {begins}, and the source "
                f"has records from {first} on that it would keep"
            ), True
    return "", True
