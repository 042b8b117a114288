"""Pauses that people asked for, kept on the target.

Main type: `Pauses` of one flow, a list of rules over topic names of which the last
match counts. A compacted topic per source cluster has one JSON document per flow, so a
pause can be requested without a running service and survives every restart. A topic
whose copy is being rebuilt is paused, too, whatever the rules say. `relay` does the
pausing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
import json
import re
import time
from typing import TYPE_CHECKING, Any

from mirror.config import own_topics
from mirror.errors import MALFORMED, ClusterError, MirrorError, RecreatedError
from mirror.pairs import rebuilds, repairs
from mirror.pairs.rebuilds import Rebuild
from mirror.records.reading import TopicReader
from mirror.records.writing import append, ensure_topic
from mirror.status.events import Event, EventKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig
    from mirror.pairs.repairs import Repair

VERSION = 1
EVERY_TOPIC = ".*"


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRule:
    """Pauses or resumes topics whose whole name matches."""

    topics: str
    paused: bool
    since: float
    """When it was requested, epoch seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pauses:
    """The rules of one flow, oldest first."""

    rules: tuple[PauseRule, ...] = ()
    rebuilding: Mapping[str, float] = field(default_factory=dict)
    """Topics whose copies are being rebuilt, and since when."""

    def since(self, topic: str) -> float:
        """Since when a topic is paused, epoch seconds; 0 if it is not."""
        if topic in self.rebuilding:
            return self.rebuilding[topic]
        for rule in reversed(self.rules):
            if re.fullmatch(rule.topics, topic):
                return rule.since if rule.paused else 0.0
        return 0.0

    def changed(self, topics: str, *, paused: bool, now: float) -> Pauses:
        """The rules with one more, without those that it overrides."""
        if topics == EVERY_TOPIC:
            kept: tuple[PauseRule, ...] = ()
        else:
            kept = tuple(rule for rule in self.rules if rule.topics != topics)
        if not paused and not any(rule.paused for rule in kept):
            return replace(self, rules=())
        rule = PauseRule(topics=topics, paused=paused, since=now)
        return replace(self, rules=(*kept, rule))

    def document(self) -> dict[str, Any]:
        """As in the topic."""
        return {
            "version": VERSION,
            "rules": [
                {"topics": rule.topics, "paused": rule.paused, "since": rule.since}
                for rule in self.rules
            ],
        }

    def event(self, flow: str) -> Event:
        """The event that these rules are now in force."""
        resting = [rule.topics for rule in self.rules if rule.paused]
        resting += [f"{topic} (being rebuilt)" for topic in sorted(self.rebuilding)]
        return Event(
            kind=EventKind.FLOW_PAUSED if resting else EventKind.FLOW_RESUMED,
            flow=flow,
            text=f"paused: topics {', '.join(resting)}"
            if resting
            else "nothing is paused",
            details={"rules": self.document()["rules"]},
        )

    @classmethod
    def decode(cls, value: bytes) -> Pauses:
        """The rules of one record.

        Raises:
            ClusterError: it is not ours, or from a newer version of mirror.
        """
        try:
            found = cls.parse(json.loads(value))
            for rule in found.rules:
                re.compile(rule.topics)
        except (*MALFORMED, re.error) as error:
            raise ClusterError(f"a record of the pauses is damaged: {error!r}") from (
                error
            )
        return found

    @classmethod
    def parse(cls, document: dict[str, Any]) -> Pauses:
        """The reverse of `document`.

        Raises:
            ClusterError: a newer mirror has written it.
        """
        if document.get("version") != VERSION:
            raise ClusterError(
                f"the pauses have version {document.get('version')}, this mirror reads "
                f"{VERSION}: use the newest mirror for this target"
            )
        return cls(rules=tuple(PauseRule(**fields) for fields in document["rules"]))


def topic_name(source_alias: str) -> str:
    return own_topics.CONTROL.named(source_alias)


class PausesReader:
    """Reads the pauses of one flow once, and later only what was added. `repair` is the
    flow's last one and `rebuilds` are those of topics; they stand in the same topic.
    """

    def __init__(self, target: Cluster, flow: FlowConfig) -> None:
        self.target = target
        self._topic = topic_name(flow.source)
        self._flow = flow.name
        self._begin()

    def _begin(self) -> None:
        self._reader = TopicReader(self.target, self._topic)
        self._pauses = Pauses()
        self.repair: Repair | None = None
        self.rebuilds: dict[str, Rebuild] = {}

    def read(self) -> Pauses:
        """The newest rules; none while the topic is not there.

        Raises:
            ClusterError: the target does not answer, or does not let us read.
        """
        if self.target.topic(self._topic) is None:
            self._begin()
            return self._pauses
        try:
            self._follow()
        except RecreatedError:
            self._begin()
            self._follow()
        rebuilding = {
            each.topic: each.at for each in self.rebuilds.values() if each.pauses
        }
        return replace(self._pauses, rebuilding=rebuilding)

    def refuse_beside(self, topic: str = "") -> None:
        """Check that no copy is being rebuilt, except that of this topic.

        Raises:
            MirrorError: one is.
        """
        for each in self.rebuilds.values():
            if each.unfinished and each.topic != topic:
                raise MirrorError(
                    f"flow {self._flow}: the copy of {each.topic} is being rebuilt: "
                    "finish that first, with the command that began it"
                )

    def _follow(self) -> None:
        for _, key, value in self._reader.read():
            if key == self._flow.encode():
                self._pauses = Pauses.decode(value)
            elif key == repairs.key(self._flow):
                self.repair = repairs.decode(self._flow, value)
            elif isinstance(found := rebuilds.decode(self._flow, key, value), Rebuild):
                self.rebuilds[found.topic] = found


def change(target: Cluster, flow: FlowConfig, topics: str, *, paused: bool) -> Pauses:
    """Pause or resume topics; returns the rules now in force.

    Raises:
        ClusterError: the target refuses, with its own words.
    """
    topic = topic_name(flow.source)
    ensure_topic(
        target,
        own_topics.CONTROL,
        topic,
        replication_factor=flow.replication_factor,
    )
    rules, record = changed(target, flow, [topics], paused=paused)
    append(target, topic, [record])
    return rules


def changed(
    target: Cluster, flow: FlowConfig, topics: Iterable[str], *, paused: bool
) -> tuple[Pauses, tuple[bytes, bytes]]:
    """The rules once these are changed, and the record that says so; it is for the
    caller to write.

    Raises:
        ClusterError: the target does not answer, or does not let us read.
    """
    rules = PausesReader(target, flow).read()
    for each in topics:
        rules = rules.changed(each, paused=paused, now=time.time())
    text = json.dumps(rules.document(), ensure_ascii=False)
    return rules, (flow.name.encode(), text.encode())
