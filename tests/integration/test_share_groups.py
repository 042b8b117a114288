"""Share groups (KIP-932) go on at the target: Kafka's Java consumer is the witness."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from mirror.clusters import codes
from mirror.clusters.admin import group_offsets, groups
from mirror.clusters.admin.group_offsets import SHARE_GROUP, CommittedOffset
from mirror.clusters.admin.groups import EMPTY, Group, GroupKind
from mirror.offsets.checkpoints import Checkpoint
from mirror.offsets.group_offset_sync import set_offsets
from mirror.pairs.journal import Kind
from mirror.playground.brokers import playground
from mirror.recovery.stage import Level
from tests.harness.admin import create_topic
from tests.harness.connections import connected
from tests.harness.drilling import Drilled
from tests.harness.group_moves import run_java
from tests.harness.load import producer
from tests.harness.releases import release
from tests.harness.switching import command
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.standing import StandingMirror

pytestmark = pytest.mark.integration

_JAVA = Path(__file__).parents[1] / "java" / "ReadShareGroup.java"
_GAP = 37
"""A record that the group gives back on the source, where it accepts 40."""


_ABSENT = Group(group="", kind=GroupKind.SHARE, state=EMPTY)


def fill(bootstrap: str, topic: str) -> None:
    """A hundred records in one partition; the other one stays empty."""
    client = producer(bootstrap)
    for number in range(100):
        client.produce(topic, key=b"%d" % number, value=b"v", partition=0)
    assert client.flush(30) == 0


def read_a_part(bootstrap: str, group: str, topic: str, *gap: int) -> list[str]:
    """Accept 40 records, ten at a time; returns what comes at the target: all from the
    gap on, or without one from the last ten on. Kafka tells a start offset as of the
    acknowledgement before the last one.
    """
    arguments = ("mirror-client", _JAVA, bootstrap, group, topic, "earliest", "40")
    found = run_java(*arguments, *map(str, gap)).split()
    keys = [n for n in range(40 + len(gap)) if n not in gap]
    assert sorted(map(int, found)) == keys
    return [str(n) for n in range(gap[0] if gap else 30, 100)]


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
    left = read_a_part(a, group, topic_name, _GAP)
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
            wait_for(lambda: copy in group_offsets.fetch(target, [group]).groups[group])
        flow = mirror.flow("A->B")
        assert flow["share_groups"] == []
        (shown,) = flow["groups"]
        assert (shown["group"], shown["type"]) == (group, "share")
        assert go_on(b, group, copy[0]) == left
        mirror.wait_checkpoints("A->B")
        fill(a, topic_name)
        mirror.wait_copied(a, topic_name)
        assert go_on(b, group, copy[0]) == [str(n) for n in range(100)]


@pytest.mark.parametrize(("kind", "gap"), [(Kind.SWITCH, []), (Kind.FAILOVER, [_GAP])])
def test_a_share_group_moves(
    clusters: dict[str, PlaygroundCluster], topic_name: str, kind: Kind, gap: list[int]
) -> None:
    """A switch takes a share group's position from the source, a failover from the last
    checkpoint, which a drill finds exact: Java's share consumer goes on there.
    """
    a, b = (clusters[name].bootstrap for name in "ab")
    tag, group = f"{kind.name[0]}{topic_name[-6:]}", f"share-{topic_name}"
    create_topic(a, topic_name, 2)
    fill(a, topic_name)
    left = read_a_part(a, group, topic_name, *gap)
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
    assert go_on(b, group, topic_name) == left


def test_a_share_group_returns_to_the_originals(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """A share group that has read copies of the other cluster's topic goes on in that
    topic itself after a switch to there.
    """
    a, b = (clusters[name].bootstrap for name in "ab")
    tag, group = f"O{topic_name[-6:]}", f"share-{topic_name}"
    ends = ((f"{tag}A", a), (f"{tag}B", b))
    for bootstrap in (a, b):
        create_topic(bootstrap, topic_name, 2)
    fill(b, topic_name)
    with Drilled(*ends, topic_name, groups=[group]) as pair:
        pair.copying().own()  # the flow has run
        pair.copy(a, f"{tag}B.{topic_name}", 100, back=True)
        left = read_a_part(a, group, f"{tag}B.{topic_name}", _GAP)
        pair.carry_out()
        assert pair.said["positions"].text.startswith("1 group, 2 partitions set")
    assert go_on(b, group, topic_name) == left


def test_a_group_with_members_is_left_alone(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """While a share group has members on the target, or a group of another kind has its
    name there, sync sets nothing, and says why.
    """
    b = clusters["b"].bootstrap
    create_topic(b, topic_name)
    shared, plain = f"share-{topic_name}", f"plain-{topic_name}"
    place = (topic_name, 0)

    def checkpoint(group: str, metadata: str) -> Checkpoint:
        return Checkpoint(group, *place, upstream=9, downstream=9, metadata=metadata)

    with connected(b) as target, ThreadPoolExecutor(1) as thread:
        assert not group_offsets.fetch(target, [plain]).refused  # it has started
        assert not group_offsets.commit(target, {plain: {place: CommittedOffset(3)}})
        reading = thread.submit(go_on, b, shared, topic_name)
        wait_for(lambda: not groups.list_groups(target).get(shared, _ABSENT).idle)
        start = {shared: {place: CommittedOffset(9, SHARE_GROUP)}}
        assert group_offsets.commit(target, start) == {
            shared: {place: codes.NON_EMPTY_GROUP}
        }
        done = set_offsets(target, {shared: {place: checkpoint(shared, SHARE_GROUP)}})
        assert (done.active, done.moved) == ({shared}, {})
        done = set_offsets(
            target,
            {
                shared: {place: checkpoint(shared, "")},
                plain: {place: checkpoint(plain, SHARE_GROUP)},
            },
        )
        assert done.refused == {
            shared: "is a share group on the target only",
            plain: "is a share group on the source only",
        }
        assert reading.result() == []


@contextmanager
def without_share_groups(folder: Path) -> Iterator[str]:
    """A cluster of today's release that has them switched off."""
    with playground(("b",), root=folder, given=False) as made:
        b = made["b"].bootstrap
        run_java(
            *("tools", "org.apache.kafka.tools.FeatureCommand"),
            *("--bootstrap-server", b, "downgrade", "--feature", "share.version=0"),
        )
        yield b


