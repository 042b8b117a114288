"""Share groups (KIP-932) go on at the target: Kafka's Java consumer is the witness."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mirror.clusters.admin import group_offsets
from mirror.pairs.journal import Kind
from mirror.recovery.stage import Level
from tests.harness.admin import create_topic
from tests.harness.connections import connected
from tests.harness.drilling import Drilled
from tests.harness.group_moves import run_java
from tests.harness.load import producer
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.standing import StandingMirror

pytestmark = pytest.mark.integration

_JAVA = Path(__file__).parents[1] / "java" / "ReadShareGroup.java"
_GIVEN_BACK = "37"
_READ = [str(n) for n in range(41) if str(n) != _GIVEN_BACK]
"""What the group accepts on the source: 40 records, one of which it gives back."""
_LEFT = [str(n) for n in range(37, 100)]
"""From the first record on that is not done: 38, 39 and 40 come again."""


def fill(bootstrap: str, topic: str) -> None:
    """A hundred records in one partition; the other one stays empty."""
    client = producer(bootstrap)
    for number in range(100):
        client.produce(topic, key=b"%d" % number, value=b"v", partition=0)
    assert client.flush(30) == 0


def read_a_part(bootstrap: str, group: str, topic: str) -> None:
    found = run_java(
        *("mirror-client", _JAVA, bootstrap, group, topic, "earliest", "40"),
        _GIVEN_BACK,
    )
    assert sorted(found.split()) == sorted(_READ)


def go_on(bootstrap: str, group: str, topic: str) -> list[str]:
    """By itself the group would begin at the end there."""
    arguments = ("mirror-client", _JAVA, bootstrap, group, topic, "latest", "1000")
    return run_java(*arguments).split()


def test_a_share_group_is_synced(
    clusters: dict[str, PlaygroundCluster], standing: StandingMirror, topic_name: str
) -> None:
    """Java's share consumer has accepted a part on the source, with a gap. At the
    target it goes on at the gap: it misses no record, and of those that it has accepted
    only those behind the gap come again. Sync takes nothing back of what it does there.
    """
    a, b = (clusters[name].bootstrap for name in "ab")
    create_topic(a, topic_name, 2)
    fill(a, topic_name)
    group = f"share-{topic_name}"
    read_a_part(a, group, topic_name)
    document = {
        "clusters": {"A": {"bootstrap_servers": a}, "B": {"bootstrap_servers": b}},
        "flows": {
            "A->B": {
                "topics": [topic_name],
                "groups": [group],
                "lease_seconds": 2,
                "tasks": 1,
                "emit_checkpoints_seconds": 1,
                "sync_group_offsets": True,
                "sync_group_offsets_seconds": 1,
            }
        },
    }
    with standing.hosting(document) as mirror:
        mirror.wait_copied(a, topic_name)
        with connected(b) as target:
            copy = (f"A.{topic_name}", 0)
            wait_for(
                lambda: copy in group_offsets.fetch(target, [group]).groups[group]
            )
        flow = mirror.flow("A->B")
        assert flow["share_groups"] == []
        (shown,) = flow["groups"]
        assert (shown["group"], shown["type"]) == (group, "share")
        assert go_on(b, group, copy[0]) == _LEFT
        mirror.wait_checkpoints("A->B")
        fill(a, topic_name)
        mirror.wait_copied(a, topic_name)
        assert go_on(b, group, copy[0]) == [str(n) for n in range(100)]


@pytest.mark.parametrize("kind", [Kind.SWITCH, Kind.FAILOVER])
def test_a_share_group_moves(
    clusters: dict[str, PlaygroundCluster], topic_name: str, kind: Kind
) -> None:
    """A switch takes a share group's position from the source, a failover from the last
    checkpoint, which a drill finds exact: Java's share consumer goes on there.
    """
    a, b = (clusters[name].bootstrap for name in "ab")
    tag, group = f"{kind.name[0]}{topic_name[-6:]}", f"share-{topic_name}"
    create_topic(a, topic_name, 2)
    fill(a, topic_name)
    read_a_part(a, group, topic_name)
    ends = ((f"{tag}A", a), (f"{tag}B", b))
    settings = {"groups": [group], "policy": "identity"}
    with Drilled(*ends, topic_name, **settings) as pair:
        pair.copy(b, topic_name, 100)
        if kind is Kind.FAILOVER:
            pair.round()
            drill = pair.drill()
            assert (drill.verdict, drill.groups_exact) == (Level.READY, 1)
        pair.carry_out(kind=kind)
        assert pair.said["positions"].text.startswith("1 group, 2 partitions set")
    assert go_on(b, group, topic_name) == _LEFT
