"""Configs of copies on real brokers: refused, created, kept, corrected, merged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mirror.clusters.admin import configs as cluster_configs
from mirror.clusters.admin.configs import Config, Origin, TopicConfigs
from mirror.topics import configs, topics
from tests.harness.admin import (
    add_partitions,
    alter_topic,
    create_topic,
    end_offsets,
    topic_exists,
)
from tests.harness.metadata import (
    Sides,
    effective,
    of,
    overrides,
    remove_override,
    set_on_broker,
    sides,
)
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration


@pytest.fixture
def ends(clusters: dict[str, PlaygroundCluster]) -> dict[str, str]:
    return {"A": clusters["a"].bootstrap, "B": clusters["b"].bootstrap}


def shows(bootstrap: str, topic: str, wanted: dict[str, str]) -> None:
    """The topic has these configs; the controller knows first, then the broker."""
    wait_for(lambda: overrides(bootstrap, topic) == wanted)


def drift_of(topic: Any) -> dict[str, tuple[str | None, str | None]]:
    return {each.name: (each.found, each.wanted) for each in topic.configs}


def test_a_config_that_is_refused_does_not_stop_the_others(
    ends: dict[str, str], topic_name: str
) -> None:
    """The broker refuses one change of a topic as unknown: the others are made, and the
    refusal names it.
    """
    create_topic(ends["B"], topic_name)
    with sides(ends) as made:
        refused = configs.apply(
            made.reach("B"),
            {topic_name: {"retention.ms": "5000", "no.such.config": "1"}},
        )
    assert list(refused[topic_name]) == ["no.such.config"]
    assert "no.such.config" in str(refused[topic_name]["no.such.config"])
    shows(ends["B"], topic_name, {"retention.ms": "5000"})


def test_a_copy_is_made_without_the_config_that_its_brokers_refuse(
    ends: dict[str, str], topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic with a config that the target's brokers do not know gets a copy with all
    others, and the refused one is named.
    """
    create_topic(ends["A"], topic_name, 2, cleanup_policy="compact")
    # Both brokers are of one version: the source is made to know one config more.
    model = TopicConfigs(
        configs={
            name: Config(value=value, origin=Origin.TOPIC, settable=True)
            for name, value in (("cleanup.policy", "compact"), ("no.such", "1"))
        }
    )
    monkeypatch.setattr(
        topics.configs, "describe", lambda _cluster, names: dict.fromkeys(names, model)
    )
    with sides(ends, topics=[topic_name]) as made:
        found = made.sync_topics()
    problems = found.problems
    assert found.created == (f"A.{topic_name}",)
    assert len(problems) == 1
    assert "no.such" in problems[0]
    shows(ends["B"], f"A.{topic_name}", {"cleanup.policy": "compact"})
    assert len(end_offsets(ends["B"], f"A.{topic_name}")) == 2


def test_a_topic_deleted_meanwhile_is_no_problem(
    ends: dict[str, str], topic_name: str
) -> None:
    """Configs of a topic that does not exist are missing, which is different from a
    refusal.
    """
    with sides(ends) as made:
        found = cluster_configs.describe(made.reach("A"), [topic_name])
    assert found[topic_name].missing
    assert found[topic_name].error is not None


def test_a_copy_is_created_with_the_configs_of_its_topic(
    ends: dict[str, str], topic_name: str
) -> None:
    """A new copy has the configs that are set on its topic, except those that
    MirrorMaker 2 excludes, and the same partition count.
    """
    create_topic(
        ends["A"],
        topic_name,
        3,
        cleanup_policy="compact",
        retention_ms="1234567",
        min_insync_replicas="1",
        message_timestamp_type="LogAppendTime",
        message_timestamp_after_max_ms="7200000",
        unclean_leader_election_enable="true",
    )
    with sides(ends, topics=[topic_name]) as made:
        found = made.sync_topics()
        looked = of(made.look_at_configs(), topic_name)
    assert found.created == (f"A.{topic_name}",)
    assert found.problems == ()
    shows(
        ends["B"],
        f"A.{topic_name}",
        {
            "cleanup.policy": "compact",
            "retention.ms": "1234567",
        },
    )
    assert len(end_offsets(ends["B"], f"A.{topic_name}")) == 3
    assert not looked.differs


