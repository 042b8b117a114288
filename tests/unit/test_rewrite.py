"""Reading and rewriting batches, against kafka-python's encoder and decoder.

mirror's own batch code is on one side only: `kafka.record`, which shares nothing with
it, builds the input and decodes the output.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
import random
import struct

from crc32c import crc32c
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.legacy_records import LegacyRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords
import numpy as np
import pytest

from mirror.copying import provenance
from mirror.copying.rewrite import Rewriter
from mirror.copying.transform import Transform
from mirror.copying.transforming import TransformingRewriter
from mirror.errors import CorruptBatchError
from mirror.records import batch, codecs

pytestmark = pytest.mark.unit

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40
HUGE = 1 << 30
VIA = ("mirror.via", b"src/SOURCE-ID")
HOME = ("mirror.via", b"other/TARGET-ID")

Header = tuple[str, bytes | None]


@dataclass(frozen=True)
class Record:
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp: int = 1000
    gap: int = 0
    """Offsets that compaction left empty before this record."""


@dataclass(frozen=True)
class Batch:
    records: tuple[Record, ...]
    codec: int = NONE
    attributes: int = 0
    producer: int = -1
    gap: int = 0
    tail: int = 0
    """Offsets that compaction left empty behind the last record."""


@dataclass(frozen=True)
class Placed:
    """A batch in a log."""

    batch: Batch
    content: bytes
    offsets: tuple[int, ...]
    last: int


def place(batches: list[Batch], base: int = 0) -> list[Placed]:
    """Lay batches out one after the other, as in a broker's log."""
    placed = []
    for each in batches:
        base += each.gap
        builder = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=each.codec,
            is_transactional=False,
            producer_id=each.producer,
            producer_epoch=0 if each.producer >= 0 else -1,
            base_sequence=0 if each.producer >= 0 else -1,
            batch_size=HUGE,
        )
        deltas, delta = [], -1
        for record in each.records:
            delta += 1 + record.gap
            deltas.append(delta)
            builder.append(
                delta, record.timestamp, record.key, record.value, record.headers
            )
        content = bytearray(builder.build())
        struct.pack_into(">q", content, 0, base)
        attributes = struct.unpack_from(">h", content, 21)[0]
        struct.pack_into(">h", content, 21, attributes | each.attributes)
        struct.pack_into(">i", content, 23, max(delta, 0) + each.tail)
        seal(content)
        last = base + max(delta, 0) + each.tail
        offsets = tuple(base + delta for delta in deltas)
        placed.append(Placed(each, bytes(content), offsets, last))
        base = last + 1
    return placed


def seal(content: bytearray) -> None:
    """The checksum that a broker would have accepted."""
    struct.pack_into(">I", content, 17, crc32c(bytes(content[21:])))


def buffer_of(placed: list[Placed], *, lead: bytes = b"") -> np.ndarray:
    content = lead + b"".join(each.content for each in placed)
    return np.frombuffer(bytearray(content), np.uint8)


def read(buffer, *, position=0, start=0, end=None, aborted=()):
    return batch.read(
        buffer,
        start,
        len(buffer) if end is None else end,
        position=position,
        aborted=aborted,
        scratch=batch.scratch(),
    )


def rewriter(codec: int | None = None, *, stamps: bool = True) -> Rewriter:
    made = (
        provenance.via(source_alias="src", source_id="SOURCE-ID", target_id="TARGET-ID")
        if stamps
        else provenance.none()
    )
    return Rewriter(made, codec=codec)


def decode(encoded) -> list:
    """Batches as kafka-python sees them, each with a right checksum."""
    found = []
    for each in encoded:
        each.stamp(7, 3, 11, transactional=True)
        raw = bytes(each.header) + bytes(each.body)
        records = MemoryRecords(raw)
        one = records.next_batch()
        assert not records.has_next()
        assert one.validate_crc()
        assert one.size_in_bytes == len(raw) == each.size
        assert one.base_offset == 0
        assert (one.producer_id, one.producer_epoch, one.base_sequence) == (7, 3, 11)
        assert one.is_transactional
        assert not one.is_control_batch
        assert one.timestamp_type == 0
        assert not one.attributes & DELETE_HORIZON
        found.append((one, list(one)))
    return found


