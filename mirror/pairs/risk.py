"""What a failover now would lose, from the source's ends and the target's progress.

Main types: `SourceEnds` asks the source where its partitions end; `RiskTracker`
compares that with the target's progress, look by look for the service and once for a
command. The service keeps the ends on the target, where `from_standby` finds them
without the source. `PassiveWrites` counts what applications write to a cluster that is
passive.

Layout of `ends/<topic>` in the standby topic: `topic_id` (hex), and per partition, in
their order, `ends`, `stable`, `starts`, `epochs` and `since`; `silent` maps the
partitions that did not answer to when they last did, and `faulted`, if it is there,
those that were set aside to the reason. Times are epoch milliseconds; -1 is not known.
All others are as of `looks/ends`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from mirror.clusters import codes
from mirror.clusters.admin import topic_admin
from mirror.errors import MALFORMED, ClusterError, NoLeaderError, UnreachableError
from mirror.offsets import standby
from mirror.offsets.progress import NO_ID, RunningCount
from mirror.pairs import roles
from mirror.status.values import NOTHING, Counts, PartitionRisk, RiskStatus, TopicRisk
from mirror.topics.topics import select

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Leader, Topic, TopicPartition
    from mirror.config.schema import FlowConfig
    from mirror.offsets.progress import Progress
    from mirror.offsets.standby import Fields, Standby, StandbyEntry
    from mirror.pairs.journal import Entry


ENDS = "ends"
NOT_KNOWN = -1
_FAULTED = "faulted"
_COLUMNS = ("ends", "stable", "starts", "epochs", "since")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionEnd:
    """What the source said about one partition. -1: not known."""

    end: int
    """The high watermark: the source has accepted all below it, and keeps it when a
    broker dies."""
    stable: int
    """The last stable offset; after it stands what is not decided yet. As `end` where
    everything is copied."""
    start: int = NOT_KNOWN
    """The first offset; looked up only where much is not copied."""
    epoch: int = NOT_KNOWN
    """Of the leader that said so."""
    since: float = NOT_KNOWN
    """All that the source accepted before this time was copied at the look, epoch
    seconds; see `Sightings`. -1 as well if everything was."""
    at: float
    """When the source said so, epoch seconds; 0: never."""


UNHEARD = PartitionEnd(end=NOT_KNOWN, stable=NOT_KNOWN, at=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicEnds:
    """The ends of one topic's partitions."""

    topic_id: str
    """Of the topic that the offsets belong to, in hex; zeros if brokers have none."""
    partitions: tuple[PartitionEnd, ...]

    def fields(
        self, looked_at: float, faulted: Mapping[int, str] = MappingProxyType({})
    ) -> Fields:
        """As in the topic, with a look at this time. `faulted`: why partitions were set
        aside.
        """
        each = self.partitions
        told: Fields = {
            "topic_id": self.topic_id,
            "ends": [p.end for p in each],
            "stable": [p.stable for p in each],
            "starts": [p.start for p in each],
            "epochs": [p.epoch for p in each],
            "since": [_ms(p.since) for p in each],
            "silent": {
                str(number): _ms(p.at)
                for number, p in enumerate(each)
                if p.at < looked_at
            },
        }
        if faulted:
            told[_FAULTED] = {str(n): why for n, why in sorted(faulted.items())}
        return told


def read_ends(found: Standby, source_alias: str) -> dict[str, TopicEnds]:
    """The ends of all topics, by name.

    Raises:
        ClusterError: an entry is damaged.
    """
    standby_topic, looked_at = standby.topic_name(source_alias), ends_at(found)
    return {
        name: decode_ends(standby_topic, name, entry, looked_at)
        for name, entry in found.entries[ENDS].items()
    }


def faults(found: Standby) -> dict[tuple[str, int], str]:
    """Why partitions were set aside at the last look, by topic and number."""
    return {
        (name, int(number)): str(why)
        for name, entry in found.entries[ENDS].items()
        for number, why in entry.fields.get(_FAULTED, {}).items()
    }


def ends_at(found: Standby) -> float:
    """When the service last looked at the ends, epoch seconds; 0 for never."""
    look = found.looks.get(ENDS)
    return look.at if look is not None else 0.0


def decode_ends(
    topic: str, name: str, entry: StandbyEntry, looked_at: float
) -> TopicEnds:
    """The ends of one topic.

    Raises:
        ClusterError: the entry is damaged.
    """
    told = entry.fields
    try:
        silent = {int(n): int(ms) / 1000 for n, ms in told["silent"].items()}
        rows = zip(*(map(int, told[name]) for name in _COLUMNS), strict=True)
        return TopicEnds(
            topic_id=str(told["topic_id"]),
            partitions=tuple(
                PartitionEnd(
                    end=end,
                    stable=stable,
                    start=start,
                    epoch=epoch,
                    since=since / 1000 if since >= 0 else NOT_KNOWN,
                    at=silent.get(number, looked_at),
                )
                for number, (end, stable, start, epoch, since) in enumerate(rows)
            ),
        )
    except MALFORMED as error:
        raise standby.damaged(topic, f"{ENDS}/{name}", error) from error


