"""What the cluster that is back after a failover is like, and what it needs first.

Main functions: `look`, which changes nothing, `require_ready`, which refuses what would
lose or repeat records, `restore`, which fills topics that are gone or were re-created,
and `grow`, which gives the active cluster the partitions that the other one has more.
The way home itself is a switch.

Where both clusters have the same offsets, a tail stands at offsets that the active
cluster gives to other records. Such a topic is deleted once its tail is settled, and
the flow home copies it again from its first record.

A restore pauses the topics in the flow home, creates what is missing as on the active
cluster, empties the rest and fills all (`fill`), up to where the flow home stands. A
run that was killed left topics that still count as re-created: the next one empties and
fills them again. Once the flow out is moved behind what came home, nothing is left to
do. Of two commands the later one fences the other, on both clusters.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
import re
import time
from types import MappingProxyType
from typing import TYPE_CHECKING
from uuid import UUID

import numpy as np

from mirror.clusters.admin import topic_admin
from mirror.clusters.admin.topic_admin import delete_records
from mirror.clusters.transactions import Producer
from mirror.clusters.wire import fetch
from mirror.clusters.wire.write import Write
from mirror.config import scopes
from mirror.copying import gaps, provenance
from mirror.copying.gaps import Suspect
from mirror.errors import NoLeaderError
from mirror.offsets import progress, runs, standby
from mirror.offsets.progress import NO_ID, Position
from mirror.offsets.reverse_start import edges, find_starts
from mirror.offsets.runs import DOWNSTREAM, UPSTREAM, Block
from mirror.pairs import control, risk
from mirror.pairs.losses import Cause
from mirror.pairs.roles import owed
from mirror.proofs.log_stream import LogStream, OffsetRange
from mirror.records import home_stamps, records, to_columns, writing
from mirror.records.listing import listed
from mirror.recovery.stage import StepError
from mirror.recovery.tails import survey
from mirror.recovery.tails.packing import Packer, ahead
from mirror.retry import patiently
from mirror.service import ownership
from mirror.service.ownership import Generation, PositionUpdate, rewrite_progress
from mirror.service.positions import behind_copies, both_write
from mirror.status.wording import moment, named, some
from mirror.topics import topics as topic_job
from mirror.topics.sides import Live
from mirror.topics.topics import select

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    import uuid

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic, TopicPartition
    from mirror.clusters.wire.produce import EncodedBatch
    from mirror.config.schema import FlowConfig
    from mirror.offsets.progress import Progress
    from mirror.offsets.reverse_start import Edges
    from mirror.offsets.runs import RunArray
    from mirror.offsets.terms import TermNote
    from mirror.records.listing import Listed
    from mirror.recovery.stage import Stage


_PIECE_BYTES = 32 << 20
_POLL_SECONDS = 0.5
_TELL_SECONDS = 5.0
_NO_OFFSETS = np.empty(0, np.int64)


class ReturnedKind(StrEnum):
    """What a topic of the returned cluster is, compared with what was copied."""

    SAME = "SAME"
    RECREATED = "RECREATED"
    ABSENT = "ABSENT"
    SHORTER = "SHORTER"
    """The same topic, but its log lost records that were copied."""
    DIVERGED = "DIVERGED"
    """The same topic, to have the active cluster's offsets, and it has records of its
    own at some of them."""
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
    """Of a shorter topic, and of one that is to have the active cluster's offsets:
    where it has records that the active cluster does not have."""
    same: bool = False
    """Whether it has the active cluster's offsets: the flow home fills it itself."""
    topic_id: str = ""
    """In hex."""


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
        if any(each.kind is ReturnedKind.SHORTER and (each.own or not each.same)
               for each in self.wrong):  # fmt: skip
            return ()
        return tuple(each.topic for each in self.wrong)

    @property
    def copied_again(self) -> dict[str, str]:
        """Those of them that the flow home fills; with the topic's id if it is deleted
        before, else empty.
        """
        deleted = (ReturnedKind.SHORTER, ReturnedKind.DIVERGED)
        return {
            each.topic: each.topic_id if each.kind in deleted else ""
            for each in self.wrong
            if each.same and each.topic in self.restorable
        }

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
    known = progress.read_existing(active, name)
    known_id = Generation.parse(known.generation).source_id
    positions = {
        key: each
        for key, each in known.positions.items()
        if scopes.has_topic(stage.pair, key[0], stage.flow)
    }
    topics = _topics(stage, positions, known.terms)
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
        if each.kind is ReturnedKind.SHORTER and each.topic not in filled:
            raise StepError(_shorter(stage, found, each))
        if each.kind is ReturnedKind.RECREATED and each.own:
            raise StepError(_foreign(each.own, stage.flow))
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
        again = found.copied_again
        require_possible(stage, [each for each in filled if each not in again])
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
    stage: Stage,
    positions: Mapping[tuple[str, int], Position],
    copied: Mapping[str, TermNote],
) -> tuple[TopicState, ...]:
    """`copied`: how the flow out has written copies with the same offsets."""
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
    there_still = [topic for topic, kind in kinds.items() if kind is ReturnedKind.SAME]
    lost = _lost(back, {topic: known[topic] for topic in there_still})
    home = progress.read_existing(back, progress.topic_name(active.alias)).terms
    same = {
        topic: copy
        for topic, copy in origins(stage, kinds).items()
        if copy in active_topics
        and active_topics[copy].topic_id.hex
        in (
            copied[topic].copy_id if topic in copied else "",
            home[copy].topic_id if copy in home else "",
        )
    }
    left = [topic for topic in same if topic in here and topic not in lost]
    diverged = _diverged(stage, {topic: same[topic] for topic in left})
    kinds |= dict.fromkeys(lost, ReturnedKind.SHORTER)
    kinds |= dict.fromkeys(diverged & {*there_still}, ReturnedKind.DIVERGED)
    lost |= {topic: topic for topic in diverged - {*there_still}}
    return tuple(
        TopicState(
            topic=topic,
            same=topic in same,
            kind=kind,
            here=here[topic].partitions if topic in here else 0,
            topic_id=here[topic].topic_id.hex if topic in here else "",
            there=there.get(topic, 0),
            own=lost.get(topic, ""),
        )
        for topic, kind in kinds.items()
    )