def expected_of(placed: list[Placed], position: int, *, stamps: bool = True) -> list:
    """The naive model: every record on its own."""
    return [record for _, record in _expected(placed, position, stamps=stamps)]


def expected_offsets(
    placed: list[Placed], position: int, *, stamps: bool = True
) -> list[int]:
    """The source offsets of the same records."""
    return [offset for offset, _ in _expected(placed, position, stamps=stamps)]


def offsets_told(batches) -> list[int]:
    """Source offsets, record by record, as the batches' runs have them."""
    offsets = []
    for each in batches:
        assert each.runs[:, 2].sum() == each.count
        done = len(offsets)
        for first, index, count in each.runs.tolist():
            assert count > 0
            assert index == len(offsets) - done
            offsets += range(first, first + count)
    return offsets


def _expected(placed: list[Placed], position: int, *, stamps: bool) -> list:
    wanted = []
    for each in placed:
        newest = max((r.timestamp for r in each.batch.records), default=0)
        appended = each.batch.attributes & LOG_APPEND_TIME
        for offset, record in zip(each.offsets, each.batch.records, strict=True):
            if offset < position:
                continue
            looped = any(
                name == "mirror.via" and value and value.endswith(b"/TARGET-ID")
                for name, value in record.headers
            )
            if stamps and looped:
                continue
            shown_as = (
                record.key,
                record.value,
                [*record.headers, *([VIA] if stamps else [])],
                newest if appended else record.timestamp,
            )
            wanted.append((offset, shown_as))
    return wanted


def shown(decoded: list) -> list:
    return [
        (record.key, record.value, list(record.headers), record.timestamp)
        for _, records in decoded
        for record in records
    ]


_nullable = st.none() | st.binary(max_size=40) | st.binary(min_size=200, max_size=900)
_header = (
    st.tuples(st.sampled_from(["", "a", "a\0b", "mirror.via", "mirror.vi"]), _nullable)
    | st.just(HOME)
    | st.just(VIA)
    | st.just(("mirror.via", b"TARGET-ID"))
    | st.just(("another", b"x/TARGET-ID"))
)
_record = st.builds(
    Record,
    key=_nullable,
    value=_nullable | st.integers(1, 20_000).map(lambda size: b"compresses " * size),
    headers=st.lists(_header, max_size=4).map(tuple)
    | st.integers(60, 130).map(lambda n: (("n", b"1"),) * n),
    timestamp=st.sampled_from([0, 1, 1000, 1_700_000_000_000, 32_503_680_000_000]),
    gap=st.sampled_from([0, 0, 0, 1, 200]),
)
_batch = st.builds(
    Batch,
    records=st.lists(_record, max_size=12).map(tuple),
    codec=st.sampled_from([NONE, GZIP, SNAPPY, LZ4, ZSTD]),
    attributes=st.sampled_from([0, 0, LOG_APPEND_TIME, DELETE_HORIZON]),
    producer=st.sampled_from([-1, 5]),
    gap=st.sampled_from([0, 0, 3]),
    tail=st.sampled_from([0, 0, 5]),
)


@given(
    batches=st.lists(_batch, min_size=1, max_size=8),
    base=st.sampled_from([0, 77, 1 << 40]),
    codec=st.sampled_from([None, NONE, GZIP, SNAPPY, LZ4, ZSTD]),
    stamps=st.booleans(),
    max_bytes=st.sampled_from([100, 5000, 1 << 20]),
    data=st.data(),
)
@settings(max_examples=150, deadline=None)
def test_records_survive_any_batching(batches, base, codec, stamps, max_bytes, data):
    """For any batches, start position, codec and limit, the result has the records that
    a naive model expects, renumbered without gaps, within the limit, and the source
    offset of each.
    """
    placed = place(batches, base)
    buffer = buffer_of(placed)
    end = placed[-1].last + 1
    position = data.draw(st.integers(base, end), label="position")
    found = read(buffer, position=position)
    assert found.next_offset == end
    done = rewriter(codec, stamps=stamps).rewrite(
        buffer, found.rows, position=position, max_bytes=max_bytes
    )
    decoded = decode(done.batches)
    wanted = expected_of(placed, position, stamps=stamps)
    assert shown(decoded) == wanted
    assert sum(each.count for each in done.batches) == len(wanted)
    told = offsets_told(done.batches)
    assert told == expected_offsets(placed, position, stamps=stamps)
    for (one, records), encoded in zip(decoded, done.batches, strict=True):
        offsets = [record.offset for record in records]
        assert offsets == list(range(len(records)))
        assert one.last_offset_delta == len(records) - 1 == encoded.count - 1
        assert one.max_timestamp == max(record.timestamp for record in records)
        assert encoded.size <= max_bytes or len(records) == 1
        if codec is not None:
            assert one.compression_type in {codec, NONE}
    if wanted:
        assert done.newest == max(timestamp for *_, timestamp in wanted)