def _ms(seconds: float) -> int:
    return round(seconds * 1000) if seconds >= 0 else NOT_KNOWN


# ---- asking the source ----


class SourceEnds:
    """The ends of some topics' partitions, look by look: one request per leader, and
    one for the topics' ids. Offsets are asked for by name, so an answer counts only if
    the name meant the same topic before and after, and not if a newer leader has
    answered before. Not thread-safe.
    """

    def __init__(self, known: Mapping[str, TopicEnds] | None = None) -> None:
        """`known`: from earlier looks, for partitions that do not answer."""
        self._known = dict(known or {})
        self._topics: Mapping[str, Topic] = {}

    def look(
        self, source: Cluster, names: Collection[str], *, at: float
    ) -> dict[str, TopicEnds]:
        """The ends now, `at` this time or later. Partitions that do not answer are as
        they last were.

        Raises:
            ClusterError: the source does not answer.
        """
        before, self._topics = self._topics, {}
        if not before.keys() >= set(names):
            before = source.topics(names)
        there = [
            (name, partition) for name in names for partition in before[name].leaders
        ]
        ends, refusals = _ask(
            source, there, before, topic_admin.LATEST, committed=False
        )
        if there and not ends:
            raise (
                refusals[0]
                if refusals
                else NoLeaderError(
                    f"{source.alias}: no leader says where its partitions end"
                )
            )
        self._topics = source.topics(names)
        self._known = {
            name: found
            for name in names
            if (found := self._of_topic(name, before[name], ends, at)) is not None
        }
        return dict(self._known)

    def refine(
        self,
        source: Cluster,
        behind: Mapping[TopicPartition, float],
        far: Iterable[TopicPartition],
    ) -> dict[str, TopicEnds]:
        """All ends, more precisely for partitions that are not completely copied, each
        with since when: their last stable offsets, and of those `far` behind the first
        ones, as far as their leaders answer.
        """
        stable, _ = _ask(source, behind, self._topics, topic_admin.LATEST)
        starts, _ = _ask(source, far, self._topics, topic_admin.EARLIEST)
        changed: dict[str, list[PartitionEnd]] = {}
        for key, since in behind.items():
            name, number = key
            ends = changed.setdefault(name, [*self._known[name].partitions])
            ends[number] = replace(
                ends[number],
                stable=min(stable.get(key, ends[number].end), ends[number].end),
                start=starts.get(key, ends[number].start),
                since=since,
            )
        for name, ends in changed.items():
            self._known[name] = replace(self._known[name], partitions=tuple(ends))
        return dict(self._known)

    def _of_topic(
        self, name: str, topic: Topic, ends: Mapping[TopicPartition, int], at: float
    ) -> TopicEnds | None:
        known = self._known.get(name)
        if topic.error or topic.topic_id != self._topics[name].topic_id:
            return known
        last: tuple[PartitionEnd, ...] = ()
        if known is not None and known.topic_id == topic.topic_id.hex:
            last = known.partitions
        count = max(topic.leaders, default=-1) + 1
        last += (UNHEARD,) * (count - len(last))
        return TopicEnds(
            topic_id=topic.topic_id.hex,
            partitions=tuple(
                _newest(before, ends.get((name, number)), topic.leaders.get(number), at)
                for number, before in enumerate(last)
            ),
        )


def _ask(
    source: Cluster,
    partitions: Iterable[TopicPartition],
    topics: Mapping[str, Topic],
    timestamp: int,
    *,
    committed: bool = True,
) -> tuple[dict[TopicPartition, int], list[UnreachableError]]:
    """Offsets from the leaders that answer, and why others do not."""
    by_node: dict[int, list[TopicPartition]] = {}
    for topic, number in partitions:
        leader = topics[topic].leaders.get(number)
        if leader is not None and leader.node >= 0:
            by_node.setdefault(leader.node, []).append((topic, number))
    found: dict[TopicPartition, int] = {}
    refusals = []
    for asked in by_node.values():
        try:
            found |= topic_admin.list_offsets(
                source, asked, timestamp=timestamp, committed=committed, topics=topics
            )
        except UnreachableError as error:
            refusals.append(error)
    return found, refusals


