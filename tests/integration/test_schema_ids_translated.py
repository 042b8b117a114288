"""Copies with the target's ids of schemas, by brokers, slots and ordinary consumers.

Where both registries are down, slots go by the map alone, which an ordinary producer
writes as docs/reference/formats.md has it. Where they are there, confluent-kafka's own
clients write and decode.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any
import uuid

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
import pytest

from mirror.proving.account import Kind
from tests.harness import registries
from tests.harness.admin import create_topic
from tests.harness.load import producer
from tests.harness.proofs import proven
from tests.harness.schemas import Raw, avro
from tests.harness.slots import SparklessFlow, copy_until
from tests.harness.witness import Witness, read_topic

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.witness import Message

    Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]

pytestmark = pytest.mark.integration

NOWHERE = {"url": "http://127.0.0.1:1"}
IDS = {1: 2, 2: 3, 3: 1, 40: 2**31 - 1}
GUID = uuid.UUID(int=7).bytes


def framed(number: int, rest: bytes = b"content") -> bytes:
    """As a registry's serializers do."""
    return struct.pack(">bI", 0, number) + rest


def parts(one: int, two: int, three: int, forty: int) -> list[Record]:
    return [
        (framed(one), framed(two), []),
        (framed(two), None, [("h", None)]),
        (None, framed(three), []),
        (None, None, []),
        (b"", b"\0\0\0\1", []),
        (b"k", b"v", [("__key_schema_id", framed(one, b"")), ("other", framed(1))]),
        (b"k", b"v", [("__value_schema_id", framed(forty, b""))]),
        (b"k", b"\1" + GUID, []),
        *((b"%d" % n, framed(forty, b"x" * 900), []) for n in range(60)),
    ]


def note(servers: str, topic: str, ids: Mapping[int, int]) -> None:
    """Write the map of a flow."""
    sender = producer(servers)
    for number, copy in ids.items():
        value = {"version": 1, "id": number, "target_id": copy, "sha256": f"{number}",
                 "state": "copied", "at": 0}  # fmt: skip
        key = f"/subject-{number}/1"
        sender.produce(topic, key=key.encode(), value=json.dumps(value).encode())
    assert sender.flush(30) == 0


def write(servers: str, topic: str, partition: int, codec: str) -> None:
    sender = producer(servers, compression_type=codec, linger_ms=50)
    for key, value, headers in parts(1, 2, 3, 40):
        sender.produce(topic, value, key, partition, headers=headers)
    assert sender.flush(30) == 0


def shown(messages: list[Message]) -> list[Record]:
    return [
        (each.key(), each.value(),
         [h for h in each.headers() or [] if h[0] != "mirror.via"])
        for each in messages
    ]  # fmt: skip


CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def flow_of(
    clusters: dict[str, PlaygroundCluster], topic: str, **settings: Any
) -> SparklessFlow:
    """A flow with its map, copying a topic with a partition for each codec."""
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(a, topic, partitions=len(CODECS))
    claims = f"mirror-schemas.{topic}.internal"
    create_topic(b, claims, partitions=1)
    note(b, claims, IDS)
    for partition, codec in enumerate(CODECS):
        write(a, topic, partition, codec)
    return SparklessFlow(
        source={"bootstrap_servers": a, "schema_registry": NOWHERE},
        target={"bootstrap_servers": b, "schema_registry": NOWHERE},
        topic=topic,
        alias=topic,
        settings={"schemas": "require", "schemas_ids": "translate", **settings},
    ).own()


def test_translated(clusters: dict[str, PlaygroundCluster], topic_name: str) -> None:
    """Whatever packs them, a consumer of the target finds keys, values and header ids
    with the target's ids, each translated once although ids of one side are ids of the
    other; tombstones, null keys, GUIDs, short values and other headers as they were
    written. verify finds all copies equal, by the map of offsets and by content. Then
    one id is another one on the target: verify says DIFFERENT of its records alone.
    """
    b = clusters["b"].bootstrap
    flow = flow_of(clusters, topic_name)
    wanted = parts(*(IDS[each] for each in (1, 2, 3, 40)))
    with Witness(b) as witness, flow.slot() as slot:
        witness.begin(flow.copy)
        count = len(CODECS) * len(wanted)
        reports = copy_until(witness, slot, flow.lease(60), count=count, timeout=60)
    for messages in read_topic(b, flow.copy).values():
        assert shown(messages) == wanted
    assert sum(each.counts.translated for each in reports) == len(CODECS) * 65
    for by_content in (False, True):
        found = proven(flow, by_content=by_content)
        assert found.findings == ()
        assert sum(each.account.equal for each in found.partitions) == count

    note(b, f"mirror-schemas.{topic_name}.internal", {3: 4})
    found = proven(flow)
    assert {(each.kind, each.source, each.count) for each in found.findings} == {
        (Kind.DIFFERENT, 2, 1)
    }
    assert len(found.findings) == len(CODECS)


@pytest.mark.needs("registry")
@pytest.mark.parametrize(
    "make", [pytest.param("apicurio", marks=pytest.mark.full), "axonops"]
)
def test_decoded(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path, make: str
) -> None:
    """Into a registry that chooses ids and has given the source's to others, a consumer
    decodes keys and values of five versions to what was written, and verify finds
    the copies equal. Bytes that only look like a registry's pass as they are.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(a, topic_name, partitions=1)
    with (
        registries.running("axonops", tmp_path / "a") as one,
        registries.running(make, tmp_path / "b") as other,
        SchemaRegistryClient({"url": one}) as writes,
        SchemaRegistryClient({"url": other}) as reads,
    ):
        for number in range(7):
            Raw(other).register(f"theirs-{number}", avro(f"Theirs{number}", "x"))
        fields = [
            SerializationContext(topic_name, each)
            for each in (MessageField.KEY, MessageField.VALUE)
        ]
        sender = producer(a)
        written = []
        for version in range(1, 6):
            names = [f"f{each}" for each in range(version)]
            made = [AvroSerializer(writes, avro(each, *names)) for each in "KV"]
            for number in range(5):
                said = dict.fromkeys(names, f"{version}.{number}")
                key, value = (m(said, f) for m, f in zip(made, fields, strict=True))
                sender.produce(topic_name, value, key)
                written.append((said, said))
        sender.produce(topic_name, framed(5000))
        assert sender.flush(30) == 0
        flow = SparklessFlow(
            source={"bootstrap_servers": a, "schema_registry": {"url": one}},
            target={"bootstrap_servers": b, "schema_registry": {"url": other}},
            topic=topic_name,
            alias=topic_name,
            settings={"schemas": "require", "schemas_ids": "translate"},
        ).own()
        with Witness(b) as witness, flow.slot() as slot:
            witness.begin(flow.copy)
            copy_until(witness, slot, flow.lease(60), count=26, timeout=60)
        *messages, last = read_topic(b, flow.copy)[0]
        assert last.value() == framed(5000)
        decode = AvroDeserializer(reads)
        assert [
            (decode(each.key(), fields[0]), decode(each.value(), fields[1]))
            for each in messages
        ] == written
        sent = read_topic(a, topic_name)[0]
        assert all(
            (each.key()[:5], each.value()[:5]) != (was.key()[:5], was.value()[:5])
            for each, was in zip(messages, sent[:-1], strict=True)
        )
        found = proven(flow)
        assert found.findings == ()
        assert sum(each.account.equal for each in found.partitions) == 26
