"""Decides which copies of a flow have the source's offsets, at the start of each run.

Main functions: `decide`, which the driver calls once it is the only writer, and
`judge`, which only says what would follow. What was decided for a copy stays: its
`TermNote` stands in the progress topic, in a transaction of the owner, before the first
record is written. Copies that have records already are taken up if they hold the
source's own (`taking_up`). All others are translated as ever.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
import time
from typing import TYPE_CHECKING
from uuid import UUID

import structlog

from mirror.clusters import hanging
from mirror.clusters.admin import brokers, configs, topic_admin
from mirror.clusters.topics import same_topic
from mirror.copying.lease import Assignment
from mirror.copying.target import KnownCopies
from mirror.errors import AuthorizationError, ClusterError, MirrorError
from mirror.offsets import progress, runs, starting
from mirror.offsets.progress import NO_ID, Position
from mirror.offsets.runs import Block, identical
from mirror.offsets.terms import PROOF_SECONDS, TermNote
from mirror.records import records
from mirror.records.writing import idempotent
from mirror.service import taking_up
from mirror.service.ownership import (
    PositionUpdate,
    rewrite_progress,
    take_over_id,
    write_as_owner,
)
from mirror.service.scheduler import Job
from mirror.status.wording import named
from mirror.topics import padding
from mirror.topics.merging import Merging
from mirror.topics.same_offsets import (
    HAS_RECORDS,
    Edges,
    is_excluded,
    why_begun,
    why_translated,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic, TopicPartition
    from mirror.clusters.transactions import Producer
    from mirror.clusters.wire.produce import EncodedBatch
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.offsets.progress import Progress
    from mirror.service.ownership import Owned
    from mirror.service.taking_up import Candidate, Found, Ids, Prefix
    from mirror.topics.topics import MirroredTopic

log = structlog.get_logger()

_EXPIRATIONS = ("producer.id.expiration.ms", "transactional.id.expiration.ms")
"""After which time leaders forget producers: the second one before Kafka 3.4."""
_DEFAULT_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SameOffsets:
    """What was decided about a flow's topics."""

    notes: Mapping[str, TermNote] = field(default_factory=dict)
    """Of copies with the source's offsets, by source topic."""
    translated: Mapping[str, str] = field(default_factory=dict)
    """Topics whose copies have offsets of their own, and why."""
    waiting: Mapping[str, str] = field(default_factory=dict)
    """Topics that are not copied for now, and why."""
    padding: Mapping[str, TermNote] = field(default_factory=dict)
    """Of these, topics whose copies are padded first."""
    comparing: Mapping[str, Candidate] = field(default_factory=dict)
    """Of these, topics whose copies are compared first."""
    different: frozenset[str] = frozenset()
    """Of the translated ones, those whose copies were compared for nothing."""
    ended: frozenset[str] = frozenset()
    """Of the translated ones, those whose copies were to keep the source's offsets."""

    @property
    def problems(self) -> list[str]:
        """Of copies that were to keep the source's offsets, in words."""
        found = [
            f"{topic}: {self.translated[topic]}, as the source had an offset without a "
            "record; name it in offsets_exclude, or make the copy again"
            for topic in self.ended
        ]
        return found + [
            f"{topic}: its offsets are translated: {self.translated[topic]}; name it "
            "in offsets_exclude, or make the copy again"
            for topic in sorted(self.different)
        ]

    def knows(self, topic: str) -> bool:
        return topic in self.notes or topic in self.translated or topic in self.waiting


NONE = SameOffsets()
"""Of a flow whose offsets are translated."""
_IS_COMPARED = f"{HAS_RECORDS}: it is compared first"
_IS_PADDED = "its copy is padded up to the source's first record"


