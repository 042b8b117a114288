"""A schema registry's own topic: left out of wide patterns, and copied byte for byte to
a registry that only follows.

The records are those that Confluent's registry writes; ordinary Kafka clients write
and read them. `test_a_follower_answers_the_same` asks real registries: those that are
given, or Apicurio's, which can keep records of its own in that topic.
"""

from __future__ import annotations

from contextlib import ExitStack
import json
import os
from typing import TYPE_CHECKING, Any
import uuid

from confluent_kafka.admin import AdminClient
import pytest

from mirror.checks.check import check
from mirror.checks.finding import State
from mirror.config.schema import MirrorConfig
from mirror.policy.naming import SCHEMAS
from mirror.topics import topics
from tests.harness.admin import create_topic, delete_topic
from tests.harness.configurations import configuration
from tests.harness.load import producer
from tests.harness.metadata import overrides
from tests.harness.registry_process import MORE_TOPICS, apicurio
from tests.harness.schemas import Raw, avro
from tests.harness.slots import RunningLease, SparklessFlow, copy_until
from tests.harness.waiting import wait_for
from tests.harness.witness import Witness, read_topic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirror.config.schema import MirrorConfig
    from mirror.playground.cluster import PlaygroundCluster

    Clusters = dict[str, PlaygroundCluster]

pytestmark = pytest.mark.integration

FOLLOWED = "MIRROR_TEST_FOLLOWED"
"""A registry, its brokers, the registry that follows it, and that one's brokers, with
spaces between them.
"""
_FOLLOWED = os.environ.get(FOLLOWED, "").split()


@pytest.fixture(autouse=True)
def _registry_topic(clusters: Clusters) -> Iterator[None]:
    """As a registry creates it; other tests' wide patterns do not meet it."""
    create_topic(clusters["a"].bootstrap, SCHEMAS, cleanup_policy="compact")
    yield
    for cluster in clusters.values():
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        there = admin.list_topics(timeout=30).topics
        for name in there.keys() & {SCHEMAS, *MORE_TOPICS}:
            delete_topic(cluster.bootstrap, name)


def config(clusters: Clusters, **settings: Any) -> MirrorConfig:
    flow = {"policy": "identity", "heartbeats_replication": False, **settings}
    mark = uuid.uuid4().hex[:6]
    return configuration(
        {
            "clusters": {
                f"A{mark}": {"bootstrap_servers": clusters["a"].bootstrap},
                f"B{mark}": {"bootstrap_servers": clusters["b"].bootstrap},
            },
            "flows": {f"A{mark}->B{mark}": flow},
            "service": {"http_port": 0},
        }
    )


def found_by_check(made: MirrorConfig) -> list[tuple[State, str]]:
    return [(e.state, e.detail) for e in check(made).findings if e.check == "schemas"]


def test_a_wide_pattern_leaves_it_out(clusters: Clusters, topic_name: str) -> None:
    """Under its own name the registry's topic is copied only if it is listed; until
    then a flow's problems and `mirror check` say that it is left out, and how to settle
    that. Under another name it is a topic like any other.
    """
    create_topic(clusters["a"].bootstrap, topic_name)
    wide = [f"_sch.*|{topic_name}"]
    made = config(clusters, topics=wide)
    [flow] = made.flows.values()
    flow_sides = SparklessFlow(
        source=clusters["a"].bootstrap, target=clusters["b"].bootstrap,
        topic=wide[0], alias=flow.source, into=flow.target,
        settings={"policy": "identity"},
    )  # fmt: skip
    with flow_sides.connected() as (source, target):
        found = topics.sync(source, target, flow)
        assert [each.topic for each in found.topics] == [topic_name]
        assert found.problems == (topics.SCHEMAS_LEFT_OUT,)
        assert target.topic(SCHEMAS) is None
        [said] = found_by_check(made)
        assert said[0] is State.WARN
        assert "is left out" in said[1]

        excluded = config(clusters, topics=wide, topics_exclude=[SCHEMAS])
        assert topics.select(source, *excluded.flows.values()).problems == ()
        renamed = config(clusters, topics=wide, policy="default")
        names = {e.topic for e in topics.select(source, *renamed.flows.values()).topics}
        assert names == {topic_name, SCHEMAS}
        assert found_by_check(renamed) == []

    listed = config(clusters, topics=[SCHEMAS])
    [said] = found_by_check(listed)
    assert said[0] is State.WARN
    assert "writes to the same log" in said[1]


