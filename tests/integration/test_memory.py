"""What a worker holds in memory, at its worst."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
import uuid

import pytest

from tests.copying import Copying, SlotAlone, Witness, keys, send
from tests.harness import create_topic, producer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

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
    """A worker that has a backlog before it, of records of 1 MiB or of many small
    ones on 200 partitions, plain or in batches that unpack to many times their size,
    copies it all and never holds 1 GiB.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    copying = Copying(
        source=source, target=target, topic=topic_name, alias=f"M{uuid.uuid4().hex[:6]}"
    )
    create_topic(source, topic_name, partitions, **_LARGE)
    create_topic(target, copying.copy, partitions, **_LARGE)
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
    slot = SlotAlone(copying.own(), seconds=120)
    try:
        with Witness(target) as witness:
            witness.begin(copying.copy)
            witness.wait(partitions * each, 100)
            peak = slot.end()
            witness.assert_exactly(copying.copy, order)
    finally:
        slot.kill()
    print(f"peak memory, {partitions} partitions, {codec}: {peak >> 20} MiB")
    assert peak < _GIB