def _diverged(stage: Stage, names: Mapping[str, str]) -> set[str]:
    """Of topics that are to have the offsets of the active cluster, those with other
    records at their end than that has, or more. `names`: what they are called there.

    Raises:
        ClusterError: a cluster does not answer.
    """
    if not names:
        return set()
    # Only here: it loads kernels.
    from mirror.copying.copy_ends import equal_ends  # noqa: PLC0415

    here = stage.target.topics(names)
    keys = {
        (topic, n): (name, n)
        for topic, name in names.items()
        for n in range(here[topic].partitions)
    }
    equal = equal_ends(stage.target, stage.source, keys)
    return {topic for (topic, _), alike in equal.items() if not alike}


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


# ---- which topics can be filled from the active cluster ----


def origins(stage: Stage, topics: Collection[str]) -> dict[str, str]:
    """The topic of the active cluster that has what was copied of each."""
    name = stage.reverse.replication_policy.target_topic
    return {topic: name(topic) for topic in topics}


def copied_home(stage: Stage) -> dict[str, str]:
    """The topics that the flow home copies, by the name of their copies."""
    found = select(stage.source, stage.flow).topics
    return {each.target_topic: each.topic for each in found}


def require_possible(stage: Stage, topics: Collection[str]) -> None:
    """Check that these topics can be filled.

    Raises:
        StepError: with the reason.
    """
    home, out = stage.flow, stage.reverse
    both = (home, out)
    names, written = origins(stage, topics), copied_home(stage)
    there = stage.source.topics(names.values())
    reason = ""
    if not all(flow.provenance and flow.exactly_once for flow in both):
        reason = "that needs provenance and exactly_once in both flows"
    elif any(flow.transform is not None for flow in both):
        reason = "a flow with a function changes records"
    elif gone := sorted(each for each in names.values() if not there[each].partitions):
        reason = f"{home.source} has no {gone[0]}"
    else:
        for topic, origin in sorted(names.items()):
            if (other := written.get(topic, origin)) != origin:
                reason = f"{home.name} copies {other} to {topic}, not {origin}"
    if reason:
        raise StepError(
            f"`--restore` cannot fill {', '.join(sorted(topics))}: {reason}; nothing "
            "has changed"
        )
    own = (runs.topic_name(home.source, home.separator), 0)
    log = edges(stage.target, [own]).get(own)
    if log is None or log.cut == log.end:
        require_no_own(stage, names)
    # Else a restore that was killed may hide the map's end: the restore looks.


