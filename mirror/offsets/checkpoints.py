"""Checkpoints: the groups' offsets on both sides, kept on the target for any client.

Main types: `Checkpoint`, one record in MirrorMaker 2's format, and `Checkpoints`, which
decides what is due since its last round, writes it, and remembers what it wrote; after
a restart it reads that from the topic. A group that is gone from the source is not
written again. Its records stay: a tombstone would break Java's client. Outside the
data's transactions, since Java reads uncommitted records.

Layout, big-endian, STRING = INT16 length + UTF-8: key group STRING, target topic
STRING, partition INT32; value version INT16 = 0, upstream INT64, downstream INT64,
metadata STRING. Java's clients read these, so every byte must match.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
import struct
from typing import TYPE_CHECKING, NamedTuple

from mirror.clusters.admin import topic_admin
from mirror.clusters.topics import TopicPartition
from mirror.config import own_topics
from mirror.errors import CorruptBatchError
from mirror.offsets.translation import Exactness
from mirror.records import records
from mirror.records.reading import TopicReader
from mirror.records.records import encode_string, read_string
from mirror.records.writing import TopicWriter, ensure_topic

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    import uuid

    from mirror.clusters.cluster import Cluster
    from mirror.offsets.groups import GroupPosition, GroupsStanding
    from mirror.offsets.translation import Translated, Translator

_INT32 = struct.Struct(">i")
_VERSIONED_OFFSETS = struct.Struct(">hqq")


def checkpoints_topic(source_alias: str, separator: str = ".") -> str:
    """On the target."""
    return own_topics.CHECKPOINTS.named(source_alias, separator)


class Checkpoint(NamedTuple):
    """A group's offsets on both sides, as of a look at the source."""

    group: str
    topic: str
    """On the target."""
    partition: int
    upstream: int
    downstream: int
    metadata: str = ""

    @property
    def key(self) -> tuple[str, str, int]:
        """Group, topic and partition."""
        return self.group, self.topic, self.partition

    def encode(self) -> tuple[bytes, bytes]:
        """Key and value."""
        return (
            encode_string(self.group)
            + encode_string(self.topic)
            + _INT32.pack(self.partition),
            _VERSIONED_OFFSETS.pack(0, self.upstream, self.downstream)
            + encode_string(self.metadata),
        )

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> Checkpoint:
        """Raises CorruptBatchError if it is none."""
        try:
            group, at = read_string(key, 0)
            topic, at = read_string(key, at)
            (partition,) = _INT32.unpack_from(key, at)
            _, upstream, downstream = _VERSIONED_OFFSETS.unpack_from(value)
            metadata, _ = read_string(value, _VERSIONED_OFFSETS.size)
            # By position: a survey reads 100,000 of them.
            return cls(group, topic, partition, upstream, downstream, metadata)
        except (struct.error, UnicodeDecodeError) as error:
            raise CorruptBatchError(f"not a checkpoint: {error}") from error


def _group_of(key: bytes) -> str:
    """The group that a checkpoint is of, by its key. Raises CorruptBatchError."""
    try:
        return read_string(key, 0)[0]
    except (struct.error, UnicodeDecodeError) as error:
        raise CorruptBatchError(f"not a checkpoint: {error}") from error


# ---- withdrawn checkpoints: their copy was re-created or lost its end ----
#
# Main type: `Highest`, the highest target offset that was written for each group
# and partition: we may have moved a group up to there. It is built from the
# checkpoints in the order of their topic, so it survives a restart, as far as
# compaction allows. Groups go back *before* the lower checkpoint is written (see
# `service.groups`): so a checkpoint that went back shows that its group did.


Withdrawn = dict[str, dict[TopicPartition, int]]
"""Per group and target partition: a group at this offset, or before, goes back."""


class _Written(NamedTuple):
    highest: Checkpoint
    newest: Checkpoint


