"""A producer whose schemas evolve, and a consumer that decodes what it has at once.

Both are confluent-kafka's own clients: `evolve` writes, `Reader` reads.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import (
    JSONDeserializer,
    JSONSerializer,
)
from confluent_kafka.schema_registry.protobuf import (
    ProtobufDeserializer,
    ProtobufSerializer,
)
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict
from google.protobuf.message_factory import GetMessageClass

from tests.harness.load import producer
from tests.harness.schemas import Raw, avro

if TYPE_CHECKING:
    from confluent_kafka import Producer


class Reader(threading.Thread):
    """A consumer on the target that decodes each record the moment it has it."""

    def __init__(self, servers: str, topics: list[str], url: str) -> None:
        super().__init__(daemon=True)
        self.decoded: dict[str, list[Any]] = {topic: [] for topic in topics}
        self.failed: list[str] = []
        self._servers = servers
        self._client = SchemaRegistryClient({"url": url})
        self._avro = AvroDeserializer(self._client)
        self._json = JSONDeserializer(None, schema_registry_client=self._client)
        self._protobuf: dict[int, ProtobufDeserializer] = {}
        self._ending = threading.Event()

    def run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 10,
            }
        )
        consumer.assign([TopicPartition(t, 0, OFFSET_BEGINNING) for t in self.decoded])
        while not self._ending.is_set():
            if (message := consumer.poll(0.1)) is None or message.error():
                continue
            topic = message.topic()
            try:
                self.decoded[topic].append(
                    tuple(
                        self._read(topic, content, field)
                        for content, field in (
                            (message.key(), MessageField.KEY),
                            (message.value(), MessageField.VALUE),
                        )
                    )
                )
            except Exception as error:  # noqa: BLE001  whatever it is, the record was too early
                self.failed.append(f"{topic} {message.offset()}: {error!r}")
        consumer.close()

    def _read(self, topic: str, content: bytes, field: str) -> Any:
        context = SerializationContext(topic, field)
        if "proto" in topic and field == "value":
            return self._read_protobuf(content, context)
        which = self._json if "json" in topic and field == "value" else self._avro
        return which(content, context)

    def _read_protobuf(self, content: bytes, context: SerializationContext) -> Any:
        """With what this registry says of the id."""
        if (number := int.from_bytes(content[1:5])) not in self._protobuf:
            schema = self._client.get_schema(number, fmt="serialized").schema_str
            # Apicurio has the text only, with which the client does not go on.
            has_text = schema.startswith("syntax")
            self._protobuf[number] = ProtobufDeserializer(
                _of_text(schema) if has_text else _nested(schema),
                {"use.deprecated.format": False},
                None if has_text else self._client,
            )
        return _as_dict(self._protobuf[number](content, context))

    def end(self) -> None:
        self._ending.set()
        self.join()
        self._client.__exit__()


def evolve(
    servers: str, registry: Raw, topics: list[str], *, versions: int
) -> dict[str, list[Any]]:
    """Write records while the schemas of keys and values get further versions; what
    was written, by topic.
    """
    sender = producer(servers, linger_ms=0)
    written: dict[str, list[Any]] = {topic: [] for topic in topics}
    registry.register("money", avro("Money", "currency"))
    for version in range(1, versions + 1):
        # A client of its own: it remembers which version is the latest.
        with SchemaRegistryClient({"url": registry.url}) as client:
            _write_version(
                registry, topics, version, client=client, sender=sender, written=written
            )
    return written


def _write_version(
    registry: Raw,
    topics: list[str],
    version: int,
    *,
    client: SchemaRegistryClient,
    sender: Producer,
    written: dict[str, list[Any]],
) -> None:
    names = [f"f{number}" for number in range(version)]
    for number, topic in enumerate(topics):
        key_text = avro(f"K{number}", *names)
        refers = [{"name": "n.Money", "subject": "money", "version": 1}]
        if "json" in topic:
            text = json.dumps(
                {"title": f"J{number}", "type": "object",
                 "properties": {name: {"type": "string"} for name in names}}
            )  # fmt: skip
            value_of = JSONSerializer(Schema(text, "JSON"), client)
        elif "proto" in topic:
            value_of = _protobuf(registry, client, f"{topic}-value", names)
        else:
            text = json.dumps(
                {**json.loads(avro(f"V{number}", *names)),
                 "doc": "with money",
                 "fields": [*json.loads(avro(f"V{number}", *names))["fields"],
                            {"name": "price", "type": ["null", "n.Money"],
                             "default": None}]}
            )  # fmt: skip
            registry.register(f"{topic}-value", text, references=refers)
            schema = client.get_latest_version(f"{topic}-value").schema
            value_of = AvroSerializer(
                client, schema, conf={"auto.register.schemas": False,
                                      "use.latest.version": True}
            )  # fmt: skip
        key_of = AvroSerializer(client, key_text)
        for each in range(5):
            key = dict.fromkeys(names, f"{each}")
            value = dict.fromkeys(names, f"{version}.{each}")
            if "json" not in topic and "proto" not in topic:
                value["price"] = {"currency": "EUR"}
            written[topic].append((key, value))
            sender.produce(
                topic,
                key=key_of(key, SerializationContext(topic, MessageField.KEY)),
                value=value_of(value, SerializationContext(topic, MessageField.VALUE)),
                partition=0,
            )
        sender.poll(0)
    assert sender.flush(30) == 0


def _protobuf(
    registry: Raw, client: SchemaRegistryClient, subject: str, names: list[str]
) -> Any:
    """Writes dictionaries as the message `Outer.Inner`, whose place in the file stands
    behind the id.
    """
    fields = "".join(f" string {name} = {n};" for n, name in enumerate(names, 1))
    # The client also looks for the name among the outer messages.
    outer = "message Inner { } message Outer { message Inner {%s } }"
    text = f'syntax = "proto3";\npackage n; // kept\n{outer % fields}'
    registry.register(subject, text, kind="PROTOBUF")
    schema = client.get_latest_version(subject, fmt="serialized").schema.schema_str
    message = _nested(schema)
    serialize = ProtobufSerializer(
        message, client, {"auto.register.schemas": False, "use.latest.version": True,
                          "use.deprecated.format": False}
    )  # fmt: skip
    return lambda value, context: serialize(message(**value), context)


def _nested(schema: str) -> Any:
    """The class of the message, of a file's serialized form."""
    return _class_in(FileDescriptorProto.FromString(base64.b64decode(schema)))


def _of_text(schema: str) -> Any:
    """The same, of what `_protobuf` writes."""
    file = FileDescriptorProto(name="n.proto", package="n", syntax="proto3")
    inner = file.message_type.add(name="Outer").nested_type.add(name="Inner")
    for name, number in re.findall(r"string (\w+) = (\d+);", schema):
        inner.field.add(name=name, number=int(number), label=1, type=9)  # a text
    return _class_in(file)


def _class_in(file: FileDescriptorProto) -> Any:
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("n.Outer.Inner"))


def _as_dict(message: Any) -> dict[str, Any]:
    return MessageToDict(message, preserving_proto_field_name=True)
