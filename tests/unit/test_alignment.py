"""The kernel that compares two logs, against a model that knows no order of work."""

from __future__ import annotations

from dataclasses import dataclass
import random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mirror.copying import provenance
from mirror.records import alignment, to_columns
from tests.harness import hostile_batches
from tests.unit.test_from_places import listed_of

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.unit

PROVENANCE = provenance.via(source_alias="A", source_id="a-id", target_id="b-id")
STAMP = (b"mirror.via", b"A/a-id")
Mismatches = tuple[int, int, int]
"""What, source offset, target offset."""


@dataclass(frozen=True)
class Content:
    """What a record says."""

    key: bytes | None = b"k"
    value: bytes | None = b"v"
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    time: int = 0


def _listed(log: Mapping[int, Content]) -> tuple[np.ndarray, np.ndarray]:
    if not log:
        return np.empty(0, np.uint8), np.empty((0, to_columns.PLACE_COLUMNS), np.int64)
    first = min(log)
    section = b"".join(
        hostile_batches.record(
            each.key, each.value, each.headers, delta=offset - first, time=each.time
        )
        for offset, each in sorted(log.items())
    )
    return listed_of(section, count=len(log), first=first, last_delta=max(log) - first)


def _aligned(
    source: Mapping[int, Content],
    target: Mapping[int, Content],
    runs: list[tuple[int, int, int]],
    *,
    room: int = 1000,
) -> tuple[int, list[np.ndarray], int]:
    """Equal pairs, odd rows, and foreign records."""
    ups, downs = _listed(source), _listed(target)
    state = np.zeros(alignment.STATES, np.int64)
    result = np.zeros(alignment.RESULTS, np.int64)
    marks = np.empty(room, np.uint64)
    odd = np.empty((room, alignment.ODD_COLUMNS), np.int64)
    equal = foreign = 0
    rows: list[np.ndarray] = []
    flags = alignment.TIMED | alignment.UP_ENDS | alignment.DOWN_ENDS
    while True:
        alignment.align(
            *ups, *downs, np.array(runs, np.int64).reshape(-1, 3), PROVENANCE.stamp,
            flags, state, marks, odd, result,
        )  # fmt: skip
        equal += int(result[alignment.EQUAL])
        foreign += int(result[alignment.FOREIGN])
        rows += list(odd[: result[alignment.ODD]].copy())
        if (state[alignment.UP], state[alignment.DOWN]) == (len(ups[1]), len(downs[1])):
            return equal, rows, foreign


def _modelled(
    source: Mapping[int, Content],
    target: Mapping[int, Content],
    runs: list[tuple[int, int, int]],
) -> tuple[int, set[Mismatches], int]:
    place = {u + n: d + n for u, d, count in runs for n in range(count)}
    origin = {down: up for up, down in place.items()}
    equal, odd, foreign = 0, set[Mismatches](), 0
    for offset, record in source.items():
        copy = target.get(place.get(offset, -1))
        if copy is None:
            odd.add((alignment.ONLY_SOURCE, offset, place.get(offset, -1)))
        elif copy == _copy(record):
            equal += 1
        else:
            odd.add((alignment.UNEQUAL, offset, place[offset]))
    for offset, copy in target.items():
        if origin.get(offset) in source:
            continue
        if offset in origin or copy.headers[-1:] == (STAMP,):
            odd.add((alignment.ONLY_TARGET, origin.get(offset, -1), offset))
        else:
            foreign += 1
    return equal, odd, foreign


def _copy(record: Content) -> Content:
    return Content(record.key, record.value, (*record.headers, STAMP), record.time)


def _content(chance: random.Random) -> Content:
    def some() -> bytes | None:
        return chance.choice([None, b"", b"k", bytes(20), chance.randbytes(9)])

    return Content(
        some(),
        some(),
        tuple((b"h%d" % n, some()) for n in range(chance.randrange(3))),
        chance.randrange(5),
    )


