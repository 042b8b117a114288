"""What a worker holds in memory, at its worst."""

from __future__ import annotations

from contextlib import closing
import struct
from typing import TYPE_CHECKING, Any

import pytest
import zstandard

from mirror.clusters.cluster import Cluster
from mirror.clusters.wire.produce import EncodedBatch
from mirror.records import writing
from tests.harness import hostile_batches as hostile
from tests.harness.admin import create_topic
from tests.harness.load import keys, producer, send
from tests.harness.slot_processes import SlotProcess
from tests.harness.slots import SparklessFlow
from tests.harness.waiting import wait_for
from tests.harness.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = [pytest.mark.integration, pytest.mark.full]

_GIB = 1 << 30
_LARGE: Mapping[str, Any] = {"max_message_bytes": str(8 << 20)}


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize(("partitions", "each"), [(4, 150), (200, 2000)])
def test_worker_stays_below_one_gib(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    codec: str,
    partitions: int,
    each: int,
) -> None:
    """A worker with a backlog of records of 1 MiB, or of many small ones on 200
    partitions, plain or in batches that unpack to many times their size, copies it all
    and never holds 1 GiB.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    flow = SparklessFlow(source=source, target=target, topic=topic_name)
    create_topic(source, topic_name, partitions, **_LARGE)
    create_topic(target, flow.copy, partitions, **_LARGE)
    size = 1 << 20 if partitions == 4 else 100
    order = keys(partitions, each)
    client = producer(
        source,
        compression_type=codec,
        message_max_bytes=8 << 20,
        batch_size=7 << 20,
        linger_ms=200,
        queue_buffering_max_kbytes=64 << 10,
    )
    send(client, topic_name, order, b"v" * size)
    flow.own()
    with (
        SlotProcess(flow, lease_seconds=120, like_a_worker=True) as slot,
        Witness(target) as witness,
    ):
        witness.begin(flow.copy)
        witness.wait(partitions * each, 100)
        assert slot.end() == "done"
        peak = slot.peak_memory()
        witness.assert_found(order)
    print(f"peak memory, {partitions} partitions, {codec}: {peak >> 20} MiB")
    assert peak < _GIB


def bomb(size: int) -> EncodedBatch:
    """A batch of one record with `size` zeros, packed to a few kilobytes."""
    right = hostile.record(value=b"")
    behind = b"\0"  # no headers
    head = right[1:-2] + hostile.varint(size)
    length = len(head) + size + len(behind)
    packer = zstandard.ZstdCompressor().compressobj()
    parts = [packer.compress(hostile.varint(length) + head)]
    parts += [packer.compress(bytes(1 << 20)) for _ in range(size >> 20)]
    section = b"".join([*parts, packer.compress(behind), packer.flush()])
    whole = hostile.stored(section, attributes=hostile.ZSTD)
    header = bytearray(whole[: hostile.HEADER_SIZE])
    struct.pack_into(">i", header, 12, -1)
    return EncodedBatch(header=header, body=section, count=1)


@pytest.mark.parametrize(("mebibytes", "copied"), [(900, False), (64, True)])
def test_a_bomb_takes_no_gigabyte(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    mebibytes: int,
    copied: bool,
) -> None:
    """With one record of 900 MB of zeros in a zstd batch of some 30 KB, what precedes
    it is copied, then its partition is set aside with the setting's name, and its
    neighbour continues. One within the bound is copied. The worker never holds 1 GiB.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    flow = SparklessFlow(source=source, target=target, topic=topic_name)
    create_topic(source, topic_name, 2, max_message_bytes=str(1 << 20))
    create_topic(target, flow.copy, 2, max_message_bytes=str(256 << 20))
    flow.own()
    order = keys(2, 100)
    client = producer(source)
    send(client, topic_name, order, b"v")
    with closing(Cluster(flow.plan.source).connect()) as cluster:
        writing.write(cluster, {topic_name: [bomb(mebibytes << 20)]})
    order[0] += [b"key"] if copied else []
    with (
        SlotProcess(flow, lease_seconds=60, like_a_worker=True) as slot,
        Witness(target) as witness,
    ):
        witness.begin(flow.copy)
        witness.wait(200 + copied, 50)
        if not copied:
            more = keys(2, 50, first=100)[1]
            send(client, topic_name, {1: more}, b"v")
            order[1] += more
            witness.wait(250, 50)
        assert slot.end() == "done"
        peak = slot.peak_memory()
        witness.assert_found(order)
    print(f"peak memory, a bomb of {mebibytes} MiB: {peak >> 20} MiB")
    assert peak < _GIB
    if not copied:
        why = "offset 100: it unpacks to more than max_unpacked_bytes"
        with flow.slot() as again:
            wait_for(
                lambda: any(
                    report.partition == 0 and why in report.reason
                    for report in again.run(flow.lease(3))
                )
            )