def require_no_own(
    stage: Stage,
    names: Mapping[str, str],
    ends: Mapping[TopicPartition, int] = MappingProxyType({}),
) -> None:
    """Refuse where a topic has records that did not come from the active cluster: they
    would go when it is emptied, up to these ends. Behind those there may be no records
    at all. `names` is what `origins` says.

    Raises:
        StepError: it has.
        NoLeaderError: a partition has no leader for a long time.
    """
    home, back = stage.flow, stage.target
    here = back.topics(names)
    keys = [(name, n) for name in names for n in range(here[name].partitions)]

    def ask() -> dict[TopicPartition, Edges]:
        logs = edges(back, keys)
        if missing := set(keys) - logs.keys():
            topic, number = min(missing)
            raise NoLeaderError(f"{topic}-{number} on {home.target} has no leader")
        return logs

    logs = patiently(ask)  # the leaders of a new topic do not lead it at once
    filled = [key for key in keys if logs[key].start < logs[key].end]
    found = {}
    if back.topic(runs.topic_name(home.source, home.separator)) is not None:
        asked = {(topic, n): (names[topic], n) for topic, n in filled}
        starts = find_starts(home, back, asked, {})
        found = {key: start.offset for key, start in starts.items()}
    for key in filled:
        if key in ends and (
            logs[key].cut < ends[key] or _has_records(back, key, logs[key], ends[key])
        ):
            raise StepError(
                f"another command or a client writes to {key[0]}-{key[1]} on "
                f"{home.target}: run this one again"
            )
        first = found.get(key, logs[key].start)
        if _has_records(back, key, logs[key], first):
            raise StepError(_foreign(f"{key[0]}-{key[1]}", home))


def _foreign(where: str, home: FlowConfig) -> str:
    return (
        f"{where} was re-created on {home.target} and has records that did not come "
        f"from {home.source}: move them away and delete the topic, then run this again"
    )


def _has_records(cluster: Cluster, key: TopicPartition, log: Edges, first: int) -> bool:
    wanted = OffsetRange(
        topic=key[0], partition=key[1], topic_id=log.topic_id, first=first, end=log.cut
    )
    if first >= log.cut:
        return False
    stream = LogStream(cluster, wanted, isolation=fetch.READ_COMMITTED)
    return any(len(some.places) for some in stream.listed())


# ---- fills topics that are gone or were re-created ----


def restore(stage: Stage, found: Returned, *, show: Callable[[str], None]) -> None:
    """Fill the topics that can be; `show` gets a line for each.

    Raises:
        FencedError: another command began meanwhile.
        MirrorError: a cluster refuses or does not answer; run it again.
    """
    again = found.copied_again
    topics = [each for each in found.restorable if each not in again]
    require_possible(stage, topics)
    _copy_again(stage, again, show=show)
    home, back = stage.flow, stage.target
    names = origins(stage, topics)
    producer = Producer(
        back,
        transactional_id=f"mirror.{home.name}.restore",
        transaction_timeout_ms=int(home.transaction_timeout_seconds * 1000),
    )
    producer.take_over()
    known = _fence_others(stage, found.restorable)
    if not topics:
        _pass(stage, producer, origins(stage, again), ())
        return
    # The flow home writes copies of other names nowhere near these.
    paused = sorted(set(topics) & copied_home(stage).keys())
    for topic in paused:
        control.change_pauses(back, home, re.escape(topic), paused=True)
    # A driver reads the pauses after it takes over, so none copies these from here on.
    ownership.take_over(home, back)
    _make(stage, names)
    require_no_own(stage, names)
    # A later command fences this one before it writes: `retake` finds that, or all that
    # it writes is behind these.
    ends = _ends(back, topics)
    parts = _parts(stage, names, paused)
    require_no_own(stage, names, ends)
    former = Generation.parse(known.generation).source_ids
    ids = [back.cluster_id, *(each for each in former if each != back.cluster_id)]
    came_home: list[Block] = []
    for topic in sorted(topics):
        mine = [part for part in parts if part.topic == topic]
        producer.retake()
        _empty(back, mine, ends)
        count = 0
        for part in mine:
            written, blocks = fill(stage, producer, part, ids)
            count += written
            came_home += blocks
        show(f"{topic} on {home.target} has {count} records again")
    _resume(stage, producer, parts, paused)
    _pass(stage, producer, names | origins(stage, again), came_home)


