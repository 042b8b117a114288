"""Detects topics that were deleted, re-created, or hidden from us.

Main type: `TopicChanges`, which remembers the topics found before, including those of
earlier runs, compares each look with them, reports what changed, and returns what to
copy from now on. `metadata` finds topics and creates copies.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from mirror.metadata import absent
from mirror.metadata.topics import about_unmatched
from mirror.status.events import Event, EventKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig
    from mirror.metadata.absent import Absent
    from mirror.metadata.topics import MirroredTopic, TopicsResult
    from mirror.offsets.progress import Position
    from mirror.status.store import StatusStore

_LOG = structlog.get_logger()
_NO_IDS = {"", "0" * 32}
"""Old brokers have no topic ids, and old progress records may have none either."""


class TopicChanges:
    """The known topics of one flow."""

    def __init__(self, flow: FlowConfig, store: StatusStore) -> None:
        self._flow = flow
        self._store = store
        self._known: dict[str, MirroredTopic] = {}
        self._created: set[str] = set()
        """Copies that this run has created."""
        self._remade: set[str] = set()
        """Those of them that were there before."""
        self._unmatched: tuple[str, ...] = ()

    def adopt(self, flow: FlowConfig) -> None:
        """Use new settings from the next look on."""
        self._flow = flow

    def begin(self) -> None:
        """Start a run: drop problems that were already reported."""
        self._created.clear()
        self._remade.clear()

    def remember(self, positions: Mapping[tuple[str, int], Position]) -> None:
        """Take note of the topics that were copied before, from their progress."""
        ids = {key: each.topic_id.hex for key, each in positions.items()}
        copied = {topic for (topic, _), each in positions.items() if each.offset}
        for topic in absent.remembered(self._flow, ids):
            now = self._known.setdefault(topic.topic, topic)
            self._tell_recreated(topic, now)
            if topic.topic in copied and not _is_another(topic, now):
                self._remade |= {topic.target_topic} & self._created

    def look(
        self, source: Cluster, target: Cluster, found: TopicsResult
    ) -> tuple[TopicsResult, tuple[str, ...]]:
        """What to copy, and all problems with it.

        Hidden topics are still copied: their partitions report what is missing.

        Raises:
            ClusterError: a cluster does not answer.
        """
        missing = absent.look(
            source, target, self._flow, self._known.values(), found.topics
        )
        for pattern in found.unmatched:
            if pattern not in self._unmatched:
                told = about_unmatched(pattern, self._flow, source.topics())
                _LOG.warning(told, flow=self._flow.name)
        self._unmatched = found.unmatched
        copies = {topic.target_topic for topic in self._known.values()}
        self._remade |= copies.intersection(found.created)
        self._created.update(found.created)
        for topic in found.topics:
            self._tell_recreated(self._known.get(topic.topic, topic), topic)
        self._tell_gone(missing)
        for topic in missing.ended:
            del self._known[topic.topic]
        self._known |= {topic.topic: topic for topic in found.topics}
        wanted = replace(found, topics=(*found.topics, *missing.hidden))
        remade = (
            f"target topic {name} was gone and has been re-created without its "
            "earlier records: `mirror flow reset` copies them again"
            for name in sorted(self._remade)
        )
        return wanted, (*found.problems, *remade)

    def _tell_recreated(self, before: MirroredTopic, now: MirroredTopic) -> None:
        if _is_another(before, now):
            self._store.trail.add(
                Event(
                    kind=EventKind.TOPIC_RECREATED,
                    flow=self._flow.name,
                    cluster=self._flow.source,
                    subject=now.topic,
                    text=f"source topic {now.topic} was deleted and re-created",
                    details={"on_recreated_topic": self._flow.on_recreated_topic},
                )
            )

    def _tell_gone(self, missing: Absent) -> None:
        status = self._store.flow(self._flow.name)
        lags: Counter[str] = Counter()
        for each in status.partitions:
            lags[each.topic] += each.lag
        stay = {
            each.topic: f"source topic {each.topic} was deleted; its copy "
            f"{each.target_topic} stays"
            for each in missing.gone
        }
        # One that ended long ago is known from progress alone, and no news.
        news = stay | {
            each.topic: f"source topic {each.topic} was deleted, and its copy "
            f"{each.target_topic}, too"
            for each in missing.ended
            if each.topic in lags
        }
        for topic, text in news.items():
            if text not in status.gone:
                self._store.trail.add(
                    Event(
                        kind=EventKind.TOPIC_GONE,
                        flow=self._flow.name,
                        cluster=self._flow.source,
                        subject=topic,
                        text=text,
                        details={"not_copied": lags[topic]},
                    )
                )
        gone = tuple(stay.values())
        self._store.update(self._flow.name, lambda flow: replace(flow, gone=gone))


def _is_another(before: MirroredTopic, now: MirroredTopic) -> bool:
    """Whether the source's topic was deleted and re-created in between."""
    ids = {before.topic_id, now.topic_id}
    return len(ids) > 1 and not ids & _NO_IDS