def decide(  # noqa: PLR0913  what is known, and what was found before
    flow: FlowConfig,
    config: MirrorConfig,
    source: Cluster,
    target: Cluster,
    found: Sequence[MirroredTopic],
    *,
    owned: Owned,
    holes: Collection[str] = (),
    compared: Mapping[Ids, Found] | None = None,
) -> SameOffsets:
    """What follows for these topics, which have copies; it is noted for the next runs.
    `config` has all flows. `holes`: topics with a source offset without a record that
    are to be translated from there on. `compared`: what was found of copies that have
    records already; None: none of them is taken up.

    Raises:
        FencedError: another run started meanwhile.
        ClusterError: a cluster does not answer.
    """
    name = progress.topic_name(flow.source)
    known = progress.read(target, name)
    judged = judge(
        flow, config, source, target, found,
        known=known, holes=holes, compared=compared,
    )  # fmt: skip
    if judged.ending:
        time.sleep(PROOF_SECONDS)  # by then no slot of an earlier run begins to write
    ends = _ends(flow, source, target, known, judged.ending)
    in_pair = bool(config.pairs_of(flow.source, flow.target))
    new = _notes(target, judged, known, in_pair=in_pair)
    ended = {
        topic: replace(note, ended=ends.of_topic(topic))
        for topic, note in judged.ending.items()
        if topic not in ends.unknown
    }
    if new or ended:
        batches = _batches(flow, judged, known, {**new, **ended}, ends)
        write_as_owner(target, batches, owned.owner)
    notes = {**judged.notes, **new}
    left_alone = {*judged.waiting, *(each.topic for each in judged.too_long)}
    padding = {
        topic: note
        for topic, note in notes.items()
        if not (note.padded or topic in left_alone)
    }
    waiting = {**judged.waiting, **dict.fromkeys(padding, _IS_PADDED)}
    waiting |= {
        topic: f"its copy cannot be translated yet: {why}"
        for topic, why in ends.unknown.items()
    }
    for topic in judged.too_long:
        waiting[topic.topic] = _delete(flow, target, topic)
    reasons = {**judged.translated, **{t: _own(note) for t, note in ended.items()}}
    translated = {t: why for t, why in reasons.items() if t not in waiting}
    told = translated if flow.offsets == "same" else {t: translated[t] for t in ended}
    for each, reason in told.items():
        log.info("offsets are translated", flow=flow.name, topic=each, reason=reason)
    for each, reason in waiting.items():
        log.warning("topic is not copied", flow=flow.name, topic=each, reason=reason)
    if not (notes or waiting or flow.offsets == "same"):
        return NONE
    return SameOffsets(
        notes={topic: note for topic, note in notes.items() if topic not in waiting},
        translated=translated,
        waiting=waiting,
        padding=padding,
        comparing={
            topic: each for topic, each in judged.comparing.items() if topic in waiting
        },
        different=frozenset(judged.compared & translated.keys()),
        ended=frozenset(
            topic
            for topic in (*judged.ended, *ended)
            if flow.offsets == "same" and not is_excluded(flow, topic)
        ),
    )


def _batches(
    flow: FlowConfig,
    judged: Judged,
    known: Progress,
    notes: Mapping[str, TermNote],
    ends: _Ends,
) -> dict[str, list[EncodedBatch]]:
    """What is noted of what was decided, by topic of the flow."""
    positions = {
        key: begun
        for key, position in known.positions.items()
        if key[0] in judged.able and key[0] not in judged.equal
        and (begun := _begun(position, judged.able[key[0]].topic)) != position
    }  # fmt: skip
    positions |= {key: at for key, at in ends.positions.items() if key[0] in notes}
    taken = {
        (topic, number): part
        for topic, each in judged.able.items()
        for number, part in each.taken.items()
        if part.end
    }
    for key, part in taken.items():
        positions[key] = Position(
            offset=part.end, leader_epoch=part.leader_epoch,
            topic_id=UUID(notes[key[0]].topic_id),
        )  # fmt: skip
    found = {
        progress.topic_name(flow.source): [
            *records.encode_all(note.record(topic) for topic, note in notes.items()),
            *progress.encode(positions, known.running),
        ]
    }
    blocks = runs.encode(
        [each for each in ends.blocks if each.topic in notes]
        + [
            Block(
                topic=key[0], partition=key[1],
                target_topic=flow.replication_policy.target_topic(key[0]),
                topic_id=UUID(notes[key[0]].topic_id),
                copy_id=UUID(notes[key[0]].copy_id),
                runs=identical(part.first, part.end),
            )
            for key, part in taken.items()
            if part.end > part.first
        ]
    )  # fmt: skip
    if blocks:
        own = runs.topic_name(flow.source, flow.separator)
        found[own] = records.encode_all((b"", value) for value in blocks)
    return found


