"""Looks through a log for certain keys or records: what a task does for doubtful rows.

Main functions: `last_of_keys`, for the rule of compaction, and `originals`, which finds
the records that unexpected copies are copies of. Marks only locate: that a record is
equal to its copy is decided byte by byte, in `comparing`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from mirror.proofs import sides
from mirror.proofs.explaining import LastOfKeys
from mirror.records import alignment, to_columns
from mirror.records.listing import NO_LOOPS, Loops, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.clusters.cluster import Cluster
    from mirror.proofs.content.matching import Odd
    from mirror.proofs.log_stream import Stretch
    from mirror.proofs.sides import ProofTerms
    from mirror.records.batch import Rows
    from mirror.records.listing import Listed

NO_STAMP = np.empty(0, np.uint8)


def last_of_keys(
    terms: ProofTerms, stretch: Stretch, keys: Odd, *, on_source: bool
) -> LastOfKeys:
    """The last record of each key within the stretch. `keys`: marks of keys, ascending.

    Raises:
        ClusterError: the log cannot be read to its end.
    """
    offsets = np.full(len(keys), -1, np.int64)
    deleted_at = np.full(len(keys), -1, np.int64)
    for part, _, found in _described(terms, stretch, on_source, timed=True):
        index = np.minimum(np.searchsorted(keys, found), len(keys) - 1)
        rows = np.flatnonzero(keys[index] == found)
        places = part.places[rows]
        # Of several assignments to one element, the last one stays.
        offsets[index[rows]] = places[:, to_columns.OFFSET]
        tombstone = places[:, to_columns.VALUE_SIZE] < 0
        deleted_at[index[rows]] = np.where(tombstone, places[:, to_columns.TIME], -1)
    return LastOfKeys(keys=keys, offsets=offsets, deleted_at=deleted_at)


def originals(
    terms: ProofTerms, stretch: Stretch, marks: Odd, *, timed: bool = True
) -> dict[int, int]:
    """The first offset of each mark that is in a stretch of the source; `marks` ascend.

    Raises:
        ClusterError: the log cannot be read to its end.
    """
    first: dict[int, int] = {}
    for part, made, _ in _described(terms, stretch, True, timed=timed):
        index = np.minimum(np.searchsorted(marks, made), len(marks) - 1)
        for row in np.flatnonzero(marks[index] == made).tolist():
            first.setdefault(int(made[row]), int(part.places[row, to_columns.OFFSET]))
    return first


def filtered(terms: ProofTerms, stretch: Stretch, offsets: Odd) -> Odd:
    """Which of these records of a source the flow leaves out, by headers or keys.

    Raises:
        ClusterError: the log cannot be read to its end.
    """
    loops = Loops(terms.header.key, terms.header.target_suffix, terms.header.homes)

    def among(cluster: Cluster, known: Loops) -> Odd:
        lister = partial(listed, loops=known, most_unpacked=terms.most_unpacked)
        stream = sides.stream(terms, cluster, stretch, on_source=True, lister=lister)
        found = [part.places[:, to_columns.OFFSET] for part in stream.listed()]
        there = np.concatenate([np.empty(0, np.int64), *found])
        return offsets[np.isin(offsets, there)]

    with terms.connected(on_source=True) as cluster:
        return np.setdiff1d(among(cluster, NO_LOOPS), among(cluster, loops))


def _described(
    terms: ProofTerms, stretch: Stretch, on_source: bool, *, timed: bool
) -> Iterator[tuple[Listed, Rows, Rows]]:
    """Records with the marks of them and of their keys."""
    with terms.connected(on_source=on_source) as cluster:
        stream = sides.stream(terms, cluster, stretch, on_source=on_source)
        flags = alignment.TIMED if timed else 0
        for part in stream.listed():
            marks = np.empty(len(part.places), np.int64)
            keys = np.empty(len(part.places), np.int64)
            alignment.describe(part.buffer, part.places, NO_STAMP, flags, marks, keys)
            yield part, marks, keys
