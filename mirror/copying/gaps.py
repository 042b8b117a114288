"""Gaps in source logs: what happened to offsets that a leader does not have.

Main functions: `look`, which asks the source, and `judge`, which decides and is pure. A
single leader proves nothing: a broker that is cut off from its cluster misses records
that were copied from its successors, and still shows deleted topics. So `look` asks
every broker who leads and believes only the newest leader; a topic counts as re-created
when more than half of the brokers say so. Offsets are asked for by topic name, so the
leader must mean the same topic, before and after. It asks about all partitions at once.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mirror.clusters.admin import topic_admin
from mirror.errors import UnreachableError
from mirror.offsets.progress import NO_ID, Position
from mirror.pairs.losses import Cause

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    import uuid

    from mirror.clusters.admin.topic_admin import EpochEnd
    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Leader, Topic, TopicPartition, Views


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A position that some broker may not have, or has in another topic."""

    topic: str
    partition: int
    position: Position
    refused: bool = True
    """Whether a broker refused it; else it is only checked."""

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Source offsets that are gone, and where to continue."""

    cause: Cause
    first: int
    last: int | None
    """Inclusive; None if unknown."""
    to: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class GapFinding:
    """The result for a suspect: a gap, or why none can be established."""

    suspect: Suspect
    gap: Gap | None = None
    reason: str = ""
    """Empty without a gap: the leader has the position, and no broker refused it."""
    leader: Leader | None = None
    """The newest leader that any broker names."""


def look(source: Cluster, suspects: Iterable[Suspect]) -> list[GapFinding]:
    """Ask the source about suspects, all at once.

    Raises:
        ClusterError: the source does not answer.
    """
    asked = {suspect.key: suspect for suspect in suspects}
    views = source.views({topic for topic, _ in asked})
    findings = {}
    topics: dict[str, Topic] = {}
    for key, suspect in asked.items():
        shown = views.agreed(suspect.topic)
        if reason := _in_the_way(suspect, shown, views):
            findings[key] = GapFinding(suspect=suspect, reason=reason)
        elif shown is not None:
            topics[suspect.topic] = shown
    logs = _logs(source, [asked[key] for key in asked if key not in findings], topics)
    after = source.views(topics) if topics else views
    for key in asked.keys() - findings.keys():
        suspect, topic = asked[key], topics[key[0]]
        leader = topic.leaders[key[1]]
        if after.has_another(leader.node, topic):
            findings[key] = GapFinding(suspect=suspect, reason=_disagree(suspect))
            continue
        answered = leader.node in views.answers.keys() & after.answers.keys()
        if not answered or (log := logs.get(key)) is None:
            findings[key] = GapFinding(
                suspect=suspect,
                reason=f"{_name(suspect)}: broker {leader.node}, which leads it under "
                f"epoch {leader.epoch}, does not say which offsets it has",
            )
            continue
        gap = judge(
            suspect.position,
            topic_id=topic.topic_id,
            first=log.first,
            end=log.end,
            common=log.common,
        )
        reason = ""
        if gap is not None and gap.cause is Cause.TRUNCATED and _nameless(topic):
            gap, reason = None, _remade_or_cut(suspect, f"ends at offset {log.end}")
        elif gap is None and suspect.refused:
            reason = (
                f"{_name(suspect)}: a broker has no offset {suspect.position.offset}, "
                f"but its leader, broker {leader.node}, has"
            )
        if gap is not None:
            # A former leader that is cut off may still show what is lost.
            gap = replace(gap, to=replace(gap.to, oldest_leader=leader.epoch))
        findings[key] = GapFinding(
            suspect=suspect, gap=gap, leader=leader, reason=reason
        )
    return list(findings.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Log:
    """What a partition's leader says about its log."""

    first: int
    end: int
    common: EpochEnd | None
    """None if it was not requested."""


def _logs(
    source: Cluster, suspects: Iterable[Suspect], topics: Mapping[str, Topic]
) -> dict[TopicPartition, _Log]:
    """What leaders say. Skips those that do not answer: others need not wait."""
    by_leader: dict[int, dict[TopicPartition, Suspect]] = {}
    for suspect in suspects:
        node = topics[suspect.topic].leaders[suspect.partition].node
        by_leader.setdefault(node, {})[suspect.key] = suspect
    logs = {}
    for theirs in by_leader.values():
        with contextlib.suppress(UnreachableError):
            first = topic_admin.list_offsets(
                source, theirs, timestamp=topic_admin.EARLIEST, topics=topics
            )
            end = topic_admin.list_offsets(
                source,
                first,
                timestamp=topic_admin.LATEST,
                committed=False,
                topics=topics,
            )
            epochs = {
                key: theirs[key].position.leader_epoch
                for key in end
                if theirs[key].position.leader_epoch >= 0
                and not remade(topics[key[0]].topic_id, theirs[key].position)
            }
            common = topic_admin.epoch_ends(source, epochs, topics)
            logs.update(
                {
                    key: _Log(first=first[key], end=end[key], common=common.get(key))
                    for key in end
                    if key in common or key not in epochs
                }
            )
    return logs


