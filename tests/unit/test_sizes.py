"""What mirror writes for very many partitions at once, in batches that any topic
accepts.

Batches are read back as a broker would store them, by the code that reads progress.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
import uuid

from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from mirror.copying.transaction import PendingTransaction, TransactionRecords
from mirror.migration import mirrormaker
from mirror.offsets import progress, runs
from mirror.offsets.progress import Position
from mirror.offsets.runs import Block
from mirror.pairs import losses
from mirror.pairs.losses import Cause, Loss
from mirror.records import batch, records

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mirror.clusters.wire.produce import EncodedBatch

pytestmark = pytest.mark.unit

_ANY_TOPIC_TAKES = 300_000
"""Less than a third of what brokers allow a batch by default."""
_TOPIC_ID = uuid.UUID(int=17)


def _name(number: int) -> str:
    return f"{number:040}"


def _stored(batches: Sequence[EncodedBatch]) -> bytearray:
    """A log of these batches."""
    log = bytearray()
    offset = 0
    for each in batches:
        whole = each.header + bytes(each.body)
        whole[:8] = offset.to_bytes(8, "big")
        whole[17:21] = crc32c(bytes(whole[21:])).to_bytes(4, "big")
        log += whole
        offset += each.count
    return log


def _pairs(batches: Sequence[EncodedBatch]) -> Iterator[tuple[int, bytes, bytes]]:
    """What a reader of the topic finds."""
    log = np.frombuffer(_stored(batches), np.uint8)
    found = batch.read(
        log, 0, len(log), position=0, aborted=(), scratch=batch.scratch()
    )
    assert found.next_offset == sum(each.count for each in batches)
    return records.decode(log, found.rows)


def _loss(number: int) -> Loss:
    return Loss(
        at=1_700_000_000.0,
        flow="A->B",
        topic=_name(number),
        partition=number,
        target_topic=f"A.{_name(number)}",
        cause=Cause.DELETED,
        first=number,
        last=number + 10**9,
        topic_id=_TOPIC_ID.hex,
    )


@given(st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=60))),
       st.integers(61, 400))  # fmt: skip
def test_batches_stay_below_their_bound(
    pairs: list[tuple[bytes, bytes]], most: int
) -> None:
    """Records come back in order from batches of at most the requested size, unless a
    single record is larger; what fits into one batch is one batch.
    """
    batches = records.encode_all(pairs, most)
    assert [pair for _, *pair in _pairs(batches)] == [list(pair) for pair in pairs]
    assert all(each.size <= most or each.count == 1 for each in batches)
    assert len(records.encode_all(pairs)) == bool(pairs)


def test_progress_of_a_hundred_thousand_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The positions of 100,000 topics with long names fit into batches that any topic
    accepts, and a reader finds each of them unchanged.
    """
    positions = {
        (_name(number), number): Position(
            offset=number << 20, leader_epoch=number, topic_id=uuid.UUID(int=number)
        )
        for number in range(100_000)
    }
    batches = progress.encode(positions)
    assert max(each.size for each in batches) <= _ANY_TOPIC_TAKES

    class Log:
        start = 0

        def __init__(self, *_: object, **__: object) -> None:
            pass

        def read(self, **_: object) -> Iterator[tuple[int, bytes, bytes]]:
            return _pairs(batches)

    monkeypatch.setattr(progress, "TopicReader", Log)
    target: Any = None
    assert progress.read(target, "progress").positions == positions


def test_ten_thousand_losses() -> None:
    """That many at once fit into batches that any topic accepts; none is missing."""
    wanted = [_loss(number) for number in range(10_000)]
    batches = losses.encode(wanted)
    assert max(each.size for each in batches) <= _ANY_TOPIC_TAKES
    found = [Loss.decode(value) for _, _, value in _pairs(batches)]
    assert found == wanted


def test_the_map_of_twenty_thousand_topics() -> None:
    """The runs that one transaction writes for that many topics, one run each, and for
    one topic with 100,000 runs, fit into batches that any topic accepts.
    """
    blocks = [
        Block(
            topic=_name(number),
            partition=0,
            target_topic=f"A.{_name(number)}",
            topic_id=_TOPIC_ID,
            runs=np.array([[number, number, 1]] * (100_000 if number == 5 else 1)),
        )
        for number in range(20_000)
    ]
    values = runs.encode(blocks)
    assert max(map(len, values)) <= _ANY_TOPIC_TAKES
    found: dict[str, int] = {}
    for value in values:
        for block in runs.decode(value):
            found[block.topic] = found.get(block.topic, 0) + len(block.runs)
    assert found == {each.topic: len(each.runs) for each in blocks}


def test_records_of_a_large_transaction_and_of_a_small_one() -> None:
    """The records of a transaction with 10,000 partitions are in batches that any topic
    accepts; a small one still writes one batch to each of its topics.
    """
    own = TransactionRecords.for_source("A", ".")
    rewriter: Any = None
    for count in (1, 10_000):
        transaction = PendingTransaction(rewriter=rewriter)
        for number in range(count):
            key = (_name(number), number)
            transaction.moved[key] = Position(offset=number, topic_id=_TOPIC_ID)
            transaction.losses.append(_loss(number))
        written = {**own.placement((), transaction, {}), **own.positions(transaction)}
        assert set(written) == {own.progress, own.losses}
        for batches in written.values():
            assert sum(each.count for each in batches) == count
            assert max(each.size for each in batches) <= _ANY_TOPIC_TAKES
            assert count > 1 or len(batches) == 1


def test_positions_handed_back_to_mirrormaker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A return to MirrorMaker 2 with 20,000 partitions, whose positions are in one
    partition of its topic, writes batches that any topic accepts.
    """
    written: dict[tuple[str, int], list[EncodedBatch]] = {}

    class Noted:
        def __init__(self, *arguments: Any) -> None:
            written.update(arguments[2])

        def finish(self) -> None:
            pass

    class Nobody:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def take_over(self) -> None:
            pass

    class Target:
        def topics(self, names: list[str]) -> dict[str, Any]:
            return {name: type("Topic", (), {"partitions": 1}) for name in names}

    monkeypatch.setattr(mirrormaker, "Write", Noted)
    monkeypatch.setattr(mirrormaker, "Producer", Nobody)
    target: Any = Target()
    mirrormaker.write_positions(
        target,
        "mm2-offsets.A.internal",
        mirrormaker.KeptPositions(connector="MirrorSourceConnector", source="A"),
        {(_name(number), number): number for number in range(20_000)},
    )
    ((_, batches),) = written.items()
    assert sum(each.count for each in batches) == 20_000
    assert max(each.size for each in batches) <= _ANY_TOPIC_TAKES
