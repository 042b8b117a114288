"""Flows with a user's function, seen by consumers that know nothing of it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from mirror.clusters.cluster import Cluster
from mirror.topics import topics
from tests.harness.admin import alter_topic, create_topic, topic_exists
from tests.harness.configurations import configuration
from tests.harness.load import NumberedLoad, producer
from tests.harness.service import config_for
from tests.harness.slots import RunningLease, SparklessFlow
from tests.harness.waiting import wait_for
from tests.harness.witness import eventually, keys_of, read_topic
from tests.integration.test_exact_offsets import assert_exact, log_of, map_on

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from confluent_kafka import Message

    from mirror.copying.lease import PartitionReport
    from mirror.copying.slot import Slot
    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.standing import StandingMirror

pytestmark = pytest.mark.integration

Clusters = dict[str, "PlaygroundCluster"]


def copying(
    clusters: Clusters, topic: str, function: str, **settings: Any
) -> SparklessFlow:
    """A flow of one topic with an alias, and so progress, of the test's own."""
    return SparklessFlow(
        source=clusters["a"].bootstrap,
        target=clusters["b"].bootstrap,
        topic=topic,
        alias=f"T{topic[-8:]}",
        settings={"transform": f"tests.functions:{function}", **settings},
    ).own()


def put(bootstrap: str, topic: str, partition: int, values: Sequence[bytes]) -> None:
    """Records whose keys have partition and number within this call, all in a batch."""
    client = producer(bootstrap, linger_ms=200)
    for number, value in enumerate(values):
        client.produce(
            topic,
            partition=partition,
            key=b"%d:%d" % (partition, number),
            value=value,
            headers=[("own", b"1")],
        )
    assert client.flush(30) == 0


def shown(messages: Sequence[Message]) -> list[tuple[Any, ...]]:
    return [(m.key(), m.value(), m.headers() or [], m.timestamp()[1]) for m in messages]


def faulted(slot: Slot, flow: SparklessFlow) -> PartitionReport:
    """Copy until partition 0 is set aside; its report."""
    found: list[PartitionReport] = []

    def seen() -> bool:
        found[:] = [r for r in slot.run(flow.lease(2)) if r.partition == 0]
        return found[0].state == "FAULTED"

    wait_for(seen)
    return found[0]


@pytest.mark.parametrize("provenance", [True, False])
def test_filtered_and_masked(
    clusters: Clusters, topic_name: str, provenance: bool
) -> None:
    """Of records of all sizes and codecs those that a function keeps arrive as it
    changed them, once and in order; groups move to the right place on either side of
    the holes; with the provenance header, and without.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, 2)
    load = NumberedLoad(source, topic_name, 2, seed=3)
    load.send(5000)
    flow = copying(clusters, topic_name, "even_and_masked", provenance=provenance)
    with flow.slot() as slot:
        lease = RunningLease(slot, flow.lease(120))
        load.send(5000)
        eventually(
            target, flow.copy, sum((len(keys) + 1) // 2 for keys in load.order.values())
        )
        reports = lease.end()
    records = read_topic(source, topic_name)
    copies = read_topic(target, flow.copy)
    for partition, messages in records.items():
        stamps = copies[partition][0].headers() or []
        assert [key for key, _ in stamps] == ["mirror.via"] * provenance
        assert shown(copies[partition]) == [
            (key, b"%d" % len(value), stamps, moment)
            for number, (key, value, _, moment) in enumerate(shown(messages))
            if number % 2 == 0
        ]
    assert sum(r.counts.records for r in reports) == sum(map(len, copies.values()))
    assert sum(r.counts.removed for r in reports) == load.total - sum(
        r.counts.records for r in reports
    )
    marked = {
        partition: [(o, key if o % 2 == 0 else b"-" + key) for o, key in log]
        for partition, log in log_of(source, topic_name).items()
    }
    with map_on(target, flow.alias) as known:
        assert_exact(known, topic_name, marked, log_of(target, flow.copy))


def test_a_failing_function_holds_up_its_partition_only(
    clusters: Clusters, topic_name: str, tmp_path: Path
) -> None:
    """A record on which a function fails sets its partition aside, with the offsets and
    the exception's message; the neighbour continues, and so does the partition once the
    function works.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, 2)
    put(source, topic_name, 0, [b"1", b"poison", b"3"])
    mended = tmp_path / "mended"
    flow = copying(
        clusters, topic_name, "no_poison", transform_options={"unless": str(mended)}
    )
    with flow.slot() as slot:
        lease = RunningLease(slot, flow.lease(120))
        put(source, topic_name, 1, [b"1", b"void", b"3"])
        eventually(target, flow.copy, 2)
        reports = {r.partition: r for r in lease.end()}
        assert reports[0].state == "FAULTED"
        assert reports[0].reason == (
            "tests.functions:no_poison fails on offsets 0 to 2 of "
            f"{topic_name}-0: ValueError: poison"
        )
        assert reports[1].state == "RUNNING"
        mended.touch()
        lease = RunningLease(slot, flow.lease(120))
        found = eventually(target, flow.copy, 5)
        lease.end()
        # A consumer may find the records before the slot knows that they are committed.
        wait_for(lambda: {r.state for r in slot.run(flow.lease(0.5))} == {"RUNNING"})
    assert keys_of(found) == {0: [b"0:0", b"0:1", b"0:2"], 1: [b"1:0", b"1:2"]}