def test_a_batch_full_of_holes_is_cut():
    """However many holes compaction left, all runs are returned."""
    records = tuple(Record(value=b"v", gap=1) for _ in range(40_000))
    placed = place([Batch(records)])
    buffer = buffer_of(placed)
    done = rewriter().rewrite(buffer, read(buffer).rows, position=0, max_bytes=HUGE)
    assert offsets_told(done.batches) == list(placed[0].offsets)
    assert len(done.batches) > 1


def test_loops_are_dropped_and_counted():
    """A record that came through the target is left out and counted as looped; one
    whose headers only look like it is copied.
    """
    records = [
        Record(key=b"home", headers=(HOME,)),
        Record(key=b"home-last", headers=(("a", b"1"), VIA, HOME)),
        Record(key=b"another-name", headers=(("mirror.vias", HOME[1]),)),
        Record(key=b"no-slash", headers=(("mirror.via", b"TARGET-ID"),)),
        Record(key=b"longer", headers=(("mirror.via", b"x/TARGET-ID2"),)),
        Record(key=b"null", headers=(("mirror.via", None),)),
        Record(key=b"empty", headers=(("mirror.via", b""),)),
    ]
    buffer = buffer_of(place([Batch(tuple(records))]))
    done = rewriter().rewrite(buffer, read(buffer).rows, position=0, max_bytes=HUGE)
    keys = [key for key, *_ in shown(decode(done.batches))]
    assert keys == [b"another-name", b"no-slash", b"longer", b"null", b"empty"]
    assert done.counts.looped == 2


@pytest.mark.parametrize("transforms", [False, True], ids=["rewrites", "transforms"])
def test_loops_that_no_flow_explains_are_counted(*, transforms):
    """The newest header of a looping record says which flow brought it to the source.
    If the configuration has no such flow, another mirror or a producer wrote the
    header, and the record also counts as unexplained.
    """
    entry = ("mirror.via", b"hub/HUB-ID")
    records = [
        Record(key=b"straight", headers=(HOME,)),
        Record(key=b"over the hub", headers=(HOME, entry)),
        Record(key=b"from nowhere", headers=(HOME, ("mirror.via", b"moon/MOON-ID"))),
        Record(key=b"hu", headers=(HOME, ("mirror.via", b"hu"))),
        Record(key=b"empty", headers=(HOME, ("mirror.via", None))),
        Record(key=b"copied", headers=(("mirror.via", b"moon/MOON-ID"),)),
    ]
    made = provenance.via(
        source_alias="src",
        source_id="SOURCE-ID",
        target_id="TARGET-ID",
        feeders=("hub", HOME[1].decode().partition("/")[0]),
    )
    worker = (
        TransformingRewriter(
            made,
            codec=None,
            transform=Transform("tests.functions:identity", {}),
            dead_letters_of=None,
        )
        if transforms
        else Rewriter(made, codec=None)
    )
    buffer = buffer_of(place([Batch(tuple(records))]))
    done = worker.rewrite(buffer, read(buffer).rows, position=0, max_bytes=HUGE)
    assert [key for key, *_ in shown(decode(done.batches))] == [b"copied"]
    assert (done.counts.looped, done.counts.unexplained) == (5, 3)


