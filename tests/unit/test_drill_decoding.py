"""What a drill says of a record's content, against libraries that build the value."""

from __future__ import annotations

import contextlib
import io
import json
import time
from typing import Any

import fastavro
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from mirror.clusters.registry.values import Schema
from mirror.drilling import schemas
from mirror.drilling.schemas import MOST_CONTENT, decode
from mirror.errors import BoundsError, ContentError

pytestmark = pytest.mark.unit

MONEY = {"type": "record", "name": "Money", "namespace": "n",
         "fields": [{"name": "amount", "type": "long"}]}  # fmt: skip
ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": {"type": "fixed", "name": "Id", "size": 2}},
        {"name": "same", "type": "shop.Id"},
        {"name": "state", "type": {"type": "enum", "name": "S", "symbols": ["A", "B"]}},
        {"name": "note", "type": ["null", "string", {"type": "bytes"}]},
        {"name": "price", "type": "n.Money"},
        {"name": "lines", "type": {"type": "array", "items": ["int", "double"]}},
        {"name": "tags", "type": {"type": "map", "values": "float"}},
        {"name": "paid", "type": "boolean"},
        {"name": "nothing", "type": "null"},
        {"name": "before", "type": ["null", "Order"]},
    ],
}
WHOLE = 2**31 - 1
FLAT = st.fixed_dictionaries(
    {
        "id": st.binary(min_size=2, max_size=2),
        "same": st.binary(min_size=2, max_size=2),
        "state": st.sampled_from("AB"),
        "note": st.none() | st.text() | st.binary(),
        "price": st.fixed_dictionaries({"amount": st.integers(-(2**63), 2**63 - 1)}),
        "lines": st.lists(st.integers(-WHOLE, WHOLE) | st.floats(allow_nan=False)),
        "tags": st.dictionaries(st.text(), st.floats(width=32)),
        "paid": st.booleans(),
        "nothing": st.none(),
    }
)
NESTED = FLAT.flatmap(
    lambda one: (st.none() | FLAT.map(lambda each: {**each, "before": None})).map(
        lambda before: {**one, "before": before}
    )
)
PROTO = """syntax = "proto3";
// message NotThis { }
package n;
message First { string text = 1; /* message Nor { } */ }
message Outer {
  enum Kind { ZERO = 0; }
  message Inner { int64 number = 1; string s = 2; oneof one { bool a = 3; } }
  message Other { message Deep { } string message = 1 [default = "message X {"]; }
  Inner inner = 1;
}
message Maps { map<string, int64> m = 1; message Last { } }
"""


def avro(text: Any) -> Schema:
    return Schema(kind="AVRO", text=json.dumps(text))


def written(value: Any) -> bytes:
    buffer, named = io.BytesIO(), {}
    fastavro.parse_schema(MONEY, named)
    schema = fastavro.parse_schema(ORDER, named)
    fastavro.schemaless_writer(buffer, schema, value)
    return buffer.getvalue()


@given(NESTED)
@settings(max_examples=50, deadline=None)
def test_what_a_library_writes_is_avro(value: dict[str, Any]) -> None:
    """Whatever another library has written decodes, with names of all kinds and a type
    of another text; without that text, or with a byte less, it does not.
    """
    content = written(value)
    decode(avro(ORDER), [avro(MONEY)], content)
    with pytest.raises(ContentError, match="Money"):
        decode(avro(ORDER), [], content)
    with pytest.raises(ContentError, match="ends early"):
        decode(avro(ORDER), [avro(MONEY)], content[:-1])


@given(NESTED, st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=3))
@settings(max_examples=50, deadline=None)
def test_what_is_taken_here_is_taken_elsewhere(
    value: dict[str, Any], others: list[tuple[int, int]]
) -> None:
    """Where some bytes are others, and a drill still takes them, so does a library,
    unless a text is not UTF-8.
    """
    content = bytearray(written(value))
    for place, byte in others:
        content[place % len(content)] = byte
    named: dict[str, Any] = {}
    fastavro.parse_schema(MONEY, named)
    schema = fastavro.parse_schema(ORDER, named)
    with contextlib.suppress(ContentError, UnicodeDecodeError):
        decode(avro(ORDER), [avro(MONEY)], bytes(content))
        fastavro.schemaless_reader(io.BytesIO(bytes(content)), schema)


def proto(message: bytes, *, text: str = PROTO) -> None:
    decode(Schema(kind="PROTOBUF", text=text), [], message)


