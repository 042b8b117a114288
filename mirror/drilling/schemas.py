"""Whether consumers could read what is on the target: the schemas of the last records.

Main function: `judge`. It takes the ids from the last records of each copy, asks both
registries for their texts and for those that they refer to, and decodes a record of
each id with what the target answers. It changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
import json
import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mirror.batches import codecs, to_columns
from mirror.batches.listing import headers_of, listed
from mirror.batches.reading import TopicReader
from mirror.clusters.admin import topic_admin
from mirror.clusters.registry.pace import RequestPace
from mirror.clusters.registry.registry import Registry
from mirror.clusters.registry.values import HIGHEST_ID
from mirror.drilling import avro, protobuf
from mirror.errors import (
    MALFORMED,
    BoundsError,
    ContentError,
    CorruptBatchError,
    RegistryError,
)
from mirror.metadata import schema_claims
from mirror.metadata.schema_names import references_of, referred
from mirror.switching.findings import Finding, Level

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirror.batches.batch import Rows
    from mirror.batches.listing import Listed
    from mirror.clusters.registry.values import Schema, SchemaVersion
    from mirror.metadata.schema_names import Key
    from mirror.switching.steps.checks import Seen


_DECODE_SECONDS = 30.0
"""In all: each record may ask for half a second of walking."""
_UNDECODED = (
    "have its producer write what the schema says; where records only look like a "
    "registry's, leave the topic out of schemas_topics"
)


def judge(seen: Seen, *, records: int) -> Iterator[Finding]:
    """For so many last records of each partition.

    Raises:
        ClusterError: the target does not answer.
    """
    flow = seen.flow
    if flow.schemas == "off":
        return
    pace = RequestPace(flow.schemas_requests_per_second)
    clusters = seen.stage.config.clusters
    meant = _meant(seen)
    decoder = _Decoder()
    with (
        Registry(clusters[flow.source], pace=pace) as source,
        Registry(clusters[flow.target], pace=pace) as target,
    ):
        for number, used in sorted(in_use(seen, records).items()):
            asked = meant.get(number, number)
            try:
                wanted = source.by_id("", asked)
                needs = _needs(source, wanted) if wanted else {}
            except RegistryError as error:
                seen.unseen.append(f"schemas in use: {error}")
                return
            if wanted is None:
                continue  # binary data may begin with a zero, too
            try:
                held = target.by_id(flow.schemas_context, number)
                what, needed = _compared(
                    target, wanted, needs, held, flow.schemas_context
                )
            except RegistryError as error:
                yield Finding(
                    level=Level.NOT_READY,
                    subject=f"registry of {flow.target}",
                    reason=f"consumers could not read {used.topic}: {error}",
                    fix="make it answer",
                )
                return
            where = f"{used.topic}-{used.partition} at offset {used.offset}"
            fix = "copy it, or remove what is in the way"
            if what or held is None:
                reason = f"records of {used.topic} have this id, which the registry of "
                reason += f"{flow.target} {what}"
            elif not (why := decoder.problem(held, needed, used.content)):
                continue
            elif isinstance(why, BoundsError):
                seen.unseen.append(f"schema {number} in {where}: {why}")
                continue
            else:
                reason = f"{where} has this id, and cannot be decoded with what the "
                reason += f"registry of {flow.target} answers: {why}"
                fix = _UNDECODED
            yield Finding(
                level=Level.NOT_READY,
                subject=f"schema {number}",
                reason=reason,
                fix=fix,
                command=f"mirror schema trace --flow '{flow.name}' --id {asked}",
            )


class _Decoder:
    """Decodes records, for some seconds in all."""

    def __init__(self) -> None:
        self._left = _DECODE_SECONDS

    def problem(
        self, held: Schema, needed: Sequence[Schema], content: bytes | None
    ) -> ContentError | BoundsError | None:
        """Why it is not decoded; None: it is, or there is nothing to decode."""
        if content is None:
            return None
        if self._left <= 0:
            return BoundsError("those before it took too long to decode")
        began = time.monotonic()
        try:
            decode(held, needed, content)
        except (ContentError, BoundsError) as error:
            return error
        finally:
            self._left -= time.monotonic() - began
        return None


def _meant(seen: Seen) -> dict[int, int]:
    """The source's id for each of the target's that the flow has translated to."""
    flow = seen.flow
    if not flow.translates_ids:
        return {}
    found = schema_claims.translations(
        seen.stage.target, flow.source, flow.schemas_context
    )
    return {copy: number for number, copy in found.items()}


def _needs(source: Registry, wanted: Schema) -> dict[Key, SchemaVersion]:
    """What a schema refers to, and what that refers to."""
    found: dict[Key, SchemaVersion] = {}
    left = [referred(each, "") for each in wanted.references]
    while left:
        place = left.pop()
        if place not in found and (version := source.schema(*place)) is not None:
            found[place] = version
            left += references_of(version)
    return found


def _compared(
    target: Registry,
    wanted: Schema,
    needs: dict[Key, SchemaVersion],
    held: Schema | None,
    context: str,
) -> tuple[str, list[Schema]]:
    """What keeps the target's registry from answering what the source's does, and what
    it has of what the schema refers to; `needs` is emptied.
    """
    needed: list[Schema] = []
    if held is None:
        return "does not have", needed
    if not _is_alike(wanted, held):
        return "has another schema for", needed
    pairs: list[tuple[Schema, str, Schema, str]] = [(wanted, "", held, context)]
    while pairs:
        one, of_one, other, of_other = pairs.pop()
        copies = {each.name: each for each in other.references}
        for each in one.references:
            place = referred(each, of_one)
            if (here := needs.pop(place, None)) is None:
                continue  # compared, or not on the source either
            copy = copies.get(each.name)
            there = target.schema(*referred(copy, of_other)) if copy else None
            if there is None or not _is_alike(here, there):
                what = f"{place[0]} version {each.version}"
                return f"has, but not {what}, which it needs", needed
            needed.append(there)
            pairs.append((here, here.context, there, there.context))
    return "", needed


def _is_alike(one: Schema, other: Schema) -> bool:
    return (one.kind, one.text) == (other.kind, other.text)


# ---- which schemas the last records of a flow's copies use ----
#
# Main function: `in_use`: for each id in a key, a value or a header, one place that
# has it, with the bytes to decode. No record is decoded here.


_MOST_PARTITIONS = 1000
_MOST_KEPT = 64 << 20
"""Bytes to decode."""
_PARTS = (
    (b"__key_schema_id", to_columns.KEY_AT, to_columns.KEY_SIZE),
    (b"__value_schema_id", to_columns.VALUE_AT, to_columns.VALUE_SIZE),
)
"""What may begin with an id, and the header that may have it instead."""
_BEGINS = 5
"""Bytes before a record's content: a zero, and the id."""


