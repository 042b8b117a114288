"""Finds which records belong together by their marks: what tasks do before the
comparison, when there is no map.

Main functions: `sampled` takes a share of the marks of a long log, `located` matches
all records of a piece of both. Marks only locate; `comparing` decides what is equal.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from mirror.batches import alignment, to_columns
from mirror.errors import MirrorError
from mirror.offsets.runs import joined
from mirror.proving import sides
from mirror.proving.content import matching
from mirror.proving.sides import Source

if TYPE_CHECKING:
    from mirror.clusters.cluster import Cluster
    from mirror.offsets.runs import RunArray
    from mirror.proving.content.matching import Longs
    from mirror.proving.copied_partition import CopiedPartition
    from mirror.proving.log_stream import LogStream
    from mirror.proving.sides import ProofTerms

MOST_RECORDS = 1_000_000
"""Records of which a task keeps the marks, on either side: some 100 MB at work."""
_RATE_SHIFT = np.uint64(40)
_NO_MARKS = np.empty(0, np.int64)
_KEPT_ALIKE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Some offsets of a partition, and those of its copy that belong to them."""

    of: CopiedPartition
    source_first: int
    source_end: int
    target_first: int
    target_end: int
    unknown: str = ""
    """Why it is not tried; empty if it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Records of one log, in its order."""

    offsets: Longs
    marks: Longs
    own_times: bool
    """Off: brokers wrote the times (LogAppendTime)."""
    fetched_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """Where the records of a piece stand."""

    piece: Piece
    runs: RunArray = field(
        default_factory=lambda: np.empty((0, 3), np.int64), repr=False
    )
    """As the offset map would have them."""
    left: int = 0
    """Records of the source after the last run, if the log ends there, and no flow says
    how far it is."""
    fetched_bytes: int = 0
    failure: str = ""
    """Why it is not known; empty if it is."""


def sampled(
    terms: ProofTerms, piece: Piece, *, on_source: bool, rate: int, timed: bool
) -> Marks:
    """The records whose marks are one of `rate` (a power of two): the same ones on both
    sides. Of alike ones the first two, which says that there are several.

    Raises:
        ClusterError: the log cannot be read to its end.
    """
    with terms.connected(on_source=on_source) as cluster:
        stream = _stream(terms, cluster, piece, on_source)
        read = _read(terms, stream, rate=rate, timed=timed)
    order = np.argsort(read.marks, kind="stable")
    alike = read.marks[order]
    further = order[_KEPT_ALIKE:][alike[_KEPT_ALIKE:] == alike[:-_KEPT_ALIKE]]
    return replace(
        read,
        offsets=np.delete(read.offsets, further),
        marks=np.delete(read.marks, further),
    )


def located(terms: ProofTerms, piece: Piece) -> Located:
    """Match all records of a piece. Whatever goes wrong is in the result."""
    if piece.unknown:
        return Located(piece=piece, failure=piece.unknown)
    try:
        with (
            terms.connected(on_source=True) as source,
            terms.connected(on_source=False) as target,
        ):
            return _located(terms, piece, source, target)
    except MirrorError as error:
        return Located(piece=piece, failure=str(error))


def _located(
    terms: ProofTerms, piece: Piece, source: Cluster, target: Cluster
) -> Located:
    clusters = {True: source, False: target}
    small = (
        piece.source_end - piece.source_first <= piece.target_end - piece.target_first
    )
    timed = True
    fetched = 0
    while True:
        # Of the longer side only what the shorter one has as well is kept.
        mine, other = {}, _NO_MARKS
        for side in (small, not small):
            stream = _stream(terms, clusters[side], piece, side)
            only = None if side == small else np.unique(other)
            mine[side] = _read(terms, stream, timed=timed, only=only)
            other = mine[side].marks
            fetched += mine[side].fetched_bytes
        if mine[False].own_times or not timed:
            break
        timed = False
    ups, downs = mine[True], mine[False]
    pairs = matching.matched(ups.marks, downs.marks)
    runs = np.empty((len(pairs), 3), np.int64)
    runs[:, 0] = ups.offsets[pairs[:, 0]]
    runs[:, 1] = downs.offsets[pairs[:, 1]]
    runs[:, 2] = 1
    left = 0
    if piece.of.copied_to < 0 and piece.source_end == piece.of.source_end:
        after = int(runs[-1, 0]) + 1 if len(runs) else piece.source_first
        tail = Source(terms, source, piece.of, after, piece.source_end).stream
        left = sum(len(part.places) for part in tail.listed())
        fetched += tail.fetched_bytes
    return Located(
        piece=piece,
        runs=joined(runs),
        left=left,
        fetched_bytes=fetched,
    )


def _stream(
    terms: ProofTerms, cluster: Cluster, piece: Piece, on_source: bool
) -> LogStream:
    of = piece.of
    if on_source:
        return Source(terms, cluster, of, piece.source_first, piece.source_end).stream
    return sides.target(terms, cluster, of, piece.target_first, piece.target_end)


def _read(
    terms: ProofTerms,
    stream: LogStream,
    *,
    timed: bool,
    rate: int = 1,
    only: Longs | None = None,
) -> Marks:
    """`only`: the marks to keep, ascending."""
    stamp = terms.stamp
    offsets, found = [_NO_MARKS], [_NO_MARKS]
    count = 0
    for part in stream.listed():
        marks = np.empty(len(part.places), np.int64)
        keys = np.empty(len(part.places), np.int64)
        alignment.describe(
            part.buffer, part.places, stamp, alignment.TIMED * timed, marks, keys
        )
        kept = np.ones(len(marks), np.bool_)
        if rate > 1:
            kept = (marks.view(np.uint64) >> _RATE_SHIFT) % np.uint64(rate) == 0
        if only is not None:
            index = np.minimum(np.searchsorted(only, marks), max(len(only) - 1, 0))
            kept &= only[index] == marks if len(only) else False
        offsets.append(part.places[kept, to_columns.OFFSET])
        found.append(marks[kept])
        count += len(found[-1])
        if count > MOST_RECORDS:
            raise MirrorError(
                f"more than {MOST_RECORDS:,} records in a row, and not one that occurs "
                "once on both sides"
            )
    return Marks(
        offsets=np.concatenate(offsets),
        marks=np.concatenate(found),
        own_times=stream.own_times,
        fetched_bytes=stream.fetched_bytes,
    )
