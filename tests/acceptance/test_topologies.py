"""The topologies of config/examples on real clusters: who has what, and nothing else.

Each test runs an example as it stands in the repository, in a service that a changed
file makes go by it. Some records are there before, some come while it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.harness.topologies import Stage, example, via

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.service import RunningMirror
    from tests.harness.standing import StandingMirror

pytestmark = pytest.mark.acceptance

Expected = dict[str, dict[str, list[tuple[str, str]]]]
"""By cluster and topic, the (cluster, topic) that its records were written to."""


def play(
    config: Mapping[str, Any],
    stage: Stage,
    expected: Expected,
    standing: StandingMirror,
    *,
    look: Callable[[RunningMirror], None] = lambda _: None,
) -> None:
    """Run an example until everything is copied, take a look, and check that nothing
    moves any more.
    """
    origins = list(stage.sent)
    with standing.hosting(config) as mirror:
        stage.wait_for(mirror, expected)
        for origin in origins:
            stage.send(*origin)
        stage.wait_for(mirror, expected)
        assert stage.rests()
        stage.assert_topics(mirror, expected)
        look(mirror)
    stage.assert_holds(expected)


def own(stage: Stage) -> Expected:
    """What producers wrote, where they wrote it."""
    expected: Expected = {}
    for alias, topic in stage.sent:
        expected.setdefault(alias, {})[topic] = [(alias, topic)]
    return expected


def with_copies(stage: Stage, copies: Mapping[str, Mapping[str, str]]) -> Expected:
    """Own topics, and copies as {cluster: {copy: "origin:topic"}}."""
    expected = own(stage)
    for alias, topics in copies.items():
        for copy, origin in topics.items():
            source, _, topic = origin.partition(":")
            expected.setdefault(alias, {})[copy] = [(source, topic)]
    return expected


@pytest.mark.full
def test_active_passive(
    four_clusters: list[PlaygroundCluster], standing: StandingMirror
) -> None:
    """Standby has all topics of primary under their own names; nothing comes back."""
    stage = Stage(four_clusters, "primary", "standby")
    stage.create("primary", "orders", "payments.eu")
    stage.send("primary", "orders")
    stage.send("primary", "payments.eu")
    expected = with_copies(
        stage,
        {
            "standby": {
                "orders": "primary:orders",
                "payments.eu": "primary:payments.eu",
            }
        },
    )
    play(example("active-passive.yaml", stage), stage, expected, standing)


@pytest.mark.full
@pytest.mark.parametrize("provenance", ["on", "off"])
def test_active_active(
    four_clusters: list[PlaygroundCluster], standing: StandingMirror, provenance: str
) -> None:
    """Each side has its own topics and the other's copies, whether headers or names
    keep copies from going back.
    """
    stage = Stage(four_clusters, "us-east", "eu-west")
    for alias, other in (("us-east", "eu"), ("eu-west", "us")):
        stage.create(alias, "orders", f"not.{other}")
        stage.send(alias, "orders")
        stage.send(alias, f"not.{other}")
    expected = with_copies(
        stage,
        {
            "us-east": {
                "eu-west.orders": "eu-west:orders",
                "eu-west.not.us": "eu-west:not.us",
            },
            "eu-west": {
                "us-east.orders": "us-east:orders",
                "us-east.not.eu": "us-east:not.eu",
            },
        },
    )
    config = example("active-active.yaml", stage)
    config["defaults"]["provenance"] = provenance
    play(config, stage, expected, standing)
    stamps = {
        tuple(via(message)) for message in stage.messages("us-east", "eu-west.orders")
    }
    assert stamps == {("eu-west",) if provenance == "on" else ()}


@pytest.mark.full
def test_aggregation(
    four_clusters: list[PlaygroundCluster], standing: StandingMirror
) -> None:
    """The hub has the topics of three clusters side by side, and these get nothing."""
    stage = Stage(four_clusters, "berlin", "madrid", "paris", "hub")
    for alias in ("berlin", "madrid", "paris"):
        stage.create(alias, "orders")
        stage.send(alias, "orders")
    stage.create("paris", "payments.card", "private")
    stage.send("paris", "payments.card")
    stage.send("paris", "private")
    expected = with_copies(
        stage,
        {
            "hub": {
                "berlin.orders": "berlin:orders",
                "madrid.orders": "madrid:orders",
                "paris.orders": "paris:orders",
                "paris.payments.card": "paris:payments.card",
            }
        },
    )
    play(example("aggregation.yaml", stage), stage, expected, standing)


@pytest.mark.full
def test_fan_out(
    four_clusters: list[PlaygroundCluster], standing: StandingMirror
) -> None:
    """Every cluster gets what its flow selects, and no more."""
    stage = Stage(four_clusters, "hub", "berlin", "madrid", "paris")
    stage.create("hub", "products", "prices", "private")
    for topic in ("products", "prices", "private"):
        stage.send("hub", topic)
    expected = with_copies(
        stage,
        {
            "berlin": {"products": "hub:products"},
            "madrid": {"products": "hub:products"},
            "paris": {"products": "hub:products", "prices": "hub:prices"},
        },
    )
    play(example("fan-out.yaml", stage), stage, expected, standing)


@pytest.mark.full
def test_forwarding(
    four_clusters: list[PlaygroundCluster], standing: StandingMirror
) -> None:
    """Over three hops names and headers show the whole way, also of a topic that is
    created later.
    """
    stage = Stage(four_clusters, "factory", "region", "country", "archive")
    stage.create("factory", "readings")
    stage.create("country", "readings")
    stage.send("factory", "readings")
    stage.send("country", "readings")
    expected = with_copies(
        stage,
        {
            "region": {"factory.readings": "factory:readings"},
            "country": {"region.factory.readings": "factory:readings"},
            "archive": {
                "country.region.factory.readings": "factory:readings",
                "country.readings": "country:readings",
            },
        },
    )
    play(example("forwarding.yaml", stage), stage, expected, standing)
    stamps = {
        tuple(via(message))
        for message in stage.messages("archive", "country.region.factory.readings")
    }
    assert stamps == {("factory", "region", "country")}


@pytest.mark.full
def test_renaming(
    four_clusters: list[PlaygroundCluster], standing: StandingMirror
) -> None:
    """Rules name the copies; a topic whose copy would be another topic's is refused
    with both names, and the others are copied.
    """
    stage = Stage(four_clusters, "legacy", "cloud")
    topics = ("shop_orders_v2", "eu.payments", "products", "eu.clash", "clash")
    stage.create("legacy", *topics)
    for topic in topics:
        stage.send("legacy", topic)
    expected = with_copies(
        stage,
        {
            "cloud": {
                "shop.orders": "legacy:shop_orders_v2",
                "payments": "legacy:eu.payments",
                "products": "legacy:products",
            }
        },
    )

    def look(mirror: RunningMirror) -> None:
        problems = mirror.flow()["problems"]
        assert len(problems) == 2
        for text in problems:
            assert "clash and eu.clash would both be copied to" in text

    play(example("renaming.yaml", stage), stage, expected, standing, look=look)