@pytest.mark.parametrize("seed", range(60))
def test_every_record_is_accounted_for(seed: int) -> None:
    """Random logs with holes, changed copies and records of others on both sides: the
    kernel finds what a model finds that looks up each record, however often it is
    interrupted.
    """
    chance = random.Random(seed)
    source: dict[int, Content] = {}
    target: dict[int, Content] = {}
    runs: list[tuple[int, int, int]] = []
    up = down = 0
    for _ in range(chance.randrange(8)):
        for _ in range(chance.randrange(3)):
            source[up] = _content(chance)
            up += chance.randrange(1, 3)
        for _ in range(chance.randrange(3)):
            strange = _content(chance)
            target[down] = _copy(strange) if chance.random() < 0.5 else strange
            down += chance.randrange(1, 3)
        count = chance.randrange(1, 12)
        runs.append((up, down, count))
        for n in range(count):
            record = _content(chance)
            fate = chance.random()
            if fate > 0.15:
                source[up + n] = record
            if fate < 0.85:
                target[down + n] = _copy(record)
            if 0.4 < fate < 0.5:
                target[down + n] = _copy(_content(chance))
        up, down = up + count, down + count

    equal, rows, foreign = _aligned(
        source, target, runs, room=chance.choice([1, 3, 99])
    )

    found = {
        tuple(row[[alignment.WHAT, alignment.SOURCE, alignment.TARGET]].tolist())
        for row in rows
    }
    assert (equal, found, foreign) == _modelled(source, target, runs)
    assert len(found) == len(rows)


@pytest.mark.parametrize(
    ("copy", "field", "byte"),
    [
        (Content(b"kez", headers=(STAMP,)), alignment.KEY, 2),
        (Content(None, headers=(STAMP,)), alignment.KEY, 0),
        (Content(b"key", b"vv", headers=(STAMP,)), alignment.VALUE, 1),
        (Content(b"key", headers=((b"a", b""), STAMP)), alignment.HEADERS, 0),
        (Content(b"key", headers=()), alignment.STAMP, alignment.NO_STAMP),
        (Content(b"key", headers=(STAMP, STAMP)), alignment.HEADERS, 0),
        (Content(b"key", headers=((b"mirror.via", b"C/c"),)), alignment.STAMP, 0),
        (Content(b"key", headers=(STAMP,), time=7), alignment.TIMESTAMP, 7),
    ],
)
def test_the_first_difference_is_named(copy: Content, field: int, byte: int) -> None:
    """The field that differs, and where in it."""
    _, (row,), _ = _aligned({0: Content(b"key")}, {0: copy}, [(0, 0, 1)])

    assert (row[alignment.FIELD], row[alignment.BYTE]) == (field, byte)


def test_a_record_and_its_copy_have_one_mark() -> None:
    """A record that moved is recognised by its mark, which the stamp does not change;
    every other difference changes it.
    """
    record = Content(b"key", b"value", ((b"a", b"1"),), 5)
    others = [
        Content(b"kez", b"value", ((b"a", b"1"),), 5),
        Content(b"key", b"valuf", ((b"a", b"1"),), 5),
        Content(b"key", b"value", ((b"a", b"2"),), 5),
        Content(b"key", b"value", ((b"a", b"1"),), 6),
    ]
    _, rows, _ = _aligned({0: record}, {9: _copy(record)}, [])
    _, strange, _ = _aligned({}, dict(enumerate(map(_copy, others))), [])

    assert rows[0][alignment.SOURCE_MARK] == rows[1][alignment.TARGET_MARK]
    marks = {int(row[alignment.TARGET_MARK]) for row in [*strange, rows[1]]}
    assert len(marks) == 5


def test_a_replayed_record_may_name_other_clusters() -> None:
    """Between the record's own headers and our stamp: those are of clusters that had it
    before. Nothing else may stand there.
    """
    record = Content(headers=((b"a", b"1"),))
    other = (b"mirror.via", b"C/c-id")

    def equal(*added: tuple[bytes, bytes | None]) -> int:
        copy = Content(headers=(*record.headers, *added))
        return _aligned({5: record}, {7: copy}, [(5, 7, 1)])[0]

    assert equal(STAMP) == equal(other, STAMP) == equal(other, other, STAMP) == 1
    assert equal(STAMP, other) == equal((b"b", b"2"), STAMP) == 0
    assert equal(STAMP, STAMP) == equal(other) == 0