def test_protobuf() -> None:
    """A message that another library has written decodes as each message of the file,
    by its indexes; one that the file does not have is refused, and so is what ends
    early or has a field of no kind.
    """
    message = FileDescriptorProto(name="n.proto", package="n", dependency=["a", "b"])
    message.message_type.add(name="M").field.add(name="f", number=7, label=1, type=9)
    content = message.SerializeToString()
    for indexes in (b"\0", b"\2\0", b"\2\2", b"\4\2\0", b"\4\2\2", b"\6\2\2\0"):
        proto(indexes + content)
        with pytest.raises(ContentError):
            proto(indexes + content[:-1])
    proto(b"\0")
    proto(b"\0\x0b\x08\x01\x0c")  # a group, as proto2 has it
    proto(b"\4\4\6")  # maps count as messages for some clients
    for nowhere in (b"\2\6", b"\4\2\4", b"\6\2\0\0", b"\4\0\0"):
        with pytest.raises(ContentError, match="no such message"):
            proto(nowhere + content)
    for wrong in (
        b"",
        b"\2",
        b"\0\x0f",
        b"\0\x0c",
        b"\0\0\1",
        b"\0\x0b",
        b"\0" + b"\xff" * 9,
    ):
        with pytest.raises(ContentError):
            proto(wrong)


def test_json() -> None:
    """Any JSON is fine, with numbers of any size; what is none is not."""
    schema = Schema(kind="JSON", text='{"type": "object"}')
    decode(schema, [], b'{"a": [1.5e3, ' + b"9" * 10_000 + b', "\xc3\xa4"]}')
    for wrong in (b"", b"{", b"\xff", b'{"a": 1} x', b"a"):
        with pytest.raises(ContentError, match="it is not JSON"):
            decode(schema, [], wrong)


def deep(levels: int) -> Any:
    made: Any = "null"
    for _ in range(levels):
        made = {"type": "array", "items": made}
    return made


NODE = {"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]}
FOREVER = {"type": "record", "name": "F", "fields": [{"name": "f", "type": "F"}]}
MANY = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\1"


@pytest.mark.parametrize(
    ("kind", "text", "content"),
    [
        ("AVRO", json.dumps({"type": "array", "items": "null"}), MANY),
        ("AVRO", json.dumps(NODE), b"\2" * 100_000),
        ("AVRO", json.dumps(FOREVER), b"\0"),
        ("AVRO", json.dumps(deep(300)), b"\2" * 300),
        ("AVRO", "[" * 100_000, b"\0"),
        ("AVRO", json.dumps("x" * (5 << 20)), b"\0"),
        ("AVRO", '"bytes"', bytes(MOST_CONTENT + 1)),
        ("JSON", "{}", b"[" * 200_000),
        ("PROTOBUF", PROTO, b"\0" + b"\x0b" * 100_000),
        ("PROTOBUF", PROTO, b"\xfe\xff\xff\xff\x0f" + b"\0" * 100_000),
        ("OTHER", "", b""),
    ],
)
def test_hostile_bytes_are_given_up(kind: str, text: str, content: bytes) -> None:
    """Bytes that ask for endless work, depth or room cost a moment, and are not said to
    be broken.
    """
    used = time.process_time()
    with pytest.raises(BoundsError):
        decode(Schema(kind=kind, text=text), [], content)
    assert time.process_time() - used < 5


@pytest.mark.parametrize("text", ["", "{", "7", "null", "{}", '{"type": 1}', "[[]]",
                                  '{"type": "record", "name": "R"}'])  # fmt: skip
def test_a_text_that_is_no_schema(text: str) -> None:
    """What a registry answers may be no schema: no record decodes with it."""
    with pytest.raises(ContentError):
        decode(Schema(kind="AVRO", text=text), [], b"\0")


@pytest.mark.parametrize("opened", ["/*", '"', "'", "//", "message A {", "{", "}"])
def test_a_text_of_hostile_protobuf(opened: str) -> None:
    """Many beginnings of something that does not end are read in a moment."""
    used = time.process_time()
    proto(b"\0", text=f"message M {{ }} {opened * 300_000}")
    assert time.process_time() - used < 20


def test_decoding_takes_some_seconds_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once these are over, records are not called broken, whatever they are."""
    monkeypatch.setattr(schemas, "_DECODE_SECONDS", 1e-9)
    decoder, held = schemas._Decoder(), avro("int")
    assert decoder.problem(held, [], b"\2") is None
    assert isinstance(decoder.problem(held, [], b""), BoundsError)
    assert decoder.problem(held, [], None) is None
