"""Mutated batches, answers and records, through every decoder: `python -m tests.fuzz`.

Seeds are real ones of all kinds; a case is some mutations of one of them, its checksum
made right again, and one decoder that has to find it right or damaged. A case follows
from the run's seed and its own number alone, so `--seed S --first N --cases 1` repeats
it. What is decoded ends at a page that cannot be read. The number of the case that is
under way stands in the file `--state`, for a watchdog that sees crashes and hangs.
"""

from __future__ import annotations

import argparse
import ctypes
from dataclasses import dataclass, field
import json
import mmap
from pathlib import Path
import random
import resource
import struct
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
import uuid
import warnings

from kafka.protocol.consumer import FetchResponse
import numpy as np

from mirror.clusters.wire import fetch, fetch_by_id
from mirror.copying import provenance
from mirror.copying.rewrite import Rewriter
from mirror.copying.transforming import TransformingRewriter
from mirror.errors import ClusterError, CorruptBatchError
from mirror.offsets import progress, runs, standby
from mirror.offsets.checkpoints import Checkpoint
from mirror.offsets.heartbeats import Heartbeat
from mirror.offsets.offset_syncs import OffsetSync
from mirror.pairs import control, journal, proofs
from mirror.pairs.audit import AuditReader
from mirror.pairs.control import KeptGroup, Pauses, Rebuild, RebuildStep
from mirror.pairs.journal import Entry, Kind, StepState
from mirror.pairs.losses import Cause, Loss
from mirror.records import (
    alignment,
    batch,
    codecs,
    listing,
    marks,
    merge_loop,
    records,
    scan,
    to_columns,
)
from mirror.schemas import claims
from mirror.topics import acl_notes
from tests.harness import hostile_batches as hostile
from tests.harness.hostile_batches import (
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    TRANSACTIONAL,
    record,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

STATE = struct.Struct(">qd")
"""The case under way, and the seconds of CPU that the process had used before it."""
MOST_GROWTH = 256 << 20
"""Bytes of memory that a run may take beside what its first cases took."""

_POSITION = 100
_ALIASED: Any = SimpleNamespace(alias="A")
"""A cluster, as far as the audit topic's errors name it."""
_MOST_UNPACKED = 1 << 20
_LOG_APPEND_TIME = 0x08
_ADDRESS_SPACE = 1 << 30
_WARM_UP = 2000
_FIELDS = (
    *((0, "q"), (8, "i"), (12, "i"), (16, "b"), (21, "h"), (23, "i"), (27, "q")),
    *((35, "q"), (43, "q"), (51, "h"), (53, "i"), (57, "i")),
)
_WILD = (
    *(0, 1, -1, 2, -2, 5, 6, 7, 60, 61, 62, 63, 64, 100, 127, 128, 255, 256),
    *(1 << 15, (1 << 15) - 1, 1 << 16, 1 << 20, 1 << 24, (1 << 30), (1 << 31) - 1),
    *(-(1 << 31), 1 << 31, (1 << 32) - 1, 1 << 33, 1 << 40, 1 << 50, 1 << 55),
    *(1 << 61, (1 << 62) - 1, 1 << 62, (1 << 63) - 1, -(1 << 63), -(1 << 62)),
)
_TYPES = {"b": 8, "h": 16, "i": 32, "q": 64}

ORDERS = uuid.UUID(int=7)


@dataclass(slots=True)
class Batch:
    """A batch in the making: its records not packed yet."""

    header: bytes
    section: bytes
    codec: int = 0
    numbers: list[int] = field(default_factory=list)
    """Where numbers begin in the section."""
    whole: bytes = b""
    """As it is, right."""

    def __post_init__(self) -> None:
        self.whole = _whole(self.header, hostile.packed(self.section, self.codec))


def _whole(header: bytes | bytearray, data: bytes) -> bytes:
    """A batch of records that are packed."""
    whole = bytearray(header) + data
    struct.pack_into(">i", whole, 8, len(whole) - 12)
    return bytes(hostile.sealed(whole))


def _numbers(section: bytes) -> list[int]:
    """Where a right section's numbers begin: sizes, deltas, counts."""

    def number(at: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            byte = section[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1), at
            shift += 7

    found: list[int] = []
    at = 0
    while at < len(section):
        found.append(at)
        _, at = number(at)
        at += 1
        for _ in range(2):
            found.append(at)
            _, at = number(at)
        for _ in range(2):
            found.append(at)
            size, at = number(at)
            at += max(size, 0)
        found.append(at)
        count, at = number(at)
        for _ in range(2 * count):
            found.append(at)
            size, at = number(at)
            at += max(size, 0)
    return found


def _batch(
    section: bytes, *, codec: int = 0, attributes: int = 0, **more: Any
) -> Batch:
    whole = hostile.stored(section, attributes=attributes | codec, **more)
    numbers = _numbers(section) if section else []
    return Batch(whole[:HEADER_SIZE], section, codec, numbers)


def _logs() -> list[list[Batch]]:
    """Logs as brokers have them, from offset 98 on; they are read from 100 on."""
    via = (b"mirror.via", b"other/TARGET")
    texts = [
        record(b"k", b"v" * 40, delta=0),
        record(None, b"v", [(b"a", b"1"), (b"b", None)], delta=1, time=3),
        record(b"key", None, [via], delta=2, time=-70),
        record(
            b"", b"", [(b"mirror.via", b"src/S"), (b"x", b"")], delta=3, time=1 << 40
        ),
        record(b"k" * 200, b"compresses " * 30, delta=4),
    ]
    small = record(struct.pack(">q", 5), struct.pack(">hq", 0, 9))
    found: list[list[Batch]] = []
    for codec in range(5):
        whole = b"".join(texts)
        found += [
            [_batch(whole, count=5, base=98, codec=codec)],
            [
                _batch(texts[0], base=98 + 5 * number, last_delta=4, codec=codec)
                for number in range(4)
            ],
            [
                _batch(small, base=100, codec=codec, attributes=_LOG_APPEND_TIME),
                _batch(
                    whole, count=5, base=103, last_delta=8, codec=codec,
                    attributes=DELETE_HORIZON, base_time=1 << 41,
                ),
            ],
            [
                _batch(
                    whole, count=5, base=100, codec=codec, attributes=TRANSACTIONAL,
                    producer=5,
                ),
                _batch(
                    record(struct.pack(">hh", 0, codec % 2), bytes(6)), base=105,
                    attributes=TRANSACTIONAL | CONTROL, producer=5,
                ),
                _batch(
                    b"", count=0, base=106, last_delta=0, producer=5,
                    attributes=TRANSACTIONAL | CONTROL,
                ),
                _batch(whole, count=5, base=110, codec=codec, producer=6),
                _batch(b"", count=0, base=120, last_delta=3, codec=codec, producer=6),
            ],
        ]  # fmt: skip
    many = b"".join(record(b"k", b"v", delta=2 * n) for n in range(60))
    found.append([_batch(many, count=60, base=100, last_delta=130)])
    # What our own topics hold, as we encode it.
    for encoded in (
        *progress.encode(
            {
                ("orders", n): progress.Position(
                    offset=n, left_id=ORDERS if n % 2 else progress.NO_ID
                )
                for n in range(4)
            }
        ),
        records.encode([Heartbeat(source="A", target="B", timestamp=5).encode()]),
        records.encode([(b"", value) for value in _maps()]),
    ):
        encoded.stamp(4, 0, 0, transactional=True)
        header = bytearray(encoded.header)
        header[:8] = (100).to_bytes(8, "big")
        section = bytes(encoded.body)
        found.append([Batch(bytes(header), section, 0, _numbers(section))])
    return found


def _maps() -> list[bytes]:
    blocks = [
        runs.Block(
            topic=topic, partition=partition, target_topic=f"A.{topic}",
            topic_id=ORDERS, copy_id=ORDERS,
            runs=np.array([[1, 2, 3], [9, 9, 1]], np.int64),
        )
        for topic in ("orders", "payments")
        for partition in range(3)
    ]  # fmt: skip
    return runs.encode(blocks)


def _answers(version: int) -> list[bytes]:
    topic = FetchResponse.FetchableTopicResponse
    partition = topic.PartitionData
    aborted = partition.AbortedTransaction
    parts = [
        partition(
            partition_index=number, error_code=number % 2, high_watermark=20,
            last_stable_offset=19, log_start_offset=2,
            aborted_transactions=[aborted(producer_id=5, first_offset=6)] * number,
            preferred_read_replica=-1, records=b"abc" * number if number else None,
            **({"diverging_epoch": partition.EpochEndOffset(epoch=4, end_offset=7)}
               if version >= 12 and number == 2 else {}),
        )
        for number in range(4)
    ]  # fmt: skip
    names = (
        [{"topic_id": ORDERS}, {"topic_id": uuid.UUID(int=8)}]
        if version >= 13
        else [{"topic": "orders"}, {"topic": "payments"}]
    )
    head = b"\0" if version >= 12 else b""  # tags of the answer's own header
    return [
        head
        + bytes(
            FetchResponse[version](
                throttle_time_ms=2, error_code=error, session_id=17,
                responses=[topic(partitions=parts, **name) for name in names[:count]],
            ).encode()
        )
        for error, count in ((0, 2), (0, 1), (0, 0), (70, 0))
    ]  # fmt: skip


def _own() -> list[tuple[Callable[[bytes, bytes], object], bytes, bytes]]:
    """Decoders of our own topics, with keys and values that are right."""
    loss = Loss(
        at=1.5, flow="A->B", topic="orders", partition=3, target_topic="A.orders",
        cause=Cause.TRUNCATED, first=5, last=9, topic_id=ORDERS.hex,
    )  # fmt: skip
    pauses = Pauses().changed("orders.*", paused=True, now=3.0)
    proof = proofs.Proof(
        topic="orders", partition=3, topic_id=ORDERS, source_offset=7,
        target_offset=9, at=3.0, records=7, findings=0, root="ab" * 32,
    )  # fmt: skip
    notes = (
        Rebuild(
            topic="orders", target_topic="A.orders", step=RebuildStep.COPYING, at=3.0,
            source_id="a", topic_id=ORDERS.hex, copy_id=ORDERS.hex, partitions=2,
            replication_factor=1, configs={"retention.ms": "1"}, ends=(5, 6),
        ).record("A->B"),
        KeptGroup(
            topic="orders", group="g", id="r", offsets={0: (5, "m"), 1: (-1, "")}
        ).record("A->B"),
    )  # fmt: skip
    claim = {
        "topic": "t", "pattern": "LITERAL", "principal": "User:a", "host": "*",
        "operation": "READ", "permission": "ALLOW",
    }  # fmt: skip
    change = {
        "by": "fence A<->B", "kind": "TOPIC", "name": "t", "pattern": "LITERAL",
        "principal": "User:a", "host": "*", "operation": "WRITE", "permission": "DENY",
    }  # fmt: skip
    step = Entry(
        pair="A<->B", run="r", number=3, kind=Kind.SWITCH, epoch=2, source="A",
        target="B", step="open", state=StepState.DONE, at=3.0, by="me@here",
        details={"cut": {"orders": [5, 6]}},
    )  # fmt: skip
    key, value = (
        b"\0\6orders" + struct.pack(">i", 3),
        struct.pack(">hqi16s", 0, 7, 2, ORDERS.bytes),
    )
    beat = Heartbeat(source="A", target="B", timestamp=9).encode()
    point = Checkpoint(
        group="g", topic="t", partition=1, upstream=5, downstream=6, metadata="é"
    ).encode()
    sync = OffsetSync(topic="t", partition=1, upstream=5, downstream=6).encode()
    return [
        (_progress, key, value),
        (progress.decode, b"\0\0\xff\xff\xff\xff", b'\0\0{"id": "x"}'),
        (lambda _, value: Loss.decode(value), b"k", _json(loss.document())),
        (lambda _, value: Pauses.decode(value), b"k", _json(pauses.document())),
        *((lambda k, v: control.decode_rebuild("A->B", k, v), *each) for each in notes),
        (proofs.decode, b"orders-3", _json(proofs.document(proof))),
        (
            acl_notes.decode_claim,
            _json(claim),
            _json({"version": 1, "added": True, "via": ["A", "B"]}),
        ),
        (journal.decode, *step.record()),
        (
            lambda k, v: standby.decode("mirror-standby.A.internal", k, v),
            b"ends/orders",
            _json({"version": 1, "at": "2026-01-01T00:00:00Z", "ends": [5, 6]}),
        ),
        (
            claims.decode,
            b"/orders-value/2",
            _json(
                {
                    "version": 1,
                    "id": 3,
                    "target_id": 3,
                    "sha256": "ab",
                    "state": "copied",
                    "at": 1.5,
                }
            ),
        ),
        (
            lambda _, v: AuditReader(_ALIASED, "audit")._decode(v),
            b"me@here",
            _json({"version": 1, "id": 3, "by": "me@here", "kind": "topic-created"}),
        ),
        (acl_notes.decode, _json(change), _json({"version": 2, "change": "added"})),
        *((lambda _, v: list(runs.decode(v)), b"", value) for value in _maps()),
        (Heartbeat.decode, *beat),
        (Checkpoint.decode, *point),
        (OffsetSync.decode, *sync),
    ]


def _progress(key: bytes, value: bytes) -> None:
    if not isinstance(found := progress.decode(key, value), str):
        progress.RunningCount.decode(found[2])


def _json(document: Any) -> bytes:
    return json.dumps(document).encode()


class Mutator:
    """Makes something wrong of what is right."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def log(self, seed: list[Batch]) -> bytes:
        """A log of batches of which one is not what it was."""
        rng = self._rng
        hit = rng.randrange(len(seed))
        parts = [
            self._wrong(each) if at == hit else each.whole
            for at, each in enumerate(seed)
        ]
        kind = rng.random()
        if kind < 0.03:
            parts.insert(hit, parts[rng.randrange(len(parts))])
        elif kind < 0.06:
            parts[-1] = parts[-1][: rng.randrange(len(parts[-1]) + 1)]
        return b"".join(parts)

    def _wrong(self, each: Batch) -> bytes:
        rng = self._rng
        header, section = bytearray(each.header), each.section
        inside = rng.random() < 0.7
        if inside and each.numbers:
            for _ in range(rng.choice((1, 1, 1, 2, 3))):
                section = self._edited(section, each.numbers)
        elif inside:
            section = self.bytes_of(section)
        data = hostile.packed(section, each.codec)
        if each.codec and rng.random() < 0.3:
            data = self.bytes_of(data)
        whole = bytearray(_whole(header, data))
        if rng.random() < 0.4:
            for _ in range(rng.choice((1, 1, 2))):
                at, kind = rng.choice(_FIELDS)
                struct.pack_into(">" + kind, whole, at, self._number(_TYPES[kind]))
        return bytes(whole if rng.random() < 0.02 else hostile.sealed(whole))

    def _edited(self, section: bytes, numbers: list[int]) -> bytes:
        if self._rng.random() < 0.3:
            return self.bytes_of(section)
        at = min(self._rng.choice(numbers), max(len(section) - 1, 0))
        end = at
        while end < len(section) and section[end] >= 0x80:
            end += 1
        kind = self._rng.random()
        if kind < 0.1:
            new = b"\xff" * self._rng.randrange(1, 14)
        elif kind < 0.2:
            new = b"\x80" * self._rng.randrange(1, 10) + b"\0"
        else:
            new = hostile.varint(self._number(64))
        return section[:at] + new + section[end + 1 :]

    def bytes_of(self, data: bytes) -> bytes:
        """Flipped bits, wild numbers, cuts and splices."""
        rng = self._rng
        out = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 4))):
            kind = rng.randrange(6)
            at = rng.randrange(len(out) + 1)
            if kind == 0 and at < len(out):
                out[at] ^= 1 << rng.randrange(8)
            elif kind == 1 and at < len(out):
                out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            elif kind == 2:
                del out[at:]
            elif kind == 3:
                del out[at : at + rng.randrange(1, 9)]
            elif kind == 4:
                first = rng.randrange(len(out) + 1)
                out[at:at] = out[first : first + rng.randrange(1, 40)]
            else:
                width = rng.choice("bhiq")
                number = struct.pack(">" + width, self._number(_TYPES[width]))
                out[at : at + len(number)] = number
        return bytes(out)

    def document(self, data: bytes) -> bytes:
        """A JSON document with another value somewhere."""
        rng = self._rng
        try:
            found = json.loads(data)
        except ValueError:
            return self.bytes_of(data)
        if rng.random() < 0.4:
            return self.bytes_of(data)
        wild: list[Any] = [None, [], {}, "", "(", 1 << 70, -1, True, [1], {"a": 1}, 1.5]
        holder = found
        while isinstance(holder, (dict, list)) and holder:
            places = list(holder) if isinstance(holder, dict) else range(len(holder))
            place = rng.choice(places)
            inner = holder[place]
            if isinstance(inner, (dict, list)) and inner and rng.random() < 0.7:
                holder = inner
                continue
            if isinstance(holder, dict) and rng.random() < 0.2:
                del holder[place]
            else:
                holder[place] = rng.choice(wild)
            break
        return _json(rng.choice(wild) if rng.random() < 0.05 else found)

    def _number(self, bits: int) -> int:
        rng = self._rng
        value = rng.choice(_WILD) + rng.choice((0, 0, 0, 1, -1))
        if rng.random() < 0.2:
            value = rng.getrandbits(bits)
        value &= (1 << bits) - 1
        return value - (1 << bits) if value >> (bits - 1) else value


class Guarded:
    """Memory that ends at an unreadable page."""

    def __init__(self, size: int = 1 << 20) -> None:
        self._size = size
        self._map = mmap.mmap(-1, size + mmap.PAGESIZE)
        self._array = np.frombuffer(self._map, np.uint8)
        libc = ctypes.CDLL(None, use_errno=True)
        guard = ctypes.c_void_p(self._array.ctypes.data + size)
        if libc.mprotect(guard, ctypes.c_size_t(mmap.PAGESIZE), 0):
            raise OSError(ctypes.get_errno(), "mprotect")

    def holding(self, data: bytes) -> np.ndarray:
        """These bytes, right before its end."""
        part = self._array[self._size - len(data) : self._size]
        part[:] = np.frombuffer(data, np.uint8)
        return part


class Decoders:
    """Every way that a log takes, with what has to hold whatever comes out."""

    def __init__(self) -> None:
        made = provenance.via(
            source_alias="s", source_id="S", target_id="TARGET", feeders=("hub", "t")
        )
        columns = ["offset", "timestamp", "key", "value", "headers"]
        bound = {"codec": None, "most_unpacked": _MOST_UNPACKED}
        self.stamped = Rewriter(made, **bound)
        self.plain = Rewriter(provenance.none(), **bound)
        self.transforming = TransformingRewriter(
            made,
            transform=lambda given: given.select(columns),
            dead_letters_of=None,
            **bound,
        )
        self._guarded = Guarded()
        self._scratch = batch.scratch()
        self._via = np.frombuffer(bytearray(b"mirror.via"), np.uint8)
        self._stamp = made.stamp

    def read(self, log: bytes) -> tuple[np.ndarray, batch.Batches]:
        buffer = self._guarded.holding(log)
        found = batch.read(
            buffer, 0, len(buffer), position=_POSITION, aborted=[(5, 100)],
            scratch=self._scratch,
        )  # fmt: skip
        batch.leads_to(buffer, 0, len(buffer), scratch=self._scratch)
        rows = found.rows
        assert found.next_offset >= _POSITION
        assert found.skipped >= 0
        assert (rows[:, scan.AT] + rows[:, scan.SIZE] <= len(log)).all()
        assert (np.diff(rows[:, scan.BASE]) > 0).all()
        return buffer, found

    def rewritten(self, which: Rewriter, log: bytes, filler: int = 0) -> list[Any]:
        buffer, found = self.read(log)
        which.begin()
        if which._unpacked.size > 1 << 16 or filler:
            which._unpacked = np.full(1 << 16, filler, np.uint8)
        done = which.rewrite(
            buffer, found.rows, position=_POSITION, max_bytes=1 << 20, at=("t", 0)
        )
        if done.stopped_at >= 0:
            assert done.stopped_at > _POSITION
            assert found.until(buffer, done.stopped_at)[0] > _POSITION
        last = _POSITION - 1
        for each in done.batches:
            assert each.runs is not None
            assert each.runs[:, 2].sum() == each.count > 0
            for first, index, count in each.runs.tolist():
                assert first > last
                assert 0 <= index < each.count
                last = first + count - 1
        assert last <= (found.rows[-1, scan.LAST] if len(found.rows) else last)
        return [
            (bytes(each.header), bytes(each.body), each.count) for each in done.batches
        ]

    def listed(self, log: bytes) -> None:
        buffer, found = self.read(log)
        for source, places, *_ in listing.listed(buffer, found.rows, _POSITION):
            marked = np.empty(len(places), np.uint64)
            marks.mark(source, places, self._via, 1, marked)
            ends = places[:, to_columns.VALUE_AT] + places[:, to_columns.VALUE_SIZE]
            assert (ends <= len(source)).all()
            assert (places[:, to_columns.END] <= len(source)).all()
            self._aligned(source, places)

    def _aligned(self, source: np.ndarray, places: np.ndarray) -> None:
        """Records held against those that follow them: none is forgotten."""
        runs = np.array([[_POSITION, _POSITION, 1 << 40]], np.int64)
        moved = places.copy()
        moved[1:, to_columns.OFFSET] = places[:-1, to_columns.OFFSET]
        odd = np.empty((2 * len(places), alignment.ODD_COLUMNS), np.int64)
        result = np.zeros(alignment.RESULTS, np.int64)
        alignment.align(
            source, places, source, moved[1:], runs, self._stamp,
            alignment.UP_ENDS | alignment.DOWN_ENDS,
            np.zeros(alignment.STATES, np.int64), np.empty(len(places), np.uint64),
            odd, result,
        )  # fmt: skip
        equal, strange = result[alignment.EQUAL], result[alignment.ODD]
        assert len(places) <= equal + strange <= 2 * len(places)

    def decoded(self, log: bytes) -> None:
        buffer, found = self.read(log)
        whole = list(records.decode(buffer, found.rows))
        mark = progress.MARK
        newest = list(records.decode(buffer, found.rows, newest=mark))
        assert _last_ones(newest, mark) == _last_ones(whole, mark)
        for _, key, value in whole:
            try:
                progress.decode(key, value)
                list(runs.decode(value))
            except (ClusterError, CorruptBatchError):
                continue


def _last_ones(found: list[Any], mark: records.Mark) -> dict[Any, Any]:
    """The last record of each key, of those with a mark and of those without."""
    at, what = mark
    return {
        (key, value[at : at + len(what)] == what): (offset, value)
        for offset, key, value in found
    }


def _fetched(data: bytes, parts: Any) -> None:
    for part in parts:
        assert 0 <= part.start <= part.end <= len(data)


class Cases:
    """The cases of one seed, by number."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._rng = random.Random()
        self._mutator = Mutator(self._rng)
        self._decoders = Decoders()
        self._logs = _logs()
        self._own = _own()
        self._v11 = _answers(fetch.VERSION)
        self._v13 = _answers(fetch_by_id.VERSION)
        self.refused = 0
        """Cases that were found damaged."""

    def run(self, number: int) -> None:
        """Raises what is none of our errors, and AssertionError for a wrong result."""
        self._rng.seed((self._seed << 40) + number)
        try:
            self._run(self._rng.random())
        except (CorruptBatchError, ClusterError):
            self.refused += 1

    def _run(self, kind: float) -> None:
        rng, mutator, decoders = self._rng, self._mutator, self._decoders
        if kind < 0.1:
            data = mutator.bytes_of(rng.choice(self._v11))
            fetch.head(memoryview(data))
            _fetched(data, fetch.decode(memoryview(data)))
            return
        if kind < 0.2:
            data = mutator.bytes_of(rng.choice(self._v13))
            fetch_by_id.head(memoryview(data))
            names = {ORDERS.bytes: "orders"}
            _fetched(data, fetch_by_id.decode(memoryview(data), names))
            return
        if kind < 0.4:
            decode, key, value = rng.choice(self._own)
            if rng.random() < 0.3:
                key = mutator.document(key)
            else:
                value = mutator.document(value)
            decode(key, value)
            return
        if kind < 0.48:
            codec = rng.randrange(1, 5)
            section = hostile.packed(rng.choice(self._logs)[0].section, codec)
            out = codecs.decompress(
                codec, memoryview(mutator.bytes_of(section)), most=_MOST_UNPACKED
            )
            assert len(out) <= _MOST_UNPACKED
            return
        log = mutator.log(rng.choice(self._logs))
        if kind < 0.54:
            decoders.listed(log)
        elif kind < 0.61:
            decoders.decoded(log)
        elif kind < 0.69:
            decoders.rewritten(decoders.plain, log)
        elif kind < 0.74:
            decoders.rewritten(decoders.transforming, log)
        elif kind < 0.96:
            decoders.rewritten(decoders.stamped, log)
        else:
            # What was unpacked before must not matter, wherever it still stands.
            which = rng.choice((decoders.stamped, decoders.transforming))
            assert _outcome(which, decoders, log, 1) == _outcome(
                which, decoders, log, 0xFF
            )


def _outcome(which: Rewriter, decoders: Decoders, log: bytes, filler: int) -> Any:
    try:
        return decoders.rewritten(which, log, filler)
    except CorruptBatchError as error:
        # Where the damage is; what a library calls it may depend on its last input.
        return str(error).partition(": ")[0]


def _require_checks() -> None:
    """Exit unless loops look at every index."""
    nothing = np.empty(0, np.uint8)
    try:
        sections = np.zeros((1, merge_loop.MERGE_COLUMNS), np.int64)
        sections[0, [merge_loop.SOURCE_END, merge_loop.RECORDS]] = 9, 1
        state = np.zeros(merge_loop.STATES, np.int64)
        merge_loop.fields(nothing, sections, state, np.empty((1, 5), np.int64))
    except IndexError:
        return
    sys.exit("loops do not check their indices")


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--cases", type=int, required=True)
    parser.add_argument("--state", type=Path)
    parser.add_argument("--checked", action="store_true")
    chosen = parser.parse_args()
    warnings.simplefilter("error")
    if chosen.checked:
        _require_checks()
    cases = Cases(chosen.seed)
    state: Any = bytearray(STATE.size)
    if chosen.state is not None:
        with chosen.state.open("r+b") as file:
            state = mmap.mmap(file.fileno(), STATE.size)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
    resource.setrlimit(resource.RLIMIT_AS, (used + _ADDRESS_SPACE, -1))
    before = 0
    began = time.monotonic()
    for number in range(chosen.first, chosen.first + chosen.cases):
        if number == chosen.first + _WARM_UP:
            before = _memory()
        STATE.pack_into(state, 0, number, time.process_time())
        cases.run(number)
    growth = _memory() - (before or _memory())
    if growth > MOST_GROWTH:
        sys.exit(f"memory grew by {growth >> 20} MiB")
    report: Mapping[str, Any] = {
        "cases": chosen.cases,
        "refused": cases.refused,
        "seconds": round(time.monotonic() - began, 1),
        "cpu_seconds": round(time.process_time(), 1),
        "growth_mib": growth >> 20,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
