"""Messages of formats v0 and v1, as any producer may have written them, become batches.

kafka-python's own builder, which shares no code with mirror, packs what is right; what
is wrong has a right checksum, since the sender computes it.
"""

from __future__ import annotations

import random
import struct
from typing import Any
import zlib

from kafka.record.legacy_records import LegacyRecordBatchBuilder
import lz4.frame
import numpy as np
import pytest

from mirror.errors import CorruptBatchError
from mirror.records import batch, codecs, former, listing
from tests.fuzz import Guarded
from tests.harness import hostile_batches as hostile

pytestmark = pytest.mark.unit

Record = tuple[int, int, bytes | None, bytes | None]
"""Offset, time, key, value."""

LOG_APPEND_TIME = 8
RECORDS: list[Record] = [
    (10, 1_000, b"a", b"x" * 300),
    (11, 3_000, None, b"y"),
    (12, 2_000, b"gone", None),
    (13, 2_001, b"", b""),
]


def message(
    offset: int,
    key: bytes | None = b"key",
    value: bytes | None = b"value",
    *,
    version: int = 1,
    attributes: int = 0,
    time: int = 1000,
    key_size: int | None = None,
    value_size: int | None = None,
    size: int | None = None,
) -> bytes:
    """One message with a right checksum; the sizes replace the right ones."""
    body = struct.pack(">bb", version, attributes)
    if version:
        body += struct.pack(">q", time)
    for data, wrong in ((key, key_size), (value, value_size)):
        right = -1 if data is None else len(data)
        body += struct.pack(">i", right if wrong is None else wrong) + (data or b"")
    body = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", offset, len(body) if size is None else size) + body


def wrapper(offset: int, *inner: bytes, codec: int = 1, **more: Any) -> bytes:
    more["attributes"] = more.get("attributes", 0) | codec
    return message(offset, None, hostile.packed(b"".join(inner), codec), **more)


def built(version: int, codec: int, records: list[Record]) -> bytes:
    """As kafka-python's producer packs them, and a broker then numbers them."""
    builder = LegacyRecordBatchBuilder(version, codec, 1 << 20)
    wraps_relative = codec and version
    for number, (offset, time, key, value) in enumerate(records):
        builder.append(number if wraps_relative else offset, time, key, value)
    out = bytearray(builder.build())
    if codec:
        struct.pack_into(">q", out, 0, records[-1][0])
    return bytes(out)


def read(data: bytes, *, position: int = 0, **options: Any) -> list[Record]:
    """The records that mirror finds, by way of what it makes of them."""
    given = np.frombuffer(bytearray(b"before" + data + b"behind"), np.uint8)
    buffer, start, end = former.modern(given, 6, len(given) - 6, **options)
    found = batch.read(
        buffer, start, end, position=position, aborted=(), scratch=batch.scratch()
    )
    return [
        (
            offset,
            time,
            None if key_size < 0 else whole[key_at : key_at + key_size],
            None if value_size < 0 else whole[value_at : value_at + value_size],
        )
        for part in listing.listed(buffer, found.rows, position)
        for whole in [part.buffer.tobytes()]
        for offset, time, key_at, key_size, value_at, value_size in part.places[
            :, :6
        ].tolist()
    ]


@pytest.mark.parametrize(
    ("version", "codec"),
    [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3)],
)
def test_every_record_comes_through(version: int, codec: int) -> None:
    """Offsets, times, null and empty keys and values are those that were sent, with
    each codec that these formats know; v0 has no times.
    """
    expected = [
        (offset, time if version else -1, key, value)
        for offset, time, key, value in RECORDS
    ]
    data = built(version, codec, RECORDS)
    assert read(data) == expected
    assert read(data, position=12) == expected[2:]
    following = [(each[0] + 7, *each[1:]) for each in RECORDS]
    data += built(version, 0, following) + built(version, codec, RECORDS)[:-3]
    assert [each[0] for each in read(data)] == [10, 11, 12, 13, 17, 18, 19, 20]


def test_an_answer_without_a_whole_message() -> None:
    """Part of one message alone, with which no reader gets any further, is an error."""
    with pytest.raises(CorruptBatchError, match="no whole message in the"):
        read(message(0, b"key", b"value")[:-1])


@pytest.mark.parametrize("size", [0, 1000])
def test_frames_of_v0_have_wrong_heads(size: int) -> None:
    """Java's clients of that time wrote a wrong checksum into the head of an lz4 frame:
    it is ignored in v0, with a size in the head and without, and damage in v1.
    """
    inner = message(0, version=0)
    frame = bytearray(lz4.frame.compress(inner, store_size=bool(size)))
    frame[14 if size else 6] ^= 0x55
    data = message(0, None, bytes(frame), attributes=3, version=0)
    assert [each[0] for each in read(data)] == [0]
    with pytest.raises(CorruptBatchError, match="offset 3"):
        read(message(3, None, bytes(frame), attributes=3))


def test_batches_keep_the_codec() -> None:
    """What was packed stays packed, with the same codec: a copy is not larger."""
    data = np.frombuffer(bytearray(built(1, codecs.GZIP, RECORDS)), np.uint8)
    buffer, start, end = former.modern(data, 0, len(data))
    rows = batch.read(
        buffer, start, end, position=0, aborted=(), scratch=batch.scratch()
    ).rows
    assert (rows[:, 5] & batch.CODEC_MASK).tolist() == [codecs.GZIP]


