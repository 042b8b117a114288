"""Writes copies whose records have the source's offsets, on any Kafka.

Main type: `SameOffsetsWriter`, in place of `TargetWriter` where a flow says `offsets:
same`. All owners of a copy write it as one idempotent producer, with sequence = offset
minus a constant (`Term`). So the leader takes what follows its last record and nothing
else, from any of them: a record that is sent twice, or by a slot that was believed
dead, is refused or already there. **The end of the copy is the progress**: `find_ends`
asks its leader for it at each take-over. Data needs no transaction around it. Once a
second a transaction notes for others how far copies are: progress and offset map.

In a pair applications write to the copy while its cluster is active. Then the copy ends
with records of others, which the flow back has copied to the source, and a term begins:
with the next epoch of the producer, and sequence 0 at the copy's end. The copy's last
batch tells which term it is, so no note can be wrong about it.

A leader forgets a producer whose last record is old (`producer.id.expiration.ms`), by
the record's own time. Until it shows that it remembers, or has acknowledged a fresh
record, one batch is in flight. Each answer says where the leader wrote the batch: any
other offset than the source's is damage, and the partition stops as DIVERGED.

With `fill: visible` records without a value stand where the source has none
(`records.fillers`); to leaders and here they are records like others.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
import math
import struct
import time
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from mirror.clusters import codes, hanging
from mirror.clusters.admin import topic_admin
from mirror.clusters.wire import fetch, write
from mirror.clusters.wire.write import Write
from mirror.copying.lease import DIVERGED
from mirror.copying.target import (
    MAX_IN_FLIGHT,
    WORTH_OVERLAPPING,
    Committed,
    KnownCopies,
    TargetWriter,
)
from mirror.copying.transaction import PendingTransaction, TransactionContent
from mirror.errors import (
    ClusterError,
    NewRunError,
    NoLeaderError,
    PartitionError,
    UnreachableError,
)
from mirror.offsets.progress import RunningCount
from mirror.offsets.terms import PROOF_SECONDS, SEQUENCES, CopyEnd, diverged
from mirror.records import batch, fillers, former, scan, to_columns
from mirror.records.listing import are_fillers, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic, TopicPartition
    from mirror.clusters.wire.connection import Connection
    from mirror.clusters.wire.fetch import Fetched
    from mirror.clusters.wire.produce import EncodedBatch
    from mirror.clusters.wire.write import Placed
    from mirror.config.schema import FlowConfig
    from mirror.copying.transaction import TransactionRecords
    from mirror.offsets.progress import Position
    from mirror.offsets.terms import Term
    from mirror.records.batch import Buffer


T = TypeVar("T")

PURPOSES = tuple(f"same offsets {channel}" for channel in range(write.CHANNELS))
_NOTE_SECONDS = 1.0
"""How often positions are noted; groups and lag follow the notes."""
_QUIET_SECONDS = 1.0
"""After an error, how long a copy must not grow that its leader may not remember."""
_READ_SECONDS = 10.0
_READ_BYTES = 8 << 20
_READING = "reading"
_PRODUCER = struct.Struct(">qhi")
"""Producer id, epoch and first sequence in the header of a batch."""
_PRODUCER_AT = 43


# ---- where copies end ----


@dataclass(frozen=True, slots=True, kw_only=True)
class _Log:
    """A copy, as its leader shows it between two equal answers."""

    end: int
    """Not the high watermark."""
    epoch: int = -1
    """Of our producer; -1: the leader does not remember it."""
    last_sequence: int = -1
    newest: int = -1
    """The time of the producer's last record, epoch ms."""


