"""Missing records, read from the source and made ready to append to the copy.

Main function: `read`, which gets those of one partition, and `batches`, which packs
them. With a `transform` they are what the flow's function makes of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mirror.clusters.wire import fetch
from mirror.clusters.wire.produce import HEADER_SIZE, EncodedBatch
from mirror.copying import dead_letters
from mirror.errors import MirrorError
from mirror.proofs.explaining import NO_STAMP
from mirror.proofs.function_results import Results
from mirror.proofs.log_stream import LogStream, OffsetRange
from mirror.records import alignment, codecs, records, to_columns
from mirror.records.listing import headers_of, listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.proofs.account import CopiedPartition
    from mirror.proofs.log_stream import Lister
    from mirror.proofs.sides import ProofTerms
    from mirror.records.batch import Buffer, Rows

Offsets = npt.NDArray[np.int64]

MOST_BYTES = 256 << 20
"""Of one repair: they are in memory, and in one transaction."""
_LETTER = f"{dead_letters.PREFIX}offset".encode()
_NULL = b"\1"


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingRecord:
    """One record, to be appended."""

    offset: int
    """On the source."""
    time: int
    key_mark: int
    content: bytes = field(repr=False)
    """Key, value and headers, encoded, with our stamp."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingRecords:
    """Those of one partition."""

    found: Sequence[MissingRecord]
    """In the order of the source."""
    failing: frozenset[int]
    """Offsets of records on which the flow's function fails."""

    @property
    def size(self) -> int:
        return sum(len(each.content) for each in self.found)


def read(
    source: Cluster, terms: ProofTerms, of: CopiedPartition, offsets: Offsets
) -> MissingRecords:
    """Read the records at these offsets, ascending, as far as they are still there.

    Raises:
        MirrorError: there are too many, or the source cannot be read.
    """
    seen = terms.seen
    lister: Lister = partial(listed, most_unpacked=terms.most_unpacked)
    if terms.transform is not None:
        lister = Results(terms.transform, of.key, seen).listed
    stream = LogStream(
        source,
        OffsetRange.of(of, int(offsets[0]), int(offsets[-1]) + 1, on_source=True),
        isolation=fetch.READ_COMMITTED if terms.committed else fetch.READ_UNCOMMITTED,
        lister=lister,
    )  # fmt: skip
    found: list[MissingRecord] = []
    failing: set[int] = set()
    size = 0
    stamp = seen.stamp.tobytes()
    for part in stream.listed():
        wanted = np.isin(part.places[:, to_columns.OFFSET], offsets)
        places = np.ascontiguousarray(part.places[wanted])
        marks, keys = np.empty((2, len(places)), np.int64)
        alignment.describe(part.buffer, places, NO_STAMP, 0, marks, keys)
        for place, key_mark in zip(places, keys.tolist(), strict=True):
            offset = int(place[to_columns.OFFSET])
            if terms.transform is not None and _is_letter(part.buffer, place):
                failing.add(offset)
                continue
            content = encoded(part.buffer, place, stamp)
            size += len(content)
            if size > MOST_BYTES:
                raise too_much(f"{of.topic}-{of.partition}")
            found.append(
                MissingRecord(
                    offset=offset,
                    time=int(place[to_columns.TIME]),
                    key_mark=key_mark,
                    content=content,
                )
            )
    return MissingRecords(found=found, failing=frozenset(failing))


def batches(
    missing: Sequence[MissingRecord], *, codec: int, max_bytes: int
) -> Iterator[EncodedBatch]:
    """The records in batches of at most `max_bytes`, unless a single one is larger."""
    part: list[MissingRecord] = []
    size = 0
    for each in missing:
        more = len(each.content) + 24
        if part and size + more > min(max_bytes - HEADER_SIZE, records.BATCH_BYTES):
            yield _packed(part, codec)
            part, size = [], 0
        part.append(each)
        size += more
    if part:
        yield _packed(part, codec)


def too_much(where: str) -> MirrorError:
    """The error for more than `MOST_BYTES`."""
    return MirrorError(
        f"{where}: more than {MOST_BYTES >> 20} MiB are missing, too much to append: "
        "append topic by topic with --topic, or delete the copy and let the flow copy "
        "it again"
    )


def _packed(part: list[MissingRecord], codec: int) -> EncodedBatch:
    base = min(each.time for each in part)
    body = bytearray()
    for index, each in enumerate(part):
        head = b"\0" + records.varint(each.time - base) + records.varint(index)
        body += records.varint(len(head) + len(each.content)) + head + each.content
    packed, used = bytes(body), codecs.NONE
    if codec != codecs.NONE:
        smaller = codecs.compress(codec, memoryview(packed))
        if len(smaller) < len(packed):
            packed, used = smaller, codec
    header = records.header(
        size=HEADER_SIZE + len(packed),
        attributes=used,
        count=len(part),
        base_time=base,
        newest=max(each.time for each in part),
    )
    offsets = np.array([each.offset for each in part], np.int64)
    begins = np.flatnonzero(np.diff(offsets, prepend=offsets[0] - 2) != 1)
    counts = np.diff(begins, append=len(offsets))
    runs = np.stack([offsets[begins], begins, counts], axis=1)
    return EncodedBatch(header=header, body=packed, count=len(part), runs=runs)


def encoded(buffer: Buffer, place: Rows, stamp: bytes) -> bytes:
    """Key, value and headers of one record; `stamp`: an encoded header to append."""
    headers_at, end = int(place[to_columns.HEADERS_AT]), int(place[to_columns.END])
    return b"".join(
        (
            _sized(buffer, place, to_columns.KEY_AT, to_columns.KEY_SIZE),
            _sized(buffer, place, to_columns.VALUE_AT, to_columns.VALUE_SIZE),
            records.varint(int(place[to_columns.HEADERS]) + bool(stamp)),
            buffer[headers_at:end].tobytes(),
            stamp,
        )
    )


def _sized(buffer: Buffer, place: Rows, at: int, size: int) -> bytes:
    length, begin = int(place[size]), int(place[at])
    if length < 0:
        return _NULL
    return records.varint(length) + buffer[begin : begin + length].tobytes()


def _is_letter(buffer: Buffer, place: Rows) -> bool:
    return any(name == _LETTER for name, _ in headers_of(buffer, place))
