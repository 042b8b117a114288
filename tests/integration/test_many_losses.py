"""Very many partitions lose records at once, far away; their neighbours do not wait."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from mirror.pairs import losses
from tests.harness.admin import create_topic, delete_records
from tests.harness.far import far_from
from tests.harness.load import keys, producer, send
from tests.harness.slots import RunningLease, SparklessFlow, copy_until
from tests.harness.waiting import crowd
from tests.harness.witness import Witness, assert_exactly_once, order_of, read_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = [pytest.mark.integration, pytest.mark.full]

_PARTITIONS, _HEALTHY = 2000, 100
_EACH = 2


def test_lost_beginnings_hold_up_no_neighbour(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]], topic_name: str
) -> None:
    """1,900 of 2,000 partitions, 80 ms away, lose their beginning while the service is
    down: the other 100 continue within 10 s, the ledger has every loss once, and what
    follows the gaps is copied once.
    """
    clusters = make_clusters("a", "b", jvm=("-Xmx768m",))
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, _PARTITIONS)
    copied, lost, late = (
        keys(_PARTITIONS, _EACH, first=number * _EACH) for number in range(3)
    )
    gone = range(_HEALTHY, _PARTITIONS)
    client = producer(source)
    send(client, topic_name, copied, b"v")
    with (
        far_from(clusters["a"], one_way_seconds=0.04) as (address, _),
        Witness(target) as witness,
    ):
        flow = SparklessFlow(
            source=address,
            target=target,
            topic=topic_name,
        ).own()
        witness.begin(flow.copy)
        with flow.slot() as slot:
            copy_until(
                witness, slot, flow.lease(120), count=_PARTITIONS * _EACH, timeout=100
            )
        send(client, topic_name, lost, b"v")
        _delete_all(source, topic_name, gone)
        send(client, topic_name, late, b"v")

        flow.own()
        began, slow = time.monotonic(), crowd()
        with flow.slot() as slot:
            lease = RunningLease(slot, flow.lease(300))
            while any(len(witness.found[p]) < 3 * _EACH for p in range(_HEALTHY)):
                have = sum(map(len, witness.found.values()))
                witness.wait(have + 1, 100, lease)
            took = time.monotonic() - began
            witness.wait(_PARTITIONS * 3 * _EACH - len(gone) * _EACH, 200, lease)
            lease.end()
        expected = {
            p: copied[p] + (lost[p] if p < _HEALTHY else []) + late[p] for p in copied
        }
        assert_exactly_once(order_of(target, flow.copy), expected)
    entries = [
        json.loads(message.value() or b"")
        for messages in read_topic(target, losses.topic_name(flow.alias)).values()
        for message in messages
    ]
    noted = sorted((each["partition"], each["first"], each["last"]) for each in entries)
    assert [(p, _EACH, 2 * _EACH - 1) for p in gone] == noted
    print(f"the healthy ones went on after {took:.1f} s")
    assert took < 10 * max(slow, crowd())


def _delete_all(bootstrap: str, topic: str, partitions: range) -> None:
    """Delete every record that these partitions have now."""
    delete_records(bootstrap, topic, 2 * _EACH, partitions=partitions)