class _Record(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None
    is_filler: bool
    leader_epoch: int
    producer_id: int
    epoch: int
    sequence: int


_Found = _Record | str | None
"""A record; or why it is not known; None: it is deleted, or no record is there."""


def find_ends(
    target: Cluster, known: KnownCopies, unsure: Collection[TopicPartition] = ()
) -> dict[TopicPartition, CopyEnd]:
    """Where copies end that have a `Term`, by source partition. `unsure`: copies for
    which something may be on its way that their leader would not recognize. Copies
    without a leader are left out.

    Raises:
        NewRunError: a copy was deleted and created again.
        ClusterError: a cluster does not answer.
    """
    topics = known.target_topics
    keys = {
        (each.target_topic, each.partition): (each.topic, each.partition)
        for each in known.wanted
        if each.term is not None and _leader(topics, each.target_topic,
                                             each.partition) >= 0
    }  # fmt: skip
    terms = {(e.target_topic, e.partition): e.term for e in known.wanted if e.term}
    for where in keys:
        if topics[where[0]].topic_id.hex != terms[where].copy_id:
            raise NewRunError(f"target topic {where[0]} was deleted and created again")
    positions = {where: known.positions.get(key) for where, key in keys.items()}
    noted = {
        where: terms[where].first if at is None else at.offset
        for where, at in positions.items()
    }
    looked = _look_behind(target, terms, noted, topics, unsure)
    written: dict[TopicPartition, _Found] = {}
    lost: dict[TopicPartition, str] = {}
    if known.source is not None:
        asked = {
            keys[where]: (each.log.end - 1, each.last)
            for where, each in looked.items()
            if isinstance(each, _Behind) and (each.ours or each.ends_with_ours)
        }
        written = _facing(known.source, asked, known.source_topics)
        places = {key: offset for key, (offset, _) in asked.items()}
        lost = _lost_ends(known.source, places, written, known.source_topics)
        facing_none = {key: at for key, each in written.items() if each is None
                       and (at := known.positions.get(key))}  # fmt: skip
        lost |= _cut_logs(known.source, facing_none, known.source_topics)
        alone = {
            where: offset
            for where, key in keys.items()
            if key in asked and asked[key][1] is None and _is_copied(written[key])
            for offset in [asked[key][0]]
        }
        lost |= {
            keys[where]: f"{_name(where)} has no record at offset {offset}, and the "
            "source has one"
            for where, offset in _never_there(target, alone, topics).items()
        }
        alone = {
            key: offset
            for key, (offset, copied) in asked.items()
            if written[key] is None and _is_copied(copied)
        }
        lost |= {
            key: f"the copy of {key[0]}-{key[1]} has a record at offset {offset}, and "
            "the source has none"
            for key, offset in _never_there(
                known.source, alone, known.source_topics
            ).items()
        }
    found = {}
    for where, each in looked.items():
        at, key = positions[where], keys[where]
        if isinstance(each, str):
            found[key] = CopyEnd(reason=each)
            continue
        strange = each.log.end > noted[where] and not each.ours
        end = CopyEnd(
            offset=each.log.end,
            position=(-1 if at is None else at.offset) if strange else each.log.end,
            term=_continued(terms[where], each.log, each.last),
            newest=each.log.newest,
            leader_epoch=-1 if at is None else at.leader_epoch,
        )
        if key in lost:
            end = replace(end, diverged=True, reason=diverged(lost[key]))
        elif key in written:
            end = _compared(where, end, written[key], each.last)
        elif each.ours:
            end = replace(end, leader_epoch=-1)
        found[key] = end
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Behind:
    """A copy, and what it has behind the noted offset."""

    log: _Log
    last: _Found
    """The last record."""
    ours: bool
    """Whether our producer wrote something there, and no other one did."""
    ends_with_ours: bool
    """Whether the last record is our producer's, also before that offset: the copy may
    have lost its end, and got a batch that was on its way.
    """


def _look_behind(
    target: Cluster,
    terms: Mapping[TopicPartition, Term],
    noted: Mapping[TopicPartition, int],
    topics: Mapping[str, Topic],
    unsure: Collection[TopicPartition],
) -> dict[TopicPartition, _Behind | str]:
    """Each copy with a noted offset, or why its leader does not show it."""
    looked = _look(target, terms, noted, topics)
    if waits := looked.keys() & set(unsure):
        time.sleep(_QUIET_SECONDS)
        for where, again in _look(target, terms, waits, topics).items():
            same = isinstance(again, str) or again == looked[where]
            looked[where] = again if same else f"{_name(where)} grows"
    logs = {where: each for where, each in looked.items() if isinstance(each, _Log)}
    ends = {where: log.end - 1 for where, log in logs.items() if log.end}
    last = dict.fromkeys(logs) | _records(target, ends, topics)
    beyond = {w: noted[w] for w, log in logs.items() if noted[w] < log.end}
    first = dict.fromkeys(logs) | _read_at(target, beyond, topics, _record_from)
    found: dict[TopicPartition, _Behind | str] = {
        where: each for where, each in looked.items() if isinstance(each, str)
    }
    for where, log in logs.items():
        unknown = [e for e in (last[where], first[where]) if isinstance(e, str)]
        ours = where in beyond and _is_ours(
            terms[where], log, first[where], last[where]
        )
        end = last[where]
        behind = _Behind(
            log=log, last=end, ours=ours,
            ends_with_ours=isinstance(end, _Record)
            and end.producer_id == terms[where].producer_id,
        )  # fmt: skip
        found[where] = unknown[0] if unknown else behind
    return found


def equal_ends(
    one: Cluster,
    other: Cluster,
    partitions: Mapping[TopicPartition, TopicPartition],
) -> dict[TopicPartition, bool]:
    """By partition of one cluster, whether the other one, where it is called as
    `partitions` says, has its last record at the same offset.

    Raises:
        ClusterError: a cluster does not answer.
    """
    here = one.topics({topic for topic, _ in partitions})
    there = other.topics({topic for topic, _ in partitions.values()})
    ends = topic_admin.log_ends(one, partitions, here)
    others = topic_admin.log_ends(other, partitions.values(), there)
    missing = [k for k, o in partitions.items() if k not in ends or o not in others]
    if missing:
        raise NoLeaderError(f"the leaders of {missing[0][0]} do not answer")
    asked = {
        key: end - 1 for key, end in ends.items() if 0 < end <= others[partitions[key]]
    }
    last = _records(one, asked, here)
    found = _facing(
        other, {partitions[k]: (at, last[k]) for k, at in asked.items()}, there
    )
    # Where the other one has a filler, too.
    back = {k: (at, found[partitions[k]]) for k, at in asked.items()}
    last |= _facing(one, {k: each for k, each in back.items() if _is_filler(each[1])},
                    here)  # fmt: skip
    equal = {key: not end for key, end in ends.items()}
    for key, record in last.items():
        for each in (record, found[partitions[key]]):
            if isinstance(each, str):
                raise UnreachableError(each)
        equal[key] = _are_equal(record, found[partitions[key]])
    alone = {key: asked[key] for key, each in last.items() if each is None
             and _is_copied(found[partitions[key]])}  # fmt: skip
    equal |= dict.fromkeys(_never_there(one, alone, here), False)
    keys = {where: key for key, where in partitions.items()}
    alone = {partitions[k]: asked[k] for k, each in last.items() if _is_copied(each)
             and found[partitions[k]] is None}  # fmt: skip
    equal |= {keys[each]: False for each in _never_there(other, alone, there)}
    return equal


def _facing(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, tuple[int, _Found]],
    topics: Mapping[str, Topic],
) -> dict[TopicPartition, _Found]:
    """The records with these offsets, beside those that the other cluster has there.
    Facing a filler, what is not committed is none.
    """
    found: dict[TopicPartition, _Found] = {}
    for committed in (False, True):
        asked = {k: at for k, (at, e) in wanted.items() if _is_filler(e) == committed}
        found |= _records(cluster, asked, topics, committed=committed)
    return found


