"""Batches that any producer, or the log cleaner, may leave in a topic.

The checksum is right in all of them, since the sender computes it. Each batch gives the
records that a naive reader finds, or is damage with a reason; nothing else.
"""

from __future__ import annotations

import struct

import numpy as np
import pytest

from mirror.copying import provenance
from mirror.copying.rewrite import Rewriter
from mirror.copying.transforming import TransformingRewriter
from mirror.errors import CorruptBatchError
from mirror.records import batch, codecs, listing, records
from tests.harness import hostile_batches as hostile
from tests.harness.hostile_batches import DELETE_HORIZON, TRANSACTIONAL, record, stored

pytestmark = pytest.mark.unit

_HUGE = 1 << 30


def buffer_of(*parts: bytes) -> np.ndarray:
    return np.frombuffer(bytearray(b"".join(parts)), np.uint8)


def read(*parts: bytes, position=0, aborted=(), tail=b""):
    buffer = buffer_of(*parts, tail)
    found = batch.read(
        buffer, 0, len(buffer) - len(tail), position=position, aborted=aborted,
        scratch=batch.scratch(),
    )  # fmt: skip
    return buffer, found


def stamped(**options) -> Rewriter:
    made = provenance.via(source_alias="src", source_id="S", target_id="T")
    return Rewriter(made, codec=None, **options)


def transforming(**options) -> Rewriter:
    made = provenance.via(source_alias="src", source_id="S", target_id="T")
    columns = ["offset", "timestamp", "key", "value", "headers"]
    return TransformingRewriter(
        made,
        codec=None,
        transform=lambda given: given.select(columns),
        dead_letters_of=None,
        **options,
    )


def plain(**options) -> Rewriter:
    return Rewriter(provenance.none(), codec=None, **options)


def rewrite(made: Rewriter, *parts: bytes, position=0, max_bytes=_HUGE):
    buffer, found = read(*parts, position=position)
    return made.rewrite(
        buffer, found.rows, position=position, max_bytes=max_bytes, at=("t", 0)
    )


def offsets(done) -> list[int]:
    return [
        offset
        for each in done.batches
        for first, _, count in each.runs.tolist()
        for offset in range(first, first + count)
    ]


def data(first: int, count: int, *, producer: int = -1, leader_epoch: int = 0) -> bytes:
    return stored(
        b"".join(record(delta=n) for n in range(count)),
        count=count,
        base=first,
        attributes=TRANSACTIONAL if producer >= 0 else 0,
        producer=producer,
        leader_epoch=leader_epoch,
    )


@pytest.mark.parametrize("tail", [b"", b"\0\0\0"], ids=["v11", "v13"])
def test_an_empty_control_batch_at_the_end_of_an_answer(tail):
    """The log cleaner may leave an empty batch of a producer's last marker: it is
    skipped, the records before it are copied, and reading continues after it.
    """
    buffer, found = read(
        data(100, 3), hostile.empty_control(103, 42), position=100, tail=tail
    )
    assert found.next_offset == 104
    assert len(list(records.decode(buffer, found.rows))) == 3
    assert found.skipped == 0


@pytest.mark.parametrize("following", [104, 256])
def test_an_empty_control_batch_ends_no_transaction(following):
    """It does not say how a transaction ended, whatever bytes follow it: what its
    producer aborted stays hidden until that transaction's marker.
    """
    _, found = read(
        data(100, 3, producer=42),
        hostile.empty_control(103, 42),
        data(following, 2, producer=42),
        hostile.marker(following + 2, 42, commit=False),
        data(following + 3, 1, producer=42),
        aborted=[(42, 100)],
    )
    assert found.rows[:, 2].tolist() == [following + 3]
    assert found.next_offset == following + 4


@pytest.mark.parametrize(
    "section",
    [record(b"\0\0"), record(None), record(key_size=1 << 40), record(size=1 << 40)],
)
def test_a_control_batch_that_tells_nothing_is_damage(section):
    """A marker whose key does not say how its transaction ended is damage."""
    with pytest.raises(CorruptBatchError, match="offset 7"):
        read(stored(section, base=7, attributes=0x30, producer=1), aborted=[(1, 0)])