def test_configs_follow_their_topic_both_ways(
    ends: dict[str, str], topic_name: str
) -> None:
    """What is set, changed or removed on a topic is so on its copy after the next turn;
    what is set on the copy alone is removed, unless it is excluded.
    """
    source, target, copy = ends["A"], ends["B"], f"A.{topic_name}"
    create_topic(source, topic_name, retention_ms="1000000", segment_ms="60000")
    with sides(ends, topics=[topic_name]) as made:
        made.sync_topics()
        alter_topic(
            source, topic_name, retention_ms="2000000", max_message_bytes="5000"
        )
        remove_override(source, topic_name, "segment.ms")
        alter_topic(target, copy, flush_messages="7", min_insync_replicas="1")
        wanted = {
            "flush.messages": ("7", None),
            "max.message.bytes": (None, "5000"),
            "retention.ms": ("1000000", "2000000"),
            "segment.ms": ("60000", None),
        }
        assert drift_of(of(made.look_at_configs(), topic_name)) == wanted
        assert len(overrides(target, copy)) == 4  # a look changes nothing

        found = made.sync_configs()
        assert len(found.corrected) == 4
        assert not of(found, topic_name).differs
        shows(
            target,
            copy,
            {
                "max.message.bytes": "5000",
                "min.insync.replicas": "1",
                "retention.ms": "2000000",
            },
        )
        assert made.sync_configs().corrected == ()


def test_the_older_request_keeps_what_is_not_to_change(
    ends: dict[str, str], topic_name: str
) -> None:
    """With brokers that can only replace all configs of a topic at once, those that are
    excluded from syncing survive.
    """
    source, target, copy = ends["A"], ends["B"], f"A.{topic_name}"
    create_topic(source, topic_name, retention_ms="1000000", segment_ms="60000")
    with sides(ends, topics=[topic_name]) as made:
        made.sync_topics()
        alter_topic(target, copy, min_insync_replicas="1", flush_messages="7")
        alter_topic(source, topic_name, retention_ms="2000000")
        _, cluster = made.clusters("A->B")
        for node in cluster._brokers:
            cluster.connection(node).versions.pop(44)
        assert not cluster_configs.incremental(cluster)
        found = made.sync_configs()
    assert len(found.corrected) == 2
    shows(
        target,
        copy,
        {
            "min.insync.replicas": "1",
            "retention.ms": "2000000",
            "segment.ms": "60000",
        },
    )


def test_what_brokers_are_set_to_is_not_pinned_on_copies(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]], topic_name: str
) -> None:
    """Values that the source's brokers give all topics, from their file or changed
    while they run, become no overrides of copies; with use_defaults_from: source the
    copy behaves by them, whatever its own brokers are set to.
    """
    made = make_clusters("a", "b", settings={"log.retention.ms": "86400000"})
    source, target = (made[name].bootstrap for name in "ab")
    set_on_broker(source, "log.segment.bytes", "2000000")
    set_on_broker(target, "log.retention.ms", "3600000")
    create_topic(source, topic_name)
    copy = f"A.{topic_name}"
    with sides({"A": source, "B": target}, topics=[topic_name]) as made_sides:
        made_sides.sync_topics()
        shows(target, copy, {})
        assert made_sides.sync_configs().corrected == ()
    assert effective(target, copy, "retention.ms") == "3600000"

    with sides(
        {"A": source, "B": target}, topics=[topic_name], use_defaults_from="source"
    ) as made_sides:
        made_sides.sync_configs()
        # The controller has them; the broker that is asked may learn of it later.
        wait_for(lambda: len(overrides(target, copy)) == 2)
        assert made_sides.sync_configs().corrected == ()
        assert not of(made_sides.look_at_configs(), topic_name).differs
    assert effective(target, copy, "retention.ms") == "86400000"
    assert effective(target, copy, "segment.bytes") == "2000000"
    # What is the same anyhow need not be set.
    assert overrides(target, copy).keys() == {"retention.ms", "segment.bytes"}

    new = f"{topic_name}-new"
    create_topic(source, new, cleanup_policy="compact")
    with sides(
        {"A": source, "B": target}, topics=[new], use_defaults_from="source"
    ) as made_sides:
        assert made_sides.sync_topics().problems == ()
        assert made_sides.sync_configs().corrected == ()
    assert effective(target, f"A.{new}", "retention.ms") == "86400000"
    assert effective(target, f"A.{new}", "cleanup.policy") == "compact"


def test_a_copy_with_more_partitions_is_told(
    ends: dict[str, str], topic_name: str
) -> None:
    """A copy with more partitions than its topic is reported as different; one with
    fewer grows.
    """
    create_topic(ends["A"], topic_name, 2)
    with sides(ends, topics=[topic_name]) as made:
        made.sync_topics()
        add_partitions(ends["B"], f"A.{topic_name}", 3)
        looked = of(made.look_at_configs(), topic_name)
        assert (looked.partitions, looked.target_partitions) == (2, 3)
        assert looked.differs
        add_partitions(ends["A"], topic_name, 4)
        assert made.sync_topics().grown == (f"A.{topic_name}",)
    assert len(end_offsets(ends["B"], f"A.{topic_name}")) == 4