@contextmanager
def of_an_older_release(folder: Path) -> Iterator[str]:
    with release("2.5.1", folder) as made:
        yield made.bootstrap


@pytest.mark.parametrize(
    "target",
    [without_share_groups, pytest.param(of_an_older_release, marks=pytest.mark.full)],
)
def test_where_share_groups_are_not_covered(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    tmp_path: Path,
    target: Callable[[Path], AbstractContextManager[str]],
) -> None:
    """If the target has no share groups, the source's are named as not covered, and
    other groups are synced and switched as ever.
    """
    a = clusters["a"].bootstrap
    shared, plain = f"share-{topic_name}", f"plain-{topic_name}"
    create_topic(a, topic_name, 2)
    fill(a, topic_name)
    read_a_part(a, shared, topic_name)
    with target(tmp_path) as b, connected(a) as source, connected(b) as other:
        committed = {plain: {(topic_name, 0): CommittedOffset(7, "m")}}
        assert not group_offsets.fetch(source, [plain]).refused  # it has started
        assert not group_offsets.commit(source, committed)
        tag = f"N{topic_name[-6:]}"
        ends = ((f"{tag}A", a), (f"{tag}B", b))
        settings = {"groups": [shared, plain], "policy": "identity"}
        with Drilled(*ends, topic_name, **settings) as pair:
            pair.copy(b, topic_name, 100)
            pair.round()
            (tmp_path / "mirror.yaml").write_text(yaml.safe_dump(pair.document))
            words = ("group", "list", "--flow", f"{tag}A/{tag}B", "-o", "json")
            (listed,) = json.loads(command(tmp_path, *words))["flows"]
            assert listed["share_groups"] == [shared]
            assert [each["group"] for each in listed["groups"]] == [plain]
            pair.carry_out()
            assert any(f"group {shared}: a share group" in each for each in pair.found)
        at = group_offsets.fetch(other, [shared, plain]).groups
        assert at[shared] == {}
        assert at[plain][topic_name, 0] == CommittedOffset(7, "m")
