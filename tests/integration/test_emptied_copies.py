"""Copies that lost records: what their logs once had is expired, the rest missing.

A proof of what they lost later holds no longer. And copies whose source was lost: those
of a deleted topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import AdminClient
import pytest

from mirror.proofs import repair_appending
from mirror.proofs.account import FindingKind
from tests.harness import segments
from tests.harness.admin import create_topic, delete_records, end_offsets
from tests.harness.load import producer, send
from tests.harness.proofs import proven
from tests.harness.slots import SparklessFlow
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_EACH, _TIMES = 50, 3


def _copied(a: str, b: str, name: str, **settings: str) -> SparklessFlow:
    """A topic that is copied in several transactions, so that its map has as many
    runs.
    """
    create_topic(a, name, partitions=1)
    flow = SparklessFlow(
        source=a, target=b, topic=name, alias=name, settings=settings
    ).own()
    _copy(flow, a, range(_TIMES))
    return flow


def _copy(flow: SparklessFlow, a: str, times: range, **options: Any) -> None:
    client = producer(a, **options)
    for time in times:
        order = {0: [b"%d.%d" % (time, number) for number in range(_EACH)]}
        send(client, flow.topic, order, b"v")
        flow.copy_until((time + 1) * _EACH)


def _recreated(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    wait_for(lambda: topic not in admin.list_topics(timeout=30).topics)
    create_topic(bootstrap, topic, partitions=1)


@pytest.mark.parametrize("by_content", [False, True])
def test_what_a_copy_once_had_is_expired(
    clusters: dict[str, PlaygroundCluster], topic_name: str, by_content: bool
) -> None:
    """Whether the copy's log begins between its transactions, or has nothing any more:
    what stood before its beginning is expired, and the rest is equal.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    flow = _copied(a, b, topic_name)
    # A marker follows each transaction.
    ends = (end_offsets(b, flow.copy)[0], _TIMES * _EACH)
    for start, expired in ((_EACH + 20, _EACH + 19), ends):
        delete_records(b, flow.copy, start)

        found = proven(flow, by_content=by_content)

        assert found.findings == ()
        (part,) = found.partitions
        assert part.account.expired == expired
        assert part.account.equal == _TIMES * _EACH - expired


def test_a_map_that_has_lost_its_oldest_part(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """Where neither the copy nor the map goes back so far, records are expired, but no
    more of them than the copy's log has lost offsets; where the copy's log has lost
    nothing, they are missing.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    flow = _copied(a, b, topic_name)
    delete_records(b, flow.copy, end_offsets(b, flow.copy)[0])
    delete_records(b, f"{topic_name}.offset-map.internal", -1)

    found = proven(flow)

    assert found.findings == ()
    (part,) = found.partitions
    assert part.account.expired == part.account.records == _TIMES * _EACH

    _recreated(b, flow.copy)
    assert [(each.kind, each.count) for each in proven(flow).findings] == [
        (FindingKind.MISSING, _TIMES * _EACH)
    ]

    other = producer(b)
    for _ in range(10):
        other.produce(flow.copy, b"of another writer", partition=0)
    assert other.flush(30) == 0
    delete_records(b, flow.copy, -1)
    assert [(each.kind, each.count) for each in proven(flow).findings] == [
        (FindingKind.UNPROVEN, _TIMES * _EACH - 10)
    ]


@pytest.mark.parametrize(
    ("start", "by_content"),
    [("earliest", False), ("earliest", True), ("latest", False)],
)
def test_what_a_copy_never_had_is_missing(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    start: str,
    by_content: bool,
) -> None:
    """A copy that was deleted and created again has lost nothing by retention: all that
    the flow says it copied is missing, and nothing is explained; also if the flow began
    with new records, since the map still knows which was the first.
    A repair appends all of it.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    flow = _copied(a, b, topic_name, start=start)
    _recreated(b, flow.copy)

    found = proven(flow, by_content=by_content)

    (part,) = found.partitions
    assert part.account.explained == {}
    assert [(each.kind, each.source, each.count) for each in found.findings] == [
        (FindingKind.MISSING, 0, _TIMES * _EACH)
    ]

    config = flow.config()
    steered = config.flows[flow.name]
    repair_appending.begin(config, steered)
    missing = proven(flow)
    with repair_appending.prepare(
        config, steered, missing, although_order=False
    ) as made:
        made.append()
    found = proven(flow, by_content=by_content)
    assert found.findings == ()
    assert [each.account.equal for each in found.partitions] == [_TIMES * _EACH]


def test_copies_of_a_deleted_topic_are_counted_apart(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """A topic is deleted on the source and created again: the new one's records are
    equal to their copies, the deleted one's copies are counted as such, as far as the
    copy still has them, and nothing is found.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    flow = _copied(a, b, topic_name)
    _recreated(a, topic_name)
    _copy(flow.own(), a, range(_TIMES, _TIMES + 1))
    delete_records(b, flow.copy, _EACH + 20)  # a marker follows each transaction

    found = proven(flow)

    assert found.findings == ()
    (part,) = found.partitions
    assert part.account.records == part.account.equal == _EACH
    assert part.account.older == _TIMES * _EACH - (_EACH + 19)


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
    _copy(flow, a.bootstrap, range(2), linger_ms=1000)  # a batch each time
    assert proven(flow, since=None).findings == ()
    b.stop()
    segments.rewrite(b, flow.copy, lambda batches: batches[:-2])
    b.start()

    found = proven(flow, since=None)

    assert [(each.kind, each.source, each.count) for each in found.findings] == [
        (FindingKind.MISSING, _EACH, _EACH)
    ]
