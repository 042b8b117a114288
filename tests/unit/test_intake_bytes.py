"""What happens to a partition whose bytes cannot be copied, or not all at once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
import time
from types import SimpleNamespace
from typing import Any
import uuid

from kafka.record.default_records import DefaultRecordBatch
import numpy as np
import pytest
import structlog

from mirror.clusters.wire.fetch import Fetched
from mirror.copying import provenance, rewrite
from mirror.copying.faults import Faults
from mirror.copying.intake import Intake
from mirror.copying.lease import Assignment
from mirror.copying.rewrite import Rewriter
from mirror.copying.source import FetchAnswer, Pace
from mirror.copying.tally import Tally, latency_bounds
from mirror.copying.transaction import PendingTransaction
from mirror.offsets.terms import CopyEnd, Term
from mirror.records import codecs
from tests.harness import hostile_batches as hostile
from tests.harness.hostile_batches import DELETE_HORIZON, ZSTD, packed, record, stored

pytestmark = pytest.mark.unit

_ID = uuid.uuid4()
_FLOW = SimpleNamespace(
    name="A->B",
    source="A",
    target="B",
    on_loss="continue",
    dead_letter_topic=None,
    isolation_level="read_committed",
    max_unpacked_bytes=1 << 20,
    fill="refuse",
)
_FILLED = SimpleNamespace(**{**vars(_FLOW), "fill": "visible"})


class Reader:
    """A source at a given position."""

    pace = Pace(16 << 20, 4 << 20)

    def __init__(self, partitions: int) -> None:
        self.at: dict[Any, tuple[int, int]] = {
            ("t", partition): (0, -1) for partition in range(partitions)
        }
        self.distrusted: list[Any] = []

    def offset(self, key):
        return self.at[key][0] if key in self.at else None

    def seek(self, key, offset, last_epoch):
        self.at[key] = (offset, last_epoch)

    def leave_out(self, key):
        self.at.pop(key, None)

    def give_back(self, buffers):
        pass

    def distrust(self, key):
        self.distrusted.append(key)


class Taking:
    """An intake, and what it does with the logs of some partitions."""

    def __init__(
        self,
        *logs: bytes,
        most_unpacked: int = 1 << 20,
        end: CopyEnd | None = None,
        fills: bool = False,
        keyed: bool = False,
        stamps: bool = True,
    ) -> None:
        """`end`: of a copy with the source's offsets, of partition 0. `fills`: whether
        holes get fillers; `keyed`: with a key.
        """
        self.reader = Reader(len(logs))
        self.faults = Faults()
        self.tally = Tally(slot=0, bounds=latency_bounds(60), service=_ID)
        self.intake = Intake(
            _FILLED if fills else _FLOW,
            self.reader,
            None,
            tally=self.tally,
            faults=self.faults,
            log=structlog.get_logger(),
        )
        self.wanted = {
            ("t", partition): Assignment(
                topic="t", partition=partition, target_topic="A.t", topic_id=_ID.hex
            )
            for partition in range(len(logs))
        }
        ends = {} if end is None else {("t", 0): end}
        self.intake.begin(
            self.wanted, {"A.t": 1 << 20}, {"t": _ID}, {}, ends,
            compacted={"A.t"} if keyed else (),
        )  # fmt: skip
        made = provenance.via(source_alias="A", source_id="S", target_id="T")
        self.rewriter = Rewriter(
            made if stamps else replace(provenance.none(), filler=made.filler),
            codec=None,
            most_unpacked=most_unpacked,
        )
        self._logs = logs

    def take(
        self,
        *,
        near: bool = False,
        nearer: int = -1,
        aborted: tuple[tuple[int, int], ...] = (),
    ) -> PendingTransaction:
        work = PendingTransaction(rewriter=self.rewriter)
        self.rewriter.begin()
        whole = bytearray(b"".join(self._logs))
        fetched, at = [], 0
        for partition, log in enumerate(self._logs):
            end = at + len(log)
            fetched.append(
                Fetched("t", partition, 0, 99, 99, 0, aborted, at, end, nearer=nearer)
            )  # all is committed
            at = end
        sent = frozenset(self.wanted if near else ())
        answer = FetchAnswer(
            tuple(fetched), np.frombuffer(whole, np.uint8), whole, sent
        )
        list(self.intake.take(answer, work))
        return work

    def reason(self, partition: int) -> str:
        fault = self.faults.get(("t", partition))
        return fault.reason if fault else ""


def good(first: int = 0, count: int = 3, *, leader_epoch: int = 0) -> bytes:
    section = b"".join(record(delta=n) for n in range(count))
    return stored(section, count=count, base=first, leader_epoch=leader_epoch)


def bomb(first: int = 0, *, size: int = 2 << 20) -> bytes:
    section = packed(record(value=bytes(size)), ZSTD)
    return stored(section, base=first, attributes=ZSTD)


def batch(first: int, count: int = 1, *, came_back: bool = False) -> bytes:
    headers = [(b"mirror.via", b"B/T")] if came_back else []
    section = b"".join(record(headers=headers, delta=n) for n in range(count))
    return stored(section, count=count, base=first)


def copied(work: PendingTransaction) -> list[tuple[int, int]]:
    """First offset and number of the records of each batch to write."""
    return [
        (each.source_offset, each.count)
        for queue in work.batches.values()
        for each in queue
    ]


def ends_at(offset: int, *, position: int | None = None, until: int = 0) -> CopyEnd:
    return CopyEnd(
        offset=offset,
        position=offset if position is None else position,
        term=Term(1, 0, offset, _ID.hex, until),
    )


def test_what_came_back_is_passed_over_where_it_is():
    """Records that came from the copy's cluster, which has them still, are passed over;
    then the copy's end is asked for again before others are written behind them.
    """
    log = batch(0, 3, came_back=True) + batch(3, 2)
    taking = Taking(log, end=ends_at(3, position=0))
    assert copied(taking.take()) == []
    assert taking.reader.at["t", 0] == (3, 0)
    assert copied(taking.take()) == []
    assert "asked for, to go on there" in taking.reason(0)
    assert taking.faults.due()


def test_records_are_written_up_to_what_came_back():
    """Also where the rewriter puts records of before and behind it into one batch."""
    log = batch(0, 2) + batch(2, came_back=True) + batch(3, 2)
    taking = Taking(log, end=ends_at(0))
    assert copied(taking.take()) == [(0, 2)]
    assert taking.reader.at["t", 0] == (2, 0)
    assert copied(taking.take()) == []
    assert "ends at offset 2" in taking.reason(0)


def test_a_copy_with_other_records_stops():
    """The source has a record where the copy has one that did not come from there."""
    taking = Taking(batch(0, 3), end=ends_at(2, position=0))
    assert copied(taking.take()) == []
    assert "has records at offsets 0 to 1 that did not come from A" in taking.reason(0)


def test_a_copy_that_was_made_again_takes_what_came_back():
    """All that the source had when the copy was empty, and nothing later."""
    log = batch(0, 2, came_back=True) + batch(2) + batch(3, came_back=True)
    taking = Taking(log, end=ends_at(0, until=3))
    assert copied(taking.take()) == [(0, 3)]
    assert taking.reader.at["t", 0] == (3, 0)
    assert copied(taking.take()) == []


def seen(work: PendingTransaction) -> list[tuple[int, object, object, int, list[str]]]:
    """What any client makes of the batches to write: offset, key, value, time and the
    names of the headers of each record, decoded by kafka-python.
    """
    found = []
    for queue in work.batches.values():
        for each in queue:
            each.stamp(1, 0, 0, transactional=False)
            made = bytes(each.header) + bytes(each.body)
            whole = DefaultRecordBatch(made)
            assert whole.validate_crc()
            assert whole.last_offset_delta == each.count - 1
            for index, one in enumerate(whole):
                assert one.offset == index
                names = [name for name, _ in one.headers]
                found.append(
                    (each.source_offset + index, one.key, one.value, one.timestamp,
                     names)
                )  # fmt: skip
    return found


def _split(found: list[Any]) -> tuple[list[int], list[int]]:
    """The offsets of records, and of fillers."""
    both: tuple[list[int], list[int]] = ([], [])
    for offset, key, value, _, names in found:
        is_filler = names[:1] == ["mirror.filler"]
        assert not is_filler or (value is None and key is None)
        both[is_filler].append(offset)
    return both


_WITH_MARKERS = (
    good()  # 0 to 2
    + hostile.marker(3, 9, commit=True)
    + good(4, 1)
    + stored(
        record() + record(delta=1), count=2, base=5, base_time=7000, newest=7000,
        attributes=hostile.TRANSACTIONAL, producer=9,
    )
    + hostile.marker(7, 9, commit=False)
)  # fmt: skip


@pytest.mark.parametrize("stamps", [True, False])
def test_markers_and_aborted_records_become_fillers(stamps):
    """Each source offset has a record or a filler, also where the log ends with a
    marker. A filler has the time of what the source has there.
    """
    taking = Taking(_WITH_MARKERS, end=ends_at(0), fills=True, stamps=stamps)
    work = taking.take(aborted=((9, 5),))
    found = seen(work)
    assert _split(found) == ([0, 1, 2, 4], [3, 5, 6, 7])
    assert [offset for offset, *_ in found] == list(range(8))
    assert [each[3] for each in found if each[0] in (5, 6)] == [7000, 7000]
    assert {each[3] for each in found if each[0] < 5} == {1000}
    names = ["mirror.filler", "mirror.via"] if stamps else ["mirror.filler"]
    assert found[3][4] == names
    assert taking.reader.at["t", 0] == (8, 0)
    counts = work.counts["t", 0].counts
    assert (counts.records, counts.fillers, counts.skipped) == (4, 4, 4)


def _compacted(base: int, *deltas: int, count: int, time: int = 1000) -> bytes:
    """A batch of which the log cleaner has left these records, of so many."""
    section = b"".join(record(delta=each) for each in deltas)
    return stored(
        section, count=len(deltas), base=base, last_delta=count - 1, base_time=time,
        newest=time,
    )  # fmt: skip


@pytest.mark.parametrize("codec", [0, ZSTD])
def test_what_compaction_leaves_is_filled(codec):
    """Holes within batches, at their ends, between them, and wide ones: no batch has a
    hole, and none is larger than its topic takes.
    """
    log = b"".join(
        hostile.stored(
            packed(b"".join(record(delta=d) for d in deltas), codec),
            count=len(deltas), base=base, last_delta=last, attributes=codec,
        )
        for base, deltas, last in (
            (0, (1, 3), 5), (8, (0,), 0), (200_000, (2,), 9),
        )
    )  # fmt: skip
    taking = Taking(log, end=ends_at(0), fills=True)
    work = taking.take()
    records, fillers = _split(seen(work))
    assert records == [1, 3, 8, 200_002]
    assert sorted(records + fillers) == list(range(200_010))
    assert taking.reader.at["t", 0] == (200_010, 0)
    (queue,) = work.batches.values()
    assert max(each.size for each in queue) < 1 << 17
    assert len(queue) < 30


def test_fillers_have_a_key_where_brokers_want_one():
    """On a compacted topic, in a batch of their own and between records."""
    log = _compacted(0, 0, 2, count=3) + _compacted(500, 0, count=1)
    taking = Taking(log, end=ends_at(0), fills=True, keyed=True)
    keys = Counter(key for _, key, value, *_ in seen(taking.take()) if value is None)
    assert keys == {b"\xff\xffmirror.filler": 498}


def test_a_fetch_within_a_batch_goes_on_filling():
    """A slot that takes over in a hole of a batch writes the rest of it."""
    log = _compacted(0, 0, 9, count=12)
    for at in range(1, 12):
        taking = Taking(log, end=ends_at(at), fills=True)
        taking.reader.at["t", 0] = (at, -1)
        records, fillers = _split(seen(taking.take()))
        assert records == [each for each in (9,) if each >= at]
        assert sorted(records + fillers) == list(range(at, 12))


def test_large_answers_are_filled_in_parts():
    """Records and fillers that are more than one batch, or more than is worked on at
    once, are each written once, at their offsets.
    """
    log = b"".join(
        stored(
            record(value=bytes(20_000)) + record(value=bytes(20_000), delta=50),
            count=2, base=base, last_delta=99,
        )
        for base in range(0, 100_000, 100)
    )  # fmt: skip
    taking = Taking(log, end=ends_at(0), fills=True)
    found, at = [], 0
    while at < 100_000:
        found += seen(taking.take())
        assert taking.reader.at["t", 0][0] > at
        at = taking.reader.at["t", 0][0]
    assert [offset for offset, *_ in found] == list(range(100_000))
    records, _ = _split(found)
    assert records == list(range(0, 100_000, 50))


def test_a_wide_hole_is_filled_in_parts(monkeypatch):
    """What is too much at once goes on within the hole, at the next offset."""
    monkeypatch.setattr(rewrite, "_ENOUGH_MADE", 20_000)
    log = batch(0) + batch(100_000)
    taking = Taking(log, end=ends_at(0), fills=True)
    found, epochs = [], set()
    while taking.reader.at["t", 0][0] <= 100_000:
        found += seen(taking.take())
        epochs.add(taking.reader.at["t", 0][1])
    assert [offset for offset, *_ in found] == list(range(100_001))
    assert epochs == {-1, 0}


def test_what_came_back_gets_no_filler():
    """A hole in what the copy has already is passed over, and so are records that came
    from there; behind the copy's end holes are filled again.
    """
    log = (
        batch(0, 2, came_back=True) + batch(4, came_back=True)
        + hostile.marker(7, 9, commit=True) + batch(8)
    )  # fmt: skip
    taking = Taking(log, end=ends_at(6, position=0), fills=True)
    assert copied(taking.take()) == []
    assert taking.reader.at["t", 0][0] == 6
    assert copied(taking.take()) == []
    assert "asked for, to go on there" in taking.reason(0)
    taking = Taking(log, end=ends_at(6), fills=True)
    taking.reader.at["t", 0] = (6, -1)
    assert _split(seen(taking.take())) == ([8], [6, 7])
    log = batch(0, 2) + hostile.marker(2, 9, commit=True) + batch(3, came_back=True)
    taking = Taking(log, end=ends_at(0), fills=True)
    assert _split(seen(taking.take())) == ([0, 1], [2])
    assert copied(taking.take()) == []
    assert "ends at offset 3" in taking.reason(0)


def test_a_copy_that_was_made_again_is_filled():
    """Up to where the source's log ended then, also what came back is copied."""
    log = batch(0, 2, came_back=True) + hostile.marker(2, 9, commit=True) + batch(3)
    taking = Taking(log, end=ends_at(0, until=3), fills=True)
    assert _split(seen(taking.take())) == ([0, 1], [2])
    assert _split(seen(taking.take())) == ([3], [])