def _flipped(batch: bytes, at: int) -> bytes:
    return batch[:at] + bytes([batch[at] ^ 1]) + batch[at + 1 :]


_DAMAGES = {
    "a marker that tells nothing": stored(
        record(b"\0\0"), base=7, attributes=0x30, producer=1
    ),
    "a packed marker": stored(record(), base=7, attributes=0x34, producer=1),
    "a wrong checksum": _flipped(data(7, 1), -1 % len(data(7, 1))),
    "a wrong checksum of a large batch": _flipped(
        stored(record(value=bytes(5000)), base=7), 3000
    ),
    "a header that cannot be right": stored(record(), base=7, count=9),
    "an old format": _flipped(data(7, 1), 16),
    "an unknown codec": stored(record(), base=7, attributes=5),
    "what is not of its codec": stored(record(), base=7, attributes=hostile.LZ4),
    "a record that does not fit": stored(record(size=40), base=7),
}


@pytest.mark.parametrize("made", [stamped, transforming])
@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("damage", _DAMAGES)
def test_what_stands_before_damage_comes_through(made, transactional, damage):
    """Whatever is wrong with a batch, those before it in the same answer are copied,
    and reading continues at the damaged one, with the epoch of the record before it; as
    the first batch it is an error. No batch after it is copied.
    """
    good = data(0, 4, leader_epoch=1) + data(4, 3, leader_epoch=2)
    if transactional:
        good = data(0, 6, producer=9) + hostile.marker(
            6, 9, commit=True, leader_epoch=2
        )
    behind = data(11, 2)
    buffer, found = read(good, _DAMAGES[damage], behind)
    rewriter = made()
    done = rewriter.rewrite(
        buffer, found.rows, position=0, max_bytes=_HUGE, at=("t", 0)
    )
    assert offsets(done) == list(range(6 if transactional else 7))
    stop = (found.next_offset, found.leader_epoch)
    if done.stopped_at >= 0:
        stop = found.until(buffer, done.stopped_at)
    assert stop[0] == 7 or (transactional and stop == (6, 0))
    assert stop[1] == (2 if stop[0] == 7 else 0)
    with pytest.raises(CorruptBatchError):
        rewrite(rewriter, _DAMAGES[damage], behind, position=stop[0])


_WRONG = {
    "record of 2^40 bytes": record(size=1 << 40),
    "record of 2^62 bytes": record(size=(1 << 62) - 1),
    "record of 2^63 - 1 bytes": record(size=(1 << 63) - 1),
    "record into the next batch": record(size=40),
    "negative record": record(size=-5),
    "record without room for its parts": hostile.varint(3) + bytes(3),
    "key of 2^40 bytes": record(key_size=1 << 40),
    "key of 2^62 bytes": record(key_size=1 << 62),
    "key of size -2": record(key_size=-2),
    "value of 2^31 bytes": record(value_size=1 << 31),
    "value of one byte too many": record(value_size=6),
    "2^55 headers": record(count=1 << 55),
    "-1 headers": record(count=-1),
    "3 headers of 2": record(headers=[(b"a", b"1")] * 2, count=3),
    "1 header of 2": record(headers=[(b"a", b"1")] * 2, count=1),
    "header's name of 2^50 bytes": record(headers=[(b"a", b"1")], name_size=1 << 50),
    "header without a name": record(headers=[(b"", b"1")], name_size=-1),
    "a number that does not end": b"\x14" + b"\xff" * 10,
    "a number of 70 bits": b"\x18\0\0\0" + b"\x80" * 10 + b"\1" + b"\0" * 5,
}
_ONLY_INSIDE = {
    name for name in _WRONG if name.split()[0] in {"key", "value", "header's", "header"}
    or "headers" in name or "header of" in name or "70 bits" in name
}  # fmt: skip


