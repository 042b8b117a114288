"""Copies that lost their end after they were proven: the proof holds no longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror.proofs.account import FindingKind
from tests.harness import segments
from tests.harness.admin import create_topic
from tests.harness.load import producer
from tests.harness.proofs import proven
from tests.harness.slots import SparklessFlow, copy_until
from tests.harness.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_EACH = 50


def test_what_a_copy_lost_since_its_proof_is_missing(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
) -> None:
    """A copy is proven, and then loses its second transaction, as in an unclean
    election: the next proof does not begin after that, and finds what is missing.
    """
    made = make_clusters()
    a, b = made["a"], made["b"]
    create_topic(a.bootstrap, "t", partitions=1)
    flow = SparklessFlow(
        source=a.bootstrap, target=b.bootstrap, topic="t", alias="A"
    ).own()
    client = producer(a.bootstrap, linger_ms=1000)  # a batch each time
    with Witness(b.bootstrap) as witness, flow.slot() as slot:
        witness.begin(flow.copy)
        for time in (1, 2):
            for number in range(_EACH):
                client.produce("t", key=b"%d.%d" % (time, number), partition=0)
            assert client.flush(30) == 0
            copy_until(witness, slot, flow.lease(60), count=time * _EACH, timeout=60)
    assert proven(flow, since=None).findings == ()
    b.stop()
    segments.rewrite(b, flow.copy, lambda batches: batches[:-2])
    b.start()

    found = proven(flow, since=None)

    assert [(each.kind, each.source, each.count) for each in found.findings] == [
        (FindingKind.MISSING, _EACH, _EACH)
    ]