def _is_filler(each: _Found) -> bool:
    return isinstance(each, _Record) and each.is_filler


def _is_copied(each: _Found) -> bool:
    """Whether the other cluster has the same, as long as nothing deletes it there."""
    return isinstance(each, _Record) and not each.is_filler


def _never_there(
    cluster: Cluster,
    missing: Mapping[TopicPartition, int],
    topics: Mapping[str, Topic],
) -> dict[TopicPartition, int]:
    """Of offsets that show no record, those that never had one: the marker of a
    transaction is there. Where nothing is, retention or the log cleaner may have
    deleted it.
    """
    found = _read_at(cluster, missing, topics, _is_marker_at) if missing else {}
    return {key: at for key, at in missing.items() if found[key] is True}


def equal_records(
    source: Cluster,
    target: Cluster,
    offsets: Mapping[TopicPartition, int],
    copies: Mapping[TopicPartition, TopicPartition],
    shown: Mapping[str, Topic],
) -> dict[TopicPartition, int | str | None]:
    """By source partition: the leader epoch of the record with this offset, if its copy
    has the same key and value there; None if it differs, or is none; or why that is not
    known. `copies`, as `shown`, by source partition.

    Raises:
        ClusterError: a cluster does not answer.
    """
    here = source.topics({topic for topic, _ in offsets})
    written = _records(source, offsets, here)
    copied = _records(target, {copies[k]: at for k, at in offsets.items()}, shown)
    found: dict[TopicPartition, int | str | None] = {}
    for key, one in written.items():
        other = copied[copies[key]]
        if isinstance(one, str) or isinstance(other, str):
            found[key] = one if isinstance(one, str) else str(other)
        elif one is None or other is None or not _are_equal(one, other):
            found[key] = None
        else:
            found[key] = one.leader_epoch
    return found


def _are_equal(one: _Found, other: _Found) -> bool:
    """One that is deleted counts as equal, like one that never was, at a filler; for
    others see `_never_there`.
    """
    if not (isinstance(one, _Record) and isinstance(other, _Record)):
        return True
    mine, its = ((e.key, e.value, e.is_filler) for e in (one, other))
    return mine == its


def _leader(topics: Mapping[str, Topic], name: str, partition: int) -> int:
    leader = topics[name].leaders.get(partition)
    return -1 if leader is None else leader.node


def _name(where: TopicPartition) -> str:
    return f"target {where[0]}-{where[1]}"


