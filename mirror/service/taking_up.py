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

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
import math
import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

import structlog

from mirror.clusters.admin import configs, topic_admin
from mirror.errors import ClusterError, NoLeaderError
from mirror.service.scheduler import Job
from mirror.topics.same_offsets import Edges, why_no_prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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


Found = Mapping[int, int] | str
"""What comparing a copy has shown: where each partition ended, with no other record
before; or the first difference, in words."""
Ids = tuple[str, str, str]
"""A topic, its id, and that of its copy, in hex: zeros where brokers have none."""


class Prefix(NamedTuple):
    """What a partition and its copy have in common, if they are equal."""

    first: int
    end: int
    """Where the copy ends."""
    leader_epoch: int
    """Of the source's last record before; -1 if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A copy with records, whose last ones are the source's."""

    topic: MirroredTopic
    copy_id: str
    """In hex."""
    parts: Mapping[int, Prefix]
    """By partition."""

    @property
    def ids(self) -> Ids:
        return self.topic.topic, self.topic.topic_id, self.copy_id

    @property
    def ends(self) -> dict[int, int]:
        return {number: each.end for number, each in self.parts.items()}


class Compare(Protocol):
    """Compares each record of both logs."""

    def __call__(
        self,
        config: MirrorConfig,
        flow: FlowConfig,
        clusters: tuple[Cluster, Cluster],
        copy: Candidate,
        place: tuple[int, int, int],
    ) -> str:
        """The first difference in words; empty if each of the offsets has a record on
        both sides, and the same one. `clusters`: source and target; `place`: partition,
        first offset, end.

        Raises:
            ClusterError: a cluster does not answer.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of copies that have records already, by topic."""

    equal: Mapping[str, Candidate] = field(default_factory=dict)
    """Each record was compared."""
    to_compare: Mapping[str, Candidate] = field(default_factory=dict)
    different: Mapping[str, str] = field(default_factory=dict)
    """And how."""
    compared: frozenset[str] = frozenset()
    """Of these, those of which each record was compared up to there."""
    unknown: Mapping[str, str] = field(default_factory=dict)
    """Why nothing can be said now."""


