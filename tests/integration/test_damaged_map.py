"""A record of the offset map that is none of mirror's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror.errors import CorruptBatchError
from mirror.offsets import runs
from mirror.offsets.translation import Exactness, OffsetMap
from tests.harness.admin import create_topic, delete_records, end_offsets
from tests.harness.load import NumberedLoad, producer
from tests.harness.slots import SparklessFlow, copy_until
from tests.harness.witness import Witness

if TYPE_CHECKING:
    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration


def test_it_is_told_until_it_is_gone(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """A reader of the map names its offset, the second time as well as the first, and
    does not go on behind it with a hole. Once the records up to it are deleted, the map
    is read on from there.
    """
    source, target = (clusters[name].bootstrap for name in "ab")
    create_topic(source, topic_name)
    load = NumberedLoad(source, topic_name, 1, seed=1)
    flow = SparklessFlow(source=source, target=target, topic=topic_name).own()
    where = target, runs.topic_name(flow.alias, ".")
    with (
        flow.slot() as slot,
        Witness(target) as witness,
        flow.connected() as (_, cluster),
    ):
        witness.begin(flow.copy)
        known = OffsetMap.of(flow.config().flows[flow.name], cluster)

        def copy(count: int) -> None:
            load.send(count)
            copy_until(witness, slot, flow.lease(30), count=load.total)

        copy(100)
        known.refresh()
        (at,) = end_offsets(*where).values()
        client = producer(target)
        client.produce(where[1], key=b"", value=b'{"version": 1}', partition=0)
        assert client.flush(30) == 0
        for _ in range(2):
            with pytest.raises(CorruptBatchError, match=rf"\(offset {at}\)"):
                known.refresh()
        delete_records(*where, at + 1)
        copy(50)
        known.refresh()
        assert known.position(topic_name, 0) == load.total
        found = known.translate(topic_name, 0, load.total - 1)
        last = end_offsets(target, flow.copy)[0] - 2  # behind it is a marker
        assert (found.offset, found.exactness) == (last, Exactness.EXACT)
