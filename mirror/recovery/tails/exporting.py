"""Exports records of a tail, with where they stood on the source.

Main functions: `read`, which gets records as the source has them, and `missing_record`,
one for a topic. Main type: `TailFile`, JSON lines that are on disk when `add` returns.
What a command that was killed has left in the file is not written again.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from functools import partial
import json
import os
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from mirror import host
from mirror.clusters.wire import fetch
from mirror.errors import MALFORMED, MirrorError
from mirror.proofs.log_stream import LogStream, OffsetRange
from mirror.proofs.repair_appending import MissingRecord
from mirror.records import records, to_columns
from mirror.records.listing import headers_of, listed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig
    from mirror.recovery.tails.tail import Offsets, TailPartition

HEADERS = ("mirror.tail.topic", "mirror.tail.partition", "mirror.tail.offset")
"""Headers of records in a topic, in UTF-8, behind their own."""
_FORMAT_VERSION = 1
_NULL = b"\1"


@dataclass(frozen=True, slots=True, kw_only=True)
class TailRecord:
    """A record as the source has it."""

    offset: int
    time: int
    key: bytes | None = field(repr=False)
    value: bytes | None = field(repr=False)
    headers: Sequence[tuple[bytes, bytes | None]] = field(repr=False)


def read(
    flow: FlowConfig, source: Cluster, part: TailPartition, offsets: Offsets
) -> list[TailRecord]:
    """Those at these offsets, ascending, as far as they are still there.

    Raises:
        ClusterError: the source cannot be read.
    """
    committed = flow.isolation_level == "read_committed"
    stream = LogStream(
        source,
        OffsetRange(
            topic=part.topic, partition=part.partition, topic_id=part.topic_id,
            first=int(offsets[0]), end=int(offsets[-1]) + 1,
        ),
        isolation=fetch.READ_COMMITTED if committed else fetch.READ_UNCOMMITTED,
        lister=partial(listed, most_unpacked=flow.max_unpacked_bytes),
    )  # fmt: skip
    found = []
    for some in stream.listed():
        for place in some.places[np.isin(some.places[:, to_columns.OFFSET], offsets)]:
            key, value = (
                None
                if int(place[size]) < 0
                else some.buffer[place[at] : place[at] + place[size]].tobytes()
                for at, size in (
                    (to_columns.KEY_AT, to_columns.KEY_SIZE),
                    (to_columns.VALUE_AT, to_columns.VALUE_SIZE),
                )
            )
            found.append(
                TailRecord(
                    offset=int(place[to_columns.OFFSET]),
                    time=int(place[to_columns.TIME]),
                    key=key,
                    value=value,
                    headers=headers_of(some.buffer, place),
                )
            )
    return found


def missing_record(part: TailPartition, of: TailRecord) -> MissingRecord:
    """The record for a topic: with the same content, and headers that say where it
    stood.
    """
    where = (part.topic, str(part.partition), str(of.offset))
    headers = [
        *of.headers,
        *((n.encode(), v.encode()) for n, v in zip(HEADERS, where, strict=True)),
    ]
    content = [_sized(of.key), _sized(of.value), records.varint(len(headers))]
    content += [_sized(name) + _sized(value) for name, value in headers]
    return MissingRecord(
        offset=of.offset, time=of.time, key_mark=0, content=b"".join(content)
    )


class TailFile:
    """A file of JSON lines, one per record, which only its owner can read; a context
    manager.
    """

    def __init__(self, path: Path, flow: FlowConfig) -> None:
        """
        Raises:
            MirrorError: the file cannot be written, or has something else in it.
        """
        self._flow = flow.name
        self._path = path
        try:
            self._file = host.private_file(path)
            self._there = self._known()
        except OSError as error:
            raise MirrorError(f"{path}: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, part: TailPartition, found: Sequence[TailRecord]) -> None:
        """Add those that are not there yet, and wait until they are on disk.

        Raises:
            MirrorError: that fails.
        """
        place = (part.topic_id.hex, part.partition)
        lines = [
            json.dumps(self._document(part, each), ensure_ascii=False)
            for each in found
            if (*place, each.offset) not in self._there
        ]
        try:
            self._file.write("".join(f"{line}\n" for line in lines).encode())
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise MirrorError(f"{self._path}: {error.strerror}") from error
        self._there |= {(*place, each.offset) for each in found}

    def _known(self) -> set[tuple[str, int, int]]:
        """What is in the file; a last line that is not complete is cut off."""
        self._file.seek(0)
        found: set[tuple[str, int, int]] = set()
        whole = 0
        for line in self._file:
            if not line.endswith(b"\n"):
                self._file.truncate(whole)
                break
            whole += len(line)
            try:
                told = json.loads(line)
                if told["flow"] == self._flow:
                    found.add((told["topic_id"], told["partition"], told["offset"]))
            except MALFORMED as error:
                raise MirrorError(
                    f"{self._path}: it has something else in it: name another file"
                ) from error
        self._file.seek(0, os.SEEK_END)
        return found

    def _document(self, part: TailPartition, of: TailRecord) -> dict[str, Any]:
        return {
            "format_version": _FORMAT_VERSION,
            "flow": self._flow,
            "topic": part.topic,
            "topic_id": part.topic_id.hex,
            "partition": part.partition,
            "offset": of.offset,
            "time": of.time,
            "key": text_of(of.key),
            "value": text_of(of.value),
            "headers": [
                {"name": text_of(name), "value": text_of(value)}
                for name, value in of.headers
            ],
        }


def text_of(value: bytes | None) -> dict[str, str] | None:
    """Bytes as JSON has them; null stays null."""
    if value is None:
        return None
    try:
        return {"encoding": "utf-8", "data": value.decode()}
    except UnicodeDecodeError:
        return {"encoding": "base64", "data": base64.b64encode(value).decode()}


def _sized(value: bytes | None) -> bytes:
    if value is None:
        return _NULL
    return records.varint(len(value)) + value
