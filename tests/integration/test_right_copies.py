"""Copies with nothing wrong: verify finds nothing, and explains what is not equal.

Also of copies that several writers share, or that were made twice: what is not of this
flow is counted. And of a flow whose `provenance` was changed.
"""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from confluent_kafka import Producer
import pytest

from mirror.proofs.account import FindingKind
from tests.harness.admin import alter_topic, create_topic, delete_records, end_offsets
from tests.harness.load import NumberedLoad, producer, send
from tests.harness.proofs import checked, proven
from tests.harness.slot_processes import LoosePoint, SignalAt
from tests.harness.slots import RunningLease, SparklessFlow, copy_until
from tests.harness.waiting import wait_for
from tests.harness.witness import Witness, order_of, read_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.playground.cluster import PlaygroundCluster
    from mirror.proofs.account import Account
    from mirror.proofs.verification import Proven
    from tests.harness.slot_processes import SlotProcess

pytestmark = pytest.mark.integration

_USUAL, _EACH, _STAMPED = 200, 300, 50
"""Records of a topic with one writer, of each of several, and with each setting."""
_LARGE = 10 << 20
_CLEANED = {
    "cleanup_policy": "compact",
    "delete_retention_ms": "0",
    "segment_ms": "100",
    "min_cleanable_dirty_ratio": "0.0001",
}
_CODECS = ("gzip", "snappy", "lz4", "zstd")
_CONFIGS: dict[str, dict[str, str]] = {
    "plain": {},
    "aborted": {},
    "time-of-source": {"message_timestamp_type": "LogAppendTime"},
    "time-of-copy": {},
    "compacted": _CLEANED,
    "trimmed-source": {},
    "trimmed-copy": {},
    "large": {"max_message_bytes": str(_LARGE + 4096)},
    "empty": {},
    **{codec: {} for codec in _CODECS},
}


def _fill(a: str, topic: str, *, first: int = 0) -> None:
    settings = {"compression_type": topic} if topic in _CODECS else {}
    client = producer(a, **settings)
    for number in range(first, first + _USUAL):
        key = f"{number % 20 if topic == 'compacted' else number}".encode()
        client.produce(
            topic,
            key=None if topic == "plain" and number % 5 == 0 else key,
            value=None if number % 10 == 0 else b"value" * (number % 50),
            headers=[("h", b"%d" % number), ("", None)][: 1 + number % 2],
            partition=0,
        )
    assert client.flush(30) == 0