def _begun(position: Position, topic: MirroredTopic) -> Position:
    """What a position in a copy that was deleted is in the new one, which says nothing
    about a source topic that is gone, either.
    """
    now, was = UUID(topic.topic_id), position.topic_id
    if not same_topic(now, was):
        position = replace(position, topic_id=now, left_id=was)
    return replace(position, offset=0, leader_epoch=-1) if position.offset else position


def _delete(flow: FlowConfig, target: Cluster, topic: MirroredTopic) -> str:
    """Delete a copy that has nothing but padding; the next look creates it again.
    Returns what is said about it meanwhile.
    """
    name = topic.target_topic
    places = [(name, number) for number in range(topic.partitions)]
    if starting.filled(flow, target, places):
        return "its copy has records that mirror did not write"
    try:
        shown = target.topics([name])[name]
        topic_admin.delete_topic(target, shown.topic_id, name)
    except ClusterError as error:
        return f"its copy has too much padding and cannot be deleted: {error}"
    return "its copy is made again: it had too much padding"


@dataclass(frozen=True, slots=True)
class Beginning:
    """A topic whose copy begins."""

    topic: MirroredTopic
    firsts: Mapping[int, int] = field(default_factory=dict)
    ends: Mapping[int, int] = field(default_factory=dict)
    """By partition, where the source's log begins and ends, if not at 0."""
    taken: Mapping[int, Prefix] = field(default_factory=dict)
    """By partition, what a copy that is taken up has already."""