def test_brokers_times_hold_for_all_that_a_wrapper_has() -> None:
    """With LogAppendTime the wrapper's time is that of its records, and each single
    message has its own.
    """
    inner = [message(n, time=5) for n in range(3)]
    data = wrapper(9, *inner, attributes=LOG_APPEND_TIME, time=777)
    data += message(10, attributes=LOG_APPEND_TIME, time=888) + message(11, time=5)
    assert [each[:2] for each in read(data)] == [
        (7, 777), (8, 777), (9, 777), (10, 888), (11, 5)
    ]  # fmt: skip


def test_holes_stay_holes() -> None:
    """Compaction leaves holes, in wrappers too: every record keeps its offset."""
    data = message(3) + message(9)
    data += wrapper(20, message(2), message(5), message(6))
    assert [each[0] for each in read(data)] == [3, 9, 16, 19, 20]


def test_newer_batches_follow() -> None:
    """A log that was upgraded goes on in v2: the next fetch begins there."""
    newer = hostile.stored(hostile.record(), base=5)
    assert [each[0] for each in read(message(4) + newer)] == [4]
    assert [each[0] for each in read(newer + message(6))] == [5]


_BAD = {
    "a wrong checksum": message(3)[:-1] + b"!",
    "a key of 2^31 - 1 bytes": message(3, key_size=(1 << 31) - 1),
    "a key of size -2": message(3, key_size=-2),
    "a value of one byte too many": message(3, value_size=6),
    "a value of one byte too few": message(3, value_size=4),
    "a size of zero": message(3, size=0),
    "a negative size": message(3, size=-(1 << 31)),
    "an offset below zero": message(-1),
    "a wrapper of nothing": wrapper(3),
    "a wrapper without a value": message(3, None, None, attributes=1),
    "an unknown codec": message(3, attributes=5),
    "what is not of its codec": message(3, attributes=3),
    "a wrapper in a wrapper": wrapper(3, wrapper(0, message(0))),
    "another format inside": wrapper(3, message(0, version=0)),
    "bytes behind the last one": wrapper(3, message(0), b"\0" * 30),
    "a cut message inside": wrapper(3, message(0), message(1)[:-2]),
    "offsets that do not rise": wrapper(3, message(1), message(1)),
    "offsets that go back": wrapper(3, message(2), message(0)),
    "more inside than came before": wrapper(1, message(0), message(7)),
    "offsets beyond the wrapper": wrapper(3, message(9, version=0), version=0),
    "offsets short of the wrapper": wrapper(3, message(1, version=0), version=0),
    "offsets that wrap around": wrapper(3, message((1 << 63) - 1), message(-(1 << 63))),
    "a wrong checksum inside": wrapper(3, message(0)[:-1] + b"!"),
}


@pytest.mark.parametrize("name", _BAD)
def test_nothing_is_trusted(name: str) -> None:
    """A message whose sizes, offsets or checksums cannot be right is damage; those
    before it in the answer are read.
    """
    behind = message(8)
    if "below zero" not in name:
        assert [each[0] for each in read(message(0) + _BAD[name] + behind)] == [0]
    with pytest.raises(CorruptBatchError, match=r"offset (3|1|-1)"):
        read(_BAD[name] + behind)


@pytest.mark.parametrize("codec", [1, 2, 3])
def test_a_bomb_is_bounded(codec: int) -> None:
    """A wrapper unpacks to no more than is allowed, exactly, and the reason names the
    setting.
    """
    inner = message(0, value=bytes(1 << 20))
    data = wrapper(3, inner, codec=codec)
    assert [each[0] for each in read(data, most=len(inner))] == [3]
    with pytest.raises(CorruptBatchError, match=r"offset 3.*max_unpacked_bytes"):
        read(data, most=len(inner) - 1)


def test_much_is_made_in_parts() -> None:
    """A small answer that unpacks to 96 MiB is worked on some wrappers at a time, and
    every record comes in the end.
    """
    inner = message(0, value=bytes(12 << 20))
    each = wrapper(0, inner, codec=hostile.LZ4)
    data = b"".join(struct.pack(">q", n) + each[8:] for n in range(8))
    found: list[int] = []
    rounds = 0
    while len(found) < 8:
        more = [offset for offset, *_ in read(data, position=len(found))]
        assert more
        found += more
        data = data[len(more) * len(each) :]
        rounds += 1
    assert found == list(range(8))
    assert rounds >= 2


def test_whatever_is_changed_is_read_or_damage() -> None:
    """Of 2,000 answers with changed bytes, sizes and ends, none makes the kernel read
    behind its memory, which ends at an unreadable page, and offsets always rise.
    """
    choice = random.Random(1)
    guarded = Guarded()
    whole = [built(version, codec, RECORDS) for version in (0, 1) for codec in (0, 1)]
    whole += [wrapper(9, *map(message, range(3))), *_BAD.values()]
    for _ in range(2000):
        data = bytearray(choice.choice(whole) + choice.choice(whole))
        for _ in range(choice.randint(1, 3)):
            at = choice.randrange(len(data) - 4)
            change = choice.choice([b"\0", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff"])
            data[at : at + len(change)] = change
        del data[choice.randrange(17, len(data)) :]
        end = 12 + min(max(struct.unpack_from(">i", data, 8)[0], 4), len(data))
        struct.pack_into(">I", data, 12, zlib.crc32(data[16:end]))
        try:
            buffer, start, end = former.modern(guarded.holding(data), 0, len(data))
            found = batch.read(
                buffer, start, end, position=0, aborted=(), scratch=batch.scratch()
            )
            parts = [each.places[:, 0] for each in listing.listed(buffer, found.rows)]
        except CorruptBatchError:
            continue
        assert (np.diff(np.concatenate([[-1], *parts])) > 0).all()
