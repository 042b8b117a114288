"""Takes up copies that exist already, if they hold the very records of the source.

Main functions: `look`, which says of such copies what is known of them, and
`Comparisons`, which compares them with the source while the topic waits. Tools that
copy from a log's start, without transactions and without duplicates, leave each record
at its offset. What differs mostly does so at the end as well: two logs with another
record, or none, at the copy's last offset are not compared any further.

How far a copy is compared is kept in memory: it is compared again from its start if the
service dies meanwhile. So is a difference. It need not be noted: a copy that is
translated gets a marker at its end with its first record, which `look` sees at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import time
from typing import TYPE_CHECKING, Protocol

import structlog

from mirror.clusters.admin import configs, topic_admin
from mirror.errors import NoLeaderError, RecreatedError
from mirror.service.scheduler import Job
from mirror.topics.same_offsets import Edges, why_no_prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic, TopicPartition
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.topics.topics import MirroredTopic

log = structlog.get_logger()

_JOB = "compare"
_SECONDS = 5.0
_TURN_SECONDS = 2.5
"""The other half belongs to what copies on the same machine."""
_PIECE_SECONDS = 0.5
_LEAST, _MOST = 10_000, 1_000_000
"""Offsets to compare in one go."""
_QUIET_SECONDS = 4.0
"""How long a copy must not grow before it is taken up."""
_TOGETHER_SECONDS = 30.0
"""A run begins again for several topics at once, if they are so close."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Offsets of a partition and of its copy, to be compared."""

    topic: str
    target_topic: str
    topic_id: str
    """In hex, as that of the copy."""
    copy_id: str
    partition: int
    first: int
    end: int