@pytest.mark.parametrize("transforms", [False, True], ids=["rewrites", "transforms"])
def test_records_away_from_home_are_left_out(*, transforms):
    """A record whose key has its home elsewhere is left out if it was written on the
    source, and counted apart from loops; one that came from another cluster, without a
    key, or of the topic of heartbeats is copied.
    """
    records = [
        Record(key=b"us-1"),
        Record(key=b"us-2", headers=(("mirror.via", b"C/C-ID"),)),
        Record(key=b"us-3", headers=(("a", b"1"),)),
        Record(key=b"us-4", headers=(HOME,)),
        Record(key=b"us", headers=(("a", b"1"),)),
        Record(key=b"us-home"),
        Record(key=None, value=b"us-5"),
    ]
    made = provenance.via(
        source_alias="src", source_id="SOURCE-ID", target_id="TARGET-ID",
        homes=[("us-home", False), ("us-", True)],
    )  # fmt: skip
    worker = (
        TransformingRewriter(
            made,
            codec=None,
            transform=Transform("tests.functions:identity", {}),
            dead_letters_of=None,
            spares=lambda topic: topic == "heartbeats",
        )
        if transforms
        else Rewriter(made, codec=None)
    )
    buffer = buffer_of(place([Batch(tuple(records))]))
    copied = [b"us-2", b"us", b"us-home", None]
    for topic, keys, away in (
        ("orders", copied, 2),
        ("heartbeats", [b"us-1", b"us-2", b"us-3", *copied[1:]], 0),
    ):
        worker.begin()
        done = worker.rewrite(
            buffer, read(buffer).rows, position=0, max_bytes=HUGE, at=(topic, 0)
        )
        assert [key for key, *_ in shown(decode(done.batches))] == keys
        assert (done.counts.looped, done.counts.away) == (1, away)


def test_all_records_dropped_makes_no_batch():
    """A batch that has only loops sends nothing, not even an empty batch."""
    for codec in (NONE, ZSTD):
        batches = [Batch((Record(value=b"v" * 500, headers=(HOME,)),) * 3, codec)] * 2
        buffer = buffer_of(place(batches))
        done = rewriter().rewrite(buffer, read(buffer).rows, position=0, max_bytes=HUGE)
        assert (done.batches, done.counts.looped) == ([], 6)


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_without_provenance_large_batches_keep_their_bytes(codec):
    """Without provenance, a large batch is copied without being unpacked, and small
    ones are merged with the same records.
    """
    noise = random.Random(1)
    values = [noise.randbytes(200) + bytes(100) for _ in range(400)]
    large = Batch(tuple(Record(value=v) for v in values), codec)
    small = Batch((Record(key=b"small", value=b"v"),), codec)
    placed = place([small, large, small, small], base=10)
    assert len(placed[1].content) > 16 << 10
    buffer = buffer_of(placed)
    done = rewriter(stamps=False).rewrite(
        buffer, read(buffer, position=10).rows, position=10, max_bytes=HUGE
    )
    assert [bytes(b.body) for b in done.batches][1] == placed[1].content[61:]
    assert shown(decode(done.batches)) == expected_of(placed, 10, stamps=False)


def test_outputs_hold_until_the_next_begin():
    """What was rewritten for one partition is not overwritten for the next ones."""
    worker = rewriter()
    parts = []
    for number in range(5):
        batches = [Batch((Record(key=b"%d" % number, value=b"v" * 900),) * 500)]
        placed = place(batches)
        buffer = buffer_of(placed)
        done = worker.rewrite(buffer, read(buffer).rows, position=0, max_bytes=50_000)
        parts.append((done, expected_of(placed, 0)))
    for done, wanted in parts:
        assert shown(decode(done.batches)) == wanted


def test_a_batch_cut_off_by_the_fetch_limit_is_left_for_later():
    """At any cut, the whole batches are read, and the next read begins after them."""
    placed = place([Batch((Record(value=b"x" * 50),) * 3)] * 3, base=5)
    buffer = buffer_of(placed, lead=b"\xee" * 13)
    ends = np.cumsum([13] + [len(each.content) for each in placed]).tolist()
    for end in range(ends[1], ends[3] + 1):
        whole = sum(end >= at for at in ends[1:])
        found = read(buffer, start=13, end=end, position=5)
        assert len(found.rows) == whole
        assert found.next_offset == placed[whole - 1].last + 1


