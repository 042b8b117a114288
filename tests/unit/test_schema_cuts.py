"""What a rewriter copies while its barrier looks for schemas, without any registry."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from mirror.config.schema import FlowConfig
from mirror.copying import provenance, rewrite
from mirror.copying.rewrite import Rewriter
from mirror.copying.schemas import SchemaBarrier
from mirror.copying.transform import Transform
from mirror.copying.transforming import TransformingRewriter
from mirror.errors import CorruptBatchError
from mirror.records import batch, listing
from mirror.schemas.ids import IdSettler, SettledId
from tests.harness import hostile_batches
from tests.harness.hostile_batches import (
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    record,
    sealed,
    stored,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.clusters.wire.produce import EncodedBatch
    from mirror.copying.rewrite import Rewritten
    from mirror.records.batch import Buffer

pytestmark = pytest.mark.unit

STRANGE = 7
IDS = {1: 2, 2: 3, 3: 1}
"""What the target has for the source's ids."""
HUGE = 1 << 30


class _Answers:
    """What the registries said."""

    def findings(self) -> Mapping[int, SettledId]:
        return {
            STRANGE: SettledId(strange=True),
            **{each: SettledId(target_id=copy) for each, copy in IDS.items()},
        }


def barrier(ids: str = "keep", **settings: Any) -> SchemaBarrier:
    ends = {"source": "A", "target": "B", "schemas": "require", "schemas_ids": ids}
    flow = FlowConfig.model_validate(ends | settings)
    made = SchemaBarrier(flow, cast("Any", _Answers()))
    assert made.verdicts() == []
    return made


def rule(*, stamps: bool) -> provenance.Provenance:
    if not stamps:
        return provenance.none()
    return provenance.via(source_alias="A", source_id="a-id", target_id="b-id")


def wire(number: int) -> bytes:
    return struct.pack(">bI", 0, number) + b"x" * 100


def translating(*, transforms: bool = False, **settings: Any) -> Rewriter:
    schemas = barrier("translate", **settings)
    if not transforms:
        return Rewriter(rule(stamps=True), codec=None, schemas=schemas)
    return TransformingRewriter(
        rule(stamps=True), codec=None, schemas=schemas, dead_letters_of=None,
        transform=Transform("tests.functions:identity", {}),
    )  # fmt: skip


def take(
    worker: Rewriter,
    buffer: Buffer,
    position: int = 0,
    max_bytes: int = 1000,
    at: tuple[str, int] = ("orders", 0),
) -> Rewritten:
    rows = batch.read(
        buffer, 0, len(buffer), position=position, aborted=(), scratch=batch.scratch()
    ).rows
    worker.begin()
    return worker.rewrite(buffer, rows, position=position, max_bytes=max_bytes, at=at)


def contents(batches: Iterable[EncodedBatch]) -> list[tuple[Any, Any, Any]]:
    """Keys, values and headers of records to send, without the stamp."""
    found = []
    for each in batches:
        whole = buffer_of(bytes(sealed(each.header + each.body)))
        rows = batch.read(
            whole, 0, len(whole), position=0, aborted=(), scratch=batch.scratch()
        ).rows
        for part in listing.listed(whole, rows):
            for place in part.places:
                key, value = (
                    None if size < 0 else part.buffer[at : at + size].tobytes()
                    for at, size in (place[2:4].tolist(), place[4:6].tolist())
                )
                headers = listing.headers_of(part.buffer, place)
                kept = [h for h in headers if h[0] != b"mirror.via"]
                found.append((key, value, kept))
    return found


def buffer_of(*batches: bytes) -> Buffer:
    return np.frombuffer(bytearray(b"".join(batches)), np.uint8)


def test_little_is_unpacked_at_once():
    """Where records are copied byte for byte and only unpacked to be looked at, a few
    kilobytes that unpack to gigabytes do not keep the slot busy: it stops after 64 MiB,
    and goes on with the next batch.
    """
    noise = random.Random(1).randbytes(20 << 10)  # else it is merged with others
    one = record(b"k", noise + b"\1" * (20 << 20))
    packed = hostile_batches.packed(one, ZSTD)
    buffer = buffer_of(*(stored(packed, base=n, attributes=ZSTD) for n in range(6)))
    worker = Rewriter(rule(stamps=False), codec=None, schemas=barrier())
    done = take(worker, buffer, 0, HUGE)
    assert (len(done.batches), done.stopped_at, done.unknown) == (4, 4, ())
    assert done.batches[0].body == packed
    done = take(worker, buffer, 4, HUGE)
    assert (len(done.batches), done.stopped_at) == (2, -1)


@pytest.mark.parametrize("transforms", [False, True], ids=["rewrites", "transforms"])
def test_a_part_that_ends_early_counts_what_it_copied(
    monkeypatch: pytest.MonkeyPatch, *, transforms: bool
):
    """Each record with an id that no registry knows counts once, in whatever pieces its
    batch is copied.
    """
    monkeypatch.setattr(rewrite, "_ENOUGH_MADE", 500)
    if transforms:
        monkeypatch.setattr("mirror.records.arrow._MOST_BYTES", 500)
    worker = (
        TransformingRewriter(
            rule(stamps=True), codec=None, schemas=barrier(),
            transform=Transform("tests.functions:identity", {}), dead_letters_of=None,
        )
        if transforms
        else Rewriter(rule(stamps=True), codec=None, schemas=barrier())
    )  # fmt: skip
    made = [record(b"k", wire(STRANGE) if n % 2 else b"v" * 100, delta=n)
            for n in range(60)]  # fmt: skip
    buffer = buffer_of(stored(b"".join(made), count=60))
    copied = counted = position = rounds = 0
    while position >= 0:
        done = take(worker, buffer, position)
        copied += sum(each.count for each in done.batches)
        counted += done.counts.unknown_ids
        position = done.stopped_at
        rounds += 1
    assert (copied, counted) == (60, 30)
    assert rounds > 3


