"""The note of a rebuild on the target: read by anyone, written by the flow's owner.

Main type: `RebuildNotes` of one topic. Each write fences a running service for a moment
and then checks that the note still says what the writer believes, so of two rebuilds
only one takes a step.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from mirror.batches.writing import ensure_topic
from mirror.config import own_topics
from mirror.driver import ownership
from mirror.driver.rewriting import Rewriting
from mirror.errors import ClusterChangedError, FencedError, MirrorError
from mirror.recovery import pauses, rebuilds
from mirror.recovery.pauses import PausesReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig
    from mirror.offsets.progress import Position
    from mirror.recovery.rebuilds import KeptGroup, Rebuild

TopicPartition = tuple[str, int]

_ATTEMPTS = 5
_NOTHING: Mapping[TopicPartition, Position] = MappingProxyType({})


class AheadError(MirrorError):
    """Somebody else went on with this rebuild, or ended it: run the command again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildNotes:
    """The notes about one topic of a flow."""

    flow: FlowConfig
    source: Cluster
    target: Cluster
    topic: str

    def unfinished(self) -> Rebuild | None:
        """The rebuild that is under way.

        Raises:
            MirrorError: one of another topic of the flow is.
            ClusterChangedError: it began with another source.
        """
        reader = PausesReader(self.target, self.flow)
        reader.read()
        reader.refuse_beside(self.topic)
        found = reader.rebuilds.get(self.topic)
        if found is None or not found.unfinished:
            return None
        if found.source_id != self.source.cluster_id:
            raise ClusterChangedError(
                f"flow {self.flow.name}: this rebuild began with cluster "
                f"{found.source_id}, but {self.flow.source} leads to cluster "
                f"{self.source.cluster_id}: point bootstrap_servers there again"
            )
        return found

    def groups(self, rebuild: Rebuild) -> dict[str, KeptGroup]:
        """Groups that do not have their offsets in the new copy yet, by name."""
        control = pauses.topic_name(self.flow.source)
        found = rebuilds.groups(self.target, control, self.flow.name, rebuild)
        return {each.group: each for each in found}

    def write(
        self,
        before: Rebuild | None,
        after: Rebuild,
        *,
        groups: Iterable[KeptGroup] = (),
        positions: Mapping[TopicPartition, Position] = _NOTHING,
        told: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        """Write the next note, and with it what changes: groups, the flow's positions,
        and further records of the topic. `before`: the unfinished one, if there is one.

        Raises:
            AheadError: the note says something else by now; nothing was written.
            MirrorError: nothing was written, or the answer to the commit was lost.
        """
        control = pauses.topic_name(self.flow.source)
        ensure_topic(
            self.target,
            own_topics.CONTROL,
            control,
            replication_factor=self.flow.replication_factor,
        )
        name = self.flow.name
        notes = [*(g.record(name) for g in groups), after.record(name), *told]

        def decide(_: object) -> Rewriting:
            if self.unfinished() != before:
                raise AheadError
            return Rewriting(positions=positions, notes=notes)

        for attempt in range(_ATTEMPTS):
            try:
                ownership.rewrite_progress(self.flow, self.target, decide)
            except FencedError:
                # The fenced service came back before we were done.
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                return