@pytest.mark.parametrize("codec", [hostile.NONE, hostile.ZSTD])
@pytest.mark.parametrize("name", _WRONG)
@pytest.mark.parametrize("made", [stamped, transforming, plain])
def test_no_length_is_trusted(name, codec, made):
    """A record is damage if any of its sizes does not fit it; the batch before is
    copied, and the result says where to continue. If bytes are copied unchanged, only
    the record's own size is checked.
    """
    if made is plain and name in _ONLY_INSIDE:
        return
    bad = stored(hostile.packed(_WRONG[name], codec), base=3, attributes=codec)
    good = stored(
        hostile.packed(b"".join(record(delta=n) for n in range(3)), codec),
        count=3,
        attributes=codec,
    )
    behind = data(4, 1)
    buffer, found = read(good, bad, behind)
    done = made().rewrite(buffer, found.rows, position=0, max_bytes=_HUGE, at=("t", 0))
    assert offsets(done) == [0, 1, 2]
    assert 3 in {done.stopped_at, found.next_offset}
    with pytest.raises(CorruptBatchError, match="offset 3"):
        rewrite(made(), bad, behind)


@pytest.mark.parametrize("codec", [hostile.NONE, hostile.LZ4])
@pytest.mark.parametrize(
    "name",
    sorted(
        _WRONG.keys() - {"3 headers of 2"} - {n for n in _ONLY_INSIDE if "header" in n}
    ),
)
def test_our_own_topics_are_read_as_carefully(name, codec):
    """The reader of progress and offset map finds the same damage."""
    bad = stored(hostile.packed(_WRONG[name], codec), base=3, attributes=codec)
    if len(bad) < hostile.HEADER_SIZE + 7:
        return  # seen by its header
    buffer, found = read(bad, data(4, 1))
    with pytest.raises(CorruptBatchError, match="offset 3"):
        list(records.decode(buffer, found.rows))
    with pytest.raises(CorruptBatchError, match="offset 3"):
        list(listing.listed(buffer, found.rows))


@pytest.mark.parametrize("made", [stamped, transforming, plain])
@pytest.mark.parametrize(
    "deltas", [(0, 0), (1, 0), (0, 2), (-1, 0), (0, 1 << 40), (0, -(1 << 62))]
)
def test_offsets_outside_a_batch_are_damage(made, deltas):
    """Records whose offsets do not rise within their batch would make the offset map
    wrong: they are not copied.
    """
    section = b"".join(record(delta=delta) for delta in deltas)
    with pytest.raises(CorruptBatchError, match=r"offset 10 is damaged: .*offsets"):
        rewrite(made(), stored(section, count=2, base=10))


@pytest.mark.parametrize("made", [stamped, transforming, plain])
def test_bytes_behind_the_last_record_are_damage(made):
    """A batch with bytes after its last record is damage."""
    with pytest.raises(CorruptBatchError, match=r"offset 0 is damaged: .*counts"):
        rewrite(made(), stored(record() + record(delta=1), count=1, last_delta=1))


@pytest.mark.parametrize(
    "wrong",
    [
        {"count": -1},
        {"count": 2, "last_delta": 0},
        {"count": 3, "last_delta": 5},
        {"last_delta": -1},
        {"last_delta": -1, "count": 0},
        {"last_delta": -(1 << 31)},
        {"base": -1},
        {"base": (1 << 63) - 1},
        {"length": 48},
        {"length": -1},
        {"length": -(1 << 31)},
        {"count": (1 << 31) - 1, "last_delta": (1 << 31) - 2},
    ],
    ids=str,
)
def test_a_header_that_cannot_be_right_is_damage(wrong):
    """Sizes, counts and offsets of a header that contradict each other are refused
    before anything is read or allocated; batches before it are read.
    """
    bad = stored(record(), **{"base": 3, **wrong})
    with pytest.raises(CorruptBatchError, match="damaged"):
        read(bad)
    _, found = read(data(0, 3), bad)
    assert found.next_offset == 3


