"""Copies of a flow whose `provenance` was changed: that alone makes none differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror.proofs.account import FindingKind
from tests.harness.admin import create_topic
from tests.harness.load import producer
from tests.harness.proofs import proven
from tests.harness.slots import SparklessFlow
from tests.harness.witness import read_topic

if TYPE_CHECKING:
    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_EACH = 50


@pytest.mark.parametrize("by_content", [False, True])
def test_copies_that_were_stamped_once_are_equal(
    clusters: dict[str, PlaygroundCluster], topic_name: str, by_content: bool
) -> None:
    """A flow copies with `mirror.via`, and then without: both kinds are equal. A second
    copy of a stamped one is found.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(a, topic_name, partitions=1)
    client = producer(a)
    for time, stamped in enumerate((True, False), 1):
        for number in range(_EACH):
            client.produce(
                topic_name, key=b"%d.%d" % (time, number), headers=[("h", b"1")],
                partition=0,
            )  # fmt: skip
        assert client.flush(30) == 0
        flow = SparklessFlow(
            source=a, target=b, topic=topic_name, alias=topic_name,
            settings={"provenance": stamped},
        ).own()  # fmt: skip
        flow.copy_until(time * _EACH)
    copies = read_topic(b, flow.copy)[0]
    assert [len(each.headers() or []) for each in copies] == [2] * _EACH + [1] * _EACH

    found = proven(flow, by_content=by_content)

    assert found.findings == ()
    assert [each.account.equal for each in found.partitions] == [2 * _EACH]

    again = copies[5]
    other = producer(b)
    other.produce(
        flow.copy, key=again.key(), headers=again.headers(),
        timestamp=again.timestamp()[1], partition=0,
    )  # fmt: skip
    assert other.flush(30) == 0
    assert [(each.kind, each.source) for each in proven(flow).findings] == [
        (FindingKind.DOUBLED, 5)
    ]


def test_what_it_left_out_while_it_stamped_is_filtered(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """Records that came through the target before have no copy, as the flow stamped
    when it passed them. It no longer does, and they are filtered all the same.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(a, topic_name, partitions=1)
    flow = SparklessFlow(source=a, target=b, topic=topic_name, alias=topic_name).own()
    with flow.connected() as (_, target):
        via = f"B/{target.cluster_id}".encode()
    client = producer(a)
    for number in range(_EACH):
        looped = number % 5 == 2
        client.produce(
            topic_name, key=b"%d" % number, partition=0,
            headers=[("mirror.via", via)] if looped else None,
        )  # fmt: skip
    assert client.flush(30) == 0
    flow.copy_until(_EACH * 4 // 5)
    flow.settings["provenance"] = False

    for by_content in (False, True):
        found = proven(flow, by_content=by_content)
        assert found.findings == ()
        (part,) = found.partitions
        assert part.account.filtered == _EACH // 5
        assert part.account.equal == _EACH * 4 // 5
