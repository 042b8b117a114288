"""What a rewriter copies while its barrier looks for schemas, without any registry."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from mirror.batches import batch
from mirror.config.schema import FlowConfig
from mirror.errors import CorruptBatchError
from mirror.metadata.schema_need import Settled, Sides, settle
from mirror.relay import provenance, rewrite
from mirror.relay.rewrite import Rewriter
from mirror.relay.schemas import SchemaBarrier
from mirror.relay.transform import Transform
from mirror.relay.transforming import TransformingRewriter
from tests.harness import hostile_batches
from tests.harness.hostile_batches import ZSTD, record, stored

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.batches.batch import Buffer
    from mirror.relay.rewrite import Rewritten

pytestmark = pytest.mark.unit

STRANGE = 7
HUGE = 1 << 30


class _Answers:
    """What the registries said."""

    def findings(self) -> Mapping[int, Settled]:
        return {STRANGE: Settled(strange=True)}


def barrier() -> SchemaBarrier:
    flow = FlowConfig(source="A", target="B", schemas="require")
    made = SchemaBarrier(flow, cast("Any", _Answers()))
    assert made.verdicts() == []
    return made


def rule(*, stamps: bool) -> provenance.Provenance:
    if not stamps:
        return provenance.none()
    return provenance.via(source_alias="A", source_id="a-id", target_id="b-id")


def wire(number: int) -> bytes:
    return struct.pack(">bI", 0, number) + b"x" * 100


def take(
    worker: Rewriter, buffer: Buffer, position: int = 0, max_bytes: int = 1000
) -> Rewritten:
    rows = batch.read(
        buffer, 0, len(buffer), position=position, aborted=(), scratch=batch.scratch()
    ).rows
    worker.begin()
    return worker.rewrite(
        buffer, rows, position=position, max_bytes=max_bytes, at=("orders", 0)
    )


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
        monkeypatch.setattr("mirror.batches.arrow._MOST_BYTES", 500)
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
    sides = Sides(flow=flow, source=nothing, target=nothing, cluster=nothing)
    assert settle(sides, 2**31) == Settled(strange=True)


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
