"""The way back: what MirrorMaker 2 needs to continue where mirror stopped.

Main functions: `plan`, which compares mirror's positions with MirrorMaker 2's, and
`apply`, which writes them to Kafka Connect's offsets topic, with an offset sync for
each partition, so that groups are translated from there on. Both must be stopped:
`require_no_service` and `stop_copying` check that mirror is.
"""

from __future__ import annotations

from dataclasses import dataclass
import json
import time
from typing import TYPE_CHECKING

from mirror.clusters import codes
from mirror.errors import MirrorError
from mirror.migration import mirrormaker
from mirror.migration.mirrormaker import members_of
from mirror.offsets import progress, runs
from mirror.offsets.offset_syncs import OffsetSyncs
from mirror.offsets.translation import OffsetMap
from mirror.service.ownership import PositionUpdate, rewrite_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig
    from mirror.migration.mirrormaker import KeptPositions
    from mirror.migration.plan import AdoptionTerms
    from mirror.topics.topics import MirroredTopic


_WATCH_SECONDS = 6.0
"""A fenced service restarts its flow well within this."""
_PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedBack:
    """What happens to one partition."""

    topic: str
    partition: int
    position: int
    """The next offset to copy, by mirror's progress."""
    mm2: int | None
    """The same by MirrorMaker 2's own position; None if it has none."""

    @property
    def changes(self) -> bool:
        return self.position > 0 and self.position != self.mm2


@dataclass(frozen=True, slots=True, kw_only=True)
class Back:
    """What happens to a flow."""

    flow: str
    partitions: tuple[HandedBack, ...]
    kept: KeptPositions
    terms: AdoptionTerms

    def records(self) -> list[tuple[str, str]]:
        """Keys and values of the records for Connect's topic."""
        return [
            (
                self.kept.key_of((each.topic, each.partition)).decode(),
                mirrormaker.encode_value(each.position).decode(),
            )
            for each in self.partitions
            if each.position > 0
        ]

    def rest(self) -> dict[str, object]:
        """The body of Connect's PATCH /connectors/<name>/offsets."""
        return {
            "offsets": [
                {
                    "partition": {
                        "cluster": self.kept.source,
                        "partition": each.partition,
                        "topic": each.topic,
                    },
                    "offset": {"offset": each.position - 1},
                }
                for each in self.partitions
                if each.position > 0
            ]
        }


def plan(
    flow: FlowConfig,
    target: Cluster,
    topics: Iterable[MirroredTopic],
    terms: AdoptionTerms,
) -> Back:
    """The positions that MirrorMaker 2 would get.

    Raises:
        MirrorError: the flow has no progress, MirrorMaker 2 no topic for positions, or
            the target does not answer.
    """
    name = progress.topic_name(flow.source)
    if target.topics([name])[name].error != codes.NONE:
        raise MirrorError(
            f"flow {flow.name} has copied nothing into {target.alias}: there is no "
            "position to go back to"
        )
    kept = mirrormaker.read_positions(
        target, terms.offsets_topic, connector=terms.connector, source_alias=flow.source
    )
    known = progress.read(target, name).positions
    return Back(
        flow=flow.name,
        partitions=tuple(
            HandedBack(
                topic=topic.topic,
                partition=partition,
                position=known[topic.topic, partition].offset,
                mm2=None if last is None else last + 1,
            )
            for topic in topics
            for partition in range(topic.partitions)
            if (topic.topic, partition) in known
            for last in [kept.last.get((topic.topic, partition))]
        ),
        kept=kept,
        terms=terms,
    )


def require_no_service(flow: FlowConfig, target: Cluster, group: str | None) -> None:
    """`group`: where instances meet, as `service.group` says.

    Raises:
        MirrorError: an instance leads the flow.
    """
    if group is None:
        return
    for member in members_of(target, group):
        shared = json.loads(member.assignment) if member.assignment else {}
        if flow.name in shared.get("leaders", {}):
            raise MirrorError(_runs(flow))


def stop_copying(
    flow: FlowConfig, target: Cluster, *, tell: Callable[[str], None]
) -> None:
    """Fence the flow's current owner, and check that none comes back.

    Raises:
        MirrorError: a service is running; it restarted the flow.
    """
    name = progress.topic_name(flow.source)
    rewrite_progress(flow, target, lambda _: PositionUpdate(positions={}))
    ours = progress.read(target, name, committed=False)
    tell(f"flow {flow.name}: watching for {_WATCH_SECONDS:.0f} s that no service runs")
    deadline = time.monotonic() + _WATCH_SECONDS
    while time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
        now = progress.read(target, name, committed=False)
        if now.generation != ours.generation or now.positions != ours.positions:
            raise MirrorError(_runs(flow))


def apply(flow: FlowConfig, source: Cluster, target: Cluster, back: Back) -> int:
    """Write the plan; returns the number of offset syncs written.

    Raises:
        MirrorError: not everything was written: run it again.
    """
    positions = {
        (each.topic, each.partition): each.position
        for each in back.partitions
        if each.changes
    }
    if positions:
        mirrormaker.write_positions(
            target, back.terms.offsets_topic, back.kept, positions
        )
    the_map = runs.topic_name(flow.source, flow.separator)
    if target.topics([the_map])[the_map].error != codes.NONE:
        return 0
    offsets = OffsetMap.of(flow, target)
    offsets.refresh()
    on_source = flow.offset_syncs_location == "source"
    syncs = OffsetSyncs(
        flow.target if on_source else flow.source,
        separator=flow.mm2_separator,
        replication_factor=flow.offset_syncs_replication_factor
        or flow.replication_factor,
    )
    return syncs.sync(
        source if on_source else target,
        offsets,
        [(each.topic, each.partition) for each in back.partitions],
    )


def _runs(flow: FlowConfig) -> str:
    return (
        f"a mirror service is copying {flow.name}: stop it first, or both it and "
        "MirrorMaker 2 will copy the same records"
    )