def test_what_stands_before_a_failure_is_copied(
    clusters: Clusters, topic_name: str, tmp_path: Path
) -> None:
    """Of one answer of the source, what a function accepts before it fails is copied,
    and the partition that is then set aside is tried again, although the records before
    it are committed only afterwards.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, 1)
    put(source, topic_name, 0, [b""] * 69_999 + [b"poison"])
    mended = tmp_path / "mended"
    flow = copying(
        clusters, topic_name, "no_poison", transform_options={"unless": str(mended)}
    )
    with flow.slot() as slot:
        report = faulted(slot, flow)
        assert f"offsets {report.position} to 69999" in report.reason
        assert report.position == len(read_topic(target, flow.copy)[0]) >= 60_000
        mended.touch()
        lease = RunningLease(slot, flow.lease(120))
        found = eventually(target, flow.copy, 70_000)
        lease.end()
    assert keys_of(found) == {0: [b"0:%d" % n for n in range(70_000)]}


def test_dead_letters(clusters: Clusters, topic_name: str) -> None:
    """With a dead-letter topic the records on which a function fails go there, whole
    and with where they come from; all others are copied; groups move past them.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, 3)
    values = [
        b"poison" if n in {0, 7, 8, 99} else b"void" if n == 50 else b"%d" % n
        for n in range(100)
    ]
    for partition in range(2):
        put(source, topic_name, partition, values)
    dead = f"{topic_name}-dead"
    flow = copying(clusters, topic_name, "no_poison", dead_letter_topic=dead)
    assert topic_exists(target, dead)
    with flow.slot() as slot:
        lease = RunningLease(slot, flow.lease(120))
        eventually(target, dead, 8)
        eventually(target, flow.copy, 2 * 95)
        put(source, topic_name, 2, [b"poison"])  # nothing but
        eventually(target, dead, 9)
        reports = {r.partition: r for r in lease.end()}
    copies = read_topic(target, flow.copy)
    good = [n for n in range(100) if n not in {0, 7, 8, 50, 99}]
    assert keys_of(copies) == {
        **{p: [b"%d:%d" % (p, n) for n in good] for p in range(2)},
        2: [],
    }
    records = read_topic(source, topic_name)
    letters = [shown([m])[0] for m in read_topic(target, dead)[0]]
    for partition, numbers in ((0, [0, 7, 8, 99]), (1, [0, 7, 8, 99]), (2, [0])):
        stamp = ("mirror.via", letters[0][2][-1][1])
        assert [
            letter for letter in letters if letter[0].startswith(b"%d:" % partition)
        ] == [
            (
                b"%d:%d" % (partition, number),
                b"poison",
                [
                    ("own", b"1"),
                    ("mirror.error.cluster", flow.alias.encode()),
                    ("mirror.error.topic", topic_name.encode()),
                    ("mirror.error.partition", b"%d" % partition),
                    ("mirror.error.offset", b"%d" % number),
                    ("mirror.error.message", b"ValueError: poison"),
                    stamp,
                ],
                records[partition][number].timestamp()[1],
            )
            for number in numbers
        ]
    assert [
        (r.counts.records, r.counts.removed, r.counts.dead_letters)
        for r in reports.values()
    ] == [
        (95, 1, 4),
        (95, 1, 4),
        (0, 0, 1),
    ]
    assert reports[2].position == reports[2].end_offset
    marked = {
        partition: [(o, key if o in good else b"-" + key) for o, key in log]
        for partition, log in log_of(source, topic_name).items()
        if partition < 2
    }
    with map_on(target, flow.alias) as known:
        assert_exact(known, topic_name, marked, log_of(target, flow.copy))


