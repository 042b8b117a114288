"""Comparing a range by walking both sides finds what listing all of it finds."""

from __future__ import annotations

from dataclasses import replace
import random
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from mirror.proofs import comparing, sides
from mirror.proofs.log_stream import LogStream, Stored
from mirror.proofs.ranges import whole_range
from mirror.records import batch, scan
from tests.harness import hostile_batches
from tests.harness.compared import TERMS, copied

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.clusters.cluster import Cluster
    from mirror.proofs.comparing import Compared

pytestmark = pytest.mark.unit

STAMP, LOOPED = (b"mirror.via", b"A/a-id"), (b"mirror.via", b"B/b-id")
ZSTD = 4
Headers = tuple[tuple[bytes, bytes | None], ...]
Content = tuple[bytes | None, bytes | None, Headers, int]
"""Key, value, headers, time."""
Log = dict[int, Content]


class InMemory(LogStream):
    """A log in some parts, of some batches each."""

    def __init__(self, cluster: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(cluster, *arguments, **options)
        self._raw: list[list[bytes]] = cluster.raw

    def stored(self) -> Iterator[Stored]:
        for part in self._raw:
            buffer = np.frombuffer(bytearray(b"".join(part)), np.uint8)
            found = batch.read(
                buffer, 0, buffer.size, position=self._wanted.first, aborted=(),
                scratch=batch.scratch(),
            )  # fmt: skip
            rows = found.rows[found.rows[:, scan.BASE] < self._wanted.end]
            if len(rows):
                yield Stored(buffer, rows.copy(), self._wanted.first)


class Fake:
    """The cluster of such a log."""

    alias = "X"

    def __init__(self, raw: list[list[bytes]]) -> None:
        self.raw = raw


def _some(chance: random.Random) -> bytes | None:
    return chance.choice([None, b"", b"k", bytes(20), chance.randbytes(150)])


def _content(chance: random.Random) -> Content:
    headers = tuple((b"h%d" % n, _some(chance)) for n in range(chance.randrange(3)))
    return _some(chance), _some(chance), headers, chance.randrange(2000)


def _copy(content: Content) -> Content:
    key, value, headers, time = content
    return key, value, (*headers, STAMP), time


def _changed(content: Content, chance: random.Random) -> Content:
    """As a fault would change a copy."""
    key, value, headers, time = content
    return chance.choice(
        [
            (b"other", value, headers, time),
            (key, b"other", headers, time),
            (key, None if value == b"" else b"", headers, time),
            (key, value, headers[:-1], time),
            (key, value, (*headers, (b"x", None)), time),
            (key, value, ((b"x", b""), *headers), time),
            (key, value, (STAMP, *headers), time),
            (key, value, headers, time + 1),
        ]
    )


def _logs(chance: random.Random) -> tuple[Log, Log, list[tuple[int, int, int]]]:
    """A source, a copy with faults in it, and the map."""
    source: Log = {}
    target: Log = {}
    runs: list[tuple[int, int, int]] = []
    up = down = 0
    for _ in range(chance.randrange(1, 9)):
        for _ in range(chance.randrange(3)):
            key, value, _, time = _content(chance)
            source[up] = (key, value, (LOOPED,) * chance.randrange(2), time)
            up += chance.randrange(1, 3)
        for _ in range(chance.randrange(3)):
            strange = _content(chance)
            target[down] = _copy(strange) if chance.random() < 0.5 else strange
            down += chance.randrange(1, 3)
        count = chance.randrange(1, 40)
        runs.append((up, down, count))
        faulty = chance.random() < 0.5
        for n in range(count):
            record = _content(chance)
            fate = chance.random() if faulty else 0.5
            if fate > 0.05:
                source[up + n] = record
            if fate < 0.95:
                target[down + n] = _copy(record)
            if 0.1 < fate < 0.15:
                target[down + n] = _changed(_copy(record), chance)
        up, down = up + count, down + count
    return source, target, runs


def _stored(log: Log, chance: random.Random, *, damaged: bool) -> list[list[bytes]]:
    """In batches, packed or not; `damaged`: the records of some do not fit."""
    offsets = sorted(log)
    parts: list[list[bytes]] = [[]]
    while offsets:
        count = chance.randrange(1, 20)
        some, offsets = offsets[:count], offsets[count:]
        section = b"".join(
            hostile_batches.record(
                *log[each][:3], delta=each - some[0], time=log[each][3]
            )
            for each in some
        )
        fate = chance.random() if damaged else 1.0
        if fate < 0.05:
            section = section[:-1] + b"\x7f" + section[-1:]
        elif fate < 0.1:
            section += b"\0"
        packed = chance.random() < 0.3
        if packed:
            section = b"?" if fate < 0.02 else hostile_batches.packed(section, ZSTD)
        raw = hostile_batches.stored(
            section, count=len(some), base=some[0], last_delta=some[-1] - some[0],
            attributes=ZSTD * packed,
        )  # fmt: skip
        if chance.random() < 0.2:
            parts.append([])
        parts[-1].append(raw)
    return [part for part in parts if part]


def _compared(
    source: list[list[bytes]],
    target: list[list[bytes]],
    runs: list[tuple[int, int, int]],
    *,
    walks: bool,
) -> Compared:
    up, down, count = runs[-1]
    work = whole_range(copied(up + count, down + count), np.array(runs, np.int64))
    a, b = (cast("Cluster", Fake(each)) for each in (source, target))
    made = comparing._Comparison(TERMS, work, a, b)
    made._is_plain &= walks
    return made.run()


@pytest.mark.parametrize("seed", range(200))
def test_it_finds_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random logs with records missing, changed, looped and of others: all counts, rows
    and the digest are those of a comparison that lists every record, wherever it falls
    back to lists.
    """
    walked, listed = _both(seed, monkeypatch, damaged=False)

    assert _rows(walked) == _rows(listed)
    assert replace(walked, range=None, mismatches=None) == replace(
        listed, range=None, mismatches=None
    )


@pytest.mark.parametrize("seed", range(100))
def test_it_finds_the_same_damage(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch whose records do not fit is named once. What precedes the damage in it
    may be equal, and is listed if it is not.
    """
    walked, listed = _both(seed, monkeypatch, damaged=True)

    assert walked.source_damages == listed.source_damages
    assert walked.target_damages == listed.target_damages
    told = {tuple(row) for row in _rows(listed)}
    assert {tuple(row) for row in _rows(walked)} <= told
    assert walked.account.equal >= listed.account.equal


def _both(
    seed: int, monkeypatch: pytest.MonkeyPatch, *, damaged: bool
) -> tuple[Compared, Compared]:
    """Comparisons of random logs that walk, and that list everything."""
    chance = random.Random(seed)
    monkeypatch.setattr(sides, "LogStream", InMemory)
    monkeypatch.setattr(comparing, "_FEW", chance.choice([1, 3, 20, 512]))
    monkeypatch.setattr(comparing, "_MARKS", chance.choice([2, 50, 1000]))
    source, target, runs = _logs(chance)
    logs = [_stored(log, chance, damaged=damaged) for log in (source, target)]
    walked, listed = (
        _compared(logs[0], logs[1], runs, walks=walks) for walks in (True, False)
    )
    return walked, listed


def _rows(found: Compared) -> list[list[int]]:
    return sorted(found.mismatches.tolist())


def test_plain_copies_are_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each record is followed by its copy, nothing is left for lists."""
    chance = random.Random(1)
    monkeypatch.setattr(sides, "LogStream", InMemory)
    monkeypatch.setattr(LogStream, "records", lambda *_: iter(()))
    source = {n: _content(chance) for n in range(500)}
    target = {n + 7 + n // 100: _copy(record) for n, record in source.items()}
    runs = [(n, n + 7 + n // 100, 100) for n in range(0, 500, 100)]
    logs = [[_part(log, 50)] for log in (source, target)]

    found = _compared(logs[0], logs[1], runs, walks=True)

    assert (found.account.equal, found.account.records) == (500, 500)
    assert not len(found.mismatches)


def _part(log: Log, size: int) -> list[bytes]:
    """All of a log in batches of one size."""
    offsets = sorted(log)
    return [
        hostile_batches.stored(
            b"".join(
                hostile_batches.record(
                    *log[each][:3], delta=each - offsets[at], time=log[each][3]
                )
                for each in offsets[at : at + size]
            ),
            count=size, base=offsets[at],
            last_delta=offsets[at + size - 1] - offsets[at],
        )
        for at in range(0, len(offsets), size)
    ]  # fmt: skip
