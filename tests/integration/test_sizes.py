"""Very many records at once, written to real brokers and counted by other clients."""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING, Any
import uuid

from kafka import KafkaAdminClient
import numpy as np
import pytest

from mirror.clusters.admin import group_offsets
from mirror.clusters.admin.group_offsets import CommittedOffset
from mirror.clusters.cluster import Cluster
from mirror.copying.target import TargetWriter
from mirror.copying.transaction import PendingTransaction, TransactionRecords
from mirror.offsets import progress, runs
from mirror.offsets.progress import Position
from mirror.offsets.runs import Block
from mirror.pairs import losses
from mirror.pairs.losses import Cause, Loss
from mirror.service.ownership import PositionUpdate, rewrite_progress, take_ownership
from tests.harness.admin import create_topic
from tests.harness.configurations import configuration
from tests.harness.witness import read_topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirror.config.schema import FlowConfig
    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_LOSSES = 10_000
_TOPIC_ID = uuid.UUID(int=17)
_PARTITIONS = 300


@pytest.fixture
def flow(clusters: dict[str, PlaygroundCluster]) -> FlowConfig:
    """A flow that no other test has."""
    alias = f"S{uuid.uuid4().hex[:8]}"
    config = configuration(
        {
            "clusters": {
                alias: {"bootstrap_servers": clusters["a"].bootstrap},
                "B": {"bootstrap_servers": clusters["b"].bootstrap},
            },
            "flows": {f"{alias}->B": {"topics": [".*"]}},
        }
    )
    return config.flows[f"{alias}->B"]


@pytest.fixture
def cluster(
    clusters: dict[str, PlaygroundCluster], flow: FlowConfig
) -> Iterator[Cluster]:
    """The flow's target."""
    config = configuration(
        {
            "clusters": {"B": {"bootstrap_servers": clusters["b"].bootstrap}},
            "flows": {},
        }
    ).clusters["B"]
    with contextlib.closing(Cluster(config).connect()) as made:
        yield made


def _key(number: int) -> tuple[str, int]:
    return f"{number:040}", number


def _positions() -> dict[tuple[str, int], Position]:
    return {
        _key(number): Position(offset=number, topic_id=_TOPIC_ID)
        for number in range(_LOSSES)
    }


def _losses(flow: FlowConfig) -> list[Loss]:
    return [
        Loss(
            at=time.time(),
            flow=flow.name,
            topic=topic,
            partition=number,
            target_topic=f"A.{topic}",
            cause=Cause.DELETED,
            first=number,
            last=number + 99,
            topic_id=_TOPIC_ID.hex,
        )
        for topic, number in map(_key, range(_LOSSES))
    ]


def _values(bootstrap: str, topic: str) -> list[bytes]:
    """What a read_committed consumer of another library finds."""
    return [
        message.value() or b""
        for messages in read_topic(bootstrap, topic).values()
        for message in messages
    ]


def _assert_all_lost(bootstrap: str, flow: FlowConfig) -> None:
    found = [
        json.loads(value)
        for value in _values(bootstrap, losses.topic_name(flow.source))
    ]
    assert len(found) == _LOSSES
    ranges = {(e["topic"], e["partition"]): (e["first"], e["last"]) for e in found}
    assert ranges == {_key(n): (n, n + 99) for n in range(_LOSSES)}


def _assert_positions(
    bootstrap: str, flow: FlowConfig, cluster: Cluster, wanted: Mapping[Any, Position]
) -> None:
    topic = progress.topic_name(flow.source)
    # One record each, and those of the generation.
    assert len(_values(bootstrap, topic)) >= len(wanted)
    assert progress.read(cluster, topic).positions == wanted


@pytest.mark.full
def test_a_transaction_with_ten_thousand_losses(
    clusters: dict[str, PlaygroundCluster], flow: FlowConfig, cluster: Cluster
) -> None:
    """A slot's transaction that jumps over gaps of 10,000 partitions at once is
    committed, and the ledger has each of them once, read by an ordinary consumer.
    """
    bootstrap = clusters["b"].bootstrap
    take_ownership(flow, cluster, cluster, slots=1, partitions={})
    records = TransactionRecords.for_source(flow.source, flow.separator)
    writer = TargetWriter(cluster, records, flow, slot=0)
    writer.take_over()
    rewriter: Any = None
    transaction = PendingTransaction(
        rewriter=rewriter, moved=_positions(), losses=_losses(flow)
    )
    writer.write(transaction, cluster.topics(records.topics))
    writer.finish(60)
    assert [event.transaction for event in writer.take_events()] == [transaction]
    _assert_all_lost(bootstrap, flow)
    _assert_positions(bootstrap, flow, cluster, transaction.moved)


@pytest.mark.full
def test_ten_thousand_positions_moved_on_purpose(
    clusters: dict[str, PlaygroundCluster], flow: FlowConfig, cluster: Cluster
) -> None:
    """Moving 10,000 positions, with a loss and a part of the offset map for each, is
    one transaction: an ordinary consumer finds all of it.
    """
    bootstrap = clusters["b"].bootstrap
    blocks = [
        Block(
            topic=topic,
            partition=number,
            target_topic=f"A.{topic}",
            topic_id=_TOPIC_ID,
            runs=np.array([[number, number, 7]]),
        )
        for topic, number in map(_key, range(_LOSSES))
    ]
    wanted = _positions()
    rewrite_progress(
        flow,
        cluster,
        lambda _: PositionUpdate(positions=wanted, losses=_losses(flow), blocks=blocks),
    )
    _assert_all_lost(bootstrap, flow)
    _assert_positions(bootstrap, flow, cluster, wanted)
    the_map = _values(bootstrap, runs.topic_name(flow.source, flow.separator))
    found = {(b.topic, b.partition) for value in the_map for b in runs.decode(value)}
    assert found == wanted.keys()


def test_a_group_with_much_metadata(
    clusters: dict[str, PlaygroundCluster], cluster: Cluster, topic_name: str
) -> None:
    """A group's offsets are all set even if they are more than its coordinator accepts
    at once, each with the longest metadata that brokers allow.
    """
    bootstrap = clusters["b"].bootstrap
    create_topic(bootstrap, topic_name, _PARTITIONS)
    wanted = {
        (topic_name, number): CommittedOffset(number, f"{number:04000}")
        for number in range(_PARTITIONS)
    }
    assert group_offsets.commit(cluster, {topic_name: wanted}) == {}
    with contextlib.closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        shown = admin.list_group_offsets(topic_name)[topic_name]
    found = {(key.topic, key.partition): tuple(each)[:2] for key, each in shown.items()}
    assert found == wanted