class InUse(NamedTuple):
    """One place with an id."""

    topic: str
    partition: int
    offset: int
    content: bytes | None
    """What follows the id, as `decode` takes it; None: nothing."""


def in_use(seen: Seen, records: int) -> dict[int, InUse]:
    """The ids in so many last records of each partition, each with a place, if possible
    one to decode.

    Raises:
        ClusterError: the target does not answer.
    """
    target, flow, unseen = seen.stage.target, seen.flow, seen.unseen
    keys = [
        (each.target_topic, number)
        for each in seen.topics
        if flow.may_have_schemas(each.topic)
        for number in range(each.partitions)
    ]
    if len(keys) > _MOST_PARTITIONS:
        unseen.append(f"schemas in use: looked at {_MOST_PARTITIONS} of {len(keys)} "
                      "partitions")  # fmt: skip
    keys = keys[:_MOST_PARTITIONS]
    starts = topic_admin.list_offsets(target, keys, timestamp=topic_admin.EARLIEST)
    ends = topic_admin.list_offsets(target, keys, timestamp=topic_admin.LATEST)
    found: dict[int, InUse] = {}
    room = _MOST_KEPT
    for (topic, partition), end in ends.items():
        first = max(starts.get((topic, partition), 0), end - records)
        if first >= end:
            continue
        reader = TopicReader(target, topic, partition=partition, position=first)
        try:
            for buffer, rows in reader.batches(end):
                for part in listed(
                    buffer, rows, first, end, most_unpacked=codecs.MOST_UNPACKED
                ):
                    for number, offset, content in (
                        *_beginnings(part, found), *_headers(part, found)
                    ):  # fmt: skip
                        if number not in found or content is not None:
                            room -= len(content or b"")
                            kept = content if room >= 0 else None
                            found[number] = InUse(topic, partition, offset, kept)
        except CorruptBatchError as error:
            unseen.append(f"schemas in use of {topic}-{partition}: {error}")
    if room < 0:
        unseen.append(f"schemas in use: records of more than {_MOST_KEPT >> 20} MiB in "
                      "all were not decoded")  # fmt: skip
    return found


