"""The first write to a copy counts only in the topic that the slot knows."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
import structlog

from mirror.clusters.cluster import Cluster
from mirror.copying.slot import Slot
from mirror.offsets import runs
from mirror.records.reading import TopicReader
from tests.harness.admin import create_topic, delete_topic, topic_exists
from tests.harness.load import keys, producer, send
from tests.harness.slots import RunningLease, SparklessFlow
from tests.harness.waiting import wait_for
from tests.harness.witness import Witness

if TYPE_CHECKING:
    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_EACH = 10


def test_copies_re_created_behind_a_take_over_are_noticed(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A test deletes and re-creates a copy while a slot that has taken over waits for
    the first record: the slot takes over again, the new copy has all records once, and
    the offset map attributes them only to the new copy.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    took_over: list[None] = []
    take_over = Slot._take_over

    def counted(*arguments: object) -> None:
        take_over(*arguments)
        took_over.append(None)

    monkeypatch.setattr(Slot, "_take_over", counted)
    create_topic(source, topic_name)
    flow = SparklessFlow(
        source=source,
        target=target,
        topic=topic_name,
    ).own()
    with (
        Witness(target) as witness,
        contextlib.closing(Cluster(flow.plan.target).connect()) as reader,
        structlog.testing.capture_logs() as said,
        flow.slot() as slot,
    ):
        lease = RunningLease(slot, flow.lease(120))
        try:
            wait_for(lambda: took_over)
            old = reader.topics([flow.copy])[flow.copy].topic_id
            delete_topic(target, flow.copy)
            wait_for(lambda: not topic_exists(target, flow.copy))
            create_topic(target, flow.copy)
            new = reader.wait_for_topic(flow.copy).topic_id
            assert new != old
            send(producer(source), topic_name, keys(1, _EACH), b"v")
            witness.begin(flow.copy)
            witness.wait(_EACH, 60, lease)
        finally:
            lease.end()
        witness.assert_exactly(flow.copy, keys(1, _EACH))
        noted = TopicReader(reader, runs.topic_name(flow.alias)).read()
        blocks = [block for _, _, value in noted for block in runs.decode(value)]
    assert {block.copy_id for block in blocks} == {new}
    errors = [
        each["error"] for each in said if each["event"] == "slot takes over again"
    ]
    assert len(errors) == 1, said
    assert f"its id was {old} and is {new}" in errors[0]
