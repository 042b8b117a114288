"""One look at what is not copied: the source's ends, the target's progress, the risk.

Main type: `Looking`, for the service, look by look, and for a command, once. Ends are
asked for before progress is read: what was copied in between is not at risk.
`from_standby` answers without the source.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mirror.clusters import codes
from mirror.errors import ClusterError
from mirror.offsets import standby
from mirror.pairs import ends, risk
from mirror.pairs.ends import KIND, NOT_KNOWN, PartitionEnd, TopicEnds
from mirror.pairs.source_ends import SourceEnds

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig
    from mirror.offsets.progress import Progress
    from mirror.status.values import RiskStatus


_MOST = 32
"""Sightings of one partition to remember, fewer of the middle if it is far behind."""
_FAR_SECONDS = 60.0
"""Retention takes what is older than minutes, so only then the log's start matters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskLook:
    """What one look found."""

    ends: Mapping[str, TopicEnds]
    risk: RiskStatus


class Sightings:
    """The ends of a flow's partitions over time. A record that is not copied was
    accepted after the last moment at which the end was seen that is copied now. This
    needs no times of records, which producers choose.
    """

    def __init__(self) -> None:
        self._seen: dict[TopicPartition, list[tuple[float, int]]] = {}

    def recall(self, key: TopicPartition, at: float, end: int) -> None:
        """Note an end that was seen before, from the oldest on."""
        self._seen.setdefault(key, []).append((at, end))

    def since(
        self, key: TopicPartition, position: int, end: int, at: float
    ) -> float | None:
        """Note that the end was seen now; returns since when records may be missing, as
        all is copied that the source accepted before that. None: not known.
        """
        seen = self._seen.setdefault(key, [])
        if seen and seen[-1][1] > end:
            seen.clear()  # another topic, or a log that lost its end
        if seen and seen[-1][1] == end:
            seen[-1] = (at, end)
        else:
            seen.append((at, end))
        while len(seen) > 1 and seen[1][1] <= position:
            del seen[0]
        if len(seen) > _MOST:
            del seen[1:-1:2]
        return seen[0][0] if seen[0][1] <= position else None

    def keep_only(self, keys: set[TopicPartition]) -> None:
        """Forget all other partitions."""
        for key in self._seen.keys() - keys:
            del self._seen[key]


class Looking:
    """Looks at one flow's topics. Not thread-safe."""

    def __init__(
        self, known: Mapping[str, TopicEnds], progress: Callable[[], Progress]
    ) -> None:
        """`known`: what the standby topic says. `progress` reads the target's."""
        self._ends = SourceEnds(known)
        self._progress = progress
        self._sightings = Sightings()
        for topic, found in known.items():
            for number, end in enumerate(found.partitions):
                if end.since >= 0:
                    self._sightings.recall((topic, number), end.since, 0)
                if end.end >= 0:
                    self._sightings.recall((topic, number), end.at, end.end)

    def look(self, source: Cluster, names: Collection[str], *, at: float) -> RiskLook:
        """Look at these topics, `at` this time (now).

        Raises:
            ClusterError: a cluster does not answer.
        """
        found = self._ends.look(source, names, at=at)
        progress = self._progress()
        keys: set[TopicPartition] = set()
        behind: dict[TopicPartition, float] = {}
        far = []
        for topic, each in found.items():
            for number, end in enumerate(each.partitions):
                key = (topic, number)
                keys.add(key)
                position = risk.position(progress, key, each.topic_id)
                since = self._since(key, position, end)
                if position is None or position >= end.end:
                    continue
                behind[key] = since
                if since < at - _FAR_SECONDS:
                    far.append(key)
        self._sightings.keep_only(keys)
        more = self._ends.details(source, behind, far)
        changed: dict[str, dict[int, PartitionEnd]] = {}
        for key, since in behind.items():
            end = found[key[0]].partitions[key[1]]
            changed.setdefault(key[0], {})[key[1]] = replace(
                end,
                stable=min(more.stable.get(key, end.end), end.end),
                start=more.starts.get(key, end.start),
                since=since,
            )
        found = self._ends.improve(changed)
        return RiskLook(ends=found, risk=risk.assess(found, progress, at=at))

    def _since(
        self, key: TopicPartition, position: int | None, end: PartitionEnd
    ) -> float:
        """Since when records may be missing; NOT_KNOWN if it is not known."""
        if end.end < 0:
            return NOT_KNOWN
        copied = max(position or 0, 0)  # where nothing is, an end of 0 is copied
        since = self._sightings.since(key, copied, end.end, end.at)
        return NOT_KNOWN if since is None else since


def with_copies(progress: Progress, flow: FlowConfig, target: Cluster) -> Progress:
    """The progress of topics whose copies are there: of one that was deleted, a
    failover would lose all, whatever was copied.

    Raises:
        ClusterError: the target does not answer.
    """
    names = {topic for topic, _ in progress.positions}
    copies = {name: flow.replication_policy.target_topic(name) for name in names}
    shown = target.topics(set(copies.values()))
    gone = {
        name
        for name, copy in copies.items()
        if shown[copy].error == codes.UNKNOWN_TOPIC_OR_PARTITION
    }
    if not gone:
        return progress
    kept = {key: at for key, at in progress.positions.items() if key[0] not in gone}
    return replace(progress, positions=kept)


def from_standby(
    target: Cluster,
    flow: FlowConfig,
    progress: Callable[[], Progress],
    *,
    counts: Callable[[str], bool] = lambda _topic: True,
) -> RiskStatus:
    """What is not copied, from the target alone: as of the service's last look.
    `counts`: whether a topic does.

    Raises:
        ClusterError: the target does not answer, or has no such record.
    """
    found = standby.read(target, flow.source, {KIND})
    if found is None or KIND not in found.looks:
        raise ClusterError(
            f"flow {flow.name}: cluster {flow.target} has no record in "
            f"{standby.topic_name(flow.source)}: did a service with this version run?"
        )
    known = {
        name: each
        for name, each in ends.read(found, flow.source).items()
        if counts(name)
    }
    copied = with_copies(progress(), flow, target)
    return risk.assess(known, copied, at=ends.at(found))
