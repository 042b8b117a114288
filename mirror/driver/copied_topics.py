"""The topics that a flow copies now: found, compared with earlier looks, not paused.

Main type: `CopiedTopics`, which looks at both clusters and hands what it finds to the
lease query. When to look is `flow`'s duty; what became of topics that were there
before is `topic_changes`'.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from mirror.driver.topic_changes import TopicChanges
from mirror.metadata import topics
from mirror.metadata.merging import Merging
from mirror.metadata.topics import TopicsResult
from mirror.offsets.groups import Copy
from mirror.recovery.pauses import Pauses, PausesReader
from mirror.status.events import Event, EventKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.driver.flow_status import Problems
    from mirror.offsets.progress import Position
    from mirror.status.store import StatusStore

TOPICS = "topics"
"""Whose problems those of topics are."""


class CopiedTopics:
    """The topics of one flow, for all of its runs."""

    def __init__(
        self,
        flow: FlowConfig,
        config: MirrorConfig,
        *,
        store: StatusStore,
        problems: Problems,
        created: Callable[[], None],
        copy: Callable[[TopicsResult, Pauses], None],
    ) -> None:
        """`created` is called after copies were created; `copy` takes what to copy
        from now on.
        """
        self._store = store
        self._problems = problems
        self._created = created
        self._copy = copy
        self._changes = TopicChanges(flow, store)
        self._found = TopicsResult(topics=())
        self._paused = Pauses()
        self._pauses: PausesReader | None = None
        self._lock = threading.Lock()
        self.adopt(flow, config)

    def adopt(self, flow: FlowConfig, config: MirrorConfig) -> None:
        """Go by other settings from the next look on."""
        self._flow = flow
        self._merging = Merging(config.enabled_flows)
        self._changes.adopt(flow)

    def begin(self, target: Cluster) -> None:
        """A run begins: read what is paused."""
        self._paused = PausesReader(target, self._flow).read()
        self._changes.begin()

    def remember(self, positions: Mapping[tuple[str, int], Position]) -> None:
        """Topics that earlier runs copied, as far as the progress tells."""
        self._changes.remember(positions)

    def look(self, source: Cluster, target: Cluster) -> TopicsResult:
        """Look for topics once, and say what changed."""
        found = topics.sync(source, target, self._flow)
        self._tell(EventKind.TOPIC_CREATED, "created", found.created)
        self._tell(EventKind.TOPIC_GROWN, "has more partitions", found.grown)
        if found.created:
            # Several flows may write it: they have to agree on its configs.
            self._created()
        wanted, problems = self._changes.look(source, found)
        self._problems.tell(TOPICS, problems)
        return wanted

    def look_at_pauses(self, _source: Cluster, target: Cluster) -> None:
        """Pause and resume topics soon after a user asks for it."""
        if self._pauses is None or self._pauses.target is not target:
            self._pauses = PausesReader(target, self._flow)
        paused = self._pauses.read()
        if paused != self._paused:
            self._store.trail.add(paused.event(self._flow.name))
        self._paused = paused
        self.go_by(self._found)

    def go_by(self, found: TopicsResult) -> None:
        """Copy these topics from now on, without those that are paused."""
        with self._lock:
            self._found = found
            self._copy(found, self._paused)

    def copies(self) -> dict[str, Copy]:
        """The topics that are copied, as of the last look."""
        return {
            each.topic: Copy(
                topic=each.target_topic,
                partitions=each.partitions,
                merged=not self._merging.is_alone(self._flow, each.topic),
            )
            for each in self._found.topics
        }

    def _tell(self, kind: EventKind, what: str, names: Sequence[str]) -> None:
        for name in names:
            self._store.trail.add(
                Event(kind=kind, flow=self._flow.name, cluster=self._flow.target,
                      subject=name, text=f"target topic {name} {what}")
            )  # fmt: skip