def judge(
    position: Position,
    *,
    topic_id: uuid.UUID,
    first: int,
    end: int,
    common: EpochEnd | None,
) -> Gap | None:
    """What is missing from a log that its leader shows from `first` to `end`; None if
    nothing is. `common`: the newest epoch, up to the position's, of which the log has
    records; None if it was not requested.
    """
    if remade(topic_id, position):
        return Gap(
            cause=Cause.RECREATED,
            first=position.offset,
            last=None,
            to=Position(offset=first, topic_id=topic_id, left_id=position.topic_id),
        )
    if position.offset < first:
        return _gap(Cause.DELETED, position, position.offset, first - 1, to=first)
    at, last_epoch = position.offset, -1
    if common is None or common.epoch < 0:
        at = min(at, end)
    elif common.offset < at:
        at = max(common.offset, first)
        if at == common.offset:
            # Of the record before: one more loss here is noticed before the next copy.
            last_epoch = common.epoch
    elif common.epoch < position.leader_epoch:
        # The record before the position is a different one now, and perhaps more are;
        # how many is unknown. What follows is there, so copying continues here. The
        # epoch stays unknown: the cleaner may have made this gap (`decisions.md`).
        return _gap(Cause.TRUNCATED, position, at - 1, at - 1, to=at)
    if at == position.offset:
        return None
    return _gap(
        Cause.TRUNCATED, position, at, position.offset - 1, to=at, last_epoch=last_epoch
    )


def remade(topic_id: uuid.UUID, position: Position) -> bool:
    """Whether the position belongs to another topic of the same name."""
    return topic_id != position.topic_id and NO_ID not in (topic_id, position.topic_id)


def _gap(
    cause: Cause,
    position: Position,
    first: int,
    last: int,
    *,
    to: int,
    last_epoch: int = -1,
) -> Gap:
    return Gap(
        cause=cause,
        first=first,
        last=last,
        to=Position(
            offset=to,
            leader_epoch=last_epoch,
            topic_id=position.topic_id,
            left_id=position.left_id,
        ),
    )


def _in_the_way(suspect: Suspect, shown: Topic | None, views: Views) -> str:
    """Why no leader can be asked about a suspect; empty if one can be."""
    position = suspect.position
    if shown is None:
        return (
            f"source topic {suspect.topic}: {len(views.answers)} of {views.brokers} "
            "brokers answer, and more than half of all must agree on its id"
        )
    if shown.topic_id == position.left_id != NO_ID:
        return (
            f"source topic {suspect.topic}: brokers name its id from before it was "
            "re-created; they are cut off from their cluster"
        )
    leader = shown.leaders.get(suspect.partition)
    if leader is None or leader.node < 0:
        return f"{_name(suspect)} has no leader"
    if views.has_another(leader.node, shown):
        return _disagree(suspect)
    oldest = max(position.leader_epoch, position.oldest_leader)
    if not remade(shown.topic_id, position) and leader.epoch < oldest:
        if _nameless(shown):
            return _remade_or_cut(suspect, f"is led under epoch {leader.epoch}")
        known = f"records of epoch {oldest} were copied"
        if oldest > position.leader_epoch:
            known = f"a leader of epoch {oldest} no longer had some"
        return (
            f"{_name(suspect)}: broker {leader.node} leads it under epoch "
            f"{leader.epoch}, but {known}: the brokers that answer are cut off from "
            "their cluster"
        )
    return ""


def _nameless(topic: Topic) -> bool:
    """Whether its brokers have no topic ids."""
    return topic.topic_id == NO_ID


def _remade_or_cut(suspect: Suspect, found: str) -> str:
    """Why nothing is copied where a topic may be another one: to go on would
    leave out its beginning, to begin again would copy records twice.
    """
    position = suspect.position
    return (
        f"{_name(suspect)} {found}, but records up to offset {position.offset} (epoch "
        f"{position.leader_epoch}) were copied: the topic was created again or lost "
        "its end, which these brokers cannot tell (no topic ids before Kafka 2.8); set "
        "where to continue with `mirror flow reset`"
    )


def _disagree(suspect: Suspect) -> str:
    return f"source topic {suspect.topic}: brokers disagree on its id"


def _name(suspect: Suspect) -> str:
    return f"source partition {suspect.topic}-{suspect.partition}"