class Compare(Protocol):
    """Compares each record, which reads both logs."""

    def __call__(
        self,
        config: MirrorConfig,
        flow: FlowConfig,
        source: Cluster,
        target: Cluster,
        piece: Piece,
    ) -> str:
        """The first difference in words; empty if each of the offsets has a record on
        both sides, and the same one.

        Raises:
            ClusterError: a cluster does not answer.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """What source and copy have in common of one partition, if they are equal."""

    first: int
    end: int
    """Where the copy ends."""
    leader_epoch: int
    """Of the source's last record before; -1 if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A copy with records, whose last ones are those of the source."""

    topic: MirroredTopic
    copy_id: str
    """In hex."""
    parts: Mapping[int, Prefix]
    """By partition."""

    @property
    def ends(self) -> dict[int, int]:
        return {number: each.end for number, each in self.parts.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCopy:
    """What comparing a copy has shown."""

    topic_id: str
    copy_id: str
    ends: Mapping[int, int] = field(default_factory=dict)
    """By partition, before which offset each record is the source's."""
    difference: str = ""
    """The first one found; empty: there is none."""

    def is_of(self, of: Candidate) -> bool:
        return (self.topic_id, self.copy_id) == (of.topic.topic_id, of.copy_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of copies that have records already, by topic."""

    equal: Mapping[str, Candidate] = field(default_factory=dict)
    """Each record was compared."""
    different: Mapping[str, str] = field(default_factory=dict)
    """And how."""
    to_compare: Mapping[str, Candidate] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    """Why nothing can be said now."""


def look(
    source: Cluster,
    target: Cluster,
    topics: Sequence[MirroredTopic],
    shown: Mapping[str, Topic],
    compared: Mapping[str, ComparedCopy],
) -> Known:
    """Look at the edges of logs and at the last records. `shown`: the copies, by name;
    `compared`: what was found before, by topic.

    Raises:
        ClusterError: a cluster does not answer.
    """
    if not topics:
        return Known()
    copies = {
        (each.topic, n): (each.target_topic, n)
        for each in topics
        for n in range(min(each.partitions, shown[each.target_topic].partitions))
    }
    stable = Edges.read(target, copies.values(), committed=True)
    ends = topic_admin.log_ends(target, copies.values(), shown)
    # After the copies: what is copied meanwhile would look like too much.
    logs = Edges.read(
        source, [(each.topic, n) for each in topics for n in range(each.partitions)]
    )
    edges = Edges(first=stable.first, end=ends)
    kept = _kept(source, target, copies, logs, edges)
    told = {
        each.topic: why_no_prefix(
            each, logs, edges, shown[each.target_topic], kept=kept
        )
        for each in topics
    }
    # Only here: it loads kernels.
    from mirror.copying.same_offsets import equal_records  # noqa: PLC0415

    last = {
        key: ends[where] - 1
        for key, where in copies.items()
        if not told[key[0]][0]
        and ends[where] > max(logs.first[key], edges.first[where])
    }
    found = equal_records(source, target, last, copies, shown) if last else {}
    for key, same in found.items():
        if isinstance(same, str):
            told[key[0]] = same, False
        elif same is None:
            told[key[0]] = f"offset {last[key]} of partition {key[1]} differs", True
    for key, where in copies.items():
        if not told[key[0]][0] and stable.end[where] != ends[where]:
            told[key[0]] = f"something else writes to partition {key[1]} of it", False
    candidates = {
        each.topic: Candidate(
            topic=each,
            copy_id=shown[each.target_topic].topic_id.hex,
            parts={
                n: Prefix(
                    first=max(logs.first[key], edges.first[copies[key]]),
                    end=ends[copies[key]],
                    leader_epoch=epoch
                    if isinstance(epoch := found.get(key), int)
                    else -1,
                )
                for n in range(each.partitions)
                if (key := (each.topic, n)) in copies
            },
        )
        for each in topics
        if not told[each.topic][0]
    }
    known = {t: compared[t] for t, of in candidates.items()
             if t in compared and compared[t].is_of(of)}  # fmt: skip
    told |= {t: (each.difference, True) for t, each in known.items()}
    equal = {t for t, each in known.items() if each.ends == candidates[t].ends}
    return Known(
        equal={t: candidates[t] for t in equal},
        different={t: why for t, (why, is_known) in told.items() if why and is_known},
        to_compare={
            t: of for t, of in candidates.items() if t not in equal and not told[t][0]
        },
        unknown={t: why for t, (why, is_known) in told.items() if not is_known},
    )


def _kept(
    source: Cluster,
    target: Cluster,
    copies: Mapping[TopicPartition, TopicPartition],
    logs: Edges,
    edges: Edges,
) -> dict[TopicPartition, int]:
    """Of source partitions whose logs begin before their copies', the first offset that
    `retention.ms` of the copy keeps.
    """
    late = {
        key: where
        for key, where in copies.items()
        if edges.first.get(where, 0) > logs.first.get(key, 0)
    }
    settings = configs.describe(target, {name for name, _ in late.values()})
    found: dict[TopicPartition, int] = {}
    for name, each in settings.items():
        keeps = each.configs.get("retention.ms")
        if keeps is None or int(keeps.value or -1) < 0:
            continue
        of = [key for key, where in late.items() if where[0] == name]
        since = max(0, int(time.time() * 1000) - int(keeps.value or 0))
        offsets = topic_admin.list_offsets(source, of, timestamp=since)
        found |= {k: logs.end[k] if at < 0 else at for k, at in offsets.items()}
    return found


class Comparisons:
    """Compares the copies of one flow, across its runs, in a job of each."""

    def __init__(
        self,
        compare: Compare | None,
        *,
        tell: Callable[[Sequence[str]], None] = lambda _: None,
    ) -> None:
        """`compare`: None if no copy is to be taken up. `tell` says how far it is."""
        self._compare = compare
        self._tell = tell
        self._found: dict[str, ComparedCopy] = {}
        self._equal: dict[tuple[str, str, int], int] = {}
        """Up to where they are, by ids of topic and copy, and partition."""
        self._rested: dict[str, tuple[Mapping[int, int], float]] = {}
        """Where copies end, and since when."""
        self._size = _LEAST
        self._left: dict[str, Candidate] = {}
        self._found_at = 0.0

    @property
    def found(self) -> Mapping[str, ComparedCopy] | None:
        """By topic; None: nothing is compared."""
        return None if self._compare is None else dict(self._found)

    @property
    def over(self) -> bool:
        """Whether a run can take up what was found."""
        late = time.monotonic() - self._found_at > _TOGETHER_SECONDS
        return not self._left or (bool(self._found_at) and late)

    def begin(
        self, flow: FlowConfig, config: MirrorConfig, wanted: Mapping[str, Candidate]
    ) -> None:
        """Compare these from the next `turn` on; what was found of them is outdated."""
        self._flow, self._config = flow, config
        self._left = dict(wanted)
        self._found_at = 0.0
        for topic in wanted:
            self._found.pop(topic, None)
        self._rested.clear()
        self._tell([])

    def job(self, over: Callable[[], None]) -> Job:
        """`over` is called when another run can take up a copy."""

        def work(source: Cluster, target: Cluster) -> None:
            self.turn(source, target)
            if self.over:
                over()

        return Job(name=_JOB, seconds=_SECONDS, work=work)

    def turn(self, source: Cluster, target: Cluster) -> None:
        """Compare for some seconds.

        Raises:
            ClusterError: a cluster does not answer, or a topic was made again.
        """
        until = time.monotonic() + _TURN_SECONDS
        said = []
        for topic, candidate in list(self._left.items()):
            said += self._go_on(candidate, source, target, until)
            if topic in self._found:
                del self._left[topic]
                self._found_at = self._found_at or time.monotonic()
        self._tell(said)

    def _go_on(
        self, of: Candidate, source: Cluster, target: Cluster, until: float
    ) -> list[str]:
        """Returns how far it is, in words."""
        copy, topic = of.topic.target_topic, of.topic.topic
        shown = target.topics([copy])
        if shown[copy].topic_id.hex != of.copy_id:
            raise RecreatedError(f"target topic {copy} was deleted and created again")
        ends = topic_admin.log_ends(target, [(copy, n) for n in of.parts], shown)
        now = {number: end for (_, number), end in ends.items()}
        if now.keys() != of.parts.keys():
            return [f"{topic}: a partition of its copy has no leader"]
        if (rested := self._rested.get(topic)) is None or rested[0] != now:
            rested = self._rested[topic] = now, time.monotonic()
        done: dict[int, int] = {}
        for number, end in now.items():
            done[number], different = self._reached(
                of, number, end, source, target, until
            )
            if different:
                self._found[topic] = ComparedCopy(
                    topic_id=of.topic.topic_id, copy_id=of.copy_id, difference=different
                )
                return []
        if done == now and time.monotonic() - rested[1] >= _QUIET_SECONDS:
            self._found[topic] = ComparedCopy(
                topic_id=of.topic.topic_id, copy_id=of.copy_id, ends=now
            )
            return []
        reached, end = sum(done.values()), sum(now.values())
        log.info("copy is compared", flow=self._flow.name, topic=copy,
                 offset=reached, of=end)  # fmt: skip
        grows = "" if now == of.ends else "; something else writes to it"
        return [f"{topic}: its copy is compared: offset {reached} of {end}{grows}"]

    def _reached(
        self,
        of: Candidate,
        number: int,
        end: int,
        source: Cluster,
        target: Cluster,
        until: float,
    ) -> tuple[int, str]:
        """Compare a partition up to its end, or `until` then. Returns how far it is, and
        the first difference.
        """
        assert self._compare is not None, "else there is nothing to compare"
        ids = of.topic.topic_id, of.copy_id, number
        at = max(self._equal.get(ids, 0), of.parts[number].first)
        while at < end and time.monotonic() < until:
            began = time.monotonic()
            piece = Piece(
                topic=of.topic.topic, target_topic=of.topic.target_topic,
                topic_id=of.topic.topic_id, copy_id=of.copy_id, partition=number,
                first=at, end=min(at + self._size, end),
            )  # fmt: skip
            if found := self._compare(self._config, self._flow, source, target, piece):
                # What one side deletes meanwhile need not be the same.
                first = max(
                    _first(source, (piece.topic, number)),
                    _first(target, (piece.target_topic, number)),
                )
                if first <= at:
                    return at, found
            at = min(first, end) if found else piece.end
            self._equal[ids] = at
            slow = time.monotonic() - began > _PIECE_SECONDS
            self._size = min(max(self._size // 2 if slow else self._size * 2, _LEAST),
                             _MOST)  # fmt: skip
        return min(at, end), ""


def _first(cluster: Cluster, key: TopicPartition) -> int:
    """Where a log begins.

    Raises:
        NoLeaderError: its leader does not answer.
    """
    found = topic_admin.list_offsets(cluster, [key], timestamp=topic_admin.EARLIEST)
    if key not in found:
        raise NoLeaderError(f"the leader of {key[0]}-{key[1]} does not answer")
    return found[key]