def test_a_batch_that_goes_back_is_damage():
    """Offsets of a log only rise: a batch that goes back is not copied again."""
    _, found = read(data(0, 3), data(2, 3))
    assert found.next_offset == 3


def test_a_count_makes_no_room():
    """A compressed batch that claims 2^31 - 1 records takes no memory for them."""
    most = (1 << 31) - 1
    bad = stored(
        hostile.packed(record(), hostile.ZSTD), count=most, attributes=hostile.ZSTD
    )
    buffer, found = read(bad)
    with pytest.raises(CorruptBatchError, match="offset 0"):
        list(records.decode(buffer, found.rows))
    with pytest.raises(CorruptBatchError, match="offset 0"):
        list(listing.listed(buffer, found.rows))


@pytest.mark.parametrize("codec", sorted(hostile.PACK))
@pytest.mark.parametrize("size", [300, 1 << 20])
def test_no_codec_unpacks_more_than_it_may(codec, size):
    """The limit is exact, and the reason names the setting and its value."""
    section = memoryview(hostile.packed(bytes(size), codec))
    assert len(codecs.decompress(codec, section, most=size)) == size
    with pytest.raises(CorruptBatchError, match=f"max_unpacked_bytes.*{size - 1}"):
        codecs.decompress(codec, section, most=size - 1)


def test_snappy_without_a_frame_is_bounded_too():
    """A bare block states its size at its start, which is checked first."""
    section = memoryview(hostile.snappy.compress(bytes(1 << 20)))
    assert codecs.decompress(hostile.SNAPPY, section) == bytes(1 << 20)
    with pytest.raises(CorruptBatchError, match="max_unpacked_bytes"):
        codecs.decompress(hostile.SNAPPY, section, most=1 << 19)
    giant = memoryview(b"\xff\xff\xff\xff\x0f" + bytes(10))
    with pytest.raises(CorruptBatchError, match="max_unpacked_bytes"):
        codecs.decompress(hostile.SNAPPY, giant)


def test_a_zstd_frame_gets_no_giant_window():
    """A frame of a few bytes that asks for a window of 2 GiB is refused."""
    frame = bytearray(hostile.PACK[hostile.ZSTD](bytes(1 << 20)))
    assert not frame[4] & 0x20  # a window is told
    frame[5] = 21 << 3  # 2^(10 + 21) bytes
    with pytest.raises(CorruptBatchError, match="zstd"):
        codecs.decompress(hostile.ZSTD, memoryview(frame))


@pytest.mark.parametrize("made", [stamped, transforming])
@pytest.mark.parametrize("codec", sorted(hostile.PACK))
def test_a_bomb_holds_up_what_follows_alone(made, codec):
    """The error of a batch above the limit names its offset and the setting; the
    records before it are copied first.
    """
    bomb = record(value=bytes(2 << 20))
    good = data(0, 3)
    bad = stored(hostile.packed(bomb, codec), base=3, attributes=codec)
    rewriter = made(most_unpacked=1 << 20)
    done = rewrite(rewriter, good, bad)
    assert (offsets(done), done.stopped_at) == ([0, 1, 2], 3)
    reason = f"offset 3.*max_unpacked_bytes, which is {1 << 20}"
    with pytest.raises(CorruptBatchError, match=reason):
        rewrite(rewriter, bad)
    assert offsets(rewrite(made(), bad)) == [3]


@pytest.mark.parametrize("made", [stamped, transforming])
def test_many_batches_that_grow_are_done_one_after_the_other(made):
    """A few kilobytes that unpack to 320 MiB are not unpacked at once: the rewriter
    stops between batches, and continues there without losing or repeating a record.
    """
    section = hostile.packed(record(value=bytes(16 << 20)), hostile.ZSTD)
    batches = [
        stored(section, base=number, attributes=hostile.ZSTD) for number in range(20)
    ]
    found: list[int] = []
    rounds = 0
    rewriter = made()
    while len(found) < 20:
        rewriter.begin()
        done = rewrite(rewriter, *batches[len(found) :], position=len(found))
        assert done.unpacked < 100 << 20
        found += offsets(done)
        rounds += 1
        assert done.stopped_at == (len(found) if len(found) < 20 else -1)
    assert found == list(range(20))
    assert rounds >= 4


