"""Marks of records: the same for the same record, in any batch."""

from __future__ import annotations

from kafka.record.default_records import DefaultRecordBatchBuilder
import numpy as np
import pytest

from mirror.migration import plan
from mirror.records import batch, listing, marks, to_columns

pytestmark = pytest.mark.unit

Record = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]

GZIP = 1


def _marks(
    records: list[Record], *, codec: int = 0, position: int = 0, timed: bool = True
) -> list[int]:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=codec, is_transactional=0, producer_id=-1,
        producer_epoch=-1, base_sequence=-1, batch_size=1 << 20,
    )  # fmt: skip
    for offset, (time, key, value, headers) in enumerate(records):
        builder.append(offset, time, key, value, headers)
    buffer = np.frombuffer(bytearray(builder.build()), np.uint8)
    found = batch.read(
        buffer, 0, len(buffer), position=position, aborted=(), scratch=batch.scratch()
    )
    made: list[int] = []
    for source, places, *_ in listing.listed(buffer, found.rows, position=position):
        out = np.empty(len(places), np.uint64)
        marks.mark(source, places, plan._VIA, int(timed), out)
        assert (places[:, to_columns.OFFSET] >= position).all()
        made += out.tolist()
    return made


def test_same_record_same_mark() -> None:
    """A record has one mark, however its batch is packed and whatever else it has."""
    record: Record = (1000, b"k", b"v", [("a", b"1"), ("b", None)])

    (alone,) = _marks([record])
    beside = _marks([(999, None, b"x", []), record], codec=GZIP)

    assert beside[1] == alone


def test_different_records_differ() -> None:
    """Time, key, value, null and headers with their order all count."""
    records: list[Record] = [
        (1, b"k", b"v", []),
        (2, b"k", b"v", []),
        (1, b"kv", b"", []),
        (1, b"", b"kv", []),
        (1, None, b"v", []),
        (1, b"", b"v", []),
        (1, b"k", None, []),
        (1, b"k", b"", []),
        (1, b"k", b"v", [("a", b"1")]),
        (1, b"k", b"v", [("a", None)]),
        (1, b"k", b"v", [("a", b"1"), ("b", b"2")]),
        (1, b"k", b"v", [("b", b"2"), ("a", b"1")]),
    ]

    assert len(set(_marks(records))) == len(records)


def test_what_mirror_adds_does_not_count() -> None:
    """A provenance header does not change the mark; a time only if requested."""
    plain: Record = (1, b"k", b"v", [("a", b"1")])
    stamped: Record = (1, b"k", b"v", [("a", b"1"), ("mirror.via", b"A/x")])
    later: Record = (2, b"k", b"v", [("a", b"1")])

    first, second, third = _marks([plain, stamped, later], timed=False)

    assert first == second == third
    assert len(set(_marks([plain, stamped, later]))) == 2


def test_from_a_position_on() -> None:
    """If a batch begins before the position, only the records from there are listed."""
    records: list[Record] = [(n, b"%d" % n, b"v", []) for n in range(5)]

    assert _marks(records, position=3) == _marks(records)[3:]
