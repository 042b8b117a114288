"""Records through Arrow, a function and back, against kafka-python's own encoder.

`kafka.record` builds the input and decodes the output, as in `test_rewrite`, whose
models are used here too.
"""

from __future__ import annotations

import itertools
import struct

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pyarrow as pa
import pytest

from mirror.config.schema import FlowConfig
from mirror.copying import provenance, transforming
from mirror.copying.transform import Transform
from mirror.copying.transforming import TransformingRewriter
from mirror.errors import CorruptBatchError, TransformError
from mirror.records import codecs, to_columns
from mirror.records.arrow import Decoder
from mirror.records.schema import SCHEMA
from tests.unit.test_rewrite import (
    GZIP,
    HOME,
    HUGE,
    LOG_APPEND_TIME,
    LZ4,
    NONE,
    SNAPPY,
    VIA,
    ZSTD,
    Batch,
    Record,
    _batch,
    buffer_of,
    decode,
    expected_of,
    expected_offsets,
    offsets_told,
    place,
    read,
    seal,
    shown,
)

pytestmark = pytest.mark.unit

AT = ("orders", 3)


def rewriter(
    name: str = "identity",
    *,
    codec: int | None = None,
    stamps: bool = True,
    dead_letters: bool = False,
    **options: object,
) -> TransformingRewriter:
    made = (
        provenance.via(source_alias="src", source_id="SOURCE-ID", target_id="TARGET-ID")
        if stamps
        else provenance.none()
    )
    return TransformingRewriter(
        made,
        codec=codec,
        transform=Transform(f"tests.functions:{name}", options),
        dead_letters_of="src" if dead_letters else None,
    )


def run(worker: TransformingRewriter, batches: list[Batch], position: int = 0):
    buffer = buffer_of(place(batches))
    rows = read(buffer, position=position).rows
    return worker.rewrite(buffer, rows, position=position, max_bytes=HUGE, at=AT)


def vias_last(headers: list) -> list:
    """Where mirror's own headers are once a function had the others."""
    return sorted(headers, key=lambda header: header[0] == "mirror.via")


@given(
    batches=st.lists(_batch, min_size=1, max_size=8),
    base=st.sampled_from([0, 77, 1 << 40]),
    codec=st.sampled_from([None, NONE, GZIP, SNAPPY, LZ4, ZSTD]),
    stamps=st.booleans(),
    max_bytes=st.sampled_from([100, 5000, 1 << 20]),
    data=st.data(),
)
@settings(max_examples=150, deadline=None)
def test_records_survive_arrow(batches, base, codec, stamps, max_bytes, data):
    """For any records, codec and limit, and whichever records a function leaves out:
    the others stay as they were, in order, with their source offsets; including nulls,
    empty values, repeated headers, and times before the first record's.
    """
    placed = place(batches, base)
    buffer = buffer_of(placed)
    position = data.draw(st.integers(base, placed[-1].last + 1), label="position")
    offsets = expected_offsets(placed, position, stamps=stamps)
    kept = set(offsets)
    if data.draw(st.booleans(), label="filters"):
        kept = data.draw(st.sets(st.sampled_from(offsets or [0])), label="kept")
    worker = rewriter("only", codec=codec, stamps=stamps, offsets=sorted(kept))
    done = worker.rewrite(
        buffer,
        read(buffer, position=position).rows,
        position=position,
        max_bytes=max_bytes,
        at=AT,
    )
    wanted = [
        (key, value, vias_last(headers) if stamps else headers, timestamp)
        for offset, (key, value, headers, timestamp) in zip(
            offsets, expected_of(placed, position, stamps=stamps), strict=True
        )
        if offset in kept
    ]
    decoded = decode(done.batches)
    assert shown(decoded) == wanted
    assert offsets_told(done.batches) == [o for o in offsets if o in kept]
    assert sum(each.count for each in done.batches) == len(wanted)
    assert done.counts.removed == len(offsets) - len(wanted)
    assert done.counts.dead_letters == 0
    assert done.stopped_at == -1
    for (one, records), encoded in zip(decoded, done.batches, strict=True):
        assert [record.offset for record in records] == list(range(len(records)))
        assert one.max_timestamp == max(record.timestamp for record in records)
        assert encoded.size <= max_bytes or len(records) == 1
        if codec is not None:
            assert one.compression_type in {codec, NONE}
    if wanted:
        assert done.newest == max(timestamp for *_, timestamp in wanted)


