"""Committed offsets of groups on the source, with their translation to the target.

Main types: `GroupPosition`, one partition of one group on both sides, and
`GroupsStanding`, what one look at the source's groups found. The service and the
command line both use `look`. What is written because of it, `checkpoints` knows.

Groups also commit in records of `__consumer_offsets`, which `decode_commit_key` and
`decode_commit` read. Coordinators write many other types of records there, told apart
by the key's first INT16; their keys are None here. `consumer_offsets_topic` knows which
records count.

Source: Kafka's `CoordinatorRecordType`, `OffsetCommitKey`, `LegacyOffsetCommitKey` and
`OffsetCommitValue` (group-coordinator/src/main/resources/common/message). Layout,
big-endian: key type INT16 = 0 or 1, group STRING, topic STRING, partition INT32; value
version INT16 = 0 to 4, offset INT64, from version 3 on leader epoch INT32, metadata
STRING, from version 4 on COMPACT_STRING, then times and tagged fields.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
import struct
from typing import TYPE_CHECKING, NamedTuple, Protocol

from mirror.clusters.admin import group_offsets, groups, share_groups, topic_admin
from mirror.clusters.admin.group_offsets import SHARE_GROUP, CommittedOffset
from mirror.clusters.admin.groups import GroupKind
from mirror.errors import CorruptBatchError
from mirror.offsets.translation import Exactness, Translated
from mirror.records.records import read_string

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirror.clusters.admin.groups import Group
    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig
    from mirror.offsets.translation import Translator
    from mirror.policy.selection import GroupFilter


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """The copy of a source topic."""

    topic: str
    """On the target."""
    partitions: int
    """On the source."""
    merged: bool = False
    """Other flows write it too, or copy it back: this flow's map alone does not know
    what a group has still to read in it."""
    back: FlowConfig | None = None
    """The only other flow, which copies it back: `JointMap` reads both maps."""
    beside: tuple[tuple[FlowConfig, str], ...] = ()
    """The other flows that write it, and their topics, if nothing leads back."""


class CopyWriters(Protocol):
    """Who writes copies; `topics.merging` knows."""

    def is_alone(self, flow: FlowConfig, topic: str) -> bool:
        """Whether no other flow writes the topic's copy, or copies it back."""

    def back(self, flow: FlowConfig, topic: str) -> FlowConfig | None:
        """The only other one, if it copies the copy back."""

    def beside(self, flow: FlowConfig, topic: str) -> Sequence[CopyWriter]:
        """The others, if they copy other records."""


class CopyWriter(Protocol):
    """A flow, and its topic of which the copy is."""

    @property
    def flow(self) -> FlowConfig: ...
    @property
    def topic(self) -> str: ...


def copy_of(
    flow: FlowConfig, topic: str, copy: str, partitions: int, writers: CopyWriters
) -> Copy:
    """A topic's copy, with the other flows that write it."""
    return Copy(
        topic=copy,
        partitions=partitions,
        merged=not writers.is_alone(flow, topic),
        back=writers.back(flow, topic),
        beside=tuple((each.flow, each.topic) for each in writers.beside(flow, topic)),
    )


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """A group's offset in one partition, on both sides."""

    topic: str
    """On the source."""
    partition: int
    target_topic: str
    upstream: int
    translated: Translated
    behind: int = 0
    """How many source offsets that the group has read are not copied yet."""
    metadata: str = ""

    @property
    def downstream(self) -> int:
        """The next offset to read on the target, -1 if there is no answer."""
        return self.translated.offset


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsStanding:
    """The offsets of all groups of a flow."""

    groups: Mapping[str, Group]
    """The matching groups, as the source lists them."""
    places: Mapping[str, tuple[GroupPosition, ...]]
    """For every group that has offsets in topics that are copied."""
    not_covered: tuple[str, ...] = ()
    """Share groups that match, where a cluster does not tell or set their offsets."""
    refused: Mapping[str, str] | None = None
    """Groups that could not be read, with the reason."""


def look(
    source: Cluster,
    target: Cluster,
    group_filter: GroupFilter,
    copies: Mapping[str, Copy],
    translator: Translator,
) -> GroupsStanding:
    """Read the groups of the source that match, and translate their offsets.

    Raises:
        ClusterError: a cluster does not answer.
    """
    listed = {
        name: group
        for name, group in groups.list_groups(source).items()
        if group_filter.matches(name)
    }
    left_out = not_covered(listed, source, target)
    covered = {n: group for n, group in listed.items() if n not in left_out}
    read = group_offsets.fetch(source, covered)
    committed = {
        name: {key: value for key, value in offsets.items() if key[0] in copies}
        for name, offsets in read.groups.items()
    }
    edges = _edges(source, _open_questions(committed, copies, translator))
    return GroupsStanding(
        groups=covered,
        places={
            name: tuple(places)
            for name, places in translated(committed, copies, translator, edges).items()
            if places
        },
        not_covered=left_out,
        refused=read.refused,
    )


def not_covered(listed: Mapping[str, Group], *clusters: Cluster) -> tuple[str, ...]:
    """The share groups, if one of the clusters does not tell or set their offsets.

    Raises:
        ClusterError: a cluster does not answer.
    """
    shared = sorted(n for n, group in listed.items() if group.kind is GroupKind.SHARE)
    if all(share_groups.are_covered(each, shared) for each in clusters if shared):
        return ()
    return tuple(shared)


