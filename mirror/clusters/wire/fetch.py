"""Fetch requests and responses as bytes: record batches stay where they arrived.

`encode` builds a Fetch v11 request (the newest that names topics and has no tagged
fields; brokers 2.3 to 4.x speak it), `decode` walks the response and yields one
`Fetched` per partition, whose records are a slice of the connection's buffer.
`Session` is the fetch session (KIP-227) of a request. `records.batch` looks inside
the batches.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
import struct
from typing import TYPE_CHECKING

from mirror.clusters import codes
from mirror.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

API_KEY = 1
VERSION = 11
READ_COMMITTED = 1
READ_UNCOMMITTED = 0

_HEAD = struct.Struct(">iiiibii")
_PARTITION = struct.Struct(">iiqqi")
_ANSWER_HEAD = struct.Struct(">ihii")
_ANSWER_PARTITION = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_INT32 = struct.Struct(">i")
_INT16 = struct.Struct(">h")
SESSION_LOST = frozenset({70, 71})
"""FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH: start a new session."""


@dataclass(frozen=True, slots=True)
class Session:
    """Id 0 with epoch 0 asks for a session, with epoch -1 for none; any other id with
    epoch 0 replaces that session by a new one.
    """

    id: int = 0
    epoch: int = -1


NO_SESSION = Session()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Where to start reading a partition, and under which leader epoch."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    last_epoch: int = -1
    """The epoch of the record before, -1 if unknown; only requests that name topics by
    id send it (see `fetch_by_id`)."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """The response for one partition. `aborted`: (producer id, first offset) pairs."""

    topic: str
    partition: int
    error: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]
    start: int
    """Where the records begin in the response, in bytes."""
    end: int
    """Where they end; `start == end` when there are none."""
    diverging: int = -1
    """The offset from which the broker's log differs from what we read; -1 if none."""
    nearer: int = -1
    """The broker that the leader names instead of sending records (KIP-392), as one in
    the request's rack; -1 if none."""


def encode(  # noqa: PLR0913  a request has that many fields
    wanted: Iterable[Wanted],
    *,
    isolation: int,
    max_wait_ms: int,
    min_bytes: int = 1,
    max_bytes: int,
    partition_max_bytes: int,
    session: Session = NO_SESSION,
    forgotten: Iterable[tuple[str, int]] = (),
    rack: str = "",
) -> bytes:
    """A Fetch request's body. Partitions are served in the order given. `rack`: where
    we are, if the leader may name a replica there; empty: it answers itself.

    Within a session: `wanted` are those that changed, `forgotten` those to leave out.
    """
    # A topic may occur several times: this keeps the caller's order of partitions.
    topics: list[tuple[str, list[bytes]]] = []
    for want in wanted:
        if not topics or topics[-1][0] != want.topic:
            topics.append((want.topic, []))
        topics[-1][1].append(
            _PARTITION.pack(
                want.partition, want.leader_epoch, want.offset, -1, partition_max_bytes
            )
        )
    parts = [
        _HEAD.pack(
            -1, max_wait_ms, min_bytes, max_bytes, isolation, session.id, session.epoch
        ),
        _INT32.pack(len(topics)),
    ]
    for name, partitions in topics:
        encoded = name.encode()
        parts += [_INT16.pack(len(encoded)), encoded, _INT32.pack(len(partitions))]
        parts += partitions
    left_out: dict[str, list[int]] = {}
    for name, partition in forgotten:
        left_out.setdefault(name, []).append(partition)
    parts.append(_INT32.pack(len(left_out)))
    for name, numbers in left_out.items():
        encoded = name.encode()
        parts += [_INT16.pack(len(encoded)), encoded, _INT32.pack(len(numbers))]
        parts += [_INT32.pack(number) for number in numbers]
    place = rack.encode()
    parts += [_INT16.pack(len(place)), place]
    return b"".join(parts)


def head(body: memoryview) -> tuple[int, int, int]:
    """A response's throttle time in milliseconds, its own error code, and its session
    id, 0 if none.

    Raises:
        ClusterError: it is not a Fetch response.
    """
    with understood():
        throttle, error, session_id, _ = _ANSWER_HEAD.unpack_from(body)
    return throttle, error, session_id


def decode(body: memoryview) -> Iterator[Fetched]:
    """One `Fetched` per partition of a response.

    Raises:
        ClusterError: the whole request was refused, or it is not a Fetch response.
    """
    _, error, _ = head(body)
    if error != codes.NONE:
        raise codes.error_for(error, "fetching")
    with understood():
        yield from _partitions(body)


@contextmanager
def understood() -> Iterator[None]:
    """Raises ClusterError if the bytes do not have the expected layout."""
    try:
        yield
    except (struct.error, IndexError, ValueError) as error:
        raise ClusterError(
            f"a broker's Fetch response cannot be decoded: {error}"
        ) from error


def within(body: memoryview, at: int, size: int) -> int:
    """The end of the `size` bytes that begin at `at`. Raises ValueError if they do not
    fit.
    """
    if not 0 <= size <= len(body) - at:
        raise ValueError(f"{size} bytes at {at} of {len(body)}")
    return at + size


def _partitions(body: memoryview) -> Iterator[Fetched]:
    topics = _ANSWER_HEAD.unpack_from(body)[3]
    at = _ANSWER_HEAD.size
    for _ in range(topics):
        end = within(body, at + 2, _INT16.unpack_from(body, at)[0])
        name = str(body[at + 2 : end], "utf-8")
        at = end
        partitions = _INT32.unpack_from(body, at)[0]
        at += 4
        for _ in range(partitions):
            index, error, high, stable, start = _ANSWER_PARTITION.unpack_from(body, at)
            at += _ANSWER_PARTITION.size
            count = _INT32.unpack_from(body, at)[0]
            at += 4
            aborted = tuple(
                _ABORTED.unpack_from(body, at + 16 * i) for i in range(max(count, 0))
            )
            at += 16 * max(count, 0)
            nearer = _INT32.unpack_from(body, at)[0]
            at += 4
            size = max(_INT32.unpack_from(body, at)[0], 0)
            at += 4
            end = within(body, at, size)
            yield Fetched(
                name, index, error, high, stable, start, aborted, at, end,
                nearer=nearer,
            )  # fmt: skip
            at = end
