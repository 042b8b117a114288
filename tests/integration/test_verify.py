"""What `mirror verify` says about copies, right ones and wrong ones."""

from __future__ import annotations

import multiprocessing
import signal
from typing import TYPE_CHECKING, Any

import pytest

from mirror.clusters.wire import fetch
from mirror.errors import MirrorError, NothingChosenError
from mirror.offsets.progress import NO_ID
from mirror.pairs import proofs
from mirror.proofs import survey
from mirror.proofs.account import FindingKind
from mirror.proofs.log_stream import LogStream, OffsetRange
from tests.harness.admin import add_partitions, create_topic
from tests.harness.load import NumberedLoad, keys, producer, send
from tests.harness.proofs import proven
from tests.harness.slots import SparklessFlow
from tests.harness.waiting import PATIENCE_SECONDS, crowd, wait_for
from tests.harness.witness import read_topic

if TYPE_CHECKING:
    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration


def test_a_plain_copy_is_equal(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """Every record of a plain topic with keys, nulls and headers is found equal, and as
    many as an ordinary consumer counts. A flow that never ran is refused, and a pattern
    that no topic matches.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(a, topic_name, partitions=3)
    client = producer(a)
    for number in range(3000):
        client.produce(
            topic_name,
            key=None if number % 7 == 0 else f"k{number}".encode(),
            value=None if number % 11 == 0 else b"v" * (number % 300),
            headers=[("h", b"1"), ("h", None), ("", b"")] if number % 3 else None,
            partition=number % 3,
        )
    assert client.flush(30) == 0
    flow = SparklessFlow(source=a, target=b, topic=topic_name, alias=topic_name)
    with pytest.raises(MirrorError, match=f"flow {topic_name}->B has never run"):
        proven(flow)
    flow.own()
    flow.copy_until(3000)

    found = proven(flow)

    assert found.findings == ()
    assert sum(each.account.equal for each in found.partitions) == 3000
    assert sum(each.account.records for each in found.partitions) == sum(
        map(len, read_topic(b, flow.copy).values())
    )
    again = proven(flow, since=None)
    assert again.findings == ()
    assert sum(each.account.records for each in again.partitions) == 0
    with pytest.raises(NothingChosenError, match="no topic that matches nothing"):
        proven(flow, pattern="nothing")


def test_it_fetches_little_of_what_follows_a_range(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """Of 10 MB, 6 are read: the last request asks for about what is left of them."""
    a = clusters["a"].bootstrap
    create_topic(a, topic_name, partitions=1)
    send(producer(a), topic_name, keys(1, 100), bytes(100_000))
    flow = SparklessFlow(source=a, target=a, topic=topic_name, alias=topic_name)
    with flow.connected() as (source, _):
        stream = LogStream(
            source,
            OffsetRange(
                topic=topic_name, partition=0, topic_id=NO_ID, first=0, end=60
            ),
            isolation=fetch.READ_COMMITTED,
            fetch_bytes=5 << 20,
        )  # fmt: skip
        assert sum(len(part.places) for part in stream.listed()) == 60
    assert 6_000_000 < stream.fetched_bytes < 7_500_000


def test_a_killed_run_goes_on_after_its_last_proof(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """A driver gets SIGKILL after two of four partitions: these are proven, and the
    next run only compares the others.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(a, topic_name, partitions=4)
    load = NumberedLoad(a, topic_name, 4)
    load.send(400)
    flow = SparklessFlow(source=a, target=b, topic=topic_name, alias=topic_name).own()
    flow.copy_until(400)
    driver = multiprocessing.get_context("spawn").Process(
        target=proven, args=(flow,), kwargs={"since": None, "dies_after": 2}
    )
    driver.start()
    driver.join(PATIENCE_SECONDS * crowd())
    assert driver.exitcode == -signal.SIGKILL

    with flow.connected() as (_, target):
        kept = proofs.read(target, flow.alias)
    assert len(kept) == 2
    rest = proven(flow, since=None)

    assert rest.findings == ()
    assert {each.of.partition: each.account.equal for each in rest.partitions} == {
        number: 0 if (topic_name, number) in kept else len(load.order[number])
        for number in range(4)
    }


def test_an_open_transaction_hides_copies(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While another writer's transaction stays open in the copy, readers miss what
    follows: so it is found, with that as the reason, until the transaction ends. It
    does not count as compared: the next proof must not begin after it.
    """
    monkeypatch.setattr(survey, "PATIENCE_SECONDS", 1.0)
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(a, topic_name, partitions=1)
    flow = SparklessFlow(source=a, target=b, topic=topic_name, alias=topic_name).own()
    other = producer(b, transactional_id=topic_name)
    other.init_transactions(30)
    other.begin_transaction()
    other.produce(flow.copy, key=b"other", partition=0)
    assert other.flush(30) == 0
    load = NumberedLoad(a, topic_name, 1)
    load.send(100)
    with flow.slot() as slot:
        wait_for(lambda: slot.run(flow.lease(1))[0].position == 100)

    found = proven(flow)
    assert [each.whole for each in found.partitions] == [False]
    (hidden,) = found.findings
    assert (hidden.kind, hidden.source, hidden.count) == (FindingKind.MISSING, 0, 100)
    assert "a transaction that does not end hides" in hidden.detail

    other.abort_transaction(30)
    assert proven(flow).findings == ()


def test_records_copied_while_it_looks_are_not_missing(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a flow copies once verify has looked at the copies is no finding."""
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(a, topic_name, partitions=1)
    flow = SparklessFlow(source=a, target=b, topic=topic_name, alias=topic_name).own()

    def copy(count: int) -> None:
        order = {0: [b"%d" % number for number in range(count - 10, count)]}
        send(producer(a), topic_name, order, b"v")
        flow.copy_until(count)

    class Logs(survey.Logs):
        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **more)
            copy(20)

    copy(10)
    monkeypatch.setattr(survey, "Logs", Logs)
    found = proven(flow)
    assert found.findings == ()
    assert [each.account.records for each in found.partitions] == [10]


def test_partitions_that_only_the_copy_has(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """A copy with more partitions than its source: records there that claim this source
    are UNEXPECTED, those of others are not.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(a, topic_name, partitions=1)
    load = NumberedLoad(a, topic_name, 1)
    load.send(100)
    flow = SparklessFlow(source=a, target=b, topic=topic_name, alias=topic_name).own()
    flow.copy_until(100)
    add_partitions(b, flow.copy, 2)
    other = producer(b)
    claim = read_topic(b, flow.copy)[0][0].headers()
    other.produce(flow.copy, key=b"local", partition=1)
    other.produce(flow.copy, key=b"claims", partition=1, headers=claim)
    assert other.flush(30) == 0

    for by_content in (False, True):
        found = proven(flow, by_content=by_content)
        (wrong,) = found.findings
        assert (wrong.kind, wrong.partition) == (FindingKind.UNEXPECTED, 1)
        assert (wrong.source, wrong.target) == (None, 1)
        accounts = {each.of.partition: each.account for each in found.partitions}
        assert (accounts[0].equal, accounts[1].foreign) == (100, 1)
