"""Batches and their checksums: a compiled one for small batches, the library's for
others, and one that is put together of those of a batch's parts.
"""

from __future__ import annotations

from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from mirror.clusters.wire.checksum import joined
from mirror.errors import CorruptBatchError
from mirror.records import batch, records, scan
from tests.harness import hostile_batches as hostile

pytestmark = pytest.mark.unit

values = st.lists(st.binary(max_size=1500), min_size=1, max_size=6)


def stored(value: bytes, offset: int) -> bytearray:
    """One batch of one record, as a broker stores it."""
    return bytearray(hostile.stored(hostile.record(value=value), base=offset))


def read(log: bytes | bytearray) -> batch.Batches:
    buffer = np.frombuffer(bytearray(log), np.uint8)
    return batch.read(
        buffer, 0, len(log), position=0, aborted=(), scratch=batch.scratch()
    )


@given(st.binary(max_size=2000))
def test_the_compiled_sum_is_the_library_s(data: bytes) -> None:
    """Any bytes after a header have the CRC-32C that crc32c computes."""
    log = bytearray(bytes(17) + crc32c(data).to_bytes(4, "big") + data)
    rows = np.zeros((1, scan.COLUMNS), np.int64)
    rows[0, scan.SIZE] = len(log)
    buffer = np.frombuffer(log, np.uint8)
    tables = scan.crc_tables()
    assert scan.first_damaged(buffer, rows, tables, len(log)) == 1
    if data:
        buffer[-1] ^= 1
        assert scan.first_damaged(buffer, rows, tables, len(log)) == 0


@given(values, st.data())
def test_batches_before_a_damaged_one_are_read(
    contents: list[bytes], data: st.DataObject
) -> None:
    """One flipped bit anywhere in a batch ends the reading right before that batch,
    large or small; in the first batch it is an error.
    """
    batches = [stored(value, offset) for offset, value in enumerate(contents)]
    assert read(b"".join(batches)).next_offset == len(contents)
    hit = data.draw(st.integers(0, len(batches) - 1))
    # Behind the length, which says where the next batch begins, and the magic byte.
    at = data.draw(st.integers(17, len(batches[hit]) - 1))
    batches[hit][at] ^= 1 << data.draw(st.integers(0, 7))
    if hit:
        assert read(b"".join(batches)).next_offset == hit
        return
    with pytest.raises(CorruptBatchError, match="offset 0 is damaged"):
        read(b"".join(batches))


@pytest.mark.parametrize("size", [1, 16, 17, 60, -1])
def test_an_answer_without_a_whole_batch(size: int) -> None:
    """Part of a batch alone, with which no reader gets any further, is an error that
    names the offset; before it, whole ones are read.
    """
    log = stored(b"first", 0)
    part = stored(b"second", 1)[:size]
    assert read(bytes(log) + bytes(part)).next_offset == 1
    with pytest.raises(CorruptBatchError, match=f"no whole batch in the {len(part)}"):
        read(part)


@given(values, st.integers(0, 400), st.booleans())
def test_where_batches_lead_to_is_seen_beforehand(
    contents: list[bytes], cut: int, damaged: bool
) -> None:
    """Without checking checksums, `leads_to` returns how far the whole batches reach,
    and the leader epoch of the last; a batch of an old format ends them.
    """
    batches = [stored(value, offset) for offset, value in enumerate(contents)]
    for number, each in enumerate(batches):
        each[12:16] = number.to_bytes(4, "big")
    if damaged:
        batches[-1][16] = 1
    whole = len(contents) - damaged
    log = b"".join(bytes(each) for each in batches)
    if not damaged:
        cut = min(cut, len(batches[-1]) - 1)
        whole -= cut > 0
        log = log[: len(log) - cut]
    expected = (whole, whole - 1) if whole else (-1, -1)
    buffer = np.frombuffer(bytearray(b"head" + log), np.uint8)
    found = batch.leads_to(buffer, 4, len(buffer), scratch=batch.scratch())
    assert found == expected


def _control(key: bytes, offset: int) -> bytearray:
    """A control batch; the key says how a transaction ended."""
    attributes = batch.CONTROL | batch.TRANSACTIONAL
    section = hostile.record(key, b"")
    return bytearray(hostile.stored(section, base=offset, attributes=attributes))


def test_what_stands_behind_a_damaged_marker_is_not_counted() -> None:
    """A good marker counts as left out; a damaged one, and what follows it, is not read
    and not counted.
    """
    found = read(
        stored(b"value", 0)
        + _control(b"\0\0\0\1", 1)
        + stored(b"value", 2)
        + _control(b"\0", 3)
        + stored(b"value", 4)
    )

    assert found.rows[:, scan.BASE].tolist() == [0, 2]
    assert (found.next_offset, found.skipped) == (3, 1)


def test_batches_outlast_the_next_reading() -> None:
    """Rows stay as they are when their scratch array is used again."""
    scratch = batch.scratch()

    def read_at(offset: int) -> batch.Batches:
        log = stored(b"value", offset)
        buffer = np.frombuffer(log, np.uint8)
        return batch.read(
            buffer, 0, len(log), position=offset, aborted=(), scratch=scratch
        )

    first, second = read_at(5), read_at(9)

    assert first.rows[:, scan.BASE].tolist() == [5]
    assert second.rows[:, scan.BASE].tolist() == [9]


@given(st.binary(max_size=100), st.binary(max_size=3000))
def test_the_sum_of_two_parts(first: bytes, second: bytes) -> None:
    """Any two parts, also empty ones, have the CRC-32C that the library computes of
    both at once.
    """
    assert joined(crc32c(first), crc32c(second), len(second)) == crc32c(first + second)


@pytest.mark.parametrize("size", [(1 << 20) - 1, 1 << 20, (16 << 20) + 61])
def test_the_sum_of_large_bodies(size: int) -> None:
    """This holds for large bodies, too."""
    body = bytes(range(251)) * (size // 251 + 1)
    body = body[:size]
    assert joined(crc32c(b"header"), crc32c(body), size) == crc32c(b"header" + body)


def test_a_batch_has_the_same_sum_either_way() -> None:
    """A batch whose body already has a checksum is stamped like any other."""
    batches = [records.encode([(b"key", b"value" * 5000)]) for _ in range(2)]
    batches[1].header[:] = batches[0].header
    batches[1].body_sum = crc32c(batches[1].body)
    for each in batches:
        each.stamp(7, 3, 11, transactional=True)
    assert batches[0].header == batches[1].header