def _look(
    target: Cluster,
    terms: Mapping[TopicPartition, Term],
    copies: Collection[TopicPartition],
    topics: Mapping[str, Topic],
) -> dict[TopicPartition, _Log | str]:
    """Each copy, or why its leader does not show it."""
    before = topic_admin.log_ends(target, copies, topics)
    states = _states(target, terms, copies, topics)
    after = topic_admin.log_ends(target, copies, topics)
    found: dict[TopicPartition, _Log | str] = {}
    for where in copies:
        end, state = before.get(where), states.get(where, _Log(end=-1))
        if end is None or end != after.get(where):
            found[where] = f"the leader of {_name(where)} does not say where it ends"
        else:
            found[where] = state if isinstance(state, str) else replace(state, end=end)
    return found


def _states(
    target: Cluster,
    terms: Mapping[TopicPartition, Term],
    copies: Collection[TopicPartition],
    topics: Mapping[str, Topic],
) -> dict[TopicPartition, _Log | str]:
    """By copy, if its leader remembers our producer; or why it does not say."""
    found: dict[TopicPartition, _Log | str] = {}
    for leader, names in hanging.by_leader(topics, copies).items():
        if (asked := hanging.ask(target, leader, names)) is None:
            reason = (
                f"{target.alias} does not say what it knows of producers, which "
                "offsets: same needs: it takes Kafka 2.8 or newer"
            )
            found |= {(t, n): reason for t, numbers in names.items() for n in numbers}
            continue
        for topic in asked.result().topics:
            for part in topic.partitions:
                where = (topic.name, part.partition_index)
                if part.error_code != codes.NONE:
                    name = codes.name_of(part.error_code)
                    found[where] = f"asking about producers of {_name(where)}: {name}"
                    continue
                for each in part.active_producers:
                    if each.producer_id == terms[where].producer_id:
                        found[where] = _Log(
                            end=-1,
                            epoch=each.producer_epoch,
                            last_sequence=each.last_sequence,
                            newest=each.last_timestamp,
                        )
    return found


def _is_ours(term: Term, log: _Log, first: _Found, last: _Found) -> bool:
    """Whether our producer wrote all of a copy from the noted offset on, with which
    `first` begins, up to its end, where `last` is: sequences count its records alone.
    """
    if last is None:
        return log.epoch < 0 or _follows(term, log)
    if not isinstance(last, _Record) or last.producer_id != term.producer_id:
        return False
    if not isinstance(first, _Record):
        return first is None
    passed = (last.sequence - first.sequence) % SEQUENCES
    same = (first.producer_id, first.epoch) == (last.producer_id, last.epoch)
    return same and passed == log.end - 1 - first.offset


def _follows(term: Term, log: _Log) -> bool:
    """Whether the next record is what the leader expects under this term."""
    expected = (log.last_sequence + 1) % SEQUENCES
    return log.epoch == term.epoch and term.sequence(log.end) == expected


def _continued(term: Term, log: _Log, last: _Found) -> Term:
    """How to write on: with the sequences that follow if the last record is ours. Else
    somebody else has written, and a term begins: no slot of an earlier one can write
    once its first record is there.
    """
    ours = isinstance(last, _Record) and last.producer_id == term.producer_id
    if isinstance(last, _Record) and ours and last.epoch >= log.epoch:
        return term._replace(epoch=last.epoch, first=log.end - 1 - last.sequence)
    if last is None and _follows(term, log):
        return term
    return term._replace(epoch=max(log.epoch + 1, term.epoch), first=log.end)


def _compared(
    where: TopicPartition, end: CopyEnd, written: _Found, copied: _Found
) -> CopyEnd:
    """Hold the last record of a copy against the source's: what leaders know of
    sequences says nothing about content. One that is deleted counts as equal.
    """
    if isinstance(written, str):
        return CopyEnd(reason=written)
    if not _are_equal(copied, written):
        return replace(
            end,
            diverged=True,
            reason=diverged(
                f"offset {end.offset - 1} of {_name(where)} has another record than "
                "the source's"
            ),
        )
    epoch = written.leader_epoch if isinstance(written, _Record) else -1
    return replace(end, leader_epoch=epoch)


def _lost_ends(
    source: Cluster,
    asked: Mapping[TopicPartition, int],
    written: Mapping[TopicPartition, _Found],
    topics: Mapping[str, Topic],
) -> dict[TopicPartition, str]:
    """Of source partitions that did not show the offset asked for, those that do not
    have it, in words. One that is cut off from its cluster goes on to answer: only the
    leader that most brokers name is believed.
    """
    doubted = [key for key, each in written.items() if isinstance(each, str)]
    if not doubted:
        return {}
    views = source.views({topic for topic, _ in doubted})
    sure = [
        key
        for key in doubted
        if (agreed := views.agreed(key[0])) is not None
        and agreed.leaders.get(key[1]) == topics[key[0]].leaders.get(key[1])
    ]
    return {
        key: _lost_from(key, end)
        for key, end in topic_admin.log_ends(source, sure, topics).items()
        if end <= asked[key]
    }