@given(at=st.integers(17, 160), bit=st.integers(0, 7), which=st.integers(0, 2))
@settings(max_examples=200, deadline=None)
def test_damage_is_noticed(at, bit, which):
    """One flipped bit anywhere under the checksum stops the copy at that batch; the
    batches before it are still read.
    """
    placed = place([Batch((Record(key=b"key", value=b"v" * 100),))] * 3)
    size = len(placed[0].content)
    buffer = buffer_of(placed)
    buffer[which * size + min(at, size - 1)] ^= 1 << bit
    if which == 0:
        with pytest.raises(CorruptBatchError, match="offset 0 is damaged"):
            read(buffer)
        return
    found = read(buffer)
    assert found.next_offset == which
    with pytest.raises(CorruptBatchError, match=f"offset {which} is damaged"):
        read(buffer, start=which * size, position=which)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_records_that_do_not_unpack_are_damage(codec):
    """A right checksum over bytes that are not of the named codec is damage too."""
    content = bytearray(place([Batch((Record(value=b"v" * 500),), codec)])[0].content)
    content[61:] = b"\x13" * (len(content) - 61)
    seal(content)
    buffer = np.frombuffer(content, np.uint8)
    rows = read(buffer).rows
    with pytest.raises(CorruptBatchError):
        rewriter().rewrite(buffer, rows, position=0, max_bytes=HUGE)


@given(codec=st.sampled_from([GZIP, SNAPPY, LZ4, ZSTD]), section=st.binary())
@settings(max_examples=300, deadline=None)
def test_no_bytes_make_a_codec_fail_otherwise(codec, section):
    """A codec unpacks any bytes or says that they are damaged; an error of a library
    would affect the other partitions.
    """
    framed = b"\x82SNAPPY\0" + bytes(8) + section if codec == SNAPPY else section
    for tried in (section, framed):
        with contextlib.suppress(CorruptBatchError):
            codecs.decompress(codec, memoryview(tried))


@pytest.mark.parametrize("codec", [NONE, ZSTD])
def test_fewer_records_than_announced_are_damage(codec):
    """A batch that claims more records than it has is not copied with records made of
    the bytes after it.
    """
    placed = place([Batch((Record(value=b"v" * 500),) * 3, codec)])
    content = bytearray(placed[0].content)
    struct.pack_into(">i", content, 57, 5)
    seal(content)
    buffer = np.frombuffer(content, np.uint8)
    with pytest.raises(CorruptBatchError, match="offset 0 is damaged"):
        rewriter().rewrite(buffer, read(buffer).rows, position=0, max_bytes=HUGE)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_old_message_formats_are_refused_by_name(magic, codec):
    """A message set of format v0 or v1 is refused with its version, never misread."""
    builder = LegacyRecordBatchBuilder(
        magic=magic, compression_type=codec, batch_size=HUGE
    )
    for number in range(10):
        builder.append(number, timestamp=1000, key=None, value=b"v" * 10)
    buffer = np.frombuffer(bytearray(builder.build()), np.uint8)
    with pytest.raises(CorruptBatchError, match=f"format v{magic}"):
        read(buffer)


def test_old_format_behind_new_batches_is_refused_when_reached():
    """The batches before an old-format part are copied before it is refused."""
    builder = LegacyRecordBatchBuilder(magic=1, compression_type=0, batch_size=HUGE)
    builder.append(0, timestamp=1000, key=None, value=b"v" * 100)
    new = place([Batch((Record(),) * 2)])
    content = bytearray(new[0].content + bytes(builder.build()))
    buffer = np.frombuffer(content, np.uint8)
    assert read(buffer).next_offset == 2
    with pytest.raises(CorruptBatchError, match="format v1"):
        read(buffer, start=len(new[0].content), position=2)


# ---- Transactions -------------------------------------------------------------------

_step = st.tuples(
    st.integers(0, 2),
    st.sampled_from(["write", "write", "write", "commit", "abort", "plain"]),
)


def marker(producer: int, *, commit: bool) -> Batch:
    key = struct.pack(">hh", 0, 1 if commit else 0)
    return Batch(
        (Record(key=key, value=b"\0" * 6),),
        attributes=TRANSACTIONAL | CONTROL,
        producer=producer,
    )


