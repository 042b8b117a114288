"""What happens to clusters and topics while `mirror verify` reads them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from mirror.offsets import runs
from mirror.pairs import proofs
from mirror.proofs import log_stream, sides
from mirror.proofs.account import FindingKind
from mirror.proofs.log_stream import LogStream
from tests.harness.admin import (
    alter_topic,
    closed_ends,
    create_topic,
    delete_records,
    delete_topic,
    topic_exists,
)
from tests.harness.load import keys, producer, send
from tests.harness.proofs import Meanwhile, proven
from tests.harness.proxy import BrokerProxy
from tests.harness.slots import SparklessFlow
from tests.harness.waiting import wait_for
from tests.harness.witness import read_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.load import Order

pytestmark = pytest.mark.integration

_EACH = 100
_LARGE = 100_000
_FETCHED = 4 << 20
"""Bytes at once: less than a log of large records has."""


def _copied(
    source: str,
    target: str,
    topic: str,
    *,
    size: int = 100,
    partitions: int = 3,
    **configs: str,
) -> SparklessFlow:
    """A flow that has copied `_EACH` records to each partition of a topic with these
    configs.
    """
    create_topic(source, topic, partitions=partitions, **configs)
    flow = SparklessFlow(source=source, target=target, topic=topic, alias=topic).own()
    _copy(flow, target, keys(partitions, _EACH), size=size, total=partitions * _EACH)
    return flow


def _copy(
    flow: SparklessFlow, target: str, order: Order, *, size: int, total: int
) -> None:
    """Send these, and wait until the copy has `total` records."""
    assert isinstance(flow.source, str)
    send(producer(flow.source), flow.topic, order, bytes(size))
    flow.copy_until(total)


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
    monkeypatch.setattr(log_stream, "FETCH_BYTES", _FETCHED)
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    flow = _copied(a, b, topic_name, size=_LARGE, partitions=1)
    bootstrap, topic = (a, topic_name) if side == "source" else (b, flow.copy)
    passed: list[int] = []

    class Overtaken(LogStream):
        def _take(self, *arguments: Any) -> Iterator[Any]:
            yield from super()._take(*arguments)
            if self._wanted.topic == topic and not passed:
                passed.append(self._position)
                delete_records(bootstrap, topic, _EACH - 5)

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
    assert [each.kind for each in found.findings] == [FindingKind.UNPROVEN] * 2
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
    assert [each.kind for each in found.findings] == [FindingKind.UNPROVEN] * 2
    assert {each.detail for each in found.findings} == {found.findings[0].detail}
    assert "UNKNOWN_TOPIC_OR_PARTITION" in found.findings[0].detail


@pytest.mark.full
@pytest.mark.parametrize("side", ["source", "copy"])
def test_compaction_overtakes_it(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
    side: str,
) -> None:
    """Records that the cleaner of one side removes while they are read are no finding:
    a later record of their key explains each of them.
    """
    monkeypatch.setattr(log_stream, "FETCH_BYTES", _FETCHED)
    made = make_clusters("a", "b", settings={"log.cleaner.backoff.ms": "100"})
    a, b = made["a"].bootstrap, made["b"].bootstrap
    flow = _copied(
        a, b, topic_name, size=_LARGE, partitions=1, cleanup_policy="compact",
        segment_ms="100", min_cleanable_dirty_ratio="0.0001",
        min_compaction_lag_ms="3600000",
    )  # fmt: skip
    _copy(flow, b, keys(1, _EACH), size=_LARGE, total=2 * _EACH)
    bootstrap, topic = (a, topic_name) if side == "source" else (b, flow.copy)
    passed: list[int] = []

    def clean() -> None:
        alter_topic(bootstrap, topic, min_compaction_lag_ms="0")
        wait_for(lambda: _beside(bootstrap, topic) < 2 * _EACH, pause=0.2)

    class Overtaken(LogStream):
        def _take(self, *arguments: Any) -> Iterator[Any]:
            yield from super()._take(*arguments)
            if self._wanted.topic == topic and not passed:
                passed.append(self._position)
                clean()

    monkeypatch.setattr(sides, "LogStream", Overtaken)
    found = proven(flow)

    assert found.findings == ()
    account = found.partitions[0].account
    missing = account.compacted_source if side == "source" else account.compacted
    assert missing > 0
    assert (account.equal + missing, account.wrong) == (2 * _EACH, 0)


def _beside(bootstrap: str, topic: str) -> int:
    """How many of the flow's records the log has; one more is written, since only that
    ends a segment.
    """
    send(producer(bootstrap), topic, {0: [b"ends the segment"]}, b"")
    found = read_topic(bootstrap, topic)[0]
    return sum(message.key() != b"ends the segment" for message in found)


def test_a_map_that_begins_within_the_range(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """Retention took the oldest part of the offset map: the copies that it named are
    UNPROVEN, with a way out, and neither equal, missing nor unexpected. All others are
    proven, and by content all of them.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    flow = _copied(a, b, topic_name, partitions=1)
    own_map = runs.topic_name(flow.alias, ".")
    before = closed_ends(b, own_map)[0]
    _copy(flow, b, keys(1, _EACH), size=100, total=2 * _EACH)
    delete_records(b, own_map, before)

    found = proven(flow)
    assert {each.kind for each in found.findings} == {FindingKind.UNPROVEN}
    assert sum(each.count for each in found.findings) == _EACH
    assert all("--by content" in each.detail for each in found.findings)
    assert found.partitions[0].account.equal == _EACH

    by_content = proven(flow, by_content=True)
    assert by_content.findings == ()
    assert by_content.partitions[0].account.equal == 2 * _EACH