def look(
    source: Cluster,
    target: Cluster,
    topics: Sequence[MirroredTopic],
    shown: Mapping[str, Topic],
    compared: Mapping[Ids, Found],
) -> Known:
    """Look at the edges of logs and at the last records. `shown`: the copies, by name;
    `compared`: what was found before.

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
    edges = replace(stable, end={at: ends[at] for at in ends.keys() & stable.end})
    # After the copies: what is copied meanwhile would look like too much.
    logs = Edges.read(
        source, [(each.topic, n) for each in topics for n in range(each.partitions)]
    )
    kept = _kept(source, target, copies, logs, edges)
    told = {
        each.topic: why_no_prefix(each, logs, edges, shown[each.target_topic], kept)
        for each in topics
    }
    parts = {
        key: Prefix(max(logs.first[key], edges.first[where]), edges.end[where], -1)
        for key, where in copies.items()
        if not told[key[0]][0]
    }
    last = {key: each.end - 1 for key, each in parts.items() if each.end > each.first}
    if last:
        # Only here: it loads kernels.
        from mirror.copying.copy_ends import equal_records  # noqa: PLC0415

        for key, same in equal_records(source, target, last, copies, shown).items():
            if isinstance(same, int):
                parts[key] = parts[key]._replace(leader_epoch=same)
            elif same is None:
                told[key[0]] = f"offset {last[key]} of partition {key[1]} differs", True
            else:
                told[key[0]] = same, False
    for key, each in parts.items():
        if not told[key[0]][0] and stable.end[copies[key]] != each.end:
            told[key[0]] = f"something else writes to partition {key[1]} of it", False
    equal: dict[str, Candidate] = {}
    to_compare: dict[str, Candidate] = {}
    disproven = set()
    for topic in (each for each in topics if not told[each.topic][0]):
        candidate = Candidate(
            topic=topic,
            copy_id=shown[topic.target_topic].topic_id.hex,
            parts={n: each for (name, n), each in parts.items() if name == topic.topic},
        )
        found = compared.get(candidate.ids)
        if isinstance(found, str):
            told[topic.topic] = found, True
            disproven.add(topic.topic)
        else:
            is_equal = found == candidate.ends
            (equal if is_equal else to_compare)[topic.topic] = candidate
    return Known(
        equal=equal,
        to_compare=to_compare,
        different={t: why for t, (why, is_known) in told.items() if why and is_known},
        compared=frozenset(disproven),
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
        self._found: dict[Ids, Found] = {}
        self._reached: dict[tuple[Ids, int], int] = {}
        """Up to where partitions are equal."""
        self._rested: dict[Ids, tuple[Mapping[int, int], float]] = {}
        """Where copies end, and since when."""
        self._size = _LEAST
        self._left: dict[str, Candidate] = {}
        self._found_at = math.inf

    @property
    def found(self) -> Mapping[Ids, Found] | None:
        """None: nothing is compared."""
        return None if self._compare is None else dict(self._found)

    @property
    def over(self) -> bool:
        """Whether a run can take up what was found."""
        return not self._left or time.monotonic() > self._found_at + _TOGETHER_SECONDS

    def begin(
        self, flow: FlowConfig, config: MirrorConfig, wanted: Mapping[str, Candidate]
    ) -> None:
        """Compare these from the next `turn` on; what was found of them is outdated."""
        self._flow, self._config = flow, config
        self._left, self._found_at = dict(wanted), math.inf
        for each in wanted.values():
            self._found.pop(each.ids, None)
            self._rested.pop(each.ids, None)
        self._tell([])

    def job(self, over: Callable[[], None]) -> Job:
        """`over` is called when another run can take up a copy."""

        def work(source: Cluster, target: Cluster) -> None:
            self.turn(source, target)
            if self.over:
                over()

        return Job(name=_JOB, seconds=_SECONDS, work=work)

    def turn(self, source: Cluster, target: Cluster) -> None:
        """Compare for some seconds. One topic that cannot be read holds up no other.

        Raises:
            ClusterError: a cluster does not answer.
        """
        until = time.monotonic() + _TURN_SECONDS
        said: dict[str, str] = {}
        failure: ClusterError | None = None
        for topic, candidate in list(self._left.items()):
            try:
                text = self._go_on(candidate, source, target, until)
            except ClusterError as error:
                text, failure = f"its copy cannot be compared: {error}", error
            said[topic] = f"{topic}: {text}"
            if not text:
                self._left.pop(topic, None)
                self._found_at = min(self._found_at, time.monotonic())
        # The next run may have begun meanwhile, and have found a topic's offsets.
        self._tell([text for topic, text in said.items() if topic in self._left])
        if failure is not None:
            raise failure

    def _go_on(
        self, of: Candidate, source: Cluster, target: Cluster, until: float
    ) -> str:
        """Returns how far it is, in words; empty if another run is to decide."""
        copy = of.topic.target_topic
        shown = target.topics([copy])
        if shown[copy].topic_id.hex != of.copy_id:
            return ""
        ends = topic_admin.log_ends(target, [(copy, n) for n in of.parts], shown)
        now = {number: end for (_, number), end in ends.items()}
        if now.keys() != of.parts.keys():
            return "a partition of its copy has no leader"
        if (rested := self._rested.get(of.ids)) is None or rested[0] != now:
            rested = self._rested[of.ids] = now, time.monotonic()
        for number, end in now.items():
            first = max(self._reached.get((of.ids, number), 0), of.parts[number].first)
            self._reached[of.ids, number] = min(first, end)
            while self._reached[of.ids, number] < end and time.monotonic() < until:
                if found := self._pass(of, number, end, source, target):
                    self._found[of.ids] = found
                    return ""
        done = {number: self._reached[of.ids, number] for number in now}
        if done == now and time.monotonic() - rested[1] >= _QUIET_SECONDS:
            self._found[of.ids] = now
            return ""
        reached, whole = sum(done.values()), sum(now.values())
        log.info("copy is compared", flow=self._flow.name, topic=copy,
                 offset=reached, of=whole)  # fmt: skip
        grows = "" if now == of.ends else "; something else writes to it"
        return f"its copy is compared: offset {reached} of {whole}{grows}"

    def _pass(
        self, of: Candidate, number: int, end: int, source: Cluster, target: Cluster
    ) -> str:
        """Compare some more of a partition; returns the first difference."""
        assert self._compare is not None, "else there is nothing to compare"
        at, began = self._reached[of.ids, number], time.monotonic()
        to = min(at + self._size, end)
        clusters = source, target
        found = self._compare(self._config, self._flow, clusters, of, (number, at, to))
        if found:
            # What one side deletes meanwhile need not be the same.
            first = max(
                _first(source, (of.topic.topic, number)),
                _first(target, (of.topic.target_topic, number)),
            )
            if first <= at:
                return found
            to = min(first, end)
        self._reached[of.ids, number] = to
        slow = time.monotonic() - began > _PIECE_SECONDS
        size = self._size // 2 if slow else self._size * 2
        self._size = min(max(size, _LEAST), _MOST)
        return ""


def _first(cluster: Cluster, key: TopicPartition) -> int:
    """Where a log begins.

    Raises:
        NoLeaderError: its leader does not answer.
    """
    found = topic_admin.list_offsets(cluster, [key], timestamp=topic_admin.EARLIEST)
    if key not in found:
        raise NoLeaderError(f"the leader of {key[0]}-{key[1]} does not answer")
    return found[key]
