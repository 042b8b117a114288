"""Which schemas the last records of a flow's copies use.

Main function: `in_use`: for each id in a key, a value or a header, one place that has
it, with the bytes to decode. No record is decoded here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mirror.batches import codecs, to_columns
from mirror.batches.listing import headers_of, listed
from mirror.batches.reading import TopicReader
from mirror.clusters.admin import topic_admin
from mirror.clusters.registry.values import HIGHEST_ID
from mirror.drilling.decoding import MOST_CONTENT
from mirror.errors import CorruptBatchError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.batches.batch import Rows
    from mirror.batches.listing import Listed
    from mirror.switching.steps.checks import Seen

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
    """What follows the id, as `decoding.decode` takes it; None: nothing."""


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
