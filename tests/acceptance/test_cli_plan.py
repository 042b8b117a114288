"""`mirror plan` against real clusters: it changes nothing, and a run does just that."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
import json
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaAdminClient
import pytest

from mirror.checks import plan as preflight
from mirror.config.load import load
from tests.harness.admin import alter_topic, commit_offsets, create_topic
from tests.harness.commands import answered, typed
from tests.harness.load import producer
from tests.harness.metadata import overrides
from tests.harness.waiting import PATIENCE_SECONDS, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mirror.checks.plan import RunPlan
    from tests.conftest import Clusters
    from tests.harness.standing import StandingMirror

pytestmark = pytest.mark.acceptance

NOTHING = "nothing to do: a run would only copy records\n"
MAP_RETENTION = "retention.ms"
"""Of the offset map: kept as long as the copies, which a run looks at all the time."""


@dataclass(frozen=True)
class Seen:
    """A topic as an independent admin client sees it."""

    partitions: int
    configs: dict[str, str]


def plan_of(config: Path) -> dict[str, Any]:
    result = answered("plan", "-c", str(config), "-o", "json")
    assert (result.returncode, result.stderr.replace("note: ", "")[:4]) in {
        (0, ""),
        (0, "flow"),
    }, result.stderr
    return json.loads(result.stdout)


def topics_of(bootstrap: str) -> dict[str, Seen]:
    """All of them, including the brokers' own."""
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        listed = admin.describe_topics(sorted(admin.list_topics()))
    return {
        topic["name"]: Seen(
            len(topic["partitions"]),
            {
                key: value
                for key, value in overrides(bootstrap, topic["name"]).items()
                if not topic["name"].endswith(".offset-map.internal")
                or key != MAP_RETENTION
            },
        )
        for topic in listed
    }


def foretold(before: dict[str, Seen], plan: dict[str, Any], alias: str) -> Any:
    """How a cluster should look after a run."""
    found = dict(before)
    for topic in plan["create"]:
        if topic["cluster"] == alias:
            configs = dict(topic["configs"])
            if topic["topic"].endswith(".offset-map.internal"):
                configs.pop(MAP_RETENTION)
            found[topic["topic"]] = Seen(topic["partitions"], configs)
    for topic in plan["grow"]:
        if topic["cluster"] == alias:
            known = found[topic["topic"]]
            assert known.partitions == topic["partitions"]
            found[topic["topic"]] = Seen(topic["then"], known.configs)
    for change in plan["configs"]:
        if change["cluster"] == alias:
            known = found[change["topic"]]
            assert known.configs.get(change["config"]) == change["now"]
            configs = {**known.configs, change["config"]: change["then"]}
            kept = {key: value for key, value in configs.items() if value is not None}
            found[change["topic"]] = Seen(known.partitions, kept)
    return found


def commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    with closing(_member(bootstrap, group)) as consumer:
        place = TopicPartition(topic, 0, offset)
        commit_offsets(consumer, [place])


def committed(bootstrap: str, group: str, topic: str) -> int:
    with closing(_member(bootstrap, group)) as consumer:
        places = [TopicPartition(topic, 0)]
        (found,) = consumer.committed(places, timeout=PATIENCE_SECONDS)
        return int(found.offset)


def _member(bootstrap: str, group: str) -> Consumer:
    """A consumer that never joins its group."""
    return Consumer({"bootstrap.servers": bootstrap, "group.id": group})