def test_a_bomb_sets_its_own_partition_aside():
    """The records before it are copied; then the reason names offset, setting and
    value; the other partition continues.
    """
    taking = Taking(good() + bomb(3), good())
    taking.take()
    assert taking.reader.at["t", 0] == (3, 0)
    taking.take()
    assert ("t", 0) not in taking.reader.at
    assert taking.reason(0).startswith("the batch at offset 3: it unpacks to more than")
    assert f"max_unpacked_bytes, which is {1 << 20}" in taking.reason(0)
    assert taking.reason(1) == ""
    assert taking.reader.at["t", 1] == (3, 0)


def test_records_beside_a_nearer_replica_count():
    """Java's client takes them too: a broker may name a replica in every answer."""
    taking = Taking(good())
    taking.take(nearer=1)
    assert taking.reader.at == {("t", 0): (3, 0)}


def test_damage_on_a_follower_is_not_the_partitions():
    """The leader is asked for what a follower sends damaged; only if that is damaged,
    too, the partition is set aside.
    """
    taking = Taking(bomb(), good())
    taking.take(near=True)
    assert taking.reader.distrusted == [("t", 0)]
    assert taking.reason(0) == ""
    assert taking.reader.at == {("t", 0): (0, -1), ("t", 1): (3, 0)}
    taking.take()
    assert taking.reason(0).startswith("the batch at offset 0: it unpacks to more than")