@pytest.mark.parametrize("stamps", [False, True])
def test_nothing_passes_behind_damage(*, stamps: bool):
    """A record that cannot be read hides no unknown id in the batches behind it, also
    where records are copied without being looked at otherwise: what precedes the
    damaged batch is copied, then it is reported.
    """
    bad = record(b"k", b"v", [(b"h", b"1")], count=2)
    buffer = buffer_of(
        stored(record(b"k", wire(STRANGE))),
        stored(bad, base=1),
        stored(record(b"k", wire(9)), base=2),
    )
    worker = Rewriter(rule(stamps=stamps), codec=None, schemas=barrier())
    done = take(worker, buffer)
    assert (sum(each.count for each in done.batches), done.stopped_at) == (1, 1)
    assert done.counts.unknown_ids == 1
    with pytest.raises(CorruptBatchError):
        take(worker, buffer, 1)
    assert [each.number for each in take(worker, buffer, 2).unknown] == [9]


def test_an_id_that_no_registry_issues():
    """Bytes that read as an id beyond 31 bits are not asked about: a registry may say
    that there is no such address, which would hold their partition up for good.
    """
    nothing = cast("Any", None)
    flow = FlowConfig(source="A", target="B", schemas="require")
    settler = IdSettler(flow=flow, source=nothing, target=nothing, cluster=nothing)
    assert settler.settle(2**31) == SettledId(strange=True)


def test_what_is_left_out_waits_for_nothing():
    """A record that already came through the target is left out, whatever its id is:
    the source may never have its schema.
    """
    looped = [(b"mirror.via", b"B/b-id")]
    made = record(b"k", wire(9), looped) + record(b"k", b"v", delta=1)
    done = take(
        Rewriter(rule(stamps=True), codec=None, schemas=barrier()),
        buffer_of(stored(made, count=2)),
    )
    assert (done.counts.looped, done.unknown, done.stopped_at) == (1, (), -1)
    assert sum(each.count for each in done.batches) == 1


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("transforms", [False, True], ids=["rewrites", "transforms"])
def test_translated_once(codec: int, *, transforms: bool):
    """Records get the target's ids, whatever packs them and whether a function sees
    them first; strange ids stay. The same fetched bytes come again after a failed
    transaction, and once more where a batch ended at its limit: each time they get the
    ids of the first time, although these are ids of the source as well.
    """
    parts: list[tuple[bytes | None, bytes | None, list[tuple[bytes, bytes]]]] = [
        (wire(1), wire(2), []),
        (wire(3), None, []),
        (None, wire(1), [(b"__value_schema_id", wire(3))]),
        (b"k", wire(STRANGE), []),
        (b"k", b"v", [(b"__key_schema_id", wire(2)), (b"other", wire(1))]),
    ]
    wanted = [
        (wire(2), wire(3), []),
        (wire(1), None, []),
        (None, wire(2), [(b"__value_schema_id", wire(1))]),
        (b"k", wire(STRANGE), []),
        (b"k", b"v", [(b"__key_schema_id", wire(3)), (b"other", wire(1))]),
    ]
    made = b"".join(record(*part, delta=at) for at, part in enumerate(parts))
    form = {"count": len(parts), "attributes": codec}
    buffer = buffer_of(stored(hostile_batches.packed(made, codec), **form))
    worker = translating(transforms=transforms)
    fetched = buffer.tobytes()
    for max_bytes in (HUGE, HUGE, 300):
        done = take(worker, buffer, 0, max_bytes)
        assert contents(done.batches) == wanted
        assert done.counts.translated == 4
        assert buffer.tobytes() == fetched


def test_translation_stops_nothing_from_waiting():
    """A record with an id that the target may not have waits as without translation,
    and those before it are translated.
    """
    made = record(b"k", wire(1)) + record(b"k", wire(9), delta=1)
    done = take(translating(), buffer_of(stored(made, count=2)))
    assert contents(done.batches) == [(b"k", wire(2), [])]
    assert ([each.number for each in done.unknown], done.stopped_at) == ([9], 1)


def test_what_is_not_looked_at_keeps_its_ids():
    """Heartbeats, which begin with a zero, and topics that `schemas_topics` leaves out
    go on as they are.
    """
    made = buffer_of(stored(record(b"k", wire(1))))
    for topic, wanted in (("heartbeats", 1), ("A.heartbeats", 1), ("orders", 2)):
        done = take(translating(), made, at=(topic, 0))
        assert contents(done.batches) == [(b"k", wire(wanted), [])]
    left_out = translating(schemas_topics=["other"])
    assert contents(take(left_out, made).batches) == [(b"k", wire(1), [])]


def test_dead_letters_keep_their_ids():
    """A record on which the flow's function fails becomes a dead letter with the bytes
    that the source has, and does not count as translated.
    """
    worker = TransformingRewriter(
        rule(stamps=True), codec=None, schemas=barrier("translate"),
        transform=Transform("tests.functions:fails_on", {"offsets": [0]}),
        dead_letters_of="A",
    )  # fmt: skip
    made = record(b"bad", wire(1)) + record(b"good", wire(1), delta=1)
    done = take(worker, buffer_of(stored(made, count=2)))
    assert contents(done.batches) == [(b"good", wire(2), [])]
    [(key, value, _)] = contents(done.dead_batches)
    assert (key, value) == (b"bad", wire(1))
    assert (done.counts.translated, done.counts.dead_letters) == (1, 1)