@given(
    records=st.lists(_batch.map(lambda batch: batch.records), min_size=1, max_size=4),
    first=st.integers(0, 20),
    count=st.integers(0, 20),
    stamps=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_views_on_parts_are_written(records, first, count, stamps):
    """Arrays that begin in the middle of their buffers, as slices do, are read from
    where they begin.
    """
    batches = [Batch(part) for part in records]
    done = run(rewriter("sliced", first=first, count=count, stamps=stamps), batches)
    wanted = [
        (key, value, vias_last(headers) if stamps else headers, timestamp)
        for key, value, headers, timestamp in expected_of(
            place(batches), 0, stamps=stamps
        )
    ]
    assert shown(decode(done.batches)) == [
        *wanted[first : first + count],
        *wanted[first + count + 1 :],
    ]


def test_a_function_sees_the_columns_of_a_record():
    """Names, types and values are as documented, in one batch of all records of a
    partition; provenance headers are hidden.
    """
    seen: list[pa.RecordBatch] = []

    def look(batch):
        seen.append(batch)
        return batch

    records = (
        Record(key=None, value=b"", headers=(("a", None), ("a", b"1")), timestamp=7),
        Record(key=b"", value=None, headers=(VIA,), timestamp=-1, gap=4),
    )
    run(rewriter("answers", what=look), [Batch(records), Batch(records)])
    (batch,) = seen
    batch.validate(full=True)
    assert batch.schema == SCHEMA
    first, second, *_ = batch.to_pylist()
    assert [field.name for field in batch.schema] == [
        *("topic", "partition", "offset", "timestamp", "key", "value", "headers")
    ]
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [7, -1, 7, -1]
    assert batch.column("offset").to_pylist() == [0, 5, 6, 11]
    assert {key: first[key] for key in ("topic", "partition", "key", "value")} == {
        "topic": "orders",
        "partition": 3,
        "key": None,
        "value": b"",
    }
    assert first["headers"] == [
        {"key": "a", "value": None},
        {"key": "a", "value": b"1"},
    ]
    assert (second["key"], second["value"], second["headers"]) == (b"", None, [])


def test_masked_columns_are_written():
    """Changed values, headers and times arrive; provenance headers follow them
    nevertheless.
    """
    records = (
        Record(key=b"k", value=b"secret", headers=(("a", b"1"),), timestamp=5_000_000),
        Record(key=None, value=None, headers=(VIA, ("b", None)), timestamp=3_600_000),
        Record(key=b"", value=b"", headers=(HOME,)),
    )
    done = run(rewriter("masks"), [Batch(records, ZSTD)])
    assert shown(decode(done.batches)) == [
        (b"k", b"6", [VIA], 3_600_000),
        (None, None, [VIA, VIA], 3_600_000),
    ]
    assert done.counts.looped == 1


def test_heartbeats_are_not_for_functions():
    """Heartbeats are copied unchanged, whatever prefix they have."""
    flow = FlowConfig.model_validate(
        {"source": "A", "target": "B", "transform": "tests.functions:masks"}
    )
    (worker,) = transforming.rewriters(flow, provenance.none(), codec=None, count=1)
    placed = place([Batch((Record(key=b"k", value=b"beat"),) * 3)])
    buffer = buffer_of(placed)
    for topic, value in (
        ("heartbeats", b"beat"),
        ("C.heartbeats", b"beat"),
        ("heartbeats-of-mine", b"4"),
    ):
        done = worker.rewrite(
            buffer, read(buffer).rows, position=0, max_bytes=HUGE, at=(topic, 0)
        )
        assert [v for _, v, *_ in shown(decode(done.batches))] == [value] * 3


def test_a_table_and_a_method_will_do():
    """A function may be a method and return a table, in other types that fit."""
    done = run(rewriter("Rules.shouts"), [Batch((Record(value=b"hey"),) * 3)])
    assert [value for _, value, *_ in shown(decode(done.batches))] == [b"hey!"] * 3


def test_everything_left_out():
    """If all records are left out no batch is sent, and they count as removed."""
    done = run(rewriter("only", offsets=[]), [Batch((Record(),) * 5, GZIP)] * 3)
    assert (done.batches, done.counts.removed) == ([], 15)


def test_more_than_a_chunk():
    """Records beyond one call's limit come in further calls, none lost or repeated."""
    calls: list[int] = []

    def count(batch):
        calls.append(batch.num_rows)
        return batch

    small = Batch((Record(value=b"v"),) * 40_000)
    large = Batch((Record(value=bytes(5 << 20)),) * 3)
    done = run(rewriter("answers", what=count, codec=NONE), [small, small, large])
    assert sum(calls) == 80_003
    assert len(calls) > 2
    assert max(calls) <= 1 << 16
    assert offsets_told(done.batches) == list(range(80_003))
    assert [len(value) for _, value, *_ in shown(decode(done.batches))][-3:] == [
        5 << 20
    ] * 3


def test_log_append_time_is_what_a_function_sees():
    """A function sees the times that consumers of the source see."""
    records = tuple(Record(timestamp=time) for time in (10, 30, 20))
    done = run(rewriter(), [Batch(records, attributes=LOG_APPEND_TIME)])
    assert [time for *_, time in shown(decode(done.batches))] == [30] * 3


# ---- Failing ------------------------------------------------------------------------


def test_a_failing_function_names_the_offsets():
    """If the first call fails, the error names the partition, the first and the last
    offset passed to the function, and one line of its error.
    """
    with pytest.raises(TransformError) as caught:
        run(rewriter("fails_on", offsets=[6]), [Batch((Record(),) * 10)], position=4)
    assert str(caught.value) == (
        "tests.functions:fails_on fails on offsets 4 to 9 of orders-3: "
        "ValueError: bad 6"
    )


def test_what_came_before_a_failure_is_copied():
    """If a later call fails, the records of earlier ones are done; the next time, the
    failure comes first.
    """
    batches = [Batch((Record(value=b"v"),) * 40_000)] * 2
    worker = rewriter("fails_on", offsets=[70_000])
    done = run(worker, batches)
    assert done.stopped_at == 1 << 16
    assert offsets_told(done.batches) == list(range(1 << 16))
    with pytest.raises(TransformError, match="offsets 65536 to 79999"):
        run(worker, batches, position=1 << 16)


@given(
    count=st.integers(1, 300),
    bad=st.sets(st.integers(0, 299), max_size=8),
    removed=st.sets(st.integers(0, 299), max_size=8),
    codec=st.sampled_from([NONE, ZSTD]),
)
@settings(max_examples=60, deadline=None)
def test_records_that_fail_become_dead_letters(count, bad, removed, codec):
    """With a dead-letter topic, exactly the records on which the function fails go
    there and say where they come from; the rest is copied in order, with source
    offsets.
    """
    records = tuple(
        Record(
            key=None if n % 5 == 0 else b"%d" % n,
            value=b"v" * n,
            headers=(("own", b"1"), VIA)[: n % 3],
            timestamp=n,
        )
        for n in range(count)
    )
    worker = rewriter(
        "fails_on", dead_letters=True, offsets=list(bad), removes=tuple(removed)
    )
    done = run(worker, [Batch(records, codec)])
    kept = [n for n in range(count) if n not in bad | removed]
    assert offsets_told(done.batches) == kept
    assert shown(decode(done.batches)) == [
        (records[n].key, records[n].value, [*records[n].headers, VIA], n) for n in kept
    ]
    dead = sorted(n for n in bad if n < count)
    assert all(each.runs is None for each in done.dead_batches)
    assert shown(decode(done.dead_batches)) == [
        (
            records[n].key,
            records[n].value,
            [
                *(header for header in records[n].headers if header != VIA),
                ("mirror.error.cluster", b"src"),
                ("mirror.error.topic", b"orders"),
                ("mirror.error.partition", b"3"),
                ("mirror.error.offset", b"%d" % n),
                ("mirror.error.message", b"ValueError: bad %d" % n),
                *(header for header in records[n].headers if header == VIA),
                VIA,
            ],
            n,
        )
        for n in dead
    ]
    assert done.counts.dead_letters == len(dead)
    assert done.counts.removed == count - len(kept) - len(dead)
    assert done.stopped_at == -1


def test_looking_for_what_fails_ends_in_time(monkeypatch):
    """If the search for failing records takes too long, what was found is done and the
    rest is left for the next time; in the end everything is copied, in order.
    """
    clock = itertools.count()
    monkeypatch.setattr(transforming.time, "monotonic", lambda: next(clock) * 0.3)
    batches = [Batch(tuple(Record(value=b"%d" % n) for n in range(50)))]
    worker = rewriter("fails_on", dead_letters=True, offsets=[7, 8, 31])
    position, told, dead, rounds = 0, [], [], 0
    while position >= 0:
        worker.begin()
        done = run(worker, batches, position)
        told += offsets_told(done.batches)
        dead += [value for _, value, *_ in shown(decode(done.dead_batches))]
        assert done.stopped_at == -1 or done.stopped_at > position
        position = done.stopped_at
        rounds += 1
    assert rounds > 3
    assert dead == [b"7", b"8", b"31"]
    assert told == [n for n in range(50) if n not in {7, 8, 31}]


@pytest.mark.parametrize("codec", sorted(codecs.BY_NAME.values()))
def test_fewer_records_than_announced_are_damage(codec):
    """A batch that claims more records than it has is damage here too."""
    content = bytearray(
        place([Batch((Record(value=b"v" * 500),) * 3, codec)])[0].content
    )
    struct.pack_into(">i", content, 57, 5)
    seal(content)
    buffer = np.frombuffer(content, np.uint8)
    with pytest.raises(CorruptBatchError, match="offset 0 is damaged"):
        rewriter().rewrite(buffer, read(buffer).rows, position=0, max_bytes=HUGE, at=AT)


@given(
    data=st.data(),
    records=st.lists(
        st.builds(Record, value=st.binary(), headers=st.just((("a", b"b"),))),
        min_size=1,
        max_size=5,
    ),
)
@settings(max_examples=300, deadline=None)
def test_no_bytes_lead_out_of_a_batch(data, records):
    """Any bytes in place of records are records that fit, or damage: nothing is read
    beyond the end of a batch.
    """
    (placed,) = place([Batch(tuple(records))])
    content = bytearray(placed.content)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(61, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    buffer = np.frombuffer(content + b"\xff" * 64, np.uint8)
    count = len(records)
    sections = np.array([[61, len(content), count, 0, 0, count - 1, -1]], np.int64)
    nothing = np.empty(0, np.uint8)
    try:
        for chunk in Decoder(via=nothing, target_suffix=nothing).read(
            buffer, sections, at=AT, position=0
        ):
            chunk.batch.validate()
            for at, size in (
                (to_columns.KEY_AT, to_columns.KEY_SIZE),
                (to_columns.VALUE_AT, to_columns.VALUE_SIZE),
            ):
                ends = chunk.places[:, at] + chunk.places[:, size]
                assert (chunk.places[:, at] >= 61).all()
                assert (ends <= len(content)).all()
    except CorruptBatchError:
        return