def _abort(a: str, topic: str) -> None:
    for end in (Producer.abort_transaction, Producer.commit_transaction):
        client = Producer({"bootstrap.servers": a, "transactional.id": f"x-{topic}"})
        client.init_transactions(30)
        client.begin_transaction()
        for number in range(_USUAL // 2):
            client.produce(topic, key=b"%d" % number, value=b"v", partition=0)
        assert client.flush(30) == 0
        end(client, 30)


def _produce_all(a: str) -> None:
    for topic in _CONFIGS:
        if topic == "aborted":
            _abort(a, topic)
        elif topic == "large":
            client = producer(a, message_max_bytes=_LARGE + 4096)
            client.produce(topic, key=b"k", value=bytes(_LARGE), partition=0)
            assert client.flush(60) == 0
        elif topic != "empty":
            _fill(a, topic)


def test_nothing_is_found_and_all_is_explained(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
) -> None:
    """Aborted transactions, all codecs, tombstones, both sides cleaned and trimmed, the
    brokers' own times, an empty topic and a record of 10 MB: no finding, as many equal
    records as an ordinary consumer finds on both sides, and each other one explained;
    by content too.
    """
    made = make_clusters(settings={"log.cleaner.backoff.ms": "100"})
    a, b = made["a"].bootstrap, made["b"].bootstrap
    for topic, configs in _CONFIGS.items():
        create_topic(a, topic, partitions=1, **configs)
    flow = SparklessFlow(source=a, target=b, topic=".*", alias="A").own()
    alter_topic(b, "A.time-of-copy", message_timestamp_type="LogAppendTime")
    _produce_all(a)
    sent = dict.fromkeys(_CONFIGS, _USUAL) | {
        "aborted": _USUAL // 2, "large": 1, "empty": 0,
    }  # fmt: skip
    with Witness(b) as witness, flow.slot() as slot:
        for topic in set(_CONFIGS) - {"empty", "compacted"}:
            witness.begin(f"A.{topic}")
            copy_until(witness, slot, flow.lease(60), count=sent[topic], timeout=60)
        # Segments end by the clock; each side's cleaner works when it likes.
        time.sleep(0.2)
        _fill(a, "compacted", first=_USUAL)
        time.sleep(0.2)
        _fill(a, "compacted", first=2 * _USUAL)

        def passed() -> bool:
            (of_it,) = (
                each for each in slot.run(flow.lease(1)) if each.topic == "compacted"
            )
            return of_it.position == 3 * _USUAL

        wait_for(passed)
    delete_records(a, "trimmed-source", 50)
    delete_records(b, "A.trimmed-copy", 70)
    wait_for(lambda: len(read_topic(b, "A.compacted")[0]) < 2 * _USUAL)
    for cluster, name in ((a, "compacted"), (b, "A.compacted")):
        alter_topic(cluster, name, min_cleanable_dirty_ratio="1")  # not any more
    time.sleep(1)

    for by_content in (False, True):
        found = checked(flow, by_content=by_content)

        assert found.findings == ()
        accounts: dict[str, Account] = {
            each.of.topic: each.account for each in found.partitions
        }
        for topic, account in accounts.items():
            explained = account.equal + sum(account.explained.values())
            assert (topic, account.records) == (topic, explained)
            assert (topic, account.foreign) == (topic, 0)
        assert accounts["trimmed-source"].records == _USUAL - 50
        assert accounts["trimmed-copy"].expired == 70
        assert found.own_times["time-of-copy"] is False
        assert found.own_times["time-of-source"] is True
    assert end_offsets(b, "A.compacted")[0] >= 3 * _USUAL


def test_a_function_is_called_again(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """Copies of a flow with a function are held against its results; what it left out
    is counted, and what it failed on is looked for in the dead-letter topic, without
    which it is missing.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(a, topic_name, partitions=1)
    values = [
        b"poison" if n % 10 == 3 else b"void" if n % 10 == 7 else b"%d" % n
        for n in range(300)
    ]
    client = producer(a)
    for number, value in enumerate(values):
        client.produce(topic_name, key=b"%d" % number, value=value, partition=0)
    assert client.flush(30) == 0
    flow = SparklessFlow(
        source=a, target=b, topic=topic_name, alias=f"T{topic_name[-8:]}",
        settings={
            "transform": "tests.functions:no_poison",
            "dead_letter_topic": f"dead-{topic_name}",
        },
    ).own()  # fmt: skip
    flow.copy_until(240)

    found = checked(flow)

    assert found.findings == ()
    (part,) = found.partitions
    account = part.account
    assert (account.records, account.equal) == (300, 240)
    assert (account.removed, account.dead_letters) == (30, 30)

    flow.settings["dead_letter_topic"] = f"another-{topic_name}"
    missing = proven(flow).findings
    assert {each.kind for each in missing} == {FindingKind.MISSING}
    assert [each.source for each in missing] == list(range(3, 300, 10))


def _send(bootstrap: str, topic: str, name: str) -> None:
    order = {0: [f"{name}{number}".encode() for number in range(_EACH)]}
    send(producer(bootstrap), topic, order, b"v")


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
    for turn, stamped in enumerate((True, False), 1):
        for number in range(_STAMPED):
            client.produce(
                topic_name, key=b"%d.%d" % (turn, number), headers=[("h", b"1")],
                partition=0,
            )  # fmt: skip
        assert client.flush(30) == 0
        flow = SparklessFlow(
            source=a, target=b, topic=topic_name, alias=topic_name,
            settings={"provenance": stamped},
        ).own()  # fmt: skip
        flow.copy_until(turn * _STAMPED)
    copies = read_topic(b, flow.copy)[0]
    counts = [len(each.headers() or []) for each in copies]
    assert counts == [2] * _STAMPED + [1] * _STAMPED

    found = proven(flow, by_content=by_content)

    assert found.findings == ()
    assert [each.account.equal for each in found.partitions] == [2 * _STAMPED]

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
    for number in range(_STAMPED):
        looped = number % 5 == 2
        client.produce(
            topic_name, key=b"%d" % number, partition=0,
            headers=[("mirror.via", via)] if looped else None,
        )  # fmt: skip
    assert client.flush(30) == 0
    flow.copy_until(_STAMPED * 4 // 5)
    flow.settings["provenance"] = False

    for by_content in (False, True):
        found = proven(flow, by_content=by_content)
        assert found.findings == ()
        (part,) = found.partitions
        assert part.account.filtered == _STAMPED // 5
        assert part.account.equal == _STAMPED * 4 // 5
