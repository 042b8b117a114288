"""All that a cluster keeps and an operator can see, to compare before and after.

Main function: `portrait`. Topics with configs and ends, groups with offsets, ACLs and
users are confluent-kafka's answers; quotas, which it cannot ask for, kafka-python's.
"""

from __future__ import annotations

from concurrent.futures import Future
import re
from typing import Any

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    ConfigSource,
    OffsetSpec,
    ResourceType,
)
from kafka.protocol.admin import DescribeClientQuotasRequest

from tests.harness.connections import connected
from tests.harness.producers import all_acls
from tests.harness.waiting import wait_for

_PATIENCE = 30


def portrait(bootstrap: str, *, but: str) -> dict[str, Any]:
    """Topics, groups, ACLs, quotas and users. `but`: a regular expression for what
    topics and groups others may change meanwhile. The brokers' own topics are left out:
    `groups` has what matters of them.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    left_out = re.compile(rf"^__|{but}")
    topics = {
        name: len(found.partitions)
        for name, found in admin.list_topics(timeout=_PATIENCE).topics.items()
        if not left_out.search(name)
    }
    listed = admin.list_consumer_groups().result(_PATIENCE)
    assert not listed.errors
    groups = [g.group_id for g in listed.valid if not left_out.search(g.group_id)]
    return {
        "configs": _configs(admin, topics),
        "ends": _ends(admin, topics),
        "groups": {name: _committed(admin, name) for name in groups},
        "acls": _acls(bootstrap),
        "quotas": _quotas(bootstrap),
        "users": _users(admin),
    }


def at_rest(bootstrap: str, *, but: str) -> dict[str, Any]:
    """A portrait that the next one equals: ends of transactions arrive late."""
    seen: list[dict[str, Any]] = []

    def same() -> bool:
        seen.append(portrait(bootstrap, but=but))
        return seen[-2:-1] == seen[-1:]

    wait_for(same)
    return seen[-1]


def _configs(admin: AdminClient, topics: dict[str, int]) -> dict[str, dict[str, str]]:
    asked = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    return {
        resource.name: {
            name: entry.value
            for name, entry in answer.result(_PATIENCE).items()
            if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        }
        for resource, answer in (admin.describe_configs(asked) if asked else {}).items()
    }


def _ends(admin: AdminClient, topics: dict[str, int]) -> dict[tuple[str, int], int]:
    """Where the logs end, with what transactions have not committed."""
    asked = {
        TopicPartition(name, number): OffsetSpec.latest()
        for name, count in topics.items()
        for number in range(count)
    }
    answers = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_UNCOMMITTED)
    return {
        (place.topic, place.partition): answer.result(_PATIENCE).offset
        for place, answer in answers.items()
    }


def _committed(
    admin: AdminClient, group: str
) -> dict[tuple[str, int], tuple[int, str | None]]:
    asked = [ConsumerGroupTopicPartitions(group)]
    (answer,) = admin.list_consumer_group_offsets(asked).values()
    return {
        (place.topic, place.partition): (place.offset, place.metadata)
        for place in answer.result(_PATIENCE).topic_partitions
    }


def _acls(bootstrap: str) -> set[tuple[Any, ...]]:
    try:
        return all_acls(bootstrap)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.SECURITY_DISABLED:
            raise
        return set()


def _quotas(bootstrap: str) -> set[tuple[Any, ...]]:
    with connected(bootstrap) as cluster:
        answer = cluster.call(DescribeClientQuotasRequest(components=[], strict=False))
    assert answer.error_code == 0, answer
    return {
        (
            frozenset((part.entity_type, part.entity_name) for part in entry.entity),
            frozenset((value.key, value.value) for value in entry.values),
        )
        for entry in answer.entries or ()
    }


def _users(admin: AdminClient) -> dict[str, list[tuple[str, int]]]:
    answer = admin.describe_user_scram_credentials(None)
    assert isinstance(answer, Future)
    return {
        name: sorted(
            (each.mechanism.name, each.iterations)
            for each in found.scram_credential_infos
        )
        for name, found in answer.result(_PATIENCE).items()
    }
