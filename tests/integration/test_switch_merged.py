"""Switches of a pair of which a third cluster's flow writes a topic, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mirror.switching.steps.assess import places_of
from mirror.switching.steps.changes import changes
from tests.harness.admin import create_topic
from tests.harness.application import Application
from tests.harness.load import producer
from tests.harness.rehearsal import Rehearsal
from tests.harness.slots import SparklessFlow, copy_until
from tests.harness.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Callable

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