def _copy_again(
    stage: Stage, topics: Mapping[str, str], *, show: Callable[[str], None]
) -> None:
    """Let the flow home copy these topics with their offsets, from their first record
    up to where the active cluster ends now; it must run. Those with an id are deleted
    first.

    Raises:
        MirrorError: a cluster refuses or does not answer; run it again.
    """
    home, active, back = stage.flow, stage.source, stage.target
    for topic, seen in sorted(topics.items()):
        if not seen:
            continue
        if back.topics([topic])[topic].topic_id.hex != seen:
            raise StepError(f"{topic} on {home.target} was re-created: run this again")
        topic_admin.delete_topic(back, UUID(seen), topic)
        show(f"{topic} on {home.target} is deleted: {home.name} copies it again")
    names = origins(stage, topics)
    there = active.topics(names.values())
    keys = [(name, n) for name in names.values() for n in range(there[name].partitions)]
    ends = topic_admin.offsets_of_all(
        active, keys, timestamp=topic_admin.LATEST, committed=False
    )
    told_at = time.monotonic()
    while left := _not_copied(home, back, ends, names):
        if time.monotonic() > told_at + _TELL_SECONDS:
            told_at = time.monotonic()
            show(f"waiting for {home.name}: {left}")
        time.sleep(_POLL_SECONDS)
    for topic in sorted(topics):
        show(f"{topic} on {home.target} has its records again, with their offsets")


def _not_copied(
    home: FlowConfig,
    back: Cluster,
    ends: Mapping[TopicPartition, int],
    names: Mapping[str, str],
) -> str:
    """What the flow home has not copied up to these ends, of the topics that `origins`
    says, in words; empty if it has, and its service has noted that.
    """
    known = progress.read_existing(back, progress.topic_name(home.source))
    here, left = back.topics(names), 0
    topics = {origin: topic for topic, origin in names.items()}
    for (origin, number), end in ends.items():
        note, at = known.terms.get(origin), known.positions.get((origin, number))
        follows = note and note.copy_id == here[topics[origin]].topic_id.hex
        left += max(end - (at.offset if at is not None and follows else 0), 0)
    if left:
        return f"{some(left, 'offset')} to copy again"
    kept = standby.read(back, home.source, {risk.ENDS})
    faults = {} if kept is None else risk.faults(kept)
    for key in sorted(faults.keys() & ends.keys()):
        return f"{key[0]}-{key[1]} is FAULTED: {faults[key]}"
    return ""


def _fence_others(stage: Stage, topics: Collection[str]) -> Progress:
    """Fence the last step of earlier commands, and return what the flow out has
    copied.

    Raises:
        StepError: one of them came to its end meanwhile.
    """
    out, active = stage.reverse, stage.source
    ownership.take_over(out, active)
    known = progress.read_proven(active, progress.topic_name(out.source))
    here = stage.target.topics(topics)
    for (topic, _), at in known.positions.items():
        if topic in here and NO_ID != at.topic_id == here[topic].topic_id:
            raise StepError(f"another command has filled {topic}: run this one again")
    return known


def _make(stage: Stage, names: Mapping[str, str]) -> None:
    """Create the topics that are missing, and add missing partitions, as the flow home
    would.

    Raises:
        ClusterError: a cluster refuses.
    """
    home, active, back = stage.flow, stage.source, stage.target
    here, there = back.topics(names), active.topics(names.values())
    missing = {
        topic: origin for topic, origin in names.items() if not here[topic].partitions
    }
    _, problems = topic_job.create(back, topic_job.like(Live(active), home, missing))
    if problems:
        raise StepError("; ".join(problems))
    for topic, origin in sorted(names.items()):
        count = there[origin].partitions
        if topic not in missing and here[topic].partitions < count:
            topic_admin.add_partitions(back, topic, count=count)
        back.wait_for_topic(topic, partitions=count)


