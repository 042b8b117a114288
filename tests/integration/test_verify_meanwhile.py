"""What happens to clusters and topics while `mirror verify` reads them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
import pytest

from mirror.proving import log_stream, sides
from mirror.proving.account import Kind
from mirror.proving.log_stream import LogStream
from mirror.recovery import proofs
from tests.harness.admin import create_topic, delete_topic, topic_exists
from tests.harness.load import keys, producer, send
from tests.harness.proofs import Meanwhile, proven
from tests.harness.proxy import BrokerProxy
from tests.harness.slots import SparklessFlow, copy_until
from tests.harness.waiting import wait_for
from tests.harness.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_EACH = 100
_LARGE = 100_000


def _copied(
    source: str, target: str, topic: str, *, size: int = 100, partitions: int = 3
) -> SparklessFlow:
    """A flow that has copied so many records to each partition."""
    create_topic(source, topic, partitions=partitions)
    flow = SparklessFlow(source=source, target=target, topic=topic, alias=topic).own()
    send(producer(source), topic, keys(partitions, _EACH), bytes(size))
    with Witness(target) as witness, flow.slot() as slot:
        witness.begin(flow.copy)
        copy_until(witness, slot, flow.lease(60), count=partitions * _EACH, timeout=60)
    return flow


@pytest.mark.parametrize("side", ["source", "copy"])
def test_retention_overtakes_it(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
    side: str,
) -> None:
    """Records that one side deletes while they are read are no finding: they are
    expired, and counted as that.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    flow = _copied(a, b, topic_name, size=_LARGE, partitions=1)
    bootstrap, topic = (a, topic_name) if side == "source" else (b, flow.copy)
    passed: list[int] = []

    class Overtaken(LogStream):
        def _take(self, *arguments: Any) -> Iterator[Any]:
            yield from super()._take(*arguments)
            if self._stretch.topic == topic and not passed:
                passed.append(self._position)
                admin = AdminClient({"bootstrap.servers": bootstrap})
                end = TopicPartition(topic, 0, _EACH - 5)
                admin.delete_records([end])[end].result(30)

    monkeypatch.setattr(sides, "LogStream", Overtaken)
    found = proven(flow)

    assert found.findings == ()
    (part,) = found.partitions
    account = part.account
    assert account.equal >= passed[0]
    if side == "source":
        assert account.expired_source > 0
        assert (account.records, account.equal + account.expired_source) == (
            *(account.equal, _EACH),
        )
    else:
        assert account.expired > 0
        assert (account.records, account.equal + account.expired) == (_EACH, _EACH)


def test_the_source_goes_away_halfway(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was proven before stays so, on the target as well; the rest is UNPROVEN with
    the reason, after one wait and not one per partition. Once the source is back, the
    next run compares the rest alone.
    """
    monkeypatch.setattr(sides, "PATIENCE_SECONDS", 1.0)
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    flow = _copied(a, b, topic_name)
    with ExitStack() as stack:
        proxy = stack.enter_context(BrokerProxy(a))
        flow.source = proxy.bootstrap
        found = proven(flow, since=None, runner=Meanwhile(stack.close))
    flow.source = a

    assert [each.account.equal for each in found.partitions] == [_EACH, 0, 0]
    assert [each.whole for each in found.partitions] == [True, False, False]
    assert [each.kind for each in found.findings] == [Kind.UNPROVEN] * 2
    assert [each.count for each in found.findings] == [_EACH, _EACH]
    assert proxy.bootstrap in found.findings[0].detail
    assert found.findings[0].detail == found.findings[1].detail  # not tried
    with flow.connected() as (_, target):
        assert set(proofs.read(target, flow.alias)) == {(topic_name, 0)}

    rest = proven(flow, since=None)
    assert rest.findings == ()
    assert [each.account.equal for each in rest.partitions] == [0, _EACH, _EACH]


@pytest.mark.parametrize("side", ["source", "copy"])
def test_a_topic_is_deleted_midway(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
    side: str,
) -> None:
    """What was compared before counts, the rest of the topic is UNPROVEN, and the run
    ends after one wait.
    """
    monkeypatch.setattr(log_stream, "PATIENCE_SECONDS", 1.0)
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    flow = _copied(a, b, topic_name)
    bootstrap, topic = (a, topic_name) if side == "source" else (b, flow.copy)

    def delete() -> None:
        delete_topic(bootstrap, topic)
        wait_for(lambda: not topic_exists(bootstrap, topic))

    found = proven(flow, runner=Meanwhile(delete))

    assert [each.account.equal for each in found.partitions] == [_EACH, 0, 0]
    assert [each.kind for each in found.findings] == [Kind.UNPROVEN] * 2
    assert {each.detail for each in found.findings} == {found.findings[0].detail}
    assert "UNKNOWN_TOPIC_OR_PARTITION" in found.findings[0].detail
