"""Every key of Kafka's own classes has an answer, wherever a file may hold it.

`kafka_keys.tsv` lists them (`tests.harness.kafka_keys` writes it).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from mirror.config.mm2 import keys
from mirror.config.mm2 import keys as mm2_keys
from mirror.config.mm2 import properties as mm2_properties
from tests.harness.kafka_keys import listed

if TYPE_CHECKING:
    from mirror.config.document import Document

pytestmark = pytest.mark.unit

BASE = """
clusters = A, B
A.bootstrap.servers = a1:9092
B.bootstrap.servers = b1:9092
security.protocol = SASL_SSL
sasl.mechanism = PLAIN
sasl.jaas.config = PlainLoginModule required username="u" password="p";
ssl.truststore.location = trusted.jks
ssl.keystore.location = own.jks
A->B.enabled = true
B->A.enabled = true
"""
VALUES = {
    "replication.policy.class": "org.apache.kafka.connect.mirror."
    "IdentityReplicationPolicy",
    "exactly.once.source.support": "disabled",
    "exactly.once.support": "disabled",
    "listeners": "http://127.0.0.1:0",
}
"""Where 5 would be refused."""
ROLES = {
    "ConsumerConfig": "consumer",
    "ProducerConfig": "producer",
    "AdminClientConfig": "admin",
}
ANSWERED = re.compile(
    r"(?s).+: (not needed, (ignored|applied).+|has no effect .+; write .+|"
    r"not used by \w+, ignored|MirrorMaker 2 ignores .+; applied .+|"
    r"the cluster .+ is called .+)"
)
REFUSED = re.compile(r"(?s).+: .+(; use |; write |; add |, or remove it|has no ).*")
GUIDES = {
    "compression.level", "poll.timeout.ms", "group.protocol", "metrics.reporters",
    "num.stream.threads", "metadata.request.timeout.ms", "consumer.poll.timeout.ms",
    "exclude.internal.topics", "replication.policy.internal.topic.separator.enabled",
    "target.topic.creation.enable", "name", "source.cluster.alias",
    "target.cluster.alias",
}  # fmt: skip
"""Answered although no class defines them: guides have them, or policies read them."""
PLACES = sorted(
    {
        (place, each.key)
        for each in listed()
        for role in (ROLES.get(each.by),)
        for place in (
            *("", "A.", "B.", "A->B."),
            *(
                f"{owner}{role}."
                for owner in ("", "A.", "B.", "A->B.", "A->B.source.", "A->B.target.")
                if role
            ),
            *([f"A->B.{role}.override."] if role else []),
        )
    }
)


def understood(more: str = "") -> Document:
    return mm2_properties.read(BASE + more, {})


def test_the_list_is_whole() -> None:
    """It has the versions and classes that it should have."""
    found = listed()
    assert {each.version for each in found} >= {"3.9.1", "4.3.1"}
    assert len({each.by for each in found}) == 16
    assert len({each.key for each in found}) > 240


@pytest.mark.parametrize("key", sorted({key for _, key in PLACES}))
def test_every_key_has_an_answer(key: str) -> None:
    """In each place it sets something, or one message says why it is not needed, where
    to write it, or what to use instead.
    """
    base = understood()
    for place, name in PLACES:
        if name != key or f"\n{place}{key} =" in BASE:
            continue
        document = understood(f"{place}{key} = {VALUES.get(key, '5')}\n")
        said = [text for text in document.warnings if text not in base.warnings]
        if document.problems:
            assert all(map(REFUSED.fullmatch, document.problems)), document.problems
        elif said:
            assert all(map(ANSWERED.fullmatch, said)), said
        elif not place and key in ("clusters", "bootstrap.servers", "config.providers"):
            continue  # the first two are above, and the last resolves references
        else:
            assert document.raw != base.raw, f"{place}{key}"


@pytest.mark.parametrize(
    "key",
    ["producer.linger.mss", "A.consumer.fetch.max", "B.foo.bar", "A->B.consumer.x.y"],
)
def test_other_keys_are_unknown(key: str) -> None:
    """What no version of Kafka knows is not taken for a key that is not needed."""
    (said,) = understood(f"{key} = 5\n").warnings
    assert said.startswith(f"{key}: unknown, ignored")


def test_answers_are_about_keys_that_exist() -> None:
    """Each key with a reason is one of Kafka's, or of published guides."""
    known = {each.key for each in listed()} | GUIDES
    assert {*keys.REASONS} - known == set()
    assert {*keys.REASONS} & {*mm2_keys.FLOW, *mm2_keys.CLUSTER} == set()
