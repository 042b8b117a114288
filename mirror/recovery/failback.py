"""What the cluster that is back after a failover is like, and whether to go home to it.

Main functions: `look`, which changes nothing, `require_ready`, which refuses what would
lose or repeat records, and `grow`, which gives the active cluster the partitions that
the other one has more. The way home itself is a switch.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
import time
from typing import TYPE_CHECKING

from mirror.clusters.admin import topic_admin
from mirror.config import scopes
from mirror.copying import gaps
from mirror.copying.gaps import Suspect
from mirror.offsets import progress
from mirror.offsets.progress import NO_ID
from mirror.pairs.losses import Cause
from mirror.pairs.roles import owed
from mirror.recovery import restorable
from mirror.recovery.stage import StepError
from mirror.recovery.tails import survey
from mirror.service.ownership import Generation
from mirror.status.wording import moment, named, some
from mirror.topics.topics import select

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic
    from mirror.offsets.progress import Position
    from mirror.recovery.stage import Stage


class ReturnedKind(StrEnum):
    """What a topic of the returned cluster is, compared with what was copied."""

    SAME = "SAME"
    RECREATED = "RECREATED"
    ABSENT = "ABSENT"
    SHORTER = "SHORTER"
    """The same topic, but its log lost records that were copied."""
    GONE = "GONE"
    """Neither cluster has it any more."""
    NEW = "NEW"
    """Nothing was copied of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """One topic of the cluster that is back."""

    topic: str
    kind: ReturnedKind
    here: int
    """Its partitions on the cluster that is back; 0 if it is not there."""
    there: int
    """Those of the topic with this name that is copied from the active cluster; 0:
    there is none."""
    own: str = ""
    """Of a shorter topic: a partition with records that the active cluster does not
    have, in place of what was lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """The cluster that is back, as it is."""

    alias: str
    cluster_id: str
    known_id: str
    """Of the cluster from which was copied; empty: nothing was."""
    topics: tuple[TopicState, ...]
    tail: int
    """Records that the active cluster does not have; -1 if that cannot be asked."""
    unsettled: str
    """What is left to settle of the tail, in words; empty: nothing is."""
    fence_owed: bool
    settled_beside: bool = False
    """Whether topics that were not re-created have no tail."""

    @property
    def rebuilt(self) -> bool:
        """Whether it is another cluster than the one that was copied."""
        return bool(self.known_id) and self.known_id != self.cluster_id

    @property
    def wrong(self) -> tuple[TopicState, ...]:
        """Topics that are not what was copied."""
        fine = (ReturnedKind.SAME, ReturnedKind.NEW, ReturnedKind.GONE)
        return tuple(each for each in self.topics if each.kind not in fine)

    @property
    def restorable(self) -> tuple[str, ...]:
        """The topics that `--restore` fills; none if another one is wrong as well."""
        if any(each.kind is ReturnedKind.SHORTER for each in self.wrong):
            return ()
        return tuple(each.topic for each in self.wrong)

    @property
    def missing(self) -> frozenset[str]:
        """Those of them that are not there."""
        return frozenset(t.topic for t in self.wrong if t.kind is ReturnedKind.ABSENT)

    @property
    def larger(self) -> dict[str, int]:
        """How many partitions topics of the active cluster need."""
        return {t.topic: t.here for t in self.topics if 0 < t.there < t.here}

    @property
    def text(self) -> str:
        """In a line: what it is like."""
        topics = self.topics
        if self.rebuilt:
            wrong = self.wrong and f"; {_named(self.wrong)}"
            return (
                f"{self.alias} was rebuilt: its cluster id is {self.cluster_id}, "
                f"not {self.known_id}{wrong or ''}"
            )
        if wrong := self.wrong:
            if all(
                each.kind in {ReturnedKind.ABSENT, ReturnedKind.NEW, ReturnedKind.GONE}
                for each in topics
            ):
                return f"{self.alias} is empty"
            return f"{self.alias} has other topics than before: {_named(wrong)}"
        if larger := self.larger:
            return (
                f"{self.alias} is back with more partitions of {named(sorted(larger))}"
            )
        return f"{self.alias} is back as it was: {some(len(self.topics), 'topic')}"


def _named(topics: Sequence[TopicState]) -> str:
    return named([f"{each.topic} ({each.kind})" for each in topics])


def look(stage: Stage) -> Returned:
    """Look at both clusters of a switch home: its target is the one that is back.

    Raises:
        ClusterError: a cluster does not answer.
    """
    back, active, out = stage.target, stage.source, stage.reverse
    name = progress.topic_name(out.source)
    known = progress.Progress()
    if active.topic(name) is not None:
        known = progress.read(active, name, wait=False)
    known_id = Generation.parse(known.generation).source_id
    positions = {
        key: each
        for key, each in known.positions.items()
        if scopes.has_topic(stage.pair, key[0], stage.flow)
    }
    topics = _topics(stage, positions)
    tail, left, beside = -1, "", False
    # Topic ids tell a rebuilt cluster's topics from those that were copied.
    ids = NO_ID not in {
        *(each.topic_id for each in positions.values() if each.offset > 0),
        *(each.topic_id for each in back.topics().values()),
    }
    if ids or known_id in {"", back.cluster_id}:
        found = survey.survey(out, back, active, seen=stage.tails.get(out.name))
        stage.tails[out.name] = found
        tail, left = found.records, found.left(out)
        made_again = {
            each.topic for each in topics if each.kind is ReturnedKind.RECREATED
        }
        beside = all(
            each.settled for each in found.partitions if each.topic not in made_again
        )
    made = owed(stage.entries()) if stage.pair.fence == "acl" else None
    return Returned(
        alias=back.alias,
        cluster_id=back.cluster_id,
        known_id=known_id,
        topics=topics,
        tail=tail,
        unsettled=left,
        fence_owed=made is not None and made.source == back.alias,
        settled_beside=beside,
    )


def require_ready(stage: Stage, found: Returned, *, restores: bool = False) -> None:
    """Refuse to go home where records would be lost or repeated. With `restores`,
    re-created topics are going to be filled.

    Raises:
        StepError: with what to do about it.
    """
    out, home = stage.reverse.name, stage.way
    filled = found.restorable
    for each in found.wrong:
        if each.kind is ReturnedKind.SHORTER:
            raise StepError(_shorter(stage, found, each))
    if filled and not restores:
        raise StepError(
            f"{found.text}. With --restore, `mirror failback` creates what is missing "
            f"and fills it from {stage.flow.source}, which stays active; nothing has "
            "changed"
        )
    if found.rebuilt and not filled:
        raise StepError(
            f"{found.text}, and no topic is to be filled from {stage.flow.source}: "
            f"`mirror flow reset '{out}' --to earliest` lets {out} copy from the new "
            f"cluster; then run `mirror failback '{home}'` again"
        )
    if found.rebuilt and found.tail < 0:
        raise StepError(
            f"{found.text}. Its brokers have no topic ids, so `--restore` cannot tell "
            "which records were copied; nothing has changed"
        )
    if filled and found.settled_beside:
        restorable.require_possible(stage, filled)
    elif found.unsettled:
        raise StepError(
            f"{found.unsettled}: `mirror tail list '{stage.way_back}'` shows what is "
            "left, and `mirror tail replay`, `export` or `skip` settles it; then run "
            f"`mirror failback '{home}'` again"
        )


def _shorter(stage: Stage, found: Returned, of: TopicState) -> str:
    """What to do about a log that lost records that were copied: the offsets that come
    next were others before, and maps of offsets would say so.
    """
    way_out = (
        f"delete {of.topic} on {found.alias}, then run `mirror failback "
        f"'{stage.way}' --restore`, which creates it and fills it from "
        f"{stage.flow.source}"
    )
    lost = f"{of.topic} on {found.alias} lost records that {stage.flow.source} has"
    if of.own:
        return (
            f"{lost}, and has others in their place: {of.own}. Copy these away first: "
            f"nothing else has them. Then {way_out}. Nothing has changed"
        )
    return f"{lost}, and no others: {way_out}. Nothing has changed"


def grow(stage: Stage, found: Returned) -> list[str]:
    """Give topics of the active cluster as many partitions as they have on the other
    one; returns what changed, in words. Done again, it does what is left.

    Raises:
        ClusterError: the active cluster refuses.
    """
    told = []
    for topic, count in sorted(found.larger.items()):
        before = stage.source.topics([topic])[topic].partitions
        if before >= count:
            continue
        topic_admin.add_partitions(stage.source, topic, count=count)
        told.append(
            f"{topic} on {stage.flow.source} has {count} partitions instead of "
            f"{before}: from {moment(time.time())} on keys are spread differently"
        )
    return told


def _topics(
    stage: Stage, positions: Mapping[tuple[str, int], Position]
) -> tuple[TopicState, ...]:
    back, active, out = stage.target, stage.source, stage.reverse
    here, active_topics = back.topics(), active.topics()
    there = {each.topic: each.partitions for each in select(active, stage.flow).topics}
    now = {each.topic for each in select(back, out).topics}
    known: dict[str, dict[int, Position]] = {}
    for (topic, number), each in positions.items():
        known.setdefault(topic, {})[number] = each
    kinds = {}
    names = now | known.keys() | (there.keys() & here.keys())
    for topic in sorted(name for name in names if not out.is_heartbeats(name)):
        kinds[topic] = _kind(known.get(topic, {}), here.get(topic))
        copy = out.replication_policy.target_topic(topic)
        if kinds[topic] is ReturnedKind.ABSENT and copy not in active_topics:
            kinds[topic] = ReturnedKind.GONE
    same = [topic for topic, kind in kinds.items() if kind is ReturnedKind.SAME]
    lost = _lost(back, {topic: known[topic] for topic in same})
    return tuple(
        TopicState(
            topic=topic,
            kind=ReturnedKind.SHORTER if topic in lost else kind,
            here=here[topic].partitions if topic in here else 0,
            there=there.get(topic, 0),
            own=lost.get(topic, ""),
        )
        for topic, kind in kinds.items()
    )


def _kind(known: Mapping[int, Position], here: Topic | None) -> ReturnedKind:
    if not known:
        return ReturnedKind.NEW
    if here is None or not here.partitions:
        return ReturnedKind.ABSENT
    ids: Collection[object] = {p.topic_id for p in known.values()} - {NO_ID}
    if ids and here.topic_id != NO_ID and here.topic_id not in ids:
        return ReturnedKind.RECREATED
    return ReturnedKind.SAME


def _lost(
    back: Cluster, topics: Mapping[str, Mapping[int, Position]]
) -> dict[str, str]:
    """The topics whose logs lost records that were copied, by the ends of logs and the
    epochs of leaders; each with what stands in their place, in words.
    """
    at = {(topic, n): p for topic, some in topics.items() for n, p in some.items()}
    if not at:
        return {}
    ends = topic_admin.list_offsets(
        back, at, timestamp=topic_admin.LATEST, committed=False
    )
    first = {key: end for key, end in ends.items() if end < at[key].offset}
    suspects = [
        Suspect(topic=key[0], partition=key[1], position=each, refused=False)
        for key, each in at.items()
    ]
    for found in gaps.look(back, suspects):
        if found.gap is not None and found.gap.cause is Cause.TRUNCATED:
            first[found.suspect.key] = found.gap.first
    lost: dict[str, str] = {}
    for (topic, n), offset in sorted(first.items()):
        end = ends.get((topic, n), offset)
        own = f"offsets {offset} to {end - 1} of {topic}-{n}" if offset < end else ""
        lost[topic] = lost.get(topic) or own
    return lost