def test_too_little_memory_sets_a_partition_aside(monkeypatch):
    """Missing memory is a reason like a damaged batch, and does not end the slot."""

    def none_left(*_args, **_options):
        raise MemoryError

    taking = Taking(bomb(), good())
    monkeypatch.setattr(codecs, "decompress", none_left)
    taking.take()
    assert "more memory than is available" in taking.reason(0)
    assert "max_unpacked_bytes" in taking.reason(0)
    assert taking.reader.at["t", 1] == (3, 0)


def test_an_answer_that_grows_is_not_worked_on_at_once():
    """Ten partitions of a few kilobytes each unpack to 20 MiB: the transaction is full
    after some of them, and the others keep their position and are fetched again.
    """
    taking = Taking(*[bomb(size=20 << 20)] * 10, most_unpacked=32 << 20)
    work = taking.take()
    done = [key for key, (offset, _) in taking.reader.at.items() if offset == 1]
    assert done == [("t", partition) for partition in range(len(work.moved))]
    assert 3 <= len(done) <= 5
    assert work.worked_bytes < 110 << 20
    assert len(taking.reader.at) == 10
    assert not any(taking.reason(partition) for partition in range(10))


def test_a_stop_within_an_answer_keeps_the_right_epoch():
    """If a damaged batch ends the copying, the stored position has the leader epoch of
    the record before it, not that of the answer's last batch.
    """
    bad = stored(record(size=99), base=10, leader_epoch=7)
    taking = Taking(
        good(leader_epoch=3)
        + hostile.marker(3, 9, commit=True, leader_epoch=5)
        + bad
        + good(11, leader_epoch=9)
    )
    work = taking.take()
    (position,) = work.moved.values()
    assert (position.offset, position.leader_epoch) == (3, 3)
    assert taking.reader.at["t", 0] == (3, 3)


@pytest.mark.parametrize("compressed", [0, ZSTD])
def test_lag_counts_from_the_record_not_from_a_delete_horizon(compressed):
    """A compacted topic's batch has as its base time when tombstones may go, an hour
    ahead; the lag is the age of its first record.
    """
    now = int(time.time() * 1000)
    horizon, written = now + 3_600_000, now - 500_000
    section = record(b"k", None, time=written - horizon)
    log = stored(
        packed(section, compressed),
        attributes=compressed | DELETE_HORIZON,
        base_time=horizon,
        newest=written,
    )
    taking = Taking(log)
    taking.take()
    (report,) = taking.tally.reports(
        taking.wanted,
        {("t", 0): SimpleNamespace(offset=0)},
        taking.faults,
        answered=lambda _: time.time(),
        seeding=lambda _: False,
    )
    assert 499 < report.lag_seconds < 510
