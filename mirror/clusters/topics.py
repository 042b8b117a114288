"""Topics as brokers show them, and which broker to believe.

Main types: `Topic` and `Leader`; `Leaders`, which remembers the newest leader of each
partition that any broker has named; and `Views`, what several brokers say of the same
topics. A broker that is cut off from its cluster goes on answering: it names itself as
leader and deleted topics as there. Leader epochs only grow, so the larger one is newer
(KIP-320); of topic ids it takes more than half of the brokers. No I/O.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
import uuid

from mirror.clusters import codes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NO_ID = uuid.UUID(int=0)
"""The topic id where brokers have none (before 2.8)."""
_LEADER_USABLE = frozenset({codes.NONE, codes.REPLICA_NOT_AVAILABLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """Which broker leads a partition; `node` is -1 while there is none."""

    node: int
    epoch: int
    """Grows with every election; -1 where brokers do not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic as metadata shows it. `error` is a Kafka error code, 0 if none."""

    name: str
    topic_id: uuid.UUID
    leaders: Mapping[int, Leader]
    error: int
    replication_factor: int

    @property
    def partitions(self) -> int:
        return len(self.leaders)


def topic_of(answer: Any) -> Topic:
    """One topic of a Metadata answer."""
    partitions = sorted(answer.partitions, key=lambda p: int(p.partition_index))
    return Topic(
        name=answer.name,
        topic_id=answer.topic_id or NO_ID,
        leaders={
            p.partition_index: Leader(
                node=p.leader_id if p.error_code in _LEADER_USABLE else -1,
                epoch=p.leader_epoch,
            )
            for p in partitions
        },
        error=answer.error_code,
        replication_factor=len(partitions[0].replica_nodes) if partitions else 0,
    )


class Leaders:
    """The newest leaders that any broker has named, by topic id and partition."""

    def __init__(self) -> None:
        self._newest: dict[uuid.UUID, dict[int, Leader]] = {}

    def learn(self, topic_id: uuid.UUID, partition: int, leader: Leader) -> None:
        """Somebody else found this leader; an older one changes nothing."""
        known = self._newest.setdefault(topic_id, {})
        if partition not in known or known[partition].epoch < leader.epoch:
            known[partition] = leader

    def keep_only(self, topic_ids: set[uuid.UUID]) -> None:
        """Other topics are gone."""
        for topic_id in self._newest.keys() - topic_ids:
            del self._newest[topic_id]

    def newest(self, topic: Topic) -> Topic:
        """The topic with the newest known leader of each partition, the given ones
        included. Without an id the name may mean another topic by now: as given.
        """
        if topic.topic_id == NO_ID:
            return topic
        known = self._newest.setdefault(topic.topic_id, {})
        for partition, leader in topic.leaders.items():
            if partition not in known or known[partition].epoch <= leader.epoch:
                known[partition] = leader
        return replace(topic, leaders=dict(sorted(known.items())))


@dataclass(frozen=True, slots=True, kw_only=True)
class Views:
    """What each broker that answered says of the same topics."""

    brokers: int
    """How many brokers are named by those that answered, themselves included."""
    answers: tuple[Mapping[str, Topic], ...]

    def agreed(self, name: str) -> Topic | None:
        """The topic as more than half of the brokers identify it, with the newest
        leaders that any of those names; None if no id has such a majority.
        """
        shown = [each[name] for each in self.answers if not each[name].error]
        votes = Counter(topic.topic_id for topic in shown)
        if not votes:
            return None
        topic_id, count = votes.most_common(1)[0]
        if 2 * count <= self.brokers:
            return None
        return _newest_of(topic for topic in shown if topic.topic_id == topic_id)


def _newest_of(topics: Iterable[Topic]) -> Topic:
    """Views of one topic as one."""
    leaders = Leaders()
    newest: Topic | None = None
    for topic in topics:
        newest = leaders.newest(topic)
    assert newest is not None
    return newest