def test_a_run_does_what_the_plan_says(
    make_clusters: Callable[..., Clusters], standing: StandingMirror, tmp_path: Path
) -> None:
    """A run creates, grows and changes exactly the topics in the plan, on both sides of
    two flows, including copies of what the other flow creates; before the run nothing
    is touched, after it there is nothing to do.
    """
    clusters = make_clusters("a", "b")
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(a, "orders", 3, retention_ms="7200000", cleanup_policy="compact")
    create_topic(a, "grows", 4)
    create_topic(a, "differs", 1, segment_bytes="1048576")
    create_topic(a, "not-asked-for", 1)
    create_topic(b, "A.grows", 2)
    create_topic(b, "A.differs", 1, segment_bytes="2097152", flush_ms="1000")
    create_topic(b, "bills", 2, min_insync_replicas="1")
    config = {
        "clusters": {"A": {"bootstrap_servers": a}, "B": {"bootstrap_servers": b}},
        "defaults": {
            "tasks": 1,
            "lease_seconds": 2,
            "sync_topic_configs_seconds": 1,
        },
        "flows": {
            "A->B": {
                "topics": ["orders", "grows", "differs"],
                "emit_offset_syncs": True,
                "heartbeats_on_source": True,
            },
            "B->A": {"topics": ["bills"], "emit_checkpoints": False},
        },
    }
    file = tmp_path / "mirror.yaml"
    file.write_text(json.dumps(config))
    before = {"A": topics_of(a), "B": topics_of(b)}

    plan = plan_of(file)

    assert {"A": topics_of(a), "B": topics_of(b)} == before
    shown = typed("plan", "-c", str(file))
    assert shown.returncode == 0, shown.stderr
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert [
        "B",
        "create",
        "topic",
        "A.orders",
        "A->B",
        "copy:",
        "3",
        "partitions,",
    ] in [line[:8] for line in lines]
    assert ["B", "add", "partitions", "A.grows", "A->B", "2", "to", "4"] in [
        line[:8] for line in lines
    ]
    changed = {(c["topic"], c["config"], c["then"]) for c in plan["configs"]}
    assert changed == {
        ("A.differs", "segment.bytes", "1048576"),
        ("A.differs", "flush.ms", None),
    }
    # What one flow makes, the other one copies.
    made = {(t["cluster"], t["topic"], t["purpose"]) for t in plan["create"]}
    assert ("A", "B.heartbeats", "copy") in made
    assert ("A", "mm2-offset-syncs.B.internal", "offset syncs") in made
    assert not any("not-asked-for" in topic for _, topic, _ in made)

    with standing.hosting(config):
        wait_for(lambda: not looked(file).create, pause=0.5)
        for topic in ("orders", "bills"):
            client = producer(a if topic == "orders" else b)
            for number in range(20):
                client.produce(topic, f"{number}".encode(), b"v", partition=0)
            assert client.flush(30) == 0
        wait_for(lambda: looked(file).is_empty, pause=0.5)
    after = {"A": topics_of(a), "B": topics_of(b)}
    for alias, found in after.items():
        ours = {name: t for name, t in found.items() if not name.startswith("__")}
        assert ours == foretold(before[alias], plan, alias), alias
    last = typed("plan", "-c", str(file))
    assert (last.returncode, last.stdout, last.stderr) == (0, "", NOTHING)


def test_offsets_of_groups_are_set_as_planned(
    clusters: Clusters, standing: StandingMirror, tmp_path: Path, topic_name: str
) -> None:
    """Before records are copied the plan says that no offsets are known yet; then it
    has the offsets that a run sets, and planning sets nothing.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(a, topic_name, 1)
    client = producer(a)
    for number in range(20):
        client.produce(topic_name, f"{number}".encode(), b"v", partition=0)
    assert client.flush(30) == 0
    group, copy = f"readers of {topic_name}", f"P.{topic_name}"
    config = {
        "clusters": {"P": {"bootstrap_servers": a}, "B": {"bootstrap_servers": b}},
        "flows": {
            "P->B": {
                "topics": [topic_name], "groups": [f".*{topic_name}"], "tasks": 1,
                "lease_seconds": 2,
                "sync_group_offsets": True, "heartbeats_replication": False,
                "emit_checkpoints_seconds": 1, "sync_group_offsets_seconds": 1,
            }
        },
    }  # fmt: skip
    file = tmp_path / "mirror.yaml"
    file.write_text(json.dumps(config))
    commit(a, group, topic_name, 7)
    first = plan_of(file)
    assert first["groups"] == []
    assert first["notes"] == ["flow P->B: group offsets follow once records are copied"]
    with standing.hosting(config):
        wait_for(
            lambda: committed(b, group, copy) >= 0 and looked(file).is_empty, pause=0.5
        )
    assert looked(file).is_empty

    commit(a, group, topic_name, 15)
    before = committed(b, group, copy)
    (move,) = plan_of(file)["groups"]

    assert committed(b, group, copy) == before == move["now"]
    assert (move["group"], move["topic"], move["partition"]) == (group, copy, 0)
    assert move["then"] > before
    with standing.hosting(config):
        wait_for(lambda: committed(b, group, copy) != before)
    assert committed(b, group, copy) == move["then"]
    assert looked(file).is_empty


def test_what_is_wrong_with_one_does_not_hide_the_others(
    clusters: Clusters, tmp_path: Path, topic_name: str
) -> None:
    """A cluster that does not answer is a failure of its flow; a drifting config of
    another flow's copy is still planned, by name.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(a, topic_name, 1)
    alter_topic(a, topic_name, retention_ms="99000")
    create_topic(b, f"A.{topic_name}", 1)
    file = tmp_path / "mirror.yaml"
    file.write_text(
        json.dumps(
            {
                "clusters": {
                    "A": {"bootstrap_servers": a},
                    "B": {"bootstrap_servers": b},
                    "C": {"bootstrap_servers": "127.0.0.1:1"},
                },
                "defaults": {"topics": [topic_name], "heartbeats_replication": False},
                "flows": {"A->B": {}, "A->C": {}},
            }
        )
    )

    result = answered("plan", "-c", str(file), "-o", "json")

    assert result.returncode == 1
    assert "flow A->C: 127.0.0.1:1 does not answer" in result.stderr.replace(
        "cluster C: ", ""
    )
    plan = json.loads(result.stdout)
    (change,) = plan["configs"]
    assert (change["topic"], change["now"], change["then"]) == (
        f"A.{topic_name}",
        None,
        "99000",
    )


def looked(file: Path) -> RunPlan:
    """The same in this process, which is quicker."""
    return preflight.plan(load(file, environ={})[0])