@pytest.mark.full
def test_listed_it_is_copied_byte_for_byte(clusters: Clusters) -> None:
    """Keys, values, tombstones and timestamps are the same in the same order, without
    headers; what a transaction took back is not there. The copy has one partition and
    is compacted, also where copies get more partitions.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    records = [
        (b'{"keytype":"NOOP","magic":0}', None),
        *(
            (
                json.dumps({"keytype": "SCHEMA", "subject": "o", "version": n,
                            "magic": 1}).encode(),
                json.dumps({"subject": "o", "version": n, "id": n, "deleted": False,
                            "schema": '"string" ' + "\u00e9" * n}).encode(),
            )
            for n in range(1, 40)
        ),
        (b'{"keytype":"DELETE_SUBJECT","subject":"o","magic":0}', b"\x00\xff{}"),
        (b'{"keytype":"SCHEMA","subject":"o","version":1,"magic":1}', None),
        (b'{"keytype":"CONFIG","subject":null,"magic":0}', b""),
    ]  # fmt: skip
    client = producer(a, **{"transactional.id": uuid.uuid4().hex})
    client.init_transactions()
    client.begin_transaction()
    client.produce(SCHEMAS, key=b"taken back", value=b"{}")
    client.flush(30)
    client.abort_transaction()
    client.begin_transaction()
    for number, (key, value) in enumerate(records):
        client.produce(SCHEMAS, key=key, value=value, timestamp=10**12 + number)
    client.commit_transaction()

    flow = SparklessFlow(
        source=a,
        target=b,
        topic=SCHEMAS,
        settings={"policy": "identity", "provenance": False, "least_partitions": 3},
    ).own()
    with Witness(b) as witness, flow.slot() as slot:
        witness.begin(SCHEMAS)
        copy_until(witness, slot, flow.lease(60), count=len(records), timeout=60)

    [copied] = read_topic(b, SCHEMAS).values()
    [original] = read_topic(a, SCHEMAS).values()
    assert [(e.key(), e.value()) for e in copied] == records
    assert [e.timestamp() for e in copied] == [e.timestamp() for e in original]
    assert not any(e.headers() for e in copied)
    assert overrides(b, SCHEMAS)["cleanup.policy"] == "compact"


@pytest.mark.full
def test_a_follower_answers_the_same(
    clusters: Clusters, topic_name: str, tmp_path: Path
) -> None:
    """What a registry stores in its topic, one that follows the copy answers: ids,
    versions, texts and deletes. That one takes nothing else.
    """
    with ExitStack() as stack:
        if _FOLLOWED:
            leads, source, follows, target = _FOLLOWED
        else:
            source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
            leader = apicurio(tmp_path / "a", brokers=source)
            leads, follows = stack.enter_context(leader).url, ""
        registry = Raw(leads)
        for field in "ab":
            registry.register(f"{topic_name}-value", avro("Followed", field))
        registry.delete(f"{topic_name}-value", 1)
        flow = SparklessFlow(
            source=source, target=target, topic=SCHEMAS,
            settings={"policy": "identity", "provenance": False},
        ).own()  # fmt: skip
        lease = RunningLease(stack.enter_context(flow.slot()), flow.lease(300))
        stack.callback(lease.end)
        if not follows:
            one = apicurio(tmp_path / "b", brokers=target, follows=True)
            follows = stack.enter_context(one).url
        follower = Raw(follows)
        wait_for(lambda: follower.versions() == registry.versions())
        registry.register(f"{topic_name}-key", avro("Later", "c"))
        wait_for(lambda: follower.versions() == registry.versions())
        assert (f"{topic_name}-key", 1) in registry.versions()
        with pytest.raises(AssertionError, match="POST /subjects"):
            follower.register(f"{topic_name}-key", avro("Own", "d"))