def _newest(
    last: PartitionEnd, end: int | None, leader: Leader | None, at: float
) -> PartitionEnd:
    if end is None or leader is None or leader.epoch < last.epoch:
        return last
    return PartitionEnd(
        end=end, stable=end, start=last.start, epoch=leader.epoch, at=at
    )


# ---- what is not copied. Pure ----


NOT_BEGUN = -1
"""The position where nothing is copied yet: below every offset."""


def next_to_copy(progress: Progress, key: TopicPartition, topic_id: str) -> int | None:
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
    partition did not answer. Records are counted in offsets, so they are an upper
    bound: transaction markers, aborted records and what was compacted away count as
    well. Bytes are records times the size that records of the partition, or of its
    topic, had when they were copied.

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
                next_to_copy(progress, (topic, number), of_topic.topic_id),
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


# ---- look by look ----


_MOST = 32
"""Sightings of one partition to remember, fewer of the middle if it is far behind."""
_FAR_SECONDS = 60.0
"""Retention takes what is older than minutes, so only then the log's start matters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskSnapshot:
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


class RiskTracker:
    """The risk of one flow's topics. Ends are asked for before progress is read: what
    was copied in between is not at risk. Not thread-safe.
    """

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

    def look(
        self, source: Cluster, names: Collection[str], *, at: float
    ) -> RiskSnapshot:
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
                position = next_to_copy(progress, key, each.topic_id)
                since = self._since(key, position, end)
                if position is None or position >= end.end:
                    continue
                behind[key] = since
                if since < at - _FAR_SECONDS:
                    far.append(key)
        self._sightings.keep_only(keys)
        found = self._ends.refine(source, behind, far)
        return RiskSnapshot(ends=found, risk=assess(found, progress, at=at))

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
    found = standby.read(target, flow.source, {ENDS})
    if found is None or ENDS not in found.looks:
        raise ClusterError(
            f"flow {flow.name}: cluster {flow.target} has no record in "
            f"{standby.topic_name(flow.source)}: did a service with this version run?"
        )
    known = {
        name: each
        for name, each in read_ends(found, flow.source).items()
        if counts(name)
    }
    copied = with_copies(progress(), flow, target)
    return assess(known, copied, at=ends_at(found))


# ---- writes to a passive cluster ----


class PassiveWrites:
    """Those since one role began. Only applications write to the topics that the flow
    out of a cluster copies, so each offset behind the one at which the cluster became
    passive is a record of theirs, or the marker of their transaction. That offset is
    the cut of the switch; after a failover it is the first one with a later timestamp.
    Topics that the flow back writes as well are left out: there ends alone do not tell
    who wrote. Not thread-safe.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        """`entries` of the pair, with the role."""
        made = roles.newest_role(entries)
        assert made is not None, "a pair without a role has no passive cluster"
        self.epoch = made.epoch
        self._since_ms = round(made.at * 1000)
        self._cut = roles.cut(roles.run_of(made, entries).details("fence"))
        self._starts: dict[TopicPartition, int] = {}
        self._ends = SourceEnds()

    def look(
        self, passive: Cluster, flow: FlowConfig, back: FlowConfig, *, at: float
    ) -> int | None:
        """How many offsets there are so far; None if no topic tells. `flow` out of the
        passive cluster and the one `back`; `at`: now.

        Raises:
            ClusterError: the cluster does not answer.
        """
        matching = [each.topic for each in select(passive, flow).topics]
        names = of_applications(matching, back)
        if not names:
            return None
        found = ends_of(self._ends.look(passive, names, at=at))
        unknown = [key for key in found if key not in self._starts]
        if self._cut is not None:
            self._starts |= {key: self._cut.get(key, 0) for key in unknown}
        else:
            first = topic_admin.list_offsets(passive, unknown, timestamp=self._since_ms)
            self._starts |= {
                key: offset for key, offset in first.items() if offset >= 0
            }
        return written_since(self._starts, found)


def of_applications(topics: Iterable[str], back: FlowConfig) -> list[str]:
    """The topics to which neither mirror (heartbeats) nor the flow back writes."""
    policy = back.replication_policy
    return [
        name
        for name in topics
        if not back.is_heartbeats(name) and policy.upstream_topic(name) is None
    ]


def ends_of(found: dict[str, TopicEnds]) -> dict[TopicPartition, int]:
    """By partition, of those that are known."""
    return {
        (topic, number): partition.end
        for topic, each in found.items()
        for number, partition in enumerate(each.partitions)
        if partition.end >= 0
    }


def written_since(
    starts: dict[TopicPartition, int], found: dict[TopicPartition, int]
) -> int:
    """The offsets between both; all of a topic that was deleted and is there again."""
    return sum(
        end - start if end >= start else end
        for key, end in found.items()
        if (start := starts.get(key)) is not None
    )