def _cut_logs(
    source: Cluster,
    noted: Mapping[TopicPartition, Position],
    topics: Mapping[str, Topic],
) -> dict[TopicPartition, str]:
    """Of source partitions that have no record to compare, those whose logs lost their
    end and go on with other records: by their leaders' epochs.
    """
    epochs = {k: at.leader_epoch for k, at in noted.items() if at.leader_epoch >= 0}
    return {
        key: _lost_from(key, each.offset)
        for key, each in topic_admin.epoch_ends(source, epochs, topics).items()
        if 0 <= each.offset < noted[key].offset
    }


def _lost_from(key: TopicPartition, offset: int) -> str:
    return (
        f"the source has lost what {key[0]}-{key[1]} had from offset {offset} on, and "
        "the copy has it"
    )


def _is_marker_at(body: bytes, fetched: Fetched, offset: int) -> bool:
    """Whether the marker of a transaction has this offset."""
    buffer, start, end = _modern(body, fetched)
    scratch = batch.scratch()
    count, _ = scan.index(buffer, start, end, scratch)
    rows = scratch[: max(count, 0)]
    there = (rows[:, scan.BASE] <= offset) & (offset <= rows[:, scan.LAST])
    control = (rows[:, scan.ATTRIBUTES] & batch.CONTROL) != 0
    return bool((there & control & (rows[:, scan.COUNT] > 0)).any())


def _record_from(body: bytes, fetched: Fetched, offset: int) -> _Record | None:
    """The record with this offset, or the first one behind it, where the log cleaner
    has removed that.
    """
    return _record_at(body, fetched, offset, or_later=True)


def _record_at(
    body: bytes, fetched: Fetched, offset: int, *, or_later: bool = False
) -> _Record | None:
    buffer, start, end = _modern(body, fetched)
    found = batch.read(
        buffer, start, end, position=offset, aborted=fetched.aborted,
        scratch=batch.scratch(),
    )  # fmt: skip
    _, epoch = found.until(buffer, offset + 1)
    until = to_columns.ALL if or_later else offset + 1
    for row in found.rows[found.rows[:, scan.LAST] >= offset][:1]:
        producer = _PRODUCER.unpack_from(buffer.data, int(row[scan.AT]) + _PRODUCER_AT)
        for each in listed(buffer, row[None], offset, until):
            for place in each.places:
                key, value = (
                    _bytes(each.buffer, int(place[at]), int(place[size]))
                    for at, size in (
                        (to_columns.KEY_AT, to_columns.KEY_SIZE),
                        (to_columns.VALUE_AT, to_columns.VALUE_SIZE),
                    )
                )
                at = int(place[to_columns.OFFSET])
                filler = are_fillers(each.buffer, place[None], fillers.NAMED)
                return _Record(
                    at, key, value, bool(filler[0]), epoch, producer[0], producer[1],
                    (producer[2] + at - int(row[scan.BASE])) % SEQUENCES,
                )  # fmt: skip
    return None


def _modern(body: bytes, fetched: Fetched) -> tuple[Buffer, int, int]:
    return former.modern(np.frombuffer(body, np.uint8), fetched.start, fetched.end)


def _bytes(buffer: Buffer, at: int, size: int) -> bytes | None:
    return None if size < 0 else buffer[at : at + size].tobytes()


def _records(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    topics: Mapping[str, Topic],
    *,
    committed: bool = False,
) -> dict[TopicPartition, _Found]:
    """The records with these offsets. Raises as `_read_at`."""
    return _read_at(cluster, wanted, topics, _record_at, committed=committed)


def _read_at(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    topics: Mapping[str, Topic],
    read: Callable[[bytes, Fetched, int], T | None],
    *,
    committed: bool = False,
) -> dict[TopicPartition, T | str | None]:
    """What `read` makes of answers that begin at these offsets; or why there is none;
    None: what was there is deleted.

    Raises:
        ClusterError: a leader does not answer any more, or not in time.
    """
    firsts = topic_admin.list_offsets(
        cluster, wanted, timestamp=topic_admin.EARLIEST, topics=topics
    )
    ends = topic_admin.list_offsets(
        cluster, firsts, timestamp=topic_admin.LATEST, committed=committed,
        topics=topics,
    )  # fmt: skip
    found: dict[TopicPartition, T | str | None] = {}
    for (topic, number), offset in wanted.items():
        where, name = (topic, number), f"{cluster.alias}: {topic}-{number}"
        if where not in ends:
            found[where] = f"{name}: its leader does not answer"
        elif offset >= ends[where]:
            found[where] = f"{name} does not show offset {offset} yet"
        elif offset < firsts[where]:
            found[where] = None
    left = {key: offset for key, offset in wanted.items() if key not in found}
    deadline = time.monotonic() + _READ_SECONDS
    alone = False
    while left:
        before = len(left)
        for leader, names in hanging.by_leader(topics, left).items():
            asked = [(topic, n) for topic, numbers in names.items() for n in numbers]
            for some in [[each] for each in asked] if alone else [asked]:
                for where, record in _fetched(
                    cluster, leader, some, left, topics, committed=committed, read=read,
                ):  # fmt: skip
                    del left[where]
                    found[where] = record
        # An answer that has room for one has nothing of it if nothing is there.
        alone = len(left) == before
        if left and time.monotonic() > deadline:
            topic, partition = min(left)
            raise UnreachableError(
                f"cluster {cluster.alias}: {topic}-{partition} cannot be read"
            )
    return found


