"""Switches of a pair of which a third cluster's flow writes a topic, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mirror.offsets import progress
from mirror.pairs.journal import Kind
from mirror.recovery.stage import Level
from mirror.recovery.steps import opening
from mirror.recovery.steps.changes import changes
from mirror.recovery.steps.positions import places_of
from tests.harness.admin import create_topic
from tests.harness.application import Application
from tests.harness.cases import cases
from tests.harness.drilling import Drilled
from tests.harness.load import producer
from tests.harness.rehearsal import Rehearsal
from tests.harness.slots import SparklessFlow, copy_until
from tests.harness.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration


@pytest.mark.full
@pytest.mark.parametrize("read", [5, 18, 40])
def test_a_third_cluster_merges(
    make_clusters: Callable[..., Any], topic_name: str, read: int
) -> None:
    """Records of a third cluster C merge into a topic that A and B copy to each other.
    Switched from A to B and home, a group skips no record, neither of A, B nor C, and
    reads as many again as dry runs of both switches have said.
    """
    made = make_clusters("a", "b", "c")
    a, b, c = (made[name].bootstrap for name in "abc")
    create_topic(a, topic_name, 1)
    create_topic(b, topic_name, 1)
    create_topic(c, topic_name, 1)
    application = Application(topic_name, 1, f"app-{topic_name}")
    theirs = [b"c:%d" % number for number in range(20)]
    more: dict[str, Any] = {
        "policy": "identity",
        "clusters": {"MC": {"bootstrap_servers": c}},
        "flows": {"MC->MB": {}},
    }
    merging = SparklessFlow(
        source=c, target=b, topic=topic_name, alias="MC", into="MB",
        settings={"policy": "identity"},
    )  # fmt: skip

    def merge(keys: list[bytes], there: int) -> None:
        client = producer(c)
        for key in keys:
            client.produce(topic_name, key=key, value=b"v", partition=0)
        assert client.flush(30) == 0
        merging.own()
        with merging.slot() as slot, Witness(b) as witness:
            witness.begin(topic_name)
            copy_until(witness, slot, merging.lease(60), count=there, timeout=60)

    def switch(rehearsal: Rehearsal) -> int:
        """Returns how many records the dry run says that come again."""
        stage = rehearsal.stage()
        (change,) = changes(stage, places_of(stage))["positions"].changes
        rehearsal.carry_out()
        again: int = change["again"]
        return again

    with Rehearsal(("MA", a), ("MB", b), topic_name, **more) as there:
        assert application.write(a, 20)
        there.copy(b, topic_name, 20)
        merge(theirs[:10], 30)
        assert application.write(a, 20)
        there.copy(b, topic_name, 50)
        application.consume(a, [topic_name], most=25)
        again = switch(there)
        application.consume(b, [topic_name], most=read)
        assert application.write(b, 10)
        merge(theirs[10:], 70)
        there.copy(a, topic_name, 70, back=True)
    with Rehearsal(("MB", b), ("MA", a), topic_name, **more) as home:
        again += switch(home)
    application.consume(a, [topic_name])
    assert again == sum(count - 1 for count in application.read.values())
    assert application.read.keys() == {*application.written, *theirs}


class Beside(Drilled):
    """A pair that copies one topic both ways, beside a flow from a third cluster."""

    partitions = 1

    @property
    def copied(self) -> str:
        return self.topic


def beside(
    clusters: dict[str, PlaygroundCluster],
    topic: str,
    *,
    start: str = "earliest",
    policy: str = "identity",
    theirs: Mapping[str, Any] | None = None,
    **more: Any,
) -> tuple[Beside, str, str]:
    """The pair, of whose topic A's 100 records are copied, and the ends of A and B.
    `theirs`: settings of the third cluster's flow.
    """
    a, b = (clusters[name].bootstrap for name in "ab")
    one, other = f"A{topic[-6:]}", f"B{topic[-6:]}"
    for bootstrap in (a, b):
        create_topic(bootstrap, topic, 1)
    third = f"C{topic[-6:]}"
    made = Beside(
        (one, a), (other, b), topic, policy=policy,
        # Under another address, or its flow would be within one cluster.
        clusters={third: {"bootstrap_servers": a.replace("127.0.0.1", "localhost")}},
        flows={f"{third}->{other}": theirs or {}, f"{other}->{one}": {"start": start}},
        **more,
    )  # fmt: skip
    return made, a, b


@pytest.mark.parametrize(
    ("scope", "start"),
    cases([("", "earliest"), ("orders", "latest")], some=[("orders", "latest")]),
)
def test_the_way_back_passes_copies_beside_a_third_cluster(
    clusters: dict[str, PlaygroundCluster], topic_name: str, scope: str, start: str
) -> None:
    """A third cluster's flow may write a topic that A and B copy to each other, and
    records that are not from A stand in it on B. The flow back begins at the first of
    them, as a dry run shows: it reads no copies again, and A gets all of these records,
    in a pair with a name also with `start: latest`.
    """
    group = f"app-{topic_name}"
    only = {scope: {"topics": [topic_name], "groups": [group]}} if scope else None
    made, a, b = beside(clusters, topic_name, start=start, pairs=only)
    with made as there:
        application = there.prepare(a, b)
        assert application.write(b, 5)
        back = there.stage().reverse
        ((_, shown),) = opening.starts_back(there.stage()).values()
        there.carry_out()
        name = progress.topic_name(back.source)
        begun = progress.read(there.cluster(back.target), name).positions
        first = 101  # behind the copies, and the end of their transaction
        assert begun[topic_name, 0].offset == shown == first
        there.copy(a, topic_name, 105, back=True)


def test_a_failover_names_groups_that_may_skip(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """Checkpoints of a topic that A and B copy to each other, and a third cluster's
    flow writes, too, do not know what that wrote. A drill finds the groups NOT READY; a
    failover says so before it begins and in its report. A switch has nothing to say.
    """
    made, a, b = beside(clusters, topic_name)
    with made as there:
        there.prepare(a, b)
        third = f"C{topic_name[-6:]}->B{topic_name[-6:]}"
        found = there.drill()
        reasons = [e.reason for e in found.findings if e.subject.startswith("group")]
        assert any(f"{topic_name} is also written by {third}," in e for e in reasons)
        assert (found.groups_exact, found.partitions_exact) == (0, 0)
        assert not places_of(there.stage()).partial
        there.carry_out(kind=Kind.FAILOVER)
        [said] = [each for each in there.found if third in each]
        assert said.startswith(f"group app-{topic_name}: in {topic_name}: ")
        [said] = [each for each in there.said["prove"].warnings if third in each]
        assert said.startswith(f"1 group in {topic_name}: ")


@pytest.mark.full
def test_a_third_cluster_writes_into_a_copy(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """A third cluster's flow writes into a copy that does not go back to A. Groups of A
    go on at their own records, and no map says where they stand among the others: a
    switch says so, too, and a drill finds that DEGRADED.
    """
    one = f"A{topic_name[-6:]}"
    theirs = {"policy": "identity", "topics": [f"{one}.{topic_name}"]}
    made, a, b = beside(clusters, topic_name, policy="default", theirs=theirs)
    with made as there:
        application = Application(topic_name, 1, f"app-{topic_name}")
        assert application.write(a, 20)
        application.consume(a, [topic_name], most=10)
        there.copy(b, f"{one}.{topic_name}", 20)
        [said] = places_of(there.stage()).partial
        assert said.startswith(f"1 group in {topic_name}: {one}.{topic_name} is also ")
        there.round()
        found = there.drill()
        [finding] = [e for e in found.findings if e.subject.startswith("group")]
        assert finding.level is Level.DEGRADED
        assert (found.groups_exact, found.partitions_exact) == (0, 1)
