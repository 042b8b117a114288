"""Topics as brokers report them, and which broker to believe.

Main types: `Topic` and `Leader`; `Leaders`, which remembers the newest leader that any
broker has reported for each partition; and `Views`, what several brokers report about
the same topics. A broker that is cut off from its cluster keeps answering: it names
itself leader and still lists deleted topics. Leader epochs only grow, so the larger one
is newer (KIP-320); a topic id counts if most brokers report it. No I/O.
"""

from __future__ import annotations

import base64
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
import uuid

from mirror.clusters import codes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TopicPartition = tuple[str, int]
"""A topic's name, and the number of a partition."""
NO_ID = uuid.UUID(int=0)
"""The topic id from brokers that have none (before 2.8)."""
_SHORT = 22
_LEADER_USABLE = frozenset({codes.NONE, codes.REPLICA_NOT_AVAILABLE})


def same_topic(one: uuid.UUID | None, other: uuid.UUID | None) -> bool:
    """Whether these ids may be of one topic; NO_ID may be any."""
    return NO_ID in (one, other) or one == other


def short_id(topic_id: uuid.UUID) -> str:
    """A topic's id as Kafka's tools show it."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def topic_id_of(text: str) -> uuid.UUID:
    """The reverse of `short_id`; as librdkafka shows it, or in hexadecimal, it may be,
    too. Raises ValueError if the text is none of these.
    """
    if len(text) != _SHORT:
        return uuid.UUID(text)
    usual = text.replace("-", "+").replace("_", "/")
    return uuid.UUID(bytes=base64.b64decode(usual + "==", validate=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """Which broker leads a partition; `node` is -1 while there is none."""

    node: int
    epoch: int
    """Grows with every election; -1 if the broker does not report it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic from metadata. `error` is a Kafka error code, 0 if none."""

    name: str
    topic_id: uuid.UUID
    leaders: Mapping[int, Leader]
    error: int
    replication_factor: int
    replicas: tuple[int, ...] = ()
    """The brokers that have partition 0."""

    @property
    def partitions(self) -> int:
        return len(self.leaders)


def topic_of(answer: Any) -> Topic:
    """One topic of a Metadata response."""
    partitions = sorted(answer.partitions, key=lambda p: int(p.partition_index))
    replicas = tuple(partitions[0].replica_nodes) if partitions else ()
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
        replication_factor=len(replicas),
        replicas=replicas,
    )


class Leaders:
    """The newest leaders that any broker has reported, by topic id and partition."""

    def __init__(self) -> None:
        self._newest: dict[uuid.UUID, dict[int, Leader]] = {}

    def learn(self, topic_id: uuid.UUID, partition: int, leader: Leader) -> None:
        """Take note of a leader found elsewhere; an older one changes nothing."""
        known = self._newest.setdefault(topic_id, {})
        if partition not in known or known[partition].epoch < leader.epoch:
            known[partition] = leader

    def keep_only(self, topic_ids: set[uuid.UUID]) -> None:
        """Forget all other topics: they are gone."""
        for topic_id in self._newest.keys() - topic_ids:
            del self._newest[topic_id]

    def newest(self, topic: Topic) -> Topic:
        """The topic with the newest known leader of each partition, its own included.
        A topic without an id stays as given: its name may mean another topic by now.
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
    """What each broker that answered reports about the same topics."""

    brokers: int
    """How many brokers the answers list, including those that answered."""
    answers: Mapping[int, Mapping[str, Topic]]
    """By broker."""

    def agreed(self, name: str) -> Topic | None:
        """The topic with the id that more than half of the brokers report, and the
        newest leaders that any of these reports; None if no id has a majority.
        """
        shown = [each[name] for each in self.answers.values() if not each[name].error]
        votes = Counter(topic.topic_id for topic in shown)
        if not votes:
            return None
        topic_id, count = votes.most_common(1)[0]
        if 2 * count <= self.brokers:
            return None
        return _newest_of(topic for topic in shown if topic.topic_id == topic_id)

    def has_another(self, node: int, topic: Topic) -> bool:
        """Whether this broker answered, and means another topic by the name."""
        answer = self.answers.get(node)
        return answer is not None and answer[topic.name].topic_id != topic.topic_id


def _newest_of(topics: Iterable[Topic]) -> Topic:
    """Merge views of one topic."""
    leaders = Leaders()
    newest: Topic | None = None
    for topic in topics:
        newest = leaders.newest(topic)
    assert newest is not None
    return newest
