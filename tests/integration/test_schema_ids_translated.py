"""Copies with the target's ids of schemas, by brokers, slots and ordinary consumers.

Where both registries are down, slots go by the map alone, which an ordinary producer
writes as docs/reference/formats.md has it. Where they are there, confluent-kafka's own
clients write and decode.
"""

from __future__ import annotations

from dataclasses import replace
import json
import struct
from typing import TYPE_CHECKING, Any
import uuid

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
import pytest

from mirror.proofs.account import FindingKind
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


def note(
    servers: str, topic: str, ids: Mapping[int, int], *, subject: str = "subject"
) -> None:
    """Write the map of a flow."""
    sender = producer(servers)
    for number, copy in ids.items():
        value = {"version": 1, "id": number, "target_id": copy, "sha256": f"{number}",
                 "state": "copied", "at": 0}  # fmt: skip
        key = f"/{subject}-{number}/1"
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
    one id is another one in the map, and no registry answers whether it means the same:
    verify says UNPROVEN, and not that copies differ.
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
    assert {each.kind for each in found.findings} == {FindingKind.UNPROVEN}
    assert all("does not answer" in each.detail for each in found.findings)
    assert len(found.findings) == len(CODECS)


@pytest.mark.needs("registry")
def test_equal_by_meaning(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """verify finds a copy equal if its id means on the target what the record's means
    on the source, whatever the map says: one that kept its id before the flow
    translated, and ids that the map gave earlier, before a subject that sorts first and
    a registry with other ids. It finds a copy DIFFERENT whose id means another schema
    there, also if it passed before the source issued the id.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    claims = f"mirror-schemas.{topic_name}.internal"
    create_topic(a, topic_name, partitions=1)
    create_topic(b, claims, partitions=1)
    texts = [avro(f"T{number}", "x") for number in range(4)]
    with (
        registries.running("axonops", tmp_path / "a") as one,
        registries.running("axonops", tmp_path / "b") as other,
    ):
        source, target = Raw(one), Raw(other)
        for number in (1, 2):
            assert source.register(f"s-{number}", texts[number]) == number
        assert target.register("mine", texts[1]) == 1
        for number in (2, 3):
            assert (
                target.register(f"theirs-{number}", avro("X", f"x{number}")) == number
            )

        def put(number: int, text: str) -> None:
            """As someone who restores a registry."""
            target.set_mode("IMPORT", f"r-{number}")
            body = {"schema": text, "id": number, "version": 1}
            target.ask("POST", f"/subjects/r-{number}/versions", body)

        for number, text in ((501, texts[1]), (502, texts[2]), (600, texts[2])):
            put(number, text)
        plain = SparklessFlow(
            source={"bootstrap_servers": a, "schema_registry": {"url": one}},
            target={"bootstrap_servers": b, "schema_registry": {"url": other}},
            topic=topic_name,
            alias=topic_name,
        ).own()
        settings = {"schemas": "require", "schemas_ids": "translate"}
        flow = replace(plain, settings=settings)
        sender = producer(a)
        with Witness(b) as witness:
            witness.begin(plain.copy)
            for each in (1, 2, 3):
                sender.produce(topic_name, framed(each))
            assert sender.flush(30) == 0
            with plain.slot() as slot:
                copy_until(witness, slot, plain.lease(60), count=3, timeout=60)
            note(b, claims, {1: 501, 2: 502})
            for each in (1, 2):
                sender.produce(topic_name, framed(each))
            assert sender.flush(30) == 0
            with flow.own().slot() as slot:
                copy_until(witness, slot, flow.lease(60), count=5, timeout=60)
        copies = [each.value() for each in read_topic(b, flow.copy)[0]]
        assert copies == [framed(each) for each in (1, 2, 3, 501, 502)]

        def different(*, by_content: bool = False) -> list[int]:
            """The offsets of records whose copies are."""
            found = proven(flow, by_content=by_content).findings
            assert {each.kind for each in found} == {FindingKind.DIFFERENT}
            return [
                each.source + number for each in found for number in range(each.count)
            ]

        assert different() == [1]
        assert different(by_content=True) == [1]
        note(b, claims, {2: 600}, subject="first")
        assert different() == [1]
        note(b, claims, {2: 999}, subject="first")
        note(b, claims, {2: 999})
        assert different() == [1]
        assert source.register("s-3", texts[3]) == 3
        put(503, texts[3])
        note(b, claims, {3: 503})
        assert different() == [1, 2]


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
