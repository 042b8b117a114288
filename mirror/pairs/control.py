"""The control topic of a flow's target: pauses, and what was done to copies.

Main types: `Pauses` of one flow, a list of rules over topic names of which the last
match counts; `Repair`, the last one of a flow; `Rebuild`, one topic's, which pauses the
topic, too, whatever the rules say; and `KeptGroup`, where a group goes on that read a
copy that is rebuilt. `PausesReader` follows all of them. A pause can be requested
without a running service and survives every restart; any machine can go on with a
rebuild. `copying` does the pausing.

A compacted topic per source cluster. Layout of values: JSON with `version`. Key = the
flow: its `rules`. Key = `repair/<flow>`, in the transaction that makes the repair:
`id`, `at`, `kind` (`append` or `rebuild`) and `topics`: by source topic, how many
records were appended, or how many a copy that was rebuilt had to have. Key =
`rebuild/<flow>/<topic>`, in a transaction of the flow's owner: the fields of `Rebuild`.
Key = `rebuild/<flow>/<topic>/<group>`: `id` (of the rebuild), `settled` and `offsets`:
by partition, the next source offset to read (-1: the copy's first record) and the
metadata that the group committed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
import json
import re
import time
from typing import TYPE_CHECKING, Any
import uuid

from mirror.config import own_topics
from mirror.errors import MALFORMED, ClusterError, MirrorError, RecreatedError
from mirror.records.reading import TopicReader
from mirror.records.writing import append, ensure_topic
from mirror.status.events import Event, EventKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig


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
            told = json.loads(value)
            if (version := told.get("version")) != VERSION:
                raise ClusterError(
                    f"the pauses have version {version}, this mirror reads {VERSION}: "
                    "use the newest mirror for this target"
                )
            rules = tuple(PauseRule(**fields) for fields in told["rules"])
            for rule in rules:
                re.compile(rule.topics)
        except (*MALFORMED, re.error) as error:
            raise ClusterError(f"a record of the pauses is damaged: {error!r}") from (
                error
            )
        return cls(rules=rules)


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

    def refuse_other_rebuilds(self, topic: str = "") -> None:
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
            elif key == repair_key(self._flow):
                self.repair = decode_repair(self._flow, value)
            elif isinstance(found := decode_rebuild(self._flow, key, value), Rebuild):
                self.rebuilds[found.topic] = found


def change_pauses(
    target: Cluster, flow: FlowConfig, topics: str, *, paused: bool
) -> Pauses:
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
    rules, record = changed_pauses(target, flow, [topics], paused=paused)
    append(target, topic, [record])
    return rules


def changed_pauses(
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
    return rules, (flow.name.encode(), _json(rules.document()))


# ---- repairs ----


_VERSION_OF_REPAIR = 1
APPEND = "append"
REBUILD = "rebuild"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """What was done to the copies of one flow."""

    flow: str
    at: float
    """Epoch seconds."""
    kind: str
    topics: Mapping[str, int]
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def record(self) -> tuple[bytes, bytes]:
        """Key and value, as in the topic."""
        told = {
            "version": _VERSION_OF_REPAIR,
            "id": self.id,
            "at": self.at,
            "kind": self.kind,
            "topics": dict(self.topics),
        }
        return repair_key(self.flow), _json(told)

    def event(self) -> Event:
        """The event that it was done."""
        named = ", ".join(f"{count} to {topic}" for topic, count in self.topics.items())
        text = f"missing records were appended to copies: {named}"
        if self.kind == REBUILD:
            text = f"copies were rebuilt from the source: {', '.join(self.topics)}"
        return Event(
            kind=EventKind.COPY_REPAIRED,
            flow=self.flow,
            text=text,
            details={"repair": self.kind, "at": self.at, "topics": dict(self.topics)},
        )


def repair_key(flow: str) -> bytes:
    """Of the record about a flow's last repair."""
    return f"repair/{flow}".encode()


def decode_repair(flow: str, value: bytes) -> Repair | None:
    """The repair of one record; None if only a newer mirror knows what was done.

    Raises:
        ClusterError: it is damaged.
    """
    try:
        told: dict[str, Any] = json.loads(value)
        if int(told["version"]) != _VERSION_OF_REPAIR:
            return None
        return Repair(
            flow=flow,
            id=str(told["id"]),
            at=float(told["at"]),
            kind=str(told["kind"]),
            topics={str(topic): int(n) for topic, n in told["topics"].items()},
        )
    except MALFORMED as error:
        raise ClusterError(f"the note of a repair is damaged: {error!r}") from error


# ---- rebuilds ----


_VERSION_OF_REBUILD = 1


