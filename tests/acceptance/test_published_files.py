"""Files that others have published run unchanged, against real brokers.

Hosts and ports are those of the file. tests/harness/published.py says where files come
from; the guide that merges three clusters into one is known by its keys alone
(config/examples/from-mirrormaker2/three-into-one.properties has all of them).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient
import pytest

from mirror.playground.brokers import playground
from tests.harness.admin import end_offsets
from tests.harness.metadata import overrides
from tests.harness.published import Published, named, published
from tests.harness.topologies import EXAMPLES, RunningFile, Stage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = [pytest.mark.acceptance, pytest.mark.full, pytest.mark.timeout(900)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A file, and what it should do."""

    file: Published
    hosts: Mapping[str, tuple[str, ...]]
    """The addresses that the file has for each cluster."""
    topics: Mapping[str, tuple[str, ...]]
    """What is created and written to on each cluster."""
    copies: Mapping[str, Mapping[str, tuple[str, str]]]
    """What is expected beside it: on each cluster, each copy with its origin."""


CASES = [
    Case(
        file=Published(
            name="apache.properties",
            repository="apache/kafka",
            commit="b2988863598ca4106a5455f1d19975852149cbb0",
            path="config/connect-mirror-maker.properties",
            digest="282a05c98d236dddcc37ce5076d8bc5b8b33963f81778dee92bebbe1dd9ae258",
        ),
        hosts={c: tuple(f"{c}_host{n}:9092" for n in (1, 2, 3)) for c in "AB"},
        topics={"A": ("orders",), "B": ("payments",)},
        copies={
            "A": {"B.payments": ("B", "payments")},
            "B": {"A.orders": ("A", "orders")},
        },
    ),
    Case(
        file=Published(
            name="strimzi.yaml",
            repository="strimzi/strimzi-kafka-operator",
            commit="428695461056cc392229888ccfcd21dcf385a326",
            path="examples/mirror-maker/kafka-mirror-maker-2.yaml",
            digest="2e2dbb7e51e5bd5ad4623fd3787ffe4b685ba1c5eae8a04f592f6652c47a0d89",
        ),
        hosts={
            "cluster-a": ("cluster-a-kafka-bootstrap:9092",),
            "cluster-b": ("cluster-b-kafka-bootstrap:9092",),
        },
        topics={"cluster-a": ("orders",)},
        copies={"cluster-b": {"cluster-a.orders": ("cluster-a", "orders")}},
    ),
    Case(
        file=Published(
            name="one-way.properties",
            repository="gimral/mirrormaker",
            commit="e07c4b204cfc2b5611f1cdbf976dcf7e09773200",
            path="mm2.properties",
            digest="074bd5b6dde0e75e50f99de899ba98c01af927ee5048191a8a954cb38be65fe4",
        ),
        hosts={"source": ("kafka-source:9092",), "target": ("kafka-target:9092",)},
        topics={"source": ("orders", "orders.replica")},
        copies={"target": {"source.orders": ("source", "orders")}},
    ),
    Case(
        file=Published(
            name="commit-log.properties",
            repository="prudhvi9121/Kafka-Data-Replication-Project",
            commit="8bdd5557c267c24d436475f02e5af6c5c5fdbad6",
            path="mm2.properties",
            digest="961ef910ee6f87eebdbd542f6d01343eb91332468598bf131a8d7a64de8eb802",
        ),
        hosts={
            "primary": ("primary-kafka:29092",),
            "standby": ("standby-kafka:29192",),
        },
        topics={"primary": ("commit-log", "other")},
        copies={"standby": {"primary.commit-log": ("primary", "commit-log")}},
    ),
    Case(
        file=Published(
            name="disaster-recovery.properties",
            repository="ugurozgen/cdc-demo",
            commit="8e7e71b178d706e58889feaff8b91af62dd44f91",
            path="mm2-ankara.properties",
            digest="043f14e4b8458ee344983c7b705e0457cc8985b0639091e9c41a6be84a818449",
        ),
        hosts={"gebze": ("kafka-gebze:19092",), "ankara": ("kafka-ankara:19092",)},
        topics={"gebze": ("customers", "connect_offsets")},
        copies={"ankara": {"gebze.customers": ("gebze", "customers")}},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.file.name)
def test_a_published_file_runs_as_it_is(
    case: Case, four_clusters: list[PlaygroundCluster], tmp_path: Path
) -> None:
    """With nothing but names that lead to real brokers, the file copies what it says:
    an ordinary consumer finds every record once, and no topic beyond the expected.
    """
    file = published(case.file)
    stage = Stage(four_clusters, *case.hosts)
    for alias, topics in case.topics.items():
        stage.create(alias, *topics)
        for topic in topics:
            stage.send(alias, topic)
    expected = {
        alias: {copy: [origin] for copy, origin in copies.items()}
        for alias, copies in case.copies.items()
    }
    everything = {
        alias: [*case.topics.get(alias, ()), *expected.get(alias, ())]
        for alias in case.hosts
    }
    where = {
        address: stage.bootstrap[alias]
        for alias, addresses in case.hosts.items()
        for address in addresses
    }

    with (
        named(where, tmp_path) as variables,
        RunningFile(file, tmp_path / "run", **variables) as mirror,
    ):
        stage.wait_for(mirror, expected)
        for alias, topics in case.topics.items():
            for topic in topics:
                stage.send(alias, topic)
        stage.wait_for(mirror, expected)
        stage.assert_topics(mirror, everything)
        assert mirror.terminate() == 0, mirror.log_tail()
    stage.assert_holds(expected)


def test_the_published_merge_runs_as_it_is(
    four_clusters: list[PlaygroundCluster], tmp_path: Path
) -> None:
    """The guide's keys with its own replicas, on a target of three brokers: topics of
    one name become one, with six partitions, three replicas and two in sync.
    """
    aliases = ("dc1", "dc2", "dc3", "target")
    file = EXAMPLES / "from-mirrormaker2" / "three-into-one.properties"
    with playground(("t",), root=tmp_path / "t", given=False, nodes=3) as large:
        stage = Stage([*four_clusters[:3], large["t"]], *aliases)
        for alias in aliases[:3]:
            stage.create(alias, "orders")
            stage.send(alias, "orders")
        origins = [(alias, "orders") for alias in aliases[:3]]
        expected = {"target": {"orders": origins}}
        where = {
            f"{alias}-kafka-{number}.example.com:9092": stage.bootstrap[alias].split(
                ","
            )[0]
            for alias in aliases
            for number in (1, 2)
        }
        with (
            named(where, tmp_path) as variables,
            RunningFile(file, tmp_path / "run", **variables) as mirror,
        ):
            stage.wait_for(mirror, expected)
            for origin in origins:
                stage.send(*origin)
            stage.wait_for(mirror, expected)
            assert mirror.terminate() == 0, mirror.log_tail()
        stage.assert_holds(expected)
        target = stage.bootstrap["target"]
        assert overrides(target, "orders")["min.insync.replicas"] == "2"
        assert len(end_offsets(target, "orders")) == 6
        assert replicas(target, "orders") == {3}


def replicas(bootstrap: str, topic: str) -> set[int]:
    """How many replicas its partitions have."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.list_topics(topic, timeout=30).topics[topic]
    return {len(each.replicas) for each in found.partitions.values()}
