"""Fetch requests that name topics by id, so that none is mistaken for another.

The same as `fetch`, in version 13 (KIP-516): when a topic was deleted and re-created,
the broker refuses the old id instead of serving the new topic from the middle. The
request also has the leader epoch of the last record (KIP-595), so that the broker
reports when its log was truncated below it. Brokers from 3.1 on speak it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from mirror.clusters import codes
from mirror.clusters.wire.fetch import Fetched, understood, within
from mirror.clusters.wire.fields import uvarint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    import uuid

    from mirror.clusters.wire.fetch import Session, Wanted

VERSION = 13

_HEAD = struct.Struct(">iiiibii")
_PARTITION = struct.Struct(">iiqiqi")
_ANSWER_HEAD = struct.Struct(">ihi")
_ANSWER_PARTITION = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_DIVERGING = struct.Struct(">iq")
_INT32 = struct.Struct(">i")
_NO_TAGS = b"\0"
_DIVERGING_TAG = 0
_ID_SIZE = 16
_MOST_BITS = 35
"""A varint has five bytes at most."""


def encode(  # noqa: PLR0913  a request has that many fields
    wanted: Iterable[Wanted],
    *,
    ids: Mapping[str, uuid.UUID],
    isolation: int,
    max_wait_ms: int,
    min_bytes: int = 1,
    max_bytes: int,
    partition_max_bytes: int,
    session: Session,
    forgotten: Iterable[tuple[str, int]] = (),
    rack: str = "",
) -> bytes:
    """A Fetch request's body, as `fetch.encode` makes it; `ids` of all its topics."""
    topics: list[tuple[str, list[bytes]]] = []
    for want in wanted:
        if not topics or topics[-1][0] != want.topic:
            topics.append((want.topic, []))
        topics[-1][1].append(
            _PARTITION.pack(
                want.partition,
                want.leader_epoch,
                want.offset,
                want.last_epoch,
                -1,
                partition_max_bytes,
            )
            + _NO_TAGS
        )
    parts = [
        _HEAD.pack(
            -1, max_wait_ms, min_bytes, max_bytes, isolation, session.id, session.epoch
        ),
        uvarint(len(topics) + 1),
    ]
    for name, partitions in topics:
        parts += [ids[name].bytes, uvarint(len(partitions) + 1), *partitions, _NO_TAGS]
    left_out: dict[str, list[int]] = {}
    for name, partition in forgotten:
        left_out.setdefault(name, []).append(partition)
    parts.append(uvarint(len(left_out) + 1))
    for name, numbers in left_out.items():
        parts += [ids[name].bytes, uvarint(len(numbers) + 1)]
        parts += [*map(_INT32.pack, numbers), _NO_TAGS]
    place = rack.encode()
    parts += [uvarint(len(place) + 1), place, _NO_TAGS]
    return b"".join(parts)


def head(body: memoryview) -> tuple[int, int, int]:
    """A response's throttle time in milliseconds, its own error code, and its session
    id, 0 if none.

    Raises:
        ClusterError: it is not a Fetch response.
    """
    with understood():
        throttle, error, session_id = _ANSWER_HEAD.unpack_from(
            body, _skip_tags(body, 0)
        )
    return throttle, error, session_id


def decode(body: memoryview, names: Mapping[bytes, str]) -> Iterator[Fetched]:
    """One `Fetched` per partition of a response; `names` by topic id.

    Raises:
        ClusterError: the whole request was refused, or it is not a Fetch response.
    """
    _, error, _ = head(body)
    if error != codes.NONE:
        raise codes.error_for(error, "fetching")
    with understood():
        yield from _partitions(body, names)


def _partitions(body: memoryview, names: Mapping[bytes, str]) -> Iterator[Fetched]:
    topics, at = _uvarint(body, _skip_tags(body, 0) + _ANSWER_HEAD.size)
    for _ in range(topics - 1):
        name = names.get(bytes(body[at : at + _ID_SIZE]), "")
        partitions, at = _uvarint(body, at + _ID_SIZE)
        for _ in range(partitions - 1):
            index, error, high, stable, start = _ANSWER_PARTITION.unpack_from(body, at)
            count, at = _uvarint(body, at + _ANSWER_PARTITION.size)
            aborted = []
            for _ in range(count - 1):
                aborted.append(_ABORTED.unpack_from(body, at))
                at = _skip_tags(body, at + _ABORTED.size)
            nearer = _INT32.unpack_from(body, at)[0]
            size, at = _uvarint(body, at + _INT32.size)
            end = within(body, at, max(size - 1, 0))
            diverging, following = _diverging(body, end)
            yield Fetched(
                name, index, error, high, stable, start, tuple(aborted), at, end,
                diverging, nearer,
            )  # fmt: skip
            at = following
        at = _skip_tags(body, at)


def _diverging(body: memoryview, at: int) -> tuple[int, int]:
    """The offset from which the broker's log differs from what we read, -1 if it does
    not; and where the tagged fields end.
    """
    found = -1
    count, at = _uvarint(body, at)
    for _ in range(count):
        tag, at = _uvarint(body, at)
        size, at = _uvarint(body, at)
        end = within(body, at, size)
        if tag == _DIVERGING_TAG:
            found = _DIVERGING.unpack_from(body[:end], at)[1]
        at = end
    return found, at


def _skip_tags(body: memoryview, at: int) -> int:
    count, at = _uvarint(body, at)
    for _ in range(count):
        _, at = _uvarint(body, at)
        size, at = _uvarint(body, at)
        at = within(body, at, size)
    return at


def _uvarint(body: memoryview, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    value = shift = 0
    while shift < _MOST_BITS:
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError(f"a number before {at} does not end")