def _fetched(
    cluster: Cluster,
    leader: int,
    asked: Sequence[TopicPartition],
    offsets: Mapping[TopicPartition, int],
    topics: Mapping[str, Topic],
    *,
    committed: bool,
    read: Callable[[bytes, Fetched, int], T | None],
) -> Iterator[tuple[TopicPartition, T | None]]:
    """What one leader has at these offsets, of partitions that fit into an answer; of
    one that is asked for alone, all that it has.
    """
    request = fetch.encode(
        [
            fetch.Wanted(
                topic=topic, partition=number, offset=offsets[topic, number],
                leader_epoch=topics[topic].leaders[number].epoch,
            )
            for topic, number in asked
        ],
        isolation=fetch.READ_COMMITTED if committed else fetch.READ_UNCOMMITTED,
        max_wait_ms=10, max_bytes=_READ_BYTES, partition_max_bytes=1,
    )  # fmt: skip
    body = (
        cluster.connection(leader, _READING)
        .send_buffers(fetch.API_KEY, fetch.VERSION, [request], flexible=False)
        .result()
    )
    for each in fetch.decode(body):
        where = (each.topic, each.partition)
        if each.error != codes.NONE:
            raise codes.error_for(each.error, f"reading {each.topic}-{each.partition}")
        end = each.last_stable_offset if committed else each.high_watermark
        if each.start < each.end:
            yield where, read(body, each, offsets[where])
        elif len(asked) == 1 and offsets[where] < end:
            yield where, None


# ---- writing ----


class _SequencedProducer:
    """Stamps batches by the offsets of their records."""

    transactional_id: str | None = None
    v2 = False

    def __init__(self) -> None:
        self.terms: dict[TopicPartition, Term] = {}
        """By copy."""

    def stamp(self, key: TopicPartition, batch: EncodedBatch) -> None:
        term = self.terms[key]
        sequence = term.sequence(batch.source_offset)
        batch.stamp(term.producer_id, term.epoch, sequence, transactional=False)


@dataclass(slots=True)
class _Flight:
    """Batches on their way to copies."""

    content: TransactionContent
    size: int
    write: Write
    alone: bool
    """Whether nothing else may be in flight meanwhile."""
    begun: bool = False

    @property
    def is_sent(self) -> bool:
        """Whether all of it has left this process."""
        return self.write.sent and not any(
            pending.connection.unsent for pending in self.write.outstanding
        )


class _Noted(NamedTuple):
    """What was noted of one partition."""

    key: TopicPartition
    position: Position
    running: RunningCount | None


