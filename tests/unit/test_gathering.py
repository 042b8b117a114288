"""Runs that are taken out of many records of the map at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
import uuid

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from mirror.offsets import runs
from mirror.offsets.runs import Block, gather

if TYPE_CHECKING:
    from collections.abc import Iterable

pytestmark = pytest.mark.unit

ONE, OTHER = uuid.UUID(int=1), uuid.UUID(int=2)
Found = list[tuple[int, str, int, list[list[int]], bool]]


def block(
    *found: tuple[int, int, int], topic: str = "t", partition: int = 0, **ids: Any
):
    return Block(
        topic=topic, partition=partition, target_topic=f"A.{topic}",
        **{"topic_id": ONE, "copy_id": ONE, **ids},
        runs=np.array(found, np.int64).reshape(-1, 3),
    )  # fmt: skip


def record(at: int, *blocks: Block) -> tuple[int, bytes, bytes]:
    (value,) = runs.encode(blocks)
    return at, b"", value


def gathered(records: Iterable[tuple[int, bytes, bytes]]) -> Found:
    return [
        (at, each.topic, each.partition, each.runs.tolist(), late)
        for at, each, late in gather([records])
    ]


def test_transactions_in_a_row_are_one_block_of_each_partition() -> None:
    """It stands where the first of them stands; runs that go on without a hole are one
    run.
    """
    found = gathered(
        [
            record(3, block((0, 0, 2), partition=0), block((5, 5, 1), partition=1)),
            record(5, block((2, 2, 2), partition=0)),
            record(7, block((9, 9, 1), partition=0), block((6, 7, 1), partition=1)),
        ]
    )

    assert found == [
        (3, "t", 0, [[0, 0, 4], [9, 9, 1]], False),
        (3, "t", 1, [[5, 5, 1], [6, 7, 1]], False),
    ]


def test_long_records_stay_apart() -> None:
    """A question about an old offset reads no more than two records of many runs."""
    many = [(2 * n, 2 * n, 1) for n in range(3000)]
    next_many = [(up + 6000, down + 6000, 1) for up, down, _ in many]
    last = [(up + 12000, down + 12000, 1) for up, down, _ in many]

    found = gathered(
        record(at, block(*some)) for at, some in ((0, many), (2, next_many), (4, last))
    )

    assert [at for at, *_ in found] == [0, 4]


@pytest.mark.parametrize(
    "other",
    [
        block((4, 2, 1)),
        block((1, 9, 1)),
        block((5, 9, 1), topic_id=OTHER),
        block((5, 9, 1), copy_id=OTHER),
    ],
    ids=["the copy lost its end", "copied again", "another topic", "another copy"],
)
def test_what_may_begin_another_epoch_keeps_its_place(other: Block) -> None:
    """So a place of the epoch before it ends where the other one begins."""
    found = gathered(
        [record(0, block((0, 0, 4))), record(2, other), record(4, block((20, 20, 1)))]
    )

    assert [at for at, *_ in found][:2] == [0, 2]
    assert found[0][3] == [[0, 0, 4]]


def test_a_batch_stays_together() -> None:
    """Two records of one batch have one place: both sides of a topic that was
    re-created in the middle of a transaction are in it, in their order.
    """
    found = gathered(
        [
            record(0, block((0, 0, 1))),
            record(4, block((1, 1, 1))),
            record(4, block((0, 2, 1), topic_id=OTHER)),
        ]
    )

    assert [(at, rows) for at, _, _, rows, _ in found] == [
        (0, [[0, 0, 1]]),
        (4, [[1, 1, 1]]),
        (4, [[0, 2, 1]]),
    ]


def test_late_records_come_where_they_stand() -> None:
    """What the map says after a repair comes after it."""
    ((key, value),) = runs.encode_late([block((1, 8, 1))])

    found = gathered(
        [record(0, block((0, 0, 1))), (2, key, value), record(4, block((3, 9, 1)))]
    )

    assert [(at, late) for at, *_, late in found] == [(0, False), (2, True), (4, False)]


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.sampled_from("tu"), st.integers(0, 2), st.integers(-2, 3),
                st.sampled_from([ONE, OTHER]),
            ),
            min_size=1, max_size=4, unique_by=lambda each: each[:2],
        ),
        max_size=150,
    )
)  # fmt: skip
def test_nothing_is_lost_or_moved(written: list[list[Any]]) -> None:
    """The runs of each partition are those of the records, in their order, whatever
    falls or changes its id; and no block stands behind its first record.
    """
    ends: dict[tuple[str, int], int] = {}
    records, wanted, firsts = [], {}, {}
    for number, parts in enumerate(written):
        some = []
        for topic, partition, step, topic_id in parts:
            begin = max(ends.get((topic, partition), 0) + step, 0)
            ends[topic, partition] = begin + 1
            key = (topic, partition)
            offsets = wanted.setdefault(key, [])
            firsts[key, len(offsets)] = 2 * number
            offsets.append((begin, topic_id))
            some.append(
                block((begin, begin, 1), topic=topic, partition=partition,
                      topic_id=topic_id)
            )  # fmt: skip
        for topic, topic_id in {(each.topic, each.topic_id) for each in some}:
            same = [b for b in some if (b.topic, b.topic_id) == (topic, topic_id)]
            records.append(record(2 * number, *same))

    found: dict[tuple[str, int], list[tuple[int, uuid.UUID]]] = {}
    for at, each, _ in gather([records]):
        key = (each.topic, each.partition)
        offsets = found.setdefault(key, [])
        assert at <= firsts[key, len(offsets)]
        for up, _, count in each.runs.tolist():
            offsets += [(up + n, each.topic_id) for n in range(count)]

    assert found == wanted


@given(
    runs_before=st.integers(1, 3),
    runs_after=st.integers(1, 3),
    cut=st.integers(0, 30),
    more=st.binary(max_size=30),
    flip=st.integers(0, 200),
    bits=st.integers(0, 255),
)
def test_a_value_that_begins_alike_is_read_as_any_other(
    runs_before: int, runs_after: int, cut: int, more: bytes, flip: int, bits: int
) -> None:
    """What is taken from a value because the one before began like it is what reading
    all of it gives; also if it is cut off, goes on, or has a changed byte.
    """
    _, _, before = record(0, block(*((n, n, 1) for n in range(runs_before))))
    _, _, plain = record(1, block(*((n, n, 1) for n in range(9, 9 + runs_after))))
    (entry,) = runs.entries(before)
    after = bytearray(plain[: len(plain) - cut] + more)
    if flip < len(after):
        after[flip] ^= bits

    found = entry.following(before, bytes(after))

    assert found is None or [found] == list(runs.entries(bytes(after)))
    assert bytes(after) != plain or found is not None
