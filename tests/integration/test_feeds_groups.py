"""Which flow of a fed cluster rests, as commands find it in the journals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror.clusters.reach import Reach
from mirror.pairs import flow_roles
from mirror.topics.merging import Merging
from tests.harness.configurations import configuration
from tests.harness.switching import make_active

if TYPE_CHECKING:
    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration


def test_the_flow_that_rests_writes_nothing(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """The configuration says which flow rests until the journals do; from then on they
    do. Commands see the flow that copies as the only one into the fed cluster.
    """
    ends = {"YA": clusters["a"].bootstrap, "YB": clusters["b"].bootstrap, "YC": "c:9"}
    document = {
        "clusters": {a: {"bootstrap_servers": b} for a, b in ends.items()},
        "defaults": {"topics": [topic_name], "policy": "identity"},
        "flows": {
            name: {} for name in ("YA->YB", "YB->YA", "YA->YC", "YB->YC", "YC->YA")
        },
        "recovery": {"YA<->YB": {"active": "YB", "feeds": ["YC"]}},
    }
    config = configuration(document)
    with Reach(config.clusters, client_id="test") as reach:
        assert flow_roles.resting_flows(config, reach) == {"YA->YC"}
        make_active(document, "YB", "YA", 2)
        rests = flow_roles.resting_flows(config, reach)
    assert rests == {"YB->YC"}
    flow = config.flows["YA->YC"]
    into = [
        {e.flow.name for e in writers.contributors("YC", topic_name)}
        for writers in (
            flow_roles.writers(config, rests, flow.name),
            Merging(config.enabled_flows),
        )
    ]
    assert into == [{"YA->YC"}, {"YA->YC", "YB->YC"}]