def _flows(topic: str, **settings: Any) -> dict[str, dict[str, Any]]:
    common = {"topics": [topic], "policy": "identity", **settings}
    return {"A->K": common, "B->K": common}


def test_merged_topics(
    ends: dict[str, str],
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    topic_name: str,
) -> None:
    """A topic that two flows write has the larger partition count, and configs by the
    strategy: the first flow's, those that sources agree on, or the target's own;
    disagreement is shown with its values, and nothing changes while the flow that
    decides cannot be asked.
    """
    hub = make_clusters("k")["k"].bootstrap
    places = {**ends, "K": hub}
    shared = {"segment_ms": "60000"}
    create_topic(ends["A"], topic_name, 2, retention_ms="1000000", **shared)
    create_topic(ends["B"], topic_name, 3, retention_ms="2000000", **shared)
    with Sides(places, _flows(topic_name)) as made:
        for flow in ("B->K", "A->K", "B->K"):
            made.sync_topics(flow)
        assert len(end_offsets(hub, topic_name)) == 3
        # B's flow made it, and A's decides.
        assert overrides(hub, topic_name)["retention.ms"] == "2000000"
        found = {flow: made.sync_configs(flow) for flow in ("B->K", "A->K")}
        shows(
            hub,
            topic_name,
            {
                "retention.ms": "1000000",
                "segment.ms": "60000",
            },
        )
        for result in found.values():
            topic = of(result, topic_name)
            assert topic.merged
            assert topic.configs == ()
            assert topic.conflicts == ("retention.ms: A 1000000, B 2000000",)

    alter_topic(hub, topic_name, retention_ms="3", segment_ms="4")
    with Sides(places, _flows(topic_name, config_strategy="target")) as made:
        assert made.sync_configs("A->K").corrected == ()
        assert made.sync_configs("B->K").corrected == ()
    with Sides(places, _flows(topic_name, config_strategy="intersection")) as made:
        made.sync_configs("B->K")
        shows(hub, topic_name, {"retention.ms": "3", "segment.ms": "60000"})
        assert made.sync_configs("A->K").corrected == ()
    shows(hub, topic_name, {"retention.ms": "3", "segment.ms": "60000"})

    away = {**places, "A": {"bootstrap_servers": "127.0.0.1:1"}}
    with Sides(away, _flows(topic_name)) as made:
        found = {"B->K": made.sync_configs("B->K")}
        assert found["B->K"].corrected == ()
        assert "127.0.0.1:1" in of(found["B->K"], topic_name).problem
    away = {**places, "B": {"bootstrap_servers": "127.0.0.1:1"}}
    with Sides(away, _flows(topic_name)) as made:
        made.sync_configs("A->K")  # it decides alone
    wait_for(lambda: overrides(hub, topic_name)["retention.ms"] == "1000000")


def test_both_ways_the_first_flow_decides(
    ends: dict[str, str], topic_name: str
) -> None:
    """Of two flows that copy one topic both ways the first decides on configs: a change
    at its source arrives, one at its target is undone, whatever the order of turns.
    """
    a, b = ends["A"], ends["B"]
    common = {"topics": [topic_name], "policy": "identity"}
    create_topic(a, topic_name, retention_ms="1000000")
    with Sides(ends, {"A->B": common, "B->A": common}) as made:
        made.sync_topics("A->B")
        alter_topic(a, topic_name, retention_ms="2000000")
        for flow in ("B->A", "A->B", "B->A"):
            made.sync_configs(flow)
        shows(a, topic_name, {"retention.ms": "2000000"})
        shows(b, topic_name, {"retention.ms": "2000000"})
        alter_topic(b, topic_name, retention_ms="3")
        for flow in ("B->A", "A->B"):
            made.sync_configs(flow)
    shows(a, topic_name, {"retention.ms": "2000000"})
    shows(b, topic_name, {"retention.ms": "2000000"})


def test_no_copy_yet(ends: dict[str, str], topic_name: str) -> None:
    """A topic without a copy is shown as such, and looking creates none."""
    create_topic(ends["A"], topic_name)
    with sides(ends, topics=[topic_name]) as made:
        assert of(made.look_at_configs(), topic_name).target_partitions == 0
        assert of(made.sync_configs(), topic_name).differs
    assert not topic_exists(ends["B"], f"A.{topic_name}")