def note_ends(flow: FlowConfig, target: Cluster) -> None:
    """Once no slot copies any more, note how far copies with the source's offsets are,
    as slots do once a second. Where groups go on, and what is lost, follows from it.

    Raises:
        FencedError: a run of the flow started meanwhile; nothing was written.
        ClusterError: the target does not answer.
    """
    known = progress.read_existing(target, progress.topic_name(flow.source))
    lasting = [topic for topic, note in known.terms.items() if note.ended is None]
    found = _ends(flow, None, target, known, lasting)
    if found.positions:
        rewrite_progress(
            flow,
            target,
            lambda _: PositionUpdate(positions=found.positions, blocks=found.blocks),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ends:
    """Where copies end that no slot writes now."""

    known: Mapping[TopicPartition, int]
    """By source partition."""
    unknown: Mapping[str, str]
    """Topics of which that is not known of all partitions, and why."""
    positions: Mapping[TopicPartition, Position]
    """To note, where more is copied than is noted, or less."""
    blocks: Sequence[Block]
    """For the offset map."""

    def of_topic(self, topic: str) -> dict[int, int]:
        """Where its copy ends, by partition."""
        return {n: end for (name, n), end in self.known.items() if name == topic}


def _ends(
    flow: FlowConfig,
    source: Cluster | None,
    target: Cluster,
    known: Progress,
    topics: Collection[str],
) -> _Ends:
    """Of these topics, which have notes; of a copy that was made again, nothing.
    `source`: None if it is gone.
    """
    shown = target.topics({flow.replication_policy.target_topic(t) for t in topics})
    copies = {
        (copy, number): Assignment(
            topic=topic, partition=number, target_topic=copy, topic_id=note.topic_id,
            term=note.term(number),
        )
        for topic in topics
        for copy, note in [
            (flow.replication_policy.target_topic(topic), known.terms[topic])
        ]
        if shown[copy].topic_id.hex == note.copy_id
        for number in range(shown[copy].partitions)
    }  # fmt: skip
    if not copies:
        return _Ends(known={}, unknown={}, positions={}, blocks=())
    # Only here: it loads kernels.
    from mirror.copying.copy_ends import find_ends  # noqa: PLC0415

    found = find_ends(
        target,
        KnownCopies(
            source=source, wanted=copies.values(), positions=known.positions,
            running=known.running, target_topics=shown,
            source_topics=source.topics(topics) if source else {},
        ),
        copies,
    )  # fmt: skip
    ends, unknown, positions, blocks = {}, {}, {}, []
    for where, of in copies.items():
        key, end = (of.topic, of.partition), found.get((of.topic, of.partition))
        # What the source has lost is a loss as ever, if leaders can tell from where on.
        told = end is not None and end.diverged and end.leader_epoch >= 0
        bad = end is None or (end.reason and not told)
        if end is None or bad or end.position < end.offset:
            name = f"{where[0]}-{where[1]}"
            reason = "" if end is None else end.reason
            unknown[of.topic] = reason or f"{name} has no leader, or has diverged"
            continue
        ends[key] = end.offset
        at = known.positions.get(key)
        first = at.offset if at else known.terms[of.topic].firsts.get(of.partition, 0)
        topic_id = at.topic_id if at else UUID(of.topic_id)
        if at is None or end.offset != first:
            positions[key] = Position(
                offset=end.offset, leader_epoch=end.leader_epoch, topic_id=topic_id,
                left_id=at.left_id if at else NO_ID,
            )  # fmt: skip
        if end.offset > first:
            blocks.append(
                Block(
                    topic=of.topic, partition=of.partition, target_topic=where[0],
                    topic_id=topic_id, copy_id=shown[where[0]].topic_id,
                    runs=identical(first, end.offset),
                )
            )  # fmt: skip
    return _Ends(known=ends, unknown=unknown, positions=positions, blocks=blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What a run decides, before it notes or changes anything."""

    notes: Mapping[str, TermNote] = field(default_factory=dict)
    translated: Mapping[str, str] = field(default_factory=dict)
    waiting: Mapping[str, str] = field(default_factory=dict)
    """As of `SameOffsets`."""
    able: Mapping[str, Beginning] = field(default_factory=dict)
    """Topics whose copies can begin, or go on, with the source's offsets."""
    comparing: Mapping[str, Candidate] = field(default_factory=dict)
    """Of those that wait, topics whose copies are compared first."""
    compared: frozenset[str] = frozenset()
    """Of the translated ones, those whose copies were compared."""
    equal: frozenset[str] = frozenset()
    """Of those that are able, topics that the flow back has copied: there is nothing
    to pad."""
    ending: Mapping[str, TermNote] = field(default_factory=dict)
    """Topics that are translated from here on, and had the source's offsets."""
    ended: frozenset[str] = frozenset()
    """Topics of which that was decided before."""
    changed: Mapping[str, TermNote] = field(default_factory=dict)
    """Notes of copies whose padding is done, or goes further."""
    too_long: tuple[MirroredTopic, ...] = ()
    """Topics whose copies have more padding than they may."""


def judge(  # noqa: PLR0913  as `decide`
    flow: FlowConfig,
    config: MirrorConfig,
    source: Cluster,
    target: Cluster,
    found: Sequence[MirroredTopic],
    *,
    known: Progress,
    holes: Collection[str] = (),
    compared: Mapping[Ids, Found] | None = None,
) -> Judged:
    """What the next run decides about these topics, as things are; copies may be
    missing. `config` has all flows; `known`: what the progress topic says; `holes`,
    `compared`: as of `decide`.

    Raises:
        ClusterError: a cluster does not answer.
    """
    if flow.offsets != "same" and not known.terms:
        return Judged(translated=dict.fromkeys((each.topic for each in found), ""))
    shown = target.topics({each.target_topic for each in found})
    noted = {
        each.topic: note
        for each in found
        if (note := known.terms.get(each.topic)) is not None
        and note.copy_id == shown[each.target_topic].topic_id.hex
    }
    ended = {t: _own(note) for t, note in noted.items() if note.ended is not None}
    ending = {
        topic: note
        for topic, note in noted.items()
        if note.ended is None
        and (flow.offsets != "same" or topic in holes or is_excluded(flow, topic))
    }
    left_off = ended | dict.fromkeys(ending, "so far its copy has the source's offsets")
    notes = {t: note for t, note in noted.items() if t not in left_off}
    new = [each for each in found if each.topic not in noted]
    if flow.offsets != "same":
        return Judged(
            translated=dict.fromkeys((each.topic for each in new), "") | left_off,
            ending=ending, ended=frozenset(ended),
        )  # fmt: skip
    translated, waiting = _impossible(flow, config, source, new)
    left = [
        each
        for each in found
        if each.topic not in translated
        and each.topic not in waiting
        and each.topic not in left_off
        and not ((note := notes.get(each.topic)) is not None and note.padded)
    ]
    logs, copies = _edges(source, target, left, shown)
    equal = _equal(flow, config, source, left, shown)  # after the ends of logs
    able: dict[str, Beginning] = {}
    changed: dict[str, TermNote] = {}
    too_long, filled = [], []
    for each in left:
        copy = shown[each.target_topic]
        if (note := notes.get(each.topic)) is not None:
            if (now := _padded(each, note, logs, copies)) is None:
                too_long.append(each)
            else:
                changed[each.topic] = now
            continue
        if each.topic in equal:
            able[each.topic] = Beginning(each)
            continue
        most = flow.most_padded_offsets
        reason, is_known = why_begun(each, logs, copies, copy, most=most)
        if not reason:
            able[each.topic] = Beginning(
                each, _some(each, logs.first), _some(each, logs.end)
            )
        elif reason == HAS_RECORDS and compared is not None and not flow.translates_ids:
            filled.append(each)
        else:
            (translated if is_known else waiting)[each.topic] = reason
    copied = taking_up.look(source, target, filled, shown, compared or {})
    for topic, found_equal in copied.equal.items():
        able[topic] = Beginning(
            found_equal.topic, {}, _some(found_equal.topic, logs.end), found_equal.parts
        )
    translated |= {
        t: f"{HAS_RECORDS}, and {why}" for t, why in copied.different.items()
    }
    waiting |= {t: f"{HAS_RECORDS}, and {why}" for t, why in copied.unknown.items()}
    waiting |= dict.fromkeys(copied.to_compare, _IS_COMPARED)
    # A copy that had the source's offsets never gets others without a word.
    waiting |= {
        topic: translated.pop(topic) for topic in known.terms.keys() & translated
    }
    return Judged(
        notes=notes, translated=translated | left_off, waiting=waiting,
        able=able, comparing=copied.to_compare, compared=copied.compared,
        equal=equal, ending=ending, ended=frozenset(ended),
        changed=changed, too_long=tuple(too_long),
    )  # fmt: skip


def _equal(
    flow: FlowConfig,
    config: MirrorConfig,
    source: Cluster,
    topics: Sequence[MirroredTopic],
    shown: Mapping[str, Topic],
) -> frozenset[str]:
    """Topics that the flow back copied from the copies here with their offsets, as it
    has noted: both logs are one, up to where the shorter one ends.
    """
    if not topics or not config.pairs_of(flow.source, flow.target):
        return frozenset()
    back = progress.read_existing(source, progress.topic_name(flow.target)).terms
    return frozenset(
        each.topic
        for each in topics
        if (note := back.get(each.target_topic)) is not None
        and note.topic_id == shown[each.target_topic].topic_id.hex
        and note.copy_id == each.topic_id
    )


def _own(note: TermNote) -> str:
    """Where a copy has offsets of its own, in words."""
    ended = note.ended or {}
    places = [f"offset {end} of partition {n}" for n, end in ended.items()]
    return f"its copy has offsets of its own from {named(places) or 'its start'} on"


def _padded(
    topic: MirroredTopic, note: TermNote, source: Edges, target: Edges
) -> TermNote | None:
    """The note of a copy that is being padded, as things are now; None: it has more
    than it may. Where leaders do not answer, it stays.
    """
    places = [(topic.topic, number) for number in range(topic.partitions)]
    ends = {
        number: target.end.get((topic.target_topic, number))
        for number in range(topic.partitions)
    }
    if None in ends.values() or not all(key in source.end for key in places):
        return note
    wanted = {number: source.first[topic.topic, number] for number in ends}
    if any((end or 0) > wanted[number] for number, end in ends.items()):
        return None
    begins = {number: first for number, first in wanted.items() if first}
    return replace(note, firsts=begins, padded=ends == wanted)


def _edges(
    source: Cluster,
    target: Cluster,
    topics: Sequence[MirroredTopic],
    shown: Mapping[str, Topic],
) -> tuple[Edges, Edges]:
    """Where the logs of topics, and of their copies, as `shown`, begin and end."""
    logs = Edges.read(
        source, [(each.topic, n) for each in topics for n in range(each.partitions)]
    )
    copies = Edges.read(
        target,
        [
            (each.target_topic, n)
            for each in topics
            for n in range(each.partitions)
            if n < shown[each.target_topic].partitions
        ],
    )
    return logs, copies


def _impossible(
    flow: FlowConfig,
    config: MirrorConfig,
    source: Cluster,
    topics: Sequence[MirroredTopic],
) -> tuple[dict[str, str], dict[str, str]]:
    """Topics whose copies cannot have the source's offsets by settings and configs,
    and those whose configs are not known, each with the reason.
    """
    known = configs.describe(source, [each.topic for each in topics]) if topics else {}
    waiting = {
        name: f"its configs are not known: {each.error}"
        for name, each in known.items()
        if each.error is not None
    }
    merging = Merging(config.enabled_flows)
    in_pair = bool(config.pairs_of(flow.source, flow.target))
    translated = {
        each.topic: reason
        for each in topics
        if each.topic not in waiting
        and (
            reason := why_translated(
                flow, each, known[each.topic].configs, merging, in_pair=in_pair
            )
        )
    }
    return translated, waiting


def _some(
    topic: MirroredTopic, offsets: Mapping[TopicPartition, int]
) -> dict[int, int]:
    """Those of a topic that are not 0, by partition."""
    found = {n: offsets.get((topic.topic, n), 0) for n in range(topic.partitions)}
    return {number: offset for number, offset in found.items() if offset}


def _notes(
    target: Cluster, judged: Judged, known: Progress, *, in_pair: bool
) -> dict[str, TermNote]:
    """The notes to write."""
    made = {
        topic: note
        for topic, note in judged.changed.items()
        if note != known.terms[topic]
    }
    if not judged.able:
        return made
    # The old id goes on: then what a slot of an earlier copy sends is refused.
    producer_id = next((each.producer_id for each in known.terms.values()), None)
    if producer_id is None:
        producer_id = idempotent(target).producer_id
    shown = target.topics([e.topic.target_topic for e in judged.able.values()])
    return made | {
        name: TermNote(
            producer_id=producer_id,
            topic_id=each.topic.topic_id,
            copy_id=shown[each.topic.target_topic].topic_id.hex,
            firsts=each.firsts,
            ends=each.ends if in_pair else {},
            padded=not each.firsts,
        )
        for name, each in judged.able.items()
    }


# ---- padding ----


_TURN_SECONDS = 5.0


class PaddingJob:
    """Pads copies whose source's logs begin at n, and deletes the padding once records
    follow it.
    """

    def __init__(
        self, flow: FlowConfig, same: SameOffsets, *, padded: Callable[[], None]
    ) -> None:
        """`padded` is called when a copy can be written: another run finds that out."""
        self._flow = flow
        self._same = same
        self._tell_padded = padded
        self._producer: Producer | None = None
        self._ends: dict[TopicPartition, int] = {}
        self._deleted: set[str] = set()

    @property
    def needed(self) -> bool:
        notes = [*self._same.notes.values(), *self._same.padding.values()]
        return any(each.firsts for each in notes)

    def job(self) -> Job:
        return Job(name="padding", seconds=_TURN_SECONDS, work=self.turn)

    def turn(self, _source: Cluster, target: Cluster) -> None:
        """Pad for some seconds.

        Raises:
            MirrorError: another driver pads now, or the target does not answer.
        """
        until = time.monotonic() + _TURN_SECONDS
        name = self._flow.replication_policy.target_topic
        try:
            for topic, note in self._same.padding.items():
                self._pad(target, name(topic), note, until)
        except MirrorError:
            self._producer = None  # it takes over again
            raise
        for topic in self._same.notes.keys() - self._deleted:
            self._delete_padding(target, name(topic), self._same.notes[topic])

    def _pad(self, target: Cluster, copy: str, note: TermNote, until: float) -> None:
        left = {n: first for n, first in note.firsts.items()
                if self._ends.get((copy, n), 0) < first}  # fmt: skip
        if not left:
            return
        producer = self._producer or self._take_over(target, copy, left)
        for number, first in left.items():
            end = padding.pad(target, (copy, number), first, producer, until=until)
            self._ends[copy, number] = end
            log.info("copy is padded", flow=self._flow.name, topic=copy,
                     partition=number, offset=end, of=first)  # fmt: skip
        if all(self._ends.get((copy, n), 0) >= first for n, first in left.items()):
            self._tell_padded()

    def _take_over(
        self, target: Cluster, copy: str, numbers: Iterable[int]
    ) -> Producer:
        name = f"mirror.{self._flow.name}.padding"
        producer = take_over_id(self._flow, target, name)
        hanging.complete(
            target, [producer], target.topics([copy]),
            [(copy, number) for number in numbers], aborts_unknown=True,
        )  # fmt: skip
        self._producer = producer
        return producer

    def _delete_padding(self, target: Cluster, copy: str, note: TermNote) -> None:
        """Not before records follow it: a log without records knows no producer."""
        places = [(copy, number) for number in note.firsts]
        edges = Edges.read(target, places)
        due = {
            number: first
            for number, first in note.firsts.items()
            if edges.first.get((copy, number), first) < first
            and edges.end.get((copy, number), 0) > first
        }
        if due:
            topic_admin.delete_records(target, copy, due)
        if all(edges.first.get(place, -1) >= note.firsts[place[1]] for place in places):
            self._deleted.add(copy)


def fresh_seconds(flow: FlowConfig, target: Cluster) -> float:
    """How old the last record of a producer may be whom all leaders remember: half of
    the time after which they forget it, as clocks differ.

    Raises:
        ClusterError: the target does not answer.
    """
    if flow.offsets != "same":
        return _DEFAULT_SECONDS / 2
    try:
        found = brokers.settings(target, _EXPIRATIONS)
    except AuthorizationError:
        return _DEFAULT_SECONDS / 2
    seconds = [int(found[name]) / 1000 for name in _EXPIRATIONS if name in found]
    return min(seconds[0] if seconds else _DEFAULT_SECONDS, _DEFAULT_SECONDS) / 2