class Highest:
    """What was written for each group and partition."""

    def __init__(self) -> None:
        self._written: dict[tuple[str, str, int], _Written] = {}

    def take(self, now: Checkpoint, *, withdrawn: bool = False) -> None:
        """The next checkpoint. `withdrawn`: earlier ones no longer count."""
        known = self._written.get(now.key)
        if (
            known is None
            or withdrawn
            or now.downstream >= known.highest.downstream
            or _went_back(known.newest, now)
        ):
            self._written[now.key] = _Written(now, now)
        else:
            self._written[now.key] = known._replace(newest=now)

    def withdrawn(
        self,
        known: Mapping[str, Mapping[TopicPartition, Checkpoint]],
        standing: GroupsStanding,
        translator: Translator,
    ) -> Withdrawn:
        """Offsets of groups that may be in the lost part. `known`: current checkpoints.

        The highest checkpoint itself is translated again: a group that was rewound on
        the source has a lower one, and that is no reason to take it back.
        """
        doubtful: dict[tuple[str, TopicPartition], tuple[TopicPartition, Checkpoint]]
        doubtful = {}
        for group, places in standing.places.items():
            for place in places:
                key = (place.target_topic, place.partition)
                now = known[group].get(key)
                written = self._written.get((group, *key))
                if now and written and now.downstream < written.highest.downstream:
                    of = (place.topic, place.partition)
                    doubtful[group, key] = (of, written.highest)
        questions: dict[TopicPartition, set[int]] = {}
        for of, highest in doubtful.values():
            questions.setdefault(of, set()).add(highest.upstream)
        answers = translator.translate_all(questions)
        found: Withdrawn = {}
        for (group, key), (of, highest) in doubtful.items():
            answer = answers[of][highest.upstream]
            if answer.renewed and answer.offset < highest.downstream:
                found.setdefault(group, {})[key] = highest.downstream
        return found


def _went_back(last: Checkpoint, now: Checkpoint) -> bool:
    """Whether a checkpoint fell although its group did not."""
    return now.downstream < last.downstream and now.upstream >= last.upstream


_SURE = frozenset({Exactness.EXACT, Exactness.TIP, Exactness.BEHIND})
Known = dict[str, dict[TopicPartition, Checkpoint]]
"""Per group, the checkpoint of each target partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """The work of one round."""

    changed: tuple[Checkpoint, ...]
    known: Known
    """The state once these are written, for groups that the source has."""
    partly: bool
    """Only of those groups of which something was looked at."""
    withdrawn: Withdrawn
    """Offsets that groups may have in the lost part of their copies. They go back
    before their checkpoints do: a restart sees it only by the higher checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointsResult:
    """What one round did."""

    written: int
    known: Mapping[str, Mapping[TopicPartition, Checkpoint]]
    """The current state, for groups that the source has."""
    found: tuple[str, ...] = ()
    """Groups that got their first checkpoints."""
    gone: tuple[str, ...] = ()
    """Groups that existed in the previous round and no longer do."""


class Checkpoints:
    """The checkpoints of one flow. Not thread-safe."""

    def __init__(
        self, source_alias: str, *, separator: str = ".", replication_factor: int = -1
    ) -> None:
        """`replication_factor`: of the topic, if it must be created."""
        self._topic = checkpoints_topic(source_alias, separator)
        self._replication_factor = replication_factor
        self._target: Cluster | None = None
        self._writer: TopicWriter | None = None
        self._topic_id: uuid.UUID | None = None
        self._known: Known = {}
        self._highest = Highest()
        self._first = True

    def decide(
        self,
        target: Cluster,
        standing: GroupsStanding,
        translator: Translator,
        *,
        partly: bool = False,
    ) -> Due:
        """What is due; `translator` knows where `standing` is from. `partly`: there are
        more groups and partitions than those in `standing`.

        Raises:
            MirrorError: the target does not answer, or refuses.
        """
        begins = self._writer is None or self._target is not target
        if begins or self._topic_id != self._present_id(target):
            ensure_topic(
                target,
                own_topics.CHECKPOINTS,
                self._topic,
                replication_factor=self._replication_factor,
            )
            self._topic_id = self._present_id(target)
            self._known = {}
            for found in _read(target, self._topic):
                _put(found, self._known)
                self._highest.take(found)
            self._target, self._writer = target, TopicWriter(target, self._topic)
            self._first = begins
        changed, known = decide(self._known, standing, partly=partly)
        return Due(
            changed=tuple(changed),
            known=known,
            partly=partly,
            withdrawn=self._highest.withdrawn(known, standing, translator),
        )

    def write(
        self,
        due: Due,
        *,
        waiting: Collection[str] = (),
        refused: Collection[str] = (),
    ) -> CheckpointsResult:
        """Write what is due. Of groups that should have gone back, those `waiting` keep
        their checkpoints until they did; those `refused` are tried again.

        Raises:
            MirrorError: they are not written, or only some: the next round continues.
        """
        assert self._writer is not None
        held = _keys(due.withdrawn, waiting)
        left = held | _keys(due.withdrawn, refused)
        changed = [each for each in due.changed if each.key not in held]
        self._writer.write([checkpoint.encode() for checkpoint in changed])
        for each in changed:
            if each.key not in left:
                self._highest.take(each)
        for group, topic, partition in _keys(due.withdrawn, due.withdrawn) - left:
            done = due.known[group][topic, partition]
            self._highest.take(done, withdrawn=True)
        first, last = self._first, self._known
        known = {
            group: {
                key: kept
                for key, each in found.items()
                if (kept := last.get(group, {}).get(key) if each.key in held else each)
            }
            for group, found in due.known.items()
        }
        self._known = {**last, **known} if due.partly else known
        self._first = first and due.partly
        return CheckpointsResult(
            written=len(changed),
            known=known,
            found=tuple(sorted(g for g in known if known[g] and not last.get(g))),
            # Groups from earlier runs in the topic may be long gone.
            gone=() if first else tuple(sorted(last.keys() - self._known.keys())),
        )

    def _present_id(self, target: Cluster) -> uuid.UUID:
        return target.topics([self._topic])[self._topic].topic_id


