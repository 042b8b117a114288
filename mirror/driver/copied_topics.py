"""The topics that a flow copies now, without the paused ones.

Main type: `CopiedTopics`, which looks for topics on both clusters and passes them to
the run's leases. `flow` decides when to look; `topic_changes` compares the topics with
those found before.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from mirror.driver.topic_changes import TopicChanges
from mirror.metadata import topics
from mirror.metadata.merging import Merging
from mirror.metadata.topics import TopicsResult
from mirror.offsets.groups import copy_of
from mirror.recovery.pauses import Pauses, PausesReader
from mirror.status.events import Event, EventKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.driver.flow_status import Problems
    from mirror.offsets.groups import Copy
    from mirror.offsets.progress import Position
    from mirror.recovery.repairs import Repair
    from mirror.status.store import StatusStore

TOPICS = "topics"
"""The key under which `Problems` keeps the problems of topics."""


class CopiedTopics:
    """The topics of one flow, across its runs."""

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
        """`created` is called after target topics were created; `copy` gets the topics
        to copy from now on.
        """
        self._store = store
        self._problems = problems
        self._created = created
        self._copy = copy
        self._changes = TopicChanges(flow, store)
        self._found = TopicsResult(topics=())
        self._paused = Pauses()
        self._pauses: PausesReader | None = None
        self._repairs_known = False
        self._repair: Repair | None = None
        self._lock = threading.Lock()
        self.adopt(flow, config)

    def adopt(self, flow: FlowConfig, config: MirrorConfig) -> None:
        """Use new settings from the next look on."""
        self._flow = flow
        self._merging = Merging(config.enabled_flows)
        self._changes.adopt(flow)

    def begin(self, target: Cluster) -> None:
        """Start a run: read which topics are paused."""
        reader = PausesReader(target, self._flow)
        self._paused = reader.read()
        if self._repairs_known:  # a repair ends a run
            self._tell_of(reader.repair)
        self._repair, self._repairs_known = reader.repair, True
        self._changes.begin()

    def remember(self, positions: Mapping[tuple[str, int], Position]) -> None:
        """Take note of the topics that earlier runs copied, from their progress."""
        self._changes.remember(positions)

    def look(self, source: Cluster, target: Cluster) -> TopicsResult:
        """Look for topics once, and report what changed."""
        found = topics.sync(source, target, self._flow)
        self._tell(EventKind.TOPIC_CREATED, "created", found.created)
        self._tell(EventKind.TOPIC_GROWN, "has more partitions", found.grown)
        if found.created:
            # Several flows may write to one topic, and must agree on its configs.
            self._created()
        wanted, problems = self._changes.look(source, target, found)
        self._problems.tell(TOPICS, problems)
        return wanted

    def look_at_pauses(self, _source: Cluster, target: Cluster) -> None:
        """Pause and resume topics as users have asked."""
        if self._pauses is None or self._pauses.target is not target:
            self._pauses = PausesReader(target, self._flow)
        paused = self._pauses.read()
        if paused != self._paused:
            self._store.trail.add(paused.event(self._flow.name))
        self._paused = paused
        self._tell_of(self._pauses.repair)
        self.go_by(self._found)

    def go_by(self, found: TopicsResult) -> None:
        """Copy these topics from now on, except paused ones."""
        with self._lock:
            self._found = found
            self._copy(found, self._paused)

    def names(self) -> set[str]:
        """The names of the copied source topics, as of the last look."""
        return {each.topic for each in self._found.topics}

    def copies(self) -> dict[str, Copy]:
        """The copied topics, as of the last look."""
        return {
            each.topic: copy_of(
                self._flow,
                each.topic,
                each.target_topic,
                each.partitions,
                self._merging,
            )
            for each in self._found.topics
        }

    def _tell_of(self, repair: Repair | None) -> None:
        if repair is not None and repair != self._repair:
            self._store.trail.add(repair.event())
        self._repair = repair

    def _tell(self, kind: EventKind, what: str, names: Sequence[str]) -> None:
        for name in names:
            self._store.trail.add(
                Event(kind=kind, flow=self._flow.name, cluster=self._flow.target,
                      subject=name, text=f"target topic {name} {what}")
            )  # fmt: skip