def _parts(
    stage: Stage, names: Mapping[str, str], paused: Collection[str]
) -> list[PartitionToFill]:
    """
    Raises:
        StepError: the flow home stands in an earlier topic.
    """
    home, active, back = stage.flow, stage.source, stage.target
    known = progress.read_proven(back, progress.topic_name(home.source)).positions
    there, here = active.topics(names.values()), back.topics(names)
    keys = [
        (origin, n)
        for origin in names.values()
        for n in range(there[origin].partitions)
    ]
    starts = topic_admin.offsets_of_all(active, keys, timestamp=topic_admin.EARLIEST)
    ends = topic_admin.offsets_of_all(active, keys, timestamp=topic_admin.LATEST)
    parts = []
    for topic, origin in names.items():
        for number in range(there[origin].partitions):
            key = (origin, number)
            at = known.get(key) if topic in paused else None
            if at is not None and at.topic_id != there[origin].topic_id:
                raise StepError(
                    f"{home.name} does not stand in {origin}-{number} yet: let it copy "
                    "first"
                )
            end = ends[key] if at is None else at.offset
            parts.append(
                PartitionToFill(
                    topic=topic, partition=number, origin=origin,
                    origin_id=there[origin].topic_id, topic_id=here[topic].topic_id,
                    first=starts[key], end=max(starts[key], end),
                    begins=at is None and topic in paused,
                )
            )  # fmt: skip
    return parts


def _ends(cluster: Cluster, topics: Collection[str]) -> dict[TopicPartition, int]:
    here = cluster.topics(topics)
    keys = [(name, n) for name in topics for n in range(here[name].partitions)]
    return topic_admin.offsets_of_all(
        cluster, keys, timestamp=topic_admin.LATEST, committed=False
    )


def _empty(
    cluster: Cluster,
    parts: Sequence[PartitionToFill],
    ends: Mapping[TopicPartition, int],
) -> None:
    topic = parts[0].topic
    if cluster.topics([topic])[topic].topic_id != parts[0].topic_id:
        raise StepError(f"{topic} on {cluster.alias} was re-created meanwhile")
    before = {n: end for (name, n), end in ends.items() if name == topic and end}
    delete_records(cluster, topic, before)


def _resume(
    stage: Stage,
    producer: Producer,
    parts: Sequence[PartitionToFill],
    paused: Sequence[str],
) -> None:
    """Let the flow home go on, where it has not begun behind what came home. A later
    command fences this: else it would end that one's pauses.
    """
    home, back = stage.flow, stage.target
    producer.retake()
    batches = {}
    if paused:
        patterns = map(re.escape, paused)
        _, record = control.changed_pauses(back, home, patterns, paused=False)
        batches[control.topic_name(home.source)] = records.encode_all([record])
    begins = {
        (part.origin, part.partition): Position(
            offset=part.end, topic_id=part.origin_id
        )
        for part in parts
        if part.begins
    }
    if begins:
        batches[progress.topic_name(home.source)] = progress.encode(begins)
    if batches:
        writing.write(back, batches, producer)
        ownership.commit(back, producer, [(topic, 0) for topic in batches])


def _pass(
    stage: Stage,
    producer: Producer,
    names: Mapping[str, str],
    came_home: Sequence[Block],
) -> None:
    """Move the flow out behind what came home: from now on the topics are what was
    copied, also of another cluster than before.
    """
    home, out = stage.flow, stage.reverse
    back, active = stage.target, stage.source
    copies = both_write(stage.config, home, out, active)
    here = back.topics(names)
    copies |= {
        (topic, n): (origin, n)
        for topic, origin in names.items()
        for n in range(here[topic].partitions)
    }

    def decide(known: Mapping[TopicPartition, Position]) -> PositionUpdate:
        producer.retake()
        moved = behind_copies(home, back, copies, known)
        others = {
            key: each
            for key, each in known.items()
            if not scopes.has_topic(stage.pair, key[0], home)
        }
        return PositionUpdate(
            positions=others | moved, blocks=came_home, copied=copies.keys()
        )

    rewrite_progress(out, active, decide, source_id=back.cluster_id)


# ---- fills one partition of a topic that is empty, from the active cluster ----
#
# Main function: `fill`. Records that were born on the cluster that is back come
# home as they were, without our provenance header; others get it, as the flow home
# does it. They stand in the active cluster's order. Each transaction has records
# and their part of the flow home's offset map, which says that they did not come
# from a producer.


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionToFill:
    """One partition to fill."""

    topic: str
    partition: int
    origin: str
    """The topic on the active cluster that has what was copied of it."""
    origin_id: uuid.UUID
    topic_id: uuid.UUID
    first: int
    """On the active cluster."""
    end: int
    begins: bool
    """Whether the flow home has no position here yet: it begins at the end."""

    @property
    def where(self) -> str:
        return f"{self.origin}-{self.partition}"


@dataclass(slots=True, kw_only=True)
class _Piece:
    """What one transaction takes."""

    batches: list[EncodedBatch]
    size: int = 0
    count: int = 0
    born: list[RunArray]
    """The offsets on the active cluster of what was born at home."""


