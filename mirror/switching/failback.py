"""What the cluster that is back after a failover is like, and whether to go home to it.

Main functions: `look`, which changes nothing, `require_ready`, which refuses what would
lose or repeat records, and `grow`, which gives the active cluster the partitions that
the other one has more. The way home itself is a switch.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
import json
import time
from typing import TYPE_CHECKING

from mirror.clusters.admin import topic_admin
from mirror.metadata.topics import select
from mirror.offsets import progress
from mirror.offsets.progress import NO_ID
from mirror.recovery.roles import owed
from mirror.status.wording import moment, some
from mirror.switching import restoring
from mirror.switching.stage import StepError
from mirror.tails import survey

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mirror.clusters.topics import Topic
    from mirror.offsets.progress import Position
    from mirror.switching.stage import Stage

_MOST_NAMED = 5


class Kind(StrEnum):
    """What a topic of the returned cluster is, compared with what was copied."""

    SAME = "SAME"
    RECREATED = "RECREATED"
    ABSENT = "ABSENT"
    SHORTER = "SHORTER"
    """The same topic, but its log ends before what was copied of it."""
    NEW = "NEW"
    """Nothing was copied of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """One topic of the cluster that is back."""

    topic: str
    kind: Kind
    here: int
    """Its partitions on the cluster that is back; 0 if it is not there."""
    there: int
    """Those of the topic with this name that is copied from the active cluster; 0:
    there is none."""


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
        fine = (Kind.SAME, Kind.NEW)
        return tuple(each for each in self.topics if each.kind not in fine)

    @property
    def restorable(self) -> tuple[str, ...]:
        """The topics that `--restore` fills; none if another one is wrong as well."""
        if self.rebuilt or any(t.kind is not Kind.RECREATED for t in self.wrong):
            return ()
        return tuple(each.topic for each in self.wrong)

    @property
    def larger(self) -> dict[str, int]:
        """How many partitions topics of the active cluster need."""
        return {t.topic: t.here for t in self.topics if 0 < t.there < t.here}

    @property
    def text(self) -> str:
        """In a line: what it is like."""
        if self.rebuilt:
            return (
                f"{self.alias} was rebuilt: its cluster id is {self.cluster_id}, "
                f"not {self.known_id}"
            )
        if wrong := self.wrong:
            if all(each.kind in {Kind.ABSENT, Kind.NEW} for each in self.topics):
                return f"{self.alias} is empty"
            shown = [f"{each.topic} ({each.kind})" for each in wrong[:_MOST_NAMED]]
            more = len(wrong) - len(shown)
            rest = f" and {more} more" if more else ""
            return (
                f"{self.alias} has other topics than before: {', '.join(shown)}{rest}"
            )
        if larger := self.larger:
            return (
                f"{self.alias} is back with more partitions of "
                f"{', '.join(sorted(larger)[:_MOST_NAMED])}"
            )
        return f"{self.alias} is back as it was: {some(len(self.topics), 'topic')}"


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
    known_id = ""
    if known.generation:
        known_id = json.loads(known.generation).get("source_id", "")
    topics = _topics(stage, known.positions)
    tail, left, beside = -1, "", False
    if known_id in {"", back.cluster_id}:
        found = survey.survey(out, back, active)
        tail, left = found.records, found.left(out)
        made_again = {each.topic for each in topics if each.kind is Kind.RECREATED}
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
    out, home = stage.reverse.name, stage.flow.name
    filled = found.restorable
    if filled and not restores:
        raise StepError(
            f"{found.text}. With --restore, `mirror failback` fills them from "
            f"{stage.flow.source}, which stays active; nothing has changed"
        )
    if found.rebuilt or (found.wrong and not filled):
        raise StepError(
            f"{found.text}. `mirror failback` cannot fill {found.alias} again yet: "
            f"{stage.flow.source} stays active, and nothing has changed"
        )
    if filled and found.settled_beside:
        restoring.require_possible(stage, filled)
    elif found.unsettled:
        raise StepError(
            f"{found.unsettled}: `mirror tail list '{out}'` shows what is left, and "
            "`mirror tail replay`, `export` or `skip` settles it; then run `mirror "
            f"failback '{home}'` again"
        )


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
    here = back.topics()
    there = {each.topic: each.partitions for each in select(active, stage.flow).topics}
    now = {each.topic for each in select(back, out).topics}
    known: dict[str, dict[int, Position]] = {}
    for (topic, number), each in positions.items():
        known.setdefault(topic, {})[number] = each
    ends = topic_admin.list_offsets(
        back,
        [(t, n) for t in known.keys() & here.keys() for n in here[t].leaders],
        timestamp=topic_admin.LATEST,
        committed=False,
    )

    return tuple(
        TopicState(
            topic=topic,
            kind=_kind(topic, known.get(topic, {}), here.get(topic), ends),
            here=here[topic].partitions if topic in here else 0,
            there=there.get(topic, 0),
        )
        for topic in sorted(now | known.keys() | (there.keys() & here.keys()))
    )


def _kind(
    topic: str,
    known: Mapping[int, Position],
    here: Topic | None,
    ends: Mapping[tuple[str, int], int],
) -> Kind:
    if not known:
        return Kind.NEW
    if here is None or not here.partitions:
        return Kind.ABSENT
    ids: Collection[object] = {p.topic_id for p in known.values()} - {NO_ID}
    if ids and here.topic_id != NO_ID and here.topic_id not in ids:
        return Kind.RECREATED
    short = [ends.get((topic, n), p.offset) < p.offset for n, p in known.items()]
    return Kind.SHORTER if any(short) else Kind.SAME
