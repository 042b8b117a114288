"""Where copies with the source's offsets end, and whether that is the source's record.

Main functions: `find_ends`, which a slot calls at each take-over and a driver before it
decides; `equal_ends`, of two clusters of a pair; and `equal_records`, at other offsets.
They change nothing. The leader of a copy is asked where the log ends and what it
remembers of the producer, twice, and the last record is held against the source's. How
copies are written, and what a `Term` is, `same_offsets` says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
import struct
import time
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from mirror.clusters import codes, hanging
from mirror.clusters.admin import topic_admin
from mirror.clusters.wire import fetch
from mirror.errors import NewRunError, NoLeaderError, UnreachableError
from mirror.offsets.terms import SEQUENCES, CopyEnd, diverged
from mirror.records import batch, fillers, former, scan, to_columns
from mirror.records.listing import are_fillers, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic, TopicPartition
    from mirror.clusters.wire.fetch import Fetched
    from mirror.copying.target import KnownCopies
    from mirror.offsets.progress import Position
    from mirror.offsets.terms import Term
    from mirror.records.batch import Buffer

T = TypeVar("T")

_QUIET_SECONDS = 1.0
"""After an error, how long a copy must not grow that its leader may not remember."""
_READ_SECONDS = 10.0
_READ_BYTES = 8 << 20
_READING = "reading"
_PRODUCER = struct.Struct(">qhi")
"""Producer id, epoch and first sequence in the header of a batch."""
_PRODUCER_AT = 43


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
        copies = {key: where for where, key in keys.items()}
        facing = {
            key: (offset, copied, written[key])
            for key, (offset, copied) in asked.items()
        }
        missing = _facing_markers(facing, target, topics, names=copies)
        lost |= {
            key: f"{name_of(copies[key])} has no record at offset {offset}, and the "
            "source has one"
            for key, offset in missing.items()
        }
        swapped = {key: (at, b, a) for key, (at, a, b) in facing.items()}
        missing = _facing_markers(swapped, known.source, known.source_topics)
        lost |= {
            key: f"the copy of {key[0]}-{key[1]} has a record at offset {offset}, and "
            "the source has none"
            for key, offset in missing.items()
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
    looked = _logs_of(target, terms, noted, topics)
    if waits := looked.keys() & set(unsure):
        time.sleep(_QUIET_SECONDS)
        for where, again in _logs_of(target, terms, waits, topics).items():
            same = isinstance(again, str) or again == looked[where]
            looked[where] = again if same else f"{name_of(where)} grows"
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
    facing = {k: (asked[k], each, found[partitions[k]]) for k, each in last.items()}
    swapped = {key: (at, b, a) for key, (at, a, b) in facing.items()}
    unlike = [
        *_facing_markers(facing, one, here),
        *_facing_markers(swapped, other, there, names=partitions),
    ]
    return equal | dict.fromkeys(unlike, False)


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


def _facing_markers(
    facing: Mapping[TopicPartition, tuple[int, _Found, _Found]],
    cluster: Cluster,
    topics: Mapping[str, Topic],
    *,
    names: Mapping[TopicPartition, TopicPartition] | None = None,
) -> dict[TopicPartition, int]:
    """Where the cluster has the marker of a transaction and the other one a record: so
    it never had that. Where nothing is, retention or the log cleaner may have deleted
    it. `facing`: offset, what the cluster has there, and what the other one has.
    `names`: what partitions are called on the cluster; None: the same.
    """
    called = {key: key if names is None else names[key] for key in facing}
    missing = {
        called[key]: offset
        for key, (offset, own, other) in facing.items()
        if own is None and isinstance(other, _Record) and not other.is_filler
    }
    found = _read_at(cluster, missing, topics, _is_marker_at) if missing else {}
    return {k: each[0] for k, each in facing.items() if found.get(called[k]) is True}


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
    others see `_facing_markers`.
    """
    if not (isinstance(one, _Record) and isinstance(other, _Record)):
        return True
    mine, its = ((e.key, e.value, e.is_filler) for e in (one, other))
    return mine == its


def _leader(topics: Mapping[str, Topic], name: str, partition: int) -> int:
    leader = topics[name].leaders.get(partition)
    return -1 if leader is None else leader.node


def name_of(where: TopicPartition) -> str:
    return f"target {where[0]}-{where[1]}"


def _logs_of(
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
            found[where] = f"the leader of {name_of(where)} does not say where it ends"
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
                    found[where] = f"asking about producers of {name_of(where)}: {name}"
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
                f"offset {end.offset - 1} of {name_of(where)} has another record than "
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
    leader that most brokers name counts.
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
        key: f"the source has no record in {key[0]}-{key[1]} from offset {end} on, and "
        "the copy has: the source has lost it, or somebody else wrote to the copy"
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
        key: f"the source has lost what {key[0]}-{key[1]} had from offset "
        f"{each.offset} on, and the copy has it"
        for key, each in topic_admin.epoch_ends(source, epochs, topics).items()
        if 0 <= each.offset < noted[key].offset
    }


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