class SameOffsetsWriter(TargetWriter):
    """Writes copies with the source's offsets, and other copies as `TargetWriter`."""

    def __init__(
        self,
        cluster: Cluster,
        records: TransactionRecords,
        flow: FlowConfig,
        *,
        slot: int,
        fresh_seconds: float,
    ) -> None:
        """`fresh_seconds`: as of `LeasePlan`."""
        super().__init__(cluster, records, flow, slot=slot)
        self._fresh_ms = fresh_seconds * 1000
        self._producer_of_copies = _SequencedProducer()
        self._copy_topics: Mapping[str, Topic] = {}
        self._copies_of: dict[TopicPartition, TopicPartition] = {}
        """The copy of each source partition that has a term."""
        self._translates = False
        """Whether the slot has other partitions, too."""
        self._newest: dict[TopicPartition, int] = {}
        """The time of the last record that a copy's leader remembers, epoch ms."""
        self._flights: deque[_Flight] = deque()
        self._copied: list[Committed] = []
        self._unsure: set[TopicPartition] = set()
        self._divided_copies = False
        self._noted: dict[TopicPartition, int] = {}
        """By source partition, up to where notes name its copy."""
        self._to_note = TransactionContent()
        self._note: TransactionContent | None = None
        """The one being written."""
        self._note_at = math.inf
        self._note_began = self._proven_at = -math.inf
        self._alone_from = math.inf
        """When no earlier owner sends anything any more."""
        self._settled: set[TopicPartition] = set()
        """Copies that ended as expected then."""
        self._last_noted: _Noted | None = None
        """What can be noted once more."""
        self._broken = False
        self._note_failed = False
        """Then a note comes before further records, or none would ever be written."""

    # ---- taking over ----

    def take_over(self) -> None:
        self._drop_flights()
        began = time.monotonic()
        for purpose in PURPOSES:
            self._cluster.drop(purpose)
        super().take_over()
        self._proven_at = -math.inf if self._note_failed else began
        self._alone_from = time.monotonic() + PROOF_SECONDS
        self._settled.clear()

    def find_ends(self, known: KnownCopies) -> Mapping[TopicPartition, CopyEnd]:
        """As the function; then go on from there."""
        found = find_ends(self._cluster, known, self._unsure)
        self._unsure.clear()
        self._copies_of, self._newest, self._noted = {}, {}, {}
        self._producer_of_copies.terms = {}
        self._copied.clear()
        self._to_note, self._note = TransactionContent(), None
        self._last_noted = None
        self._broken = False  # not before: a take-over that fails here has no notes
        self._copy_topics = known.target_topics
        self._translates = any(each.term is None for each in known.wanted)
        for each in known.wanted:
            key, where = (
                (each.topic, each.partition),
                (each.target_topic, each.partition),
            )
            if each.term is None or (end := found.get(key)) is None or end.reason:
                continue
            self._copies_of[key] = where
            assert end.term is not None, "it has a reason, or a term"
            self._producer_of_copies.terms[where] = end.term
            self._newest[where] = end.newest
            at = known.positions.get(key)
            noted = 0 if at is None else min(at.offset, end.offset)
            self._noted[key] = max(noted, each.term.first)
        if one := next((k for k in self._copies_of if k in known.positions), None):
            count = RunningCount.decode(known.running.get(one, b""))
            self._last_noted = _Noted(one, known.positions[one], count)
        return found

    # ---- what the slot asks ----

    @property
    def ready(self) -> bool:
        if len(self._flights) == MAX_IN_FLIGHT or (
            self._translates and not super().ready
        ):
            return False
        last = self._flights[-1] if self._flights else None
        return last is None or (last.write.sent and not last.alone)

    @property
    def room(self) -> bool:
        if self._translates:
            return super().room
        last = self._flights[-1] if self._flights else None
        return self.ready or (last is not None and last.size >= WORTH_OVERLAPPING)

    @property
    def again_in(self) -> float | None:
        pauses = [super().again_in]
        if self._flights:
            first = self._flights[0]
            pauses.append(first.write.again_in)
            waits = self._alone_from - time.monotonic()
            if first.alone and not first.begun and waits > 0:
                pauses.append(waits)
        if self._note is None and self._to_note.moved and super().ready:
            pauses.append(max(0.0, self._note_at - time.monotonic()))
        return min((pause for pause in pauses if pause is not None), default=None)

    def connections(self) -> list[Connection]:
        return list(
            dict.fromkeys(
                pending.connection
                for flight in self._flights
                for pending in flight.write.outstanding
            )
            | dict.fromkeys(super().connections())
        )

    def take_events(self) -> list[Committed]:
        copied, self._copied = self._copied, []
        return copied + super().take_events()

    # ---- writing ----

    def write(
        self, transaction: PendingTransaction, topics: Mapping[str, Topic]
    ) -> None:
        ours, others = transaction.divided(self._copies_of)
        if not ours.moved:
            super().write(transaction, topics)
            return
        if others.moved:
            transaction.parts = 2
            self._begin(others, topics)
        if not self._flights:
            self._divided_copies = self._worth_dividing(self._producer_of_copies, ours)
        alone = not all(map(self._is_fresh, ours.batches, ours.batches.values()))
        self._flights.append(
            _Flight(
                ours,
                ours.size,
                Write(
                    self._cluster, self._producer_of_copies, ours.batches, topics,
                    self._channels if self._divided_copies else None,
                    purposes=PURPOSES, may_send=self._is_proven,
                    **({"rounds": 1} if alone else {}),
                ),
                alone,
            )
        )  # fmt: skip
        self.advance()

    def is_seeding(self, key: TopicPartition) -> bool:
        where = self._copies_of.get(key)
        return where is not None and not self._is_fresh(where, ())

    def _is_fresh(self, where: TopicPartition, batches: Sequence[EncodedBatch]) -> bool:
        """Whether the copy's leader remembers us now, and does so all the way."""
        oldest = min([self._newest[where], *(each.newest for each in batches)])
        return time.time() * 1000 - oldest < self._fresh_ms

    def _advance_each(self) -> None:
        self._advance_flights()
        self._write_note()
        super()._advance_each()
        self._events = [
            each for each in self._events if not self._is_noted(each.transaction)
        ]
        if any(not flight.is_sent for flight in self._flights):
            self._advance_flights()  # a note may have proven that this slot may write

    def _advance_flights(self) -> None:
        before: _Flight | None = None
        for flight in tuple(self._flights):
            # Send nothing behind what may not be sent completely.
            if before is not None and (
                before.alone or flight.alone or not before.write.sent
            ):
                break
            if not (flight.begun or self._may_begin(flight)):
                break
            flight.begun = True
            if not flight.is_sent:
                self._is_proven()
            done = flight.write.advance()
            for each in flight.write.take_placed():
                self._check_one(each)
            before = flight
            if done and flight is self._flights[0]:
                self.quota.learn(flight.size, flight.write.throttled_seconds)
                self._flights.popleft()
                self._has_copied(flight.content)
                before = None

    def _may_begin(self, flight: _Flight) -> bool:
        """Whether no earlier owner can write to these copies any more. Leaders refuse
        what it sends late as long as they remember the producer. Else it has to be
        over: an owner sends nothing later than `PROOF_SECONDS` after its last note, and
        then the copy ends where this slot found its end.

        Raises:
            ClusterError: a copy has grown meanwhile, or its leader does not answer:
                take over again.
        """
        if not self._is_proven():
            return False
        if not flight.alone:
            return True
        if time.monotonic() < self._alone_from:
            return False
        batches = flight.content.batches
        if asked := batches.keys() - self._settled:
            terms, topics = self._producer_of_copies.terms, self._copy_topics
            for where, log in _look(self._cluster, terms, asked, topics).items():
                if isinstance(log, str):
                    raise ClusterError(log)
                if log.end != batches[where][0].source_offset:
                    raise ClusterError(f"{_name(where)} has grown")
            self._settled |= asked
        return True

    def _is_proven(self) -> bool:
        """Whether this slot has just been the owner of its ids; else a note is to tell,
        if there was ever one.
        """
        if time.monotonic() - self._proven_at < PROOF_SECONDS:
            return True
        last = self._last_noted
        if self._note is None and not self._to_note.moved and last is not None:
            self._to_note.moved = {last.key: last.position}
            if last.running is not None:
                self._to_note.running = {last.key: last.running}
        self._note_at = 0.0
        return self._note is None and not self._to_note.moved

    def _check_one(self, each: Placed) -> None:
        """Hold an answer against the source's offsets.

        Raises:
            PartitionError: a record has another offset.
            ClusterError: a broker does not say where it wrote.
        """
        wanted = each.batch.source_offset
        if each.offset < 0:
            raise ClusterError(f"{_name(each.where)}: no offset in an answer")
        if each.offset != wanted:
            first, last = sorted((wanted, each.offset))
            raise PartitionError(
                topic=each.where[0],
                partition=each.where[1],
                reason=diverged(
                    f"the record of offset {wanted} was written at {each.offset}; "
                    f"offsets {first} to {last} differ"
                ),
                error=DIVERGED,
            )
        self._newest[each.where] = each.batch.newest

    def _has_copied(self, content: TransactionContent) -> None:
        seconds = time.monotonic() - content.begun
        self._copied.append(Committed(transaction=content, seconds=seconds))
        if not self._to_note.moved:
            self._note_at = time.monotonic() + _NOTE_SECONDS
        self._to_note.moved |= content.moved
        self._to_note.running |= content.running

    # ---- notes ----

    def _write_note(self) -> None:
        """Note positions in a transaction, when it is time."""
        due = self._to_note.moved and time.monotonic() >= self._note_at
        if self._note is not None or self._broken or not due or not super().ready:
            return
        self._note, self._to_note = self._to_note, TransactionContent()
        self._note_began = time.monotonic()
        self._note.identical = {
            key: (self._copies_of[key], self._noted[key])
            for key, position in self._note.moved.items()
            if position.offset > self._noted[key]
        }
        self._begin(self._note, self._copy_topics)

    def _is_noted(self, content: TransactionContent) -> bool:
        """Whether this was a note, which is written now."""
        if content is not self._note:
            return False
        self._noted |= {key: each.offset for key, each in content.moved.items()}
        self._proven_at, self._note_failed = self._note_began, False
        key, at = next(iter(content.moved.items()))
        self._last_noted = _Noted(key, at, content.running.get(key))
        self._note = None
        return True

    # ---- ending ----

    def drop_uncommitted(self) -> None:
        self._broken = True
        self._note_failed |= self._note is not None
        self._drop_flights()
        super().drop_uncommitted()

    def _drop_flights(self) -> None:
        for flight in self._flights:
            if flight.alone:
                self._unsure |= flight.content.batches.keys()
        self._flights.clear()

    def _is_finished(self, *, one_more: bool) -> bool:
        if one_more:
            return self.ready
        if self._to_note.moved and not self._broken:
            self._note_at = 0.0
            self._advance_each()
            return False
        if self._flights or (self._note is not None and not self._broken):
            return False
        return super()._is_finished(one_more=False)
