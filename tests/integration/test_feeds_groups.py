"""Groups on a cluster that a pair feeds, as commands see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror.clusters.reach import Reach
from mirror.config.schema import MirrorConfig
from mirror.metadata.merging import Merging
from mirror.offsets.group_survey import survey
from mirror.offsets.translation import Exactness
from mirror.recovery import resting
from tests.harness.admin import create_topic
from tests.harness.application import Application
from tests.harness.slots import SparklessFlow, copy_until
from tests.harness.switching import make_active
from tests.harness.witness import Witness

if TYPE_CHECKING:
    from mirror.offsets.groups import Writers
    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration


def test_the_flow_that_rests_writes_nothing(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """A cluster that a pair feeds has records of its own, and copies them back. A group
    of the active cluster that has read none of these goes on before them, as both maps
    say; with the flow that rests for one more writer, it would skip them. Which flow
    rests follows the journals.
    """
    one, third = clusters["a"].bootstrap, clusters["b"].bootstrap
    for bootstrap in (one, third):
        create_topic(bootstrap, topic_name)
    # The pair's second cluster is the first one under another alias.
    document = {
        "clusters": {
            alias: {"bootstrap_servers": bootstrap}
            for alias, bootstrap in (("YA", one), ("YB", one), ("YC", third))
        },
        "defaults": {"topics": [topic_name], "policy": "identity"},
        "flows": {
            name: {} for name in ("YA->YB", "YB->YA", "YA->YC", "YB->YC", "YC->YA")
        },
        "recovery": {"YA<->YB": {"active": "YA", "feeds": ["YC"]}},
    }
    config = MirrorConfig.model_validate(document)
    application = Application(topic_name, 1, f"app-{topic_name}")
    assert Application(topic_name, 1, "other").write(third, 5)
    assert application.write(one, 20)
    application.consume(one, [topic_name], most=10)
    copying = SparklessFlow(
        source=one, target=third, topic=topic_name, alias="YA", into="YC",
        settings={"policy": "identity"},
    ).own()  # fmt: skip
    with copying.slot() as slot, Witness(third) as witness:
        witness.begin(topic_name)
        copy_until(witness, slot, copying.lease(60), count=25, timeout=60)
    SparklessFlow(
        source=third, target=one, topic=topic_name, alias="YC", into="YA",
        settings={"policy": "identity"},
    ).own()  # fmt: skip
    with Reach(config.clusters, client_id="test") as reach:

        def found(writers: Writers) -> tuple[int, Exactness]:
            flow = config.flows["YA->YC"]
            (group,) = (
                each
                for each in survey(flow, reach("YC"), reach("YA"), writers).groups
                if each.group == application.group
            )
            (place,) = group.places
            return place.downstream, place.translated.exactness

        rests = resting.flows(config, reach)
        assert rests == {"YB->YC"}
        writers = resting.writers(config, rests, "YA->YC")
        assert found(writers)[0] == 0
        assert found(Merging(config.enabled_flows)) == (15, Exactness.EXACT)

        make_active(document, "YA", "YB", 2)
        assert resting.flows(config, reach) == {"YA->YC"}