def test_a_dead_letter_topic_that_refuses(clusters: Clusters, topic_name: str) -> None:
    """Where the dead-letter topic accepts no record, only the partitions that need it
    wait, with that reason; raising the limit is enough, and nothing is doubled.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, 2)
    dead = f"{topic_name}-dead"
    create_topic(target, dead, 2, max_message_bytes="100")
    put(source, topic_name, 0, [b"1", b"poison", b"3"])
    flow = copying(clusters, topic_name, "no_poison", dead_letter_topic=dead)
    with flow.slot() as slot:
        faulted(slot, flow)
        lease = RunningLease(slot, flow.lease(120))
        put(source, topic_name, 1, [b"1", b"2"])
        eventually(target, flow.copy, 2)
        reports = {r.partition: r for r in lease.end()}
        assert reports[0].state == "FAULTED"
        assert f"target {dead}-0" in reports[0].reason
        assert "large" in reports[0].reason.lower()
        assert reports[1].state == "RUNNING"
        # On a slow machine the search for the record that fails stops before it.
        assert keys_of(read_topic(target, flow.copy))[0] in ([], [b"0:0"])
        alter_topic(target, dead, max_message_bytes="10000")
        lease = RunningLease(slot, flow.lease(120))
        found = eventually(target, flow.copy, 4)
        eventually(target, dead, 1)
        lease.end()
    assert keys_of(found) == {0: [b"0:0", b"0:2"], 1: [b"1:0", b"1:1"]}
    assert keys_of(read_topic(target, dead)) == {0: [b"0:1"], 1: []}


def test_a_dead_letter_topic_is_no_copy(clusters: Clusters, topic_name: str) -> None:
    """A topic whose copy would be the dead-letter topic is not copied, and is reported
    as a problem.
    """
    create_topic(clusters["a"].bootstrap, topic_name)
    config = configuration(
        config_for(
            clusters["a"].bootstrap,
            clusters["b"].bootstrap,
            topics=[topic_name],
            transform="tests.functions:identity",
            dead_letter_topic=f"A.{topic_name}",
        )
    )
    with contextlib.closing(Cluster(config.clusters["A"]).connect()) as source:
        found = topics.select(source, config.flows["A->B"])
    assert found.topics == ()
    assert found.problems == (
        (
            f"source topic {topic_name}: its copy would be the flow's "
            f"dead_letter_topic A.{topic_name}; choose another name there"
        ),
    )


def test_a_function_that_workers_cannot_import(
    clusters: Clusters, topic_name: str, standing: StandingMirror
) -> None:
    """If only the driver has the function, the flow says so, and copies nothing."""
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name)
    standing.log.with_name("only_on_the_driver.py").write_text(
        "import os\n"
        "if 'MIRROR_SLOT' in os.environ:\n"
        "    raise ImportError('not on executors')\n"
        "def same(batch): return batch\n"
    )
    put(source, topic_name, 0, [b"1"])
    config = config_for(
        source, target, topics=[topic_name], transform="only_on_the_driver:same",
        tasks=1,
    )  # fmt: skip
    with standing.hosting(config) as mirror:
        mirror.wait_until(
            lambda document: (
                document["flows"][0]["state"] == "RETRYING"
                and document["flows"][0]["reason"]
                == 'flow A->B: "only_on_the_driver:same" cannot be imported: '
                "ImportError: not on executors"
            )
        )
    assert read_topic(target, f"A.{topic_name}") == {0: []}