class RebuildStep(StrEnum):
    """How far a rebuild is."""

    PAUSED = "paused"
    """The topic is not copied any more; nothing else has changed."""
    DELETING = "deleting"
    """It is known where groups go on; the copy may be gone already."""
    COPYING = "copying"
    """The new copy is there, and the flow copies it from the first record."""
    DONE = "done"
    """It is over, or was withdrawn before anything changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuild:
    """One rebuild of a topic's copy."""

    topic: str
    """On the source."""
    target_topic: str
    step: RebuildStep
    at: float
    """When it began, epoch seconds."""
    source_id: str
    """The source's cluster id."""
    topic_id: str
    """The source topic's, in hex."""
    copy_id: str
    """The topic id of the copy to delete, in hex."""
    partitions: int
    """Of the copy, like the next two."""
    replication_factor: int
    configs: Mapping[str, str] = field(default_factory=dict)
    """Those that are set on the topic itself."""
    records: int = 0
    """How many records the source had copied when it was proven."""
    ends: tuple[int, ...] = ()
    """By partition, from COPYING on: groups go on once the flow has copied up to this
    source offset."""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def unfinished(self) -> bool:
        return self.step is not RebuildStep.DONE

    @property
    def pauses(self) -> bool:
        """Whether the topic must not be copied now."""
        return self.step in (RebuildStep.PAUSED, RebuildStep.DELETING)

    def record(self, flow: str) -> tuple[bytes, bytes]:
        """Key and value, as in the topic."""
        told = {"version": _VERSION_OF_REBUILD, **asdict(self)}
        return _rebuild_prefix(flow) + self.topic.encode(), _json(told)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptGroup:
    """Where a group goes on that read the copy."""

    topic: str
    group: str
    id: str
    """Of the rebuild."""
    offsets: Mapping[int, tuple[int, str]]
    """By partition: the next source offset (-1: the first record), and metadata."""
    settled: bool = False
    """Whether the group has its offsets in the new copy."""

    def record(self, flow: str) -> tuple[bytes, bytes]:
        """Key and value, as in the topic."""
        told = {
            "version": _VERSION_OF_REBUILD,
            "id": self.id,
            "settled": self.settled,
            "offsets": {str(number): [*at] for number, at in self.offsets.items()},
        }
        return _rebuild_prefix(flow) + f"{self.topic}/{self.group}".encode(), _json(
            told
        )


def _rebuild_prefix(flow: str) -> bytes:
    """Of the keys of a flow's records."""
    return f"rebuild/{flow}/".encode()


def decode_rebuild(flow: str, key: bytes, value: bytes) -> Rebuild | KeptGroup | None:
    """One record of the topic; None if it is about something else.

    Raises:
        ClusterError: it is damaged, or a newer mirror has written it.
    """
    if not key.startswith(_rebuild_prefix(flow)):
        return None
    try:
        told: dict[str, Any] = json.loads(value)
        if (version := told.pop("version")) != _VERSION_OF_REBUILD:
            raise ClusterError(
                f"there is a rebuild of version {version}; this mirror reads "
                f"{_VERSION_OF_REBUILD}: use the newest mirror for this target"
            )
        topic, slash, group = key[len(_rebuild_prefix(flow)) :].decode().partition("/")
        if not slash:
            return _rebuild_of(topic, told)
        return KeptGroup(
            topic=topic,
            group=group,
            id=str(told["id"]),
            settled=bool(told["settled"]),
            offsets={
                int(number): (int(offset), str(metadata))
                for number, (offset, metadata) in told["offsets"].items()
            },
        )
    except MALFORMED as error:
        raise ClusterError(f"the note of a rebuild is damaged: {error!r}") from error


def groups_to_move(
    target: Cluster, flow: FlowConfig, rebuild: Rebuild
) -> Iterator[KeptGroup]:
    """The groups of a rebuild that have no offsets in the new copy yet.

    Raises:
        ClusterError: the target does not answer, or a record is damaged.
    """
    found: dict[str, KeptGroup] = {}
    for _, key, value in TopicReader(target, topic_name(flow.source)).read():
        each = decode_rebuild(flow.name, key, value)
        if isinstance(each, KeptGroup) and each.topic == rebuild.topic:
            found[each.group] = each
    for each in found.values():
        if each.id == rebuild.id and not each.settled:
            yield each


def _rebuild_of(topic: str, told: dict[str, Any]) -> Rebuild:
    return Rebuild(
        topic=topic,
        target_topic=str(told["target_topic"]),
        step=RebuildStep(told["step"]),
        at=float(told["at"]),
        source_id=str(told["source_id"]),
        topic_id=uuid.UUID(told["topic_id"]).hex,
        copy_id=uuid.UUID(told["copy_id"]).hex,
        partitions=int(told["partitions"]),
        replication_factor=int(told["replication_factor"]),
        configs={str(name): str(value) for name, value in told["configs"].items()},
        records=int(told["records"]),
        ends=tuple(map(int, told["ends"])),
        id=str(told["id"]),
    )


def _json(told: Mapping[str, Any]) -> bytes:
    return json.dumps(told, ensure_ascii=False).encode()
