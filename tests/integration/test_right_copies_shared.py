"""Copies that several writers share, or that were made twice: verify finds nothing, and
counts what is not of this flow.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.harness.admin import create_topic
from tests.harness.load import NumberedLoad, producer
from tests.harness.proofs import checked, proven
from tests.harness.slot_processes import LoosePoint, SignalAt
from tests.harness.slots import RunningLease, SparklessFlow, copy_until
from tests.harness.waiting import wait_for
from tests.harness.witness import Witness, order_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.playground.cluster import PlaygroundCluster
    from mirror.proofs.account import Account
    from mirror.proofs.verification import Proven
    from tests.harness.slot_processes import SlotProcess

pytestmark = pytest.mark.integration

_EACH = 300


def _send(bootstrap: str, topic: str, name: str) -> None:
    client = producer(bootstrap)
    for number in range(_EACH):
        client.produce(topic, key=f"{name}{number}".encode(), value=b"v", partition=0)
    assert client.flush(30) == 0


def _account(
    flow: SparklessFlow, *, by_content: bool, prove: Callable[..., Proven] = checked
) -> Account:
    """Of its only partition, in which nothing is found."""
    found = prove(flow, by_content=by_content)
    assert found.findings == ()
    (part,) = found.partitions
    return part.account


@pytest.mark.full
def test_a_merge_of_three(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """Three flows and a local producer write one copy: each flow's records are equal,
    and all others are somebody else's, by the map and by content.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    merged = f"merged-{topic_name}"
    flows = []
    for number in range(3):
        topic = f"{topic_name}-{number}"
        create_topic(a, topic, partitions=1)
        flows.append(
            SparklessFlow(
                source=a, target=b, topic=topic, alias=f"M{number}{topic_name[-8:]}",
                settings={
                    "policy": "rename",
                    "rename": [{"match": topic, "to": merged}],
                },
            ).own()
        )  # fmt: skip
    with Witness(b) as witness:
        witness.begin(merged)
        for part in range(1, 3):  # one after the other, and once more
            for number, flow in enumerate(flows):
                _send(a, flow.topic, f"{part}-{number}-")
                count = ((part - 1) * 4 + number + 1) * _EACH
                with flow.slot() as slot:
                    copy_until(witness, slot, flow.lease(60), count=count, timeout=60)
            _send(b, merged, f"{part}-local-")
    for flow in flows:
        for by_content in (False, True):
            account = _account(flow, by_content=by_content)
            assert (account.equal, account.foreign) == (2 * _EACH, 6 * _EACH)


def test_both_ways_under_one_name(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """A topic of the same name is copied in both directions: each side's own records
    are equal on the other, what came from there is filtered, and nothing is found.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    for cluster in (a, b):
        create_topic(cluster, topic_name, partitions=1)
    there, back = (
        SparklessFlow(
            source=source, target=target, topic=topic_name,
            alias=f"{way}{topic_name[-8:]}", settings={"policy": "identity"},
        ).own()
        for way, source, target in (("T", a, b), ("R", b, a))
    )  # fmt: skip
    _send(a, topic_name, "a")
    _send(b, topic_name, "b")
    for flow in (there, back):
        flow.copy_until(2 * _EACH, at=topic_name)
    with there.slot() as slot:  # it passes what came back
        running = RunningLease(slot, there.lease(60))
        try:
            wait_for(
                lambda: (
                    _account(there, by_content=False, prove=proven).filtered == _EACH
                ),
                30,
                0.2,
            )
        finally:
            running.end()
    for flow in (there, back):
        for by_content in (False, True):
            account = _account(flow, by_content=by_content)
            assert (account.equal, account.filtered) == (_EACH, _EACH)
            assert account.foreign == _EACH


@pytest.mark.full
def test_at_least_once_after_kills(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    start_slot: Callable[..., SlotProcess],
) -> None:
    """Slots without exactly-once die before they write the map, and between map and
    progress: what the next one copies again is counted as repeated, as many as an
    ordinary consumer finds twice, and is no finding.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(a, topic_name, partitions=1)
    flow = SparklessFlow(
        source=a, target=b, topic=topic_name, alias=f"K{topic_name[-8:]}",
        settings={"exactly_once": False},
    ).own()  # fmt: skip
    load = NumberedLoad(a, topic_name, 1)
    for passes in (1, 2):
        load.send(_EACH)
        died = start_slot(
            flow,
            signal_at=SignalAt(
                point=LoosePoint.BEFORE_EACH_RECORD,
                number=signal.SIGKILL, passes=passes,
            ),
        )  # fmt: skip
        assert died.how_it_ended() == ""
        with flow.slot() as slot:
            running = RunningLease(slot, flow.lease(60))
            try:
                wait_for(
                    lambda: set(order_of(b, flow.copy)[0]) == set(load.order[0]),
                    60, 0.3,
                )  # fmt: skip
            finally:
                running.end()
    keys = order_of(b, flow.copy)[0]
    again = len(keys) - len(set(keys))
    assert again >= 2 * _EACH  # the test is about these
    for by_content in (False, True):
        account = _account(flow, by_content=by_content)
        assert account.equal == len(set(keys)) == 2 * _EACH
        assert account.repeats == again


def test_while_the_flow_goes_on(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """Verify looks at both clusters while a slot copies what a producer writes: nothing
    is found, again and again, and in the end all is equal.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(a, topic_name, partitions=1)
    flow = SparklessFlow(
        source=a, target=b, topic=topic_name, alias=f"L{topic_name[-8:]}"
    ).own()
    load = NumberedLoad(a, topic_name, 1)
    load.send(_EACH)
    with flow.slot() as slot:
        running = RunningLease(slot, flow.lease(600))
        try:
            with load.streaming(chunk=20, pause=0.005):
                grown = [
                    _account(flow, by_content=by_content, prove=proven).equal
                    for _ in range(5)
                    for by_content in (False, True)
                ]
            wait_for(
                lambda: len(order_of(b, flow.copy)[0]) == len(load.order[0]), pause=0.3
            )
        finally:
            running.end()
    assert grown[0] < grown[-1]
    assert _account(flow, by_content=False).equal == len(load.order[0])