def translated(
    committed: Mapping[str, Mapping[TopicPartition, CommittedOffset]],
    copies: Mapping[str, Copy],
    translator: Translator,
    edges: Mapping[TopicPartition, tuple[int, int]],
) -> dict[str, list[GroupPosition]]:
    """Where groups stand, given their offsets on the source.

    `edges` are first and end offset of partitions in which nothing is copied, or
    nothing is committed. An empty partition of a topic that a group reads counts as
    read to its end: the group cannot commit there, and would miss the first record if
    that came after the group moved. If everything left on the source is still to be
    copied, the group will begin at the copy's first record.
    """
    standing = {name: dict(offsets) for name, offsets in committed.items()}
    for name, offsets in committed.items():
        for key in missing(offsets, copies):
            first, end = edges.get(key, (-1, -1))
            if first == end >= 0:
                standing[name][key] = CommittedOffset(end, metadata_of_more(offsets))
    questions: dict[TopicPartition, set[int]] = {}
    for offsets in standing.values():
        for key, (offset, _) in offsets.items():
            questions.setdefault(key, set()).add(offset)
    answers = translator.translate_all(questions)
    places = {}
    for key, asked in questions.items():
        first = edges.get(key, (-1, -1))[0]
        position, target_topic = translator.position(*key), copies[key[0]].topic
        for offset in asked:
            answer = answers[key][offset]
            if answer.exactness is Exactness.UNKNOWN and offset <= first:
                answer = Translated(offset=0, exactness=Exactness.TIP)
            behind = answer.exactness is Exactness.BEHIND and position >= 0
            places[key, offset] = GroupPosition(
                *key,
                target_topic,
                offset,
                answer,
                offset - position if behind else 0,
            )
    return {
        name: [
            _with(places[key, offset], metadata)
            for key, (offset, metadata) in sorted(offsets.items())
        ]
        for name, offsets in standing.items()
    }


def metadata_of_more(offsets: Mapping[TopicPartition, CommittedOffset]) -> str:
    """The metadata of an offset that a group gets besides these."""
    return SHARE_GROUP if group_offsets.are_of_share_group(offsets) else ""


def _with(place: GroupPosition, metadata: str) -> GroupPosition:
    return replace(place, metadata=metadata) if metadata else place


def missing(
    committed: Iterable[TopicPartition], copies: Mapping[str, Copy]
) -> set[TopicPartition]:
    """Partitions without an offset, of topics in which the group has others."""
    has = set(committed)
    return {
        (topic, partition)
        for topic in {topic for topic, _ in has}
        for partition in range(copies[topic].partitions)
    } - has


def _open_questions(
    committed: Mapping[str, Mapping[TopicPartition, CommittedOffset]],
    copies: Mapping[str, Copy],
    translator: Translator,
) -> set[TopicPartition]:
    """Partitions whose edges on the source must be known."""
    asked = set().union(*(missing(offsets, copies) for offsets in committed.values()))
    for key in set().union(*committed.values()):
        if translator.position(*key) < 0:
            asked.add(key)
    return asked


def _edges(
    source: Cluster, partitions: set[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    if not partitions:
        return {}
    firsts, ends = (
        topic_admin.list_offsets(
            source, partitions, timestamp=timestamp, committed=False
        )
        for timestamp in (topic_admin.EARLIEST, topic_admin.LATEST)
    )
    return {key: (firsts[key], ends[key]) for key in firsts.keys() & ends.keys()}


# ---- records of `__consumer_offsets` ----

COMMITS_TOPIC = "__consumer_offsets"

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_VALUE = struct.Struct(">hq")
_OFFSET_COMMITS = frozenset({0, 1})
_WITH_EPOCH, _FLEXIBLE, _NEWEST = 3, 4, 4
_LARGEST_VARINT = 35
"""In bits: five bytes of seven."""


class CommitKey(NamedTuple):
    """What an offset was committed for."""

    group: str
    topic: str
    partition: int


def decode_commit_key(key: bytes) -> CommitKey | None:
    """None: a record of another type.

    Raises:
        CorruptBatchError: it has no type, or is no key of its type.
    """
    try:
        if _INT16.unpack_from(key)[0] not in _OFFSET_COMMITS:
            return None
        group, at = read_string(key, _INT16.size)
        topic, at = read_string(key, at)
        partition = _INT32.unpack_from(key, at)[0]
    except (struct.error, UnicodeDecodeError) as error:
        raise CorruptBatchError(f"not the key of a commit: {error}") from error
    if partition < 0:
        raise CorruptBatchError(f"a commit for partition {partition}")
    return CommitKey(group, topic, partition)


def decode_commit(value: bytes) -> CommittedOffset:
    """The offset and its metadata.

    Raises:
        CorruptBatchError: it is no commit, or of a newer version.
    """
    try:
        version, offset = _VALUE.unpack_from(value)
        if not 0 <= version <= _NEWEST:
            raise CorruptBatchError(f"a commit of version {version}")
        at = _VALUE.size + (_INT32.size if version >= _WITH_EPOCH else 0)
        read = _compact_string if version >= _FLEXIBLE else read_string
        metadata, _ = read(value, at)
    except (struct.error, UnicodeDecodeError) as error:
        raise CorruptBatchError(f"not a commit: {error}") from error
    if offset < 0:
        raise CorruptBatchError(f"a commit of offset {offset}")
    return CommittedOffset(offset, metadata)


def _compact_string(data: bytes, at: int) -> tuple[str, int]:
    """Its length plus 1 is an unsigned varint."""
    length = shift = 0
    more = True
    while more:
        if at >= len(data) or shift >= _LARGEST_VARINT:
            raise struct.error("a length does not end")
        length |= (data[at] & 0x7F) << shift
        more = data[at] >= 0x80
        at, shift = at + 1, shift + 7
    end = at + length - 1
    if length == 0 or end > len(data):
        raise struct.error("a string runs past the end")
    return data[at:end].decode(), end