_Found = Iterator[tuple[int, int, bytes | None]]
"""An id, an offset, and what to decode."""


def _beginnings(part: Listed, known: Mapping[int, InUse]) -> _Found:
    """Of keys and values, each id once, where its content is shortest."""
    for _, at, size in _PARTS:
        places = part.places[part.places[:, size] >= _BEGINS]
        head = part.buffer[places[:, at][:, None] + np.arange(_BEGINS)]
        framed = head[:, 0] == 0
        places = places[framed]
        ids = np.ascontiguousarray(head[framed, 1:]).view(">u4").ravel()
        order = np.argsort(places[:, size], kind="stable")
        numbers, firsts = np.unique(ids[order], return_index=True)
        for number, first in zip(numbers.tolist(), order[firsts], strict=True):
            if number <= HIGHEST_ID and _is_open(number, known):
                place = places[first]
                content = _bytes(part, place, at, size)
                yield (
                    number,
                    int(place[to_columns.OFFSET]),
                    (None if content is None else content[_BEGINS:]),
                )


def _headers(part: Listed, known: Mapping[int, InUse]) -> _Found:
    """Of headers, which may have a GUID instead. A Protobuf header also says which
    message it is.
    """
    for place in part.places[part.places[:, to_columns.HEADERS] > 0]:
        named = dict(headers_of(part.buffer, place))
        for header, at, size in _PARTS:
            value = named.get(header) or b""
            if len(value) < _BEGINS or value[0] != 0:
                continue
            number = int.from_bytes(value[1:_BEGINS])
            if number <= HIGHEST_ID and _is_open(number, known):
                content = _bytes(part, place, at, size)
                yield (
                    number,
                    int(place[to_columns.OFFSET]),
                    (None if content is None else value[_BEGINS:] + content),
                )


def _is_open(number: int, known: Mapping[int, InUse]) -> bool:
    """Whether another place may be of use."""
    if number not in known or (content := known[number].content) is None:
        return True
    return len(content) > MOST_CONTENT


def _bytes(part: Listed, place: Rows, at: int, size: int) -> bytes | None:
    """A key or a value; of one that is too large, enough to say so."""
    begins, length = int(place[at]), int(place[size])
    if length < 0:
        return None
    length = min(length, MOST_CONTENT + 2 * _BEGINS)
    return part.buffer[begins : begins + length].tobytes()


# ---- whether a consumer decodes a record ----
#
# Main function: `decode`, for Avro, JSON and Protobuf. Any producer of a mirrored
# topic chooses the bytes, and any client of a registry the text: what is too large,
# nested too deeply or has too many parts is not tried. A value of JSON may be any
# JSON, one of Protobuf any message that the file has.


MOST_CONTENT = 256 << 10
"""Bytes of a record that is decoded."""
_MOST_TEXT = 4 << 20
"""Characters of a schema, with all that it refers to."""


def decode(schema: Schema, needed: Sequence[Schema], content: bytes) -> None:
    """`content`: what follows the id, or the message's indexes and the whole content,
    where the id is in a header. `needed`: all that the schema refers to.

    Raises:
        ContentError: no consumer decodes it.
        BoundsError: it is beyond what is tried here.
    """
    if len(content) > MOST_CONTENT:
        raise BoundsError(f"it has more than {MOST_CONTENT >> 10} KiB")
    if sum(len(each.text) for each in (schema, *needed)) > _MOST_TEXT:
        raise BoundsError(f"its schema has more than {_MOST_TEXT >> 20} MiB")
    try:
        if schema.kind == "AVRO":
            avro.walk(*_avro(schema, needed), content)
        elif schema.kind == "PROTOBUF":
            protobuf.walk(schema.text, content)
        elif schema.kind == "JSON":
            # Numbers of any size are fine; to read them is not needed.
            json.loads(content, parse_int=len, parse_float=len)
        else:
            raise BoundsError(f"its schema is of kind {schema.kind[:50]!r}")
    except RecursionError as error:
        raise BoundsError("it or its schema is nested too deeply") from error
    except MALFORMED as error:
        what = "it" if schema.kind == "JSON" else "its schema"
        raise ContentError(f"{what} is not {schema.kind}: {error!r:.100}") from error


def _avro(schema: Schema, needed: Sequence[Schema]) -> tuple[object, list[object]]:
    return json.loads(schema.text), [json.loads(each.text) for each in needed]