def decide(
    before: Known, standing: GroupsStanding, *, partly: bool = False
) -> tuple[list[Checkpoint], Known]:
    """The checkpoints that are due, and the state once they are written."""
    changed: list[Checkpoint] = []
    known: Known = {}
    for group, places in standing.places.items():
        last = before.get(group, {})
        known[group] = dict(last) if partly else {}
        for place in places:
            if place.downstream < 0:
                continue
            key = (place.target_topic, place.partition)
            previous = last.get(key)
            if previous is not None and _same(previous, place):
                known[group][key] = previous
                continue
            now = _checkpoint(group, place)
            if due(previous, now, lower=_may_be_lower(place.translated)):
                changed.append(now)
                known[group][key] = now
            elif previous is not None:
                known[group][key] = previous
    return changed, known


def _may_be_lower(answer: Translated) -> bool:
    """Whether a larger answer from before does not count: its copy was replaced, or it
    did not look at other flows. An answer that is merely not sure takes nothing back.
    """
    return answer.renewed or (answer.joint and answer.exactness in _SURE)


def due(previous: Checkpoint | None, now: Checkpoint, *, lower: bool = False) -> bool:
    """Whether a checkpoint is due: the group's first one, or the group moved on, or was
    rewound on the source, or it may be `lower`: its copy was replaced, or the answer
    before did not look at other flows. Nothing else moves it backwards.
    """
    if previous is None or now.upstream < previous.upstream:
        return True
    if now.downstream == previous.downstream:
        return now.upstream > previous.upstream
    return lower or now.downstream > previous.downstream


def _same(known: Checkpoint, place: GroupPosition) -> bool:
    return known.upstream == place.upstream and known.downstream == place.downstream


def read(target: Cluster, topic: str) -> Known:
    """Everything in a checkpoints topic; nothing if there is no such topic.

    Raises:
        ClusterError: the target does not answer, or refuses.
    """
    if target.topic(topic) is None:
        return {}
    known: Known = {}
    for found in _read(target, topic):
        _put(found, known)
    return known


def times(target: Cluster, topic: str) -> dict[str, float]:
    """By group, when its last checkpoint was written, epoch seconds; nothing if there
    is no such topic.

    Raises:
        ClusterError: the target does not answer, or refuses.
    """
    from mirror.records import scan  # noqa: PLC0415  loads kernels

    if target.topic(topic) is None:
        return {}
    where = (topic, 0)
    start, end = (
        topic_admin.list_offsets(
            target, [where], timestamp=timestamp, committed=False
        ).get(where, 0)
        for timestamp in (topic_admin.EARLIEST, topic_admin.LATEST)
    )
    reader = TopicReader(target, topic, committed=False, position=start)
    found: dict[str, float] = {}
    for buffer, rows in reader.batches(end):
        for number, at in enumerate(rows[:, scan.BASE_TIME].tolist()):
            for _, key, _ in records.decode(buffer, rows[number : number + 1]):
                with contextlib.suppress(CorruptBatchError):  # `_read` has said so
                    group = _group_of(key)
                    found[group] = max(at / 1000, found.get(group, 0.0))
    return found


def _read(target: Cluster, topic: str) -> Iterator[Checkpoint]:
    for _, key, value in TopicReader(target, topic, committed=False).read():
        try:
            yield Checkpoint.decode(key, value)
        except CorruptBatchError as error:
            import structlog  # noqa: PLC0415  commands need not wait for it

            # Java's client skips such a record too.
            log = structlog.get_logger()
            log.warning("checkpoint skipped", topic=topic, error=str(error))


def _put(found: Checkpoint, known: Known) -> None:
    known.setdefault(found.group, {})[found.topic, found.partition] = found


def _keys(withdrawn: Withdrawn, groups: Iterable[str]) -> set[tuple[str, str, int]]:
    return {(group, *key) for group in groups for key in withdrawn.get(group, ())}


def _checkpoint(group: str, place: GroupPosition) -> Checkpoint:
    return Checkpoint(
        group=group,
        topic=place.target_topic,
        partition=place.partition,
        upstream=place.upstream,
        downstream=place.downstream,
        metadata=place.metadata,
    )