def fill(
    stage: Stage, producer: Producer, part: PartitionToFill, ids: Sequence[str]
) -> tuple[int, list[Block]]:
    """Returns how many records it has written, and what the flow out has copied of what
    is there now. `ids`: of the cluster that is back, also before it was rebuilt.

    Raises:
        FencedError: another command began meanwhile.
        MirrorError: a cluster refuses or does not answer, or records cannot come home.
    """
    home, back = stage.flow, stage.target
    own = runs.topic_name(home.source, home.separator)
    key, count = (part.topic, part.partition), 0
    came_home: list[Block] = []
    for piece in ahead(_pieces(stage, part, ids)):
        if not producer.v2:
            producer.add_partitions([key, (own, 0)])
        writing = Write(back, producer, {key: piece.batches}, back.topics([part.topic]))
        writing.finish()
        rows = []
        for each in writing.placed:
            assert each.batch.runs is not None
            row = each.batch.runs.copy()
            row[:, DOWNSTREAM] += each.offset
            rows.append(row)
        written = runs.joined(np.concatenate(rows))
        block = Block(
            topic=part.origin, partition=part.partition, target_topic=part.topic,
            topic_id=part.origin_id, copy_id=part.topic_id, runs=written,
        )  # fmt: skip
        born = np.concatenate([_NO_OFFSETS, *piece.born])
        if len(born):
            came_home.append(
                Block(
                    topic=part.topic, partition=part.partition,
                    target_topic=part.origin, topic_id=part.topic_id,
                    copy_id=part.origin_id, runs=_reversed(written, born),
                )
            )  # fmt: skip
        values = records.encode_all((b"", value) for value in runs.encode([block]))
        Write(back, producer, {(own, 0): values}, back.topics([own])).finish()
        ownership.commit(back, producer, [key, (own, 0)])
        count += piece.count
    return count, came_home


def _reversed(rows: RunArray, offsets: RunArray) -> RunArray:
    """The runs of these offsets, the other way round."""
    single = np.ones((len(offsets), 3), np.int64)
    index = np.searchsorted(rows[:, UPSTREAM], offsets, "right") - 1
    single[:, UPSTREAM] = offsets + rows[index, DOWNSTREAM] - rows[index, UPSTREAM]
    single[:, DOWNSTREAM] = offsets
    return runs.joined(single)


def _pieces(
    stage: Stage, part: PartitionToFill, ids: Sequence[str]
) -> Iterator[_Piece]:
    home, active, back = stage.flow, stage.source, stage.target
    stream = LogStream(
        active,
        OffsetRange(
            topic=part.origin, partition=part.partition, topic_id=part.origin_id,
            first=part.first, end=part.end,
        ),
        isolation=fetch.READ_COMMITTED,
        lister=partial(listed, most_unpacked=home.max_unpacked_bytes),
    )  # fmt: skip
    seen = [
        provenance.via(
            source_alias=home.source, source_id=active.cluster_id, target_id=each
        )
        for each in ids
    ]
    packer = Packer(home, back, part.topic, stamp=seen[0].stamp)
    piece = _Piece(batches=[], born=[])
    for read in stream.listed():
        born = _taken(read, part, seen)
        packed = packer.pack(read.buffer, read.places, plain=born, where=part.where)
        piece.batches += packed
        piece.size += sum(each.size for each in packed)
        piece.count += len(read.places)
        piece.born.append(read.places[born > 0, to_columns.OFFSET])
        if piece.size >= _PIECE_BYTES:
            yield piece
            piece = _Piece(batches=[], born=[])
    if stream.damages:
        raise StepError(
            f"{part.where} on {home.source} has damaged records from offset "
            f"{stream.damages[0].first} on: nothing of them can come home"
        )
    if piece.batches:
        yield piece


def _taken(
    some: Listed, part: PartitionToFill, seen: Sequence[provenance.Provenance]
) -> provenance.Bytes:
    """Take the stamps of the cluster that is back off the records that were born there;
    returns 1 for each of these.
    """
    born = np.zeros(len(some.places), np.uint8)
    for each in seen:
        left = home_stamps.take(
            some.buffer, some.places, each.key, each.target_suffix, born
        )
        if left:
            offset = some.places[left - 1, to_columns.OFFSET]
            raise StepError(
                f"{part.where}: the record at offset {offset} came through other "
                "clusters after it was here: it cannot be restored"
            )
    return born