@given(steps=st.lists(_step, min_size=1, max_size=40), data=st.data())
@settings(max_examples=300, deadline=None)
def test_aborted_transactions_are_hidden(steps, data):
    """For any interleaving of transactions, read from any offset with what a broker
    would name as aborted, exactly the committed and plain records are seen.
    """
    batches: list[Batch] = []
    open_at: dict[int, list[int]] = {}
    outcome: dict[int, bool] = {}  # index of a transactional batch: committed?
    transactions: list[tuple[int, int, int, bool]] = []

    def end(producer: int, *, commit: bool) -> None:
        written = open_at.pop(producer)
        for index in written:
            outcome[index] = commit
        transactions.append((producer, written[0], len(batches), commit))
        batches.append(marker(producer, commit=commit))

    for producer, what in steps:
        if what in {"commit", "abort"}:
            if producer in open_at:
                end(producer, commit=what == "commit")
            continue
        plain = what == "plain"
        records = tuple(
            Record(key=b"%d-%d" % (len(batches), n)) for n in range(1 + producer)
        )
        if not plain:
            open_at.setdefault(producer, []).append(len(batches))
        batches.append(
            Batch(records, producer=producer if not plain else 9)
            if plain
            else Batch(records, attributes=TRANSACTIONAL, producer=producer)
        )
    for producer in sorted(open_at):
        end(producer, commit=data.draw(st.booleans(), label="commit"))

    assume(batches)
    placed = place(batches)
    position = data.draw(st.integers(0, placed[-1].last + 1), label="position")
    first = next((i for i, p in enumerate(placed) if p.last >= position), len(placed))
    aborted = [
        (producer, placed[begin].offsets[0])
        for producer, begin, ending, commit in transactions
        if not commit and placed[ending].last >= position
    ]
    wanted = [
        key
        for index, each in enumerate(placed)
        if not each.batch.attributes & CONTROL and outcome.get(index, True)
        for key in (
            record.key
            for offset, record in zip(each.offsets, each.batch.records, strict=True)
            if offset >= position
        )
    ]
    if first == len(placed):
        return
    buffer = buffer_of(placed[first:])
    found = read(
        buffer,
        position=position,
        aborted=data.draw(st.permutations(aborted), label="aborted"),
    )
    assert found.next_offset == placed[-1].last + 1
    done = rewriter().rewrite(buffer, found.rows, position=position, max_bytes=HUGE)
    assert [key for key, *_ in shown(decode(done.batches))] == wanted


def test_delete_horizon_and_log_append_bits_are_cleared():
    """Bits that only a broker may set do not reach the target, in relayed or rewritten
    batches.
    """
    records = tuple(Record(value=struct.pack(">i", n) * 100) for n in range(200))
    for attributes in (LOG_APPEND_TIME, DELETE_HORIZON):
        for stamps in (True, False):
            placed = place([Batch(records, attributes=attributes)])
            buffer = buffer_of(placed)
            done = rewriter(stamps=stamps).rewrite(
                buffer, read(buffer).rows, position=0, max_bytes=HUGE
            )
            assert shown(decode(done.batches)) == expected_of(placed, 0, stamps=stamps)


def test_one_record_larger_than_the_limit_goes_alone():
    """A record over the limit is not lost: it gets a batch of its own, which the broker
    judges, and its neighbours stay within the limit.
    """
    small = Record(value=b"s" * 100)
    records = (small, small, Record(value=bytes(3 << 20)), small)
    placed = place([Batch(records)])
    buffer = buffer_of(placed)
    done = rewriter().rewrite(buffer, read(buffer).rows, position=0, max_bytes=1000)
    assert [each.count for each in done.batches] == [2, 1, 1]
    assert shown(decode(done.batches)) == expected_of(placed, 0)


@pytest.mark.parametrize("codec", sorted(codecs.BY_NAME.values()))
def test_megabytes_in_one_batch(codec):
    """A batch that unpacks to several output batches loses nothing at their seams."""
    values = tuple(Record(value=struct.pack(">i", n) * 500) for n in range(1500))
    placed = place([Batch(values, codec)])
    buffer = buffer_of(placed)
    done = rewriter(NONE).rewrite(buffer, read(buffer).rows, position=0, max_bytes=HUGE)
    assert shown(decode(done.batches)) == expected_of(placed, 0)
