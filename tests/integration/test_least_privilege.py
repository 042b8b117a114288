"""The rights that mirror lists are enough, and none of them is needless."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition
import pytest
from typer.testing import CliRunner

from mirror.checks.permissions.rights import rights
from mirror.checks.permissions.table import Operation, Who
from mirror.cli.main import app
from mirror.client import MirrorClient
from tests.harness.admin import (
    add_partitions,
    alter_topic,
    commit_offsets,
    create_topic,
    end_offsets,
    topic_exists,
)
from tests.harness.configurations import configuration
from tests.harness.few_rights import RestrictedFlow, grant, revoke_all
from tests.harness.load import producer
from tests.harness.metadata import acls_of, allow, overrides
from tests.harness.service import RunningMirror
from tests.harness.waiting import PATIENCE_SECONDS, wait_for
from tests.harness.witness import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirror.checks.permissions.rights import Right
    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.standing import StandingMirror

pytestmark = pytest.mark.integration

Secured = dict[str, "PlaygroundCluster"]
PARTS = 3
"""How many tests share the lines of the list."""


@pytest.fixture(autouse=True)
def _nothing_allowed(secured_pair: Secured) -> Iterator[None]:
    yield
    for cluster in secured_pair.values():
        revoke_all(cluster.admin_bootstrap)


def restricted(secured_pair: Secured, alias: str, **settings: Any) -> RestrictedFlow:
    return RestrictedFlow(secured_pair["a"], secured_pair["b"], alias, **settings)


def without_a_line(
    secured_pair: Secured, line: int, alias: str, **settings: Any
) -> str:
    """The first problem when one right of the list is missing; empty if none is."""
    made = restricted(secured_pair, alias, **settings).prepare()
    needed = rights(made.config)
    with made.allowed([*needed[:line], *needed[line + 1 :]]):
        return next(made.problems(), "")


def lines(**settings: Any) -> list[Right]:
    """The list, for any alias."""
    return list(
        rights(
            configuration(
                {
                    "clusters": {a: {"bootstrap_servers": f"{a}:1"} for a in "XB"},
                    "flows": {"X->B": settings},
                    "service": {"group": "mirror"},
                }
            )
        )
    )


ON_SOURCE = {"heartbeats_on_source": True, "offset_syncs_location": "source"}
LIKE_RESTRICTED = {
    "topics": "rights-X-.*",
    "groups": "rights-X-.*",
    "sync_group_offsets": True,
    "emit_offset_syncs": True,
    "offset_syncs_location": "target",
    "transform": "tests.functions:fails_on",
    "dead_letter_topic": "dead-X",
}


def test_the_list_is_enough(secured_pair: Secured) -> None:
    """With the listed rights alone, everything that a flow does goes without a
    problem, at its first run and at its second.
    """
    made = restricted(secured_pair, "E").prepare()
    with made.allowed(rights(made.config)):
        assert list(made.problems()) == []


@pytest.mark.full
@pytest.mark.parametrize("part", range(PARTS))
def test_no_line_is_too_much(secured_pair: Secured, part: int) -> None:
    """Whichever right is missing, something fails, with a reason."""
    listed = lines(**LIKE_RESTRICTED)
    unneeded = []
    for number in range(part, len(listed), PARTS):
        problem = without_a_line(secured_pair, number, f"L{number}")
        if not problem:
            unneeded.append(str(listed[number]))
    assert unneeded == []


@pytest.mark.full
def test_no_line_of_a_source_that_is_written_to_is_too_much(
    secured_pair: Secured,
) -> None:
    """The same for the settings with which a flow writes to its source."""
    listed = lines(**{**LIKE_RESTRICTED, **ON_SOURCE})
    made = restricted(secured_pair, "W", **ON_SOURCE).prepare()
    with made.allowed(rights(made.config)):
        assert list(made.problems()) == []
    unneeded = [
        str(listed[number])
        for number in range(len(listed))
        if listed[number].cluster == "X"
        and listed[number].operation in {Operation.CREATE, Operation.WRITE}
        and not _is_there(secured_pair, listed[number])
        and not without_a_line(secured_pair, number, f"W{number}", **ON_SOURCE)
    ]
    assert unneeded == []


def test_following_commits_takes_a_right(secured_pair: Secured) -> None:
    """A flow that insists on following commits has what it needs with the listed
    rights, and names the missing one. (Other tests' flows do not insist, and have no
    problem.)
    """
    made = restricted(secured_pair, "F", follow_commits="on").prepare()
    needed = rights(made.config)
    with made.allowed(needed):
        assert list(made.problems()) == []
    made = restricted(secured_pair, "G", follow_commits="on").prepare()
    needed = rights(made.config)
    few = [each for each in needed if each.extent.name != "__consumer_offsets"]
    assert len(few) == len(needed) - 1
    with made.allowed(few):
        assert next(made.problems()) == (
            "commits: checkpoints do not follow commits on G: no READ on topic "
            "__consumer_offsets"
        )


def _is_there(secured_pair: Secured, right: Right) -> bool:
    """A topic that exists need not be created."""
    return right.operation is Operation.CREATE and topic_exists(
        secured_pair["a"].admin_bootstrap, right.extent.name
    )


def service_config(secured_pair: Secured, **settings: Any) -> dict[str, Any]:
    return {
        "clusters": {
            alias: {
                "bootstrap_servers": secured_pair[alias.lower()].bootstrap,
                **secured_pair[alias.lower()].client_config,
            }
            for alias in "AB"
        },
        "flows": {
            "A->B": {
                "topics": "whole-.*",
                "groups": "whole-.*",
                "tasks": 1,
                "lease_seconds": 1,
                "sync_group_offsets": True,
                "sync_topic_configs_seconds": 1,
                "sync_topic_acls_seconds": 1,
                "emit_checkpoints_seconds": 1,
                "refresh_topics_seconds": 1,
                **settings,
            }
        },
    }


def listed_by_command(config: dict[str, Any], folder: Path, *who: str) -> list[Any]:
    """What `mirror config acls` prints."""
    file = folder / "mirror.yaml"
    file.write_text(json.dumps(config))
    asked = ["config", "acls", "-c", str(file), "-o", "json"]
    for each in who:
        asked += ["--for", each]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)["acls"]


def give(secured_pair: Secured, config: dict[str, Any], *who: Who) -> None:
    listed = rights(configuration(config), who=who or (Who.SERVICE,))
    for alias in "AB":
        grant(
            secured_pair[alias.lower()].admin_bootstrap,
            [each for each in listed if each.cluster == alias],
        )


def fill(bootstrap: str, topic: str, group: str) -> None:
    create_topic(bootstrap, topic, partitions=2, retention_ms="7200000")
    client = producer(bootstrap)
    for number in range(100):
        client.produce(topic, key=b"%d" % number, value=b"v", partition=number % 2)
    assert client.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    places = [TopicPartition(topic, p, 20 + p) for p in range(2)]
    commit_offsets(consumer, places)
    consumer.close()


def committed(bootstrap: str, group: str, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        places = [TopicPartition(topic, p) for p in range(2)]
        found = consumer.committed(places, timeout=PATIENCE_SECONDS)
        return [each.offset for each in found]
    finally:
        consumer.close()


def test_the_whole_service_with_these_rights_alone(
    secured_pair: Secured, tmp_path: Path
) -> None:
    """A service with exactly the rights that `mirror config acls` lists copies records,
    configs, ACLs, groups, heartbeats and new partitions, leads its flow, keeps its
    events, and has no problem; then an application with the rights of its own list
    alone learns where its group continues.
    """
    a, b = (secured_pair[name].admin_bootstrap for name in "ab")
    topic, group = "whole-orders", "whole-app"
    fill(a, topic, group)
    allow(a, "alice", "READ", topic)
    config = service_config(secured_pair, heartbeats_on_source=True)
    config["service"] = {"audit_topic": "A/who-changed-what"}
    listed = listed_by_command(config, tmp_path)
    assert {each["principal"] for each in listed} == {"User:mirror"}
    give(secured_pair, config)
    with RunningMirror(config, tmp_path / "run") as mirror:
        eventually(b, f"A.{topic}", 100)
        wait_for(lambda: committed(b, group, f"A.{topic}") == [20, 21])
        wait_for(lambda: acls_of(b, about=f"A.{topic}") == {
            ("User:alice", "READ", "ALLOW", f"A.{topic}", "LITERAL")
        })  # fmt: skip
        assert overrides(b, f"A.{topic}")["retention.ms"] == "7200000"
        alter_topic(a, topic, retention_ms="3600000")
        add_partitions(a, topic, 3)
        wait_for(lambda: overrides(b, f"A.{topic}")["retention.ms"] == "3600000")
        wait_for(lambda: len(end_offsets(b, f"A.{topic}")) == 3)
        document = mirror.wait_until(
            lambda document: (
                (flow := document["flows"][0])["copied_heartbeat_at"]
                and flow["acls"]["state"] == "SYNCED"
                and any(
                    (each["group"], each["partitions"], each["unknown"])
                    == (group, 3, 0)
                    for each in flow["groups"]
                )
                and all(job["succeeded_at"] for job in flow["jobs"])
                # The third partition is new, and its leaders may be, too.
                and not any(each["reason"] for each in flow["partitions"])
            )
        )
        flow = document["flows"][0]
        assert flow["problems"] == []
        assert flow["leader"]
        assert [each["failures"] for each in flow["jobs"] if each["failures"]] == []
        assert mirror.terminate() == 0
        assert "AUTHORIZATION" not in mirror.log.read_text()
        assert "audit topic" not in mirror.log.read_text()
        assert end_offsets(a, "who-changed-what")[0] > 0
        assert "instances cannot elect a leader" not in mirror.log.read_text()

    for cluster in secured_pair.values():
        revoke_all(cluster.admin_bootstrap)
    give(secured_pair, config, Who.CLIENTS)
    with MirrorClient(config["clusters"]["B"]) as client:
        found = client.translate_offsets(group, "A")
        # The third partition is empty, and so read to its end.
        assert [each.offset for each in found.values()] == [20, 21, 0]
        assert client.upstream_clusters() == {"A"}
        assert client.replication_hops("A") == 1


@pytest.mark.full
def test_a_source_that_may_only_be_read(
    secured_pair: Secured, standing: StandingMirror
) -> None:
    """A user with only READ and DESCRIBE on the source, who cannot even see configs,
    can copy records, groups and ACLs; the source stays as it was, and the status names
    what could not be seen.
    """
    a, b = (secured_pair[name].admin_bootstrap for name in "ab")
    topic, group = "whole-read", "whole-read-app"
    fill(a, topic, group)
    allow(a, "alice", "READ", topic)
    config = service_config(secured_pair, topics="whole-read.*", groups="whole-read.*")
    reading = {Operation.READ, Operation.DESCRIBE}
    listed = rights(configuration({**config, "service": {"group": standing.group}}))
    of_a = [each for each in listed if each.cluster == "A"]
    assert {each.operation for each in of_a} == {*reading, Operation.DESCRIBE_CONFIGS}
    grant(a, [each for each in of_a if each.operation in reading])
    grant(b, [each for each in listed if each.cluster == "B"])
    before = acls_of(a), end_offsets(a, topic), _topics(a)
    with standing.hosting(config) as mirror:
        eventually(b, f"A.{topic}", 100)
        wait_for(lambda: committed(b, group, f"A.{topic}") == [20, 21])
        wait_for(lambda: acls_of(b, about=f"A.{topic}"))
        mirror.wait_until(
            lambda document: any(
                "configs" in each and "AUTHORIZATION_FAILED" in each
                for each in document["flows"][0]["problems"]
            )
        )
    assert (acls_of(a), end_offsets(a, topic), _topics(a)) == before


def _topics(bootstrap: str) -> set[str]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "witness"})
    try:
        return set(consumer.list_topics(timeout=30).topics)
    finally:
        consumer.close()