@pytest.mark.parametrize("made", [stamped, transforming])
def test_one_batch_that_grows_is_made_in_parts(made):
    """A batch that unpacks to 100 MiB and is sent uncompressed is written about 32 MiB
    at a time; the next call continues within it and loses or repeats nothing.
    """
    noise = np.random.default_rng(1).bytes(1 << 20)
    section = b"".join(record(value=noise, delta=n) for n in range(100))
    whole = stored(
        hostile.packed(section, hostile.ZSTD), count=100, attributes=hostile.ZSTD
    )
    rewriter = made()
    rewriter._codec = codecs.NONE
    found: list[int] = []
    while len(found) < 100:
        rewriter.begin()
        done = rewrite(rewriter, whole, position=len(found))
        assert done.made < 48 << 20
        found += offsets(done)
    assert found == list(range(100))


def test_large_buffers_are_not_kept():
    """The buffer for one giant record is released with the next transaction."""
    section = hostile.packed(record(value=bytes(64 << 20)), hostile.ZSTD)
    rewriter = stamped()
    done = rewrite(rewriter, stored(section, attributes=hostile.ZSTD))
    assert offsets(done) == [0]
    rewriter.begin()
    kept = [rewriter._unpacked, *rewriter._outputs]
    assert sum(each.size for each in kept) < 32 << 20


def test_times_count_from_a_delete_horizon():
    """If the cleaner has noted when it may remove tombstones, that is the header's base
    time, and records' times are relative to it: Kafka's own DefaultRecordBatch reads
    them so. The oldest record's time is reported, relayed or rewritten.
    """
    horizon, times = 5_000_000, [1000, 1010, 2000]
    section = b"".join(
        record(delta=n, time=time - horizon, value=b"v" * (12 << 10))
        for n, time in enumerate(times)
    )
    whole = stored(
        section, count=3, attributes=DELETE_HORIZON, base_time=horizon, newest=2000
    )
    for made in (stamped(), plain(), transforming()):
        done = rewrite(made, whole)
        assert done.oldest == 1000
        assert done.newest == 2000
        (each,) = done.batches
        base, newest = struct.unpack_from(">qq", each.header, 27)
        assert (base, newest) == (1000, 2000)
        assert not each.header[22] & DELETE_HORIZON
        buffer = buffer_of(bytes(each.header) + bytes(each.body))
        rows = np.array([[0, len(buffer), 0, 2, 3, 0, base, newest, -1]], np.int64)
        ((_, places, *_),) = listing.listed(buffer, rows)
        assert places[:, 1].tolist() == times


def test_a_stop_has_the_epoch_of_the_record_before_it():
    """If only part of an answer is done, the position's leader epoch is that of the
    batch with the record before it, markers included; after a hole left by cleaning,
    the position is the start of the hole.
    """
    parts = (
        data(0, 3, leader_epoch=3, producer=9),
        hostile.marker(3, 9, commit=True, leader_epoch=4),
        data(4, 3, leader_epoch=6),
        data(20, 3, leader_epoch=8),
    )
    buffer, found = read(*parts)
    assert (found.next_offset, found.leader_epoch) == (23, 8)
    assert found.until(buffer, 2) == (2, 3)
    assert found.until(buffer, 3) == (3, 3)
    assert found.until(buffer, 4) == (4, 4)
    assert found.until(buffer, 5) == (5, 6)
    assert found.until(buffer, 20) == (7, 6)
    assert found.until(buffer, 21) == (21, 8)
    assert found.until(buffer, 0) == (0, -1)
