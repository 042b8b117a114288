"""Finds copies that say something else than their records, when there is no map.

Main functions: `changed`, which is pure, says which lone record and lone copy stand in
the same gap between pairs, and have the same key or time; `differences` is the task
that compares these byte by byte.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from mirror.batches import alignment
from mirror.proving.comparing import compare
from mirror.proving.packed_runs import PackedRuns
from mirror.proving.ranges import Range

if TYPE_CHECKING:
    from collections.abc import Collection

    from mirror.proving.content.matching import Longs, Odd
    from mirror.proving.copied_partition import CopiedPartition
    from mirror.proving.sides import ProofTerms

MOST = 10_000
"""Pairs that are compared in one go; the others count as missing and unexpected."""
_FAR = 1_000
"""Offsets between pairs that are read apart."""
_IDENTITIES = (
    [alignment.KEY_MARK, alignment.KEY_SIZE, alignment.TIME],
    [alignment.KEY_MARK, alignment.KEY_SIZE],
    [alignment.TIME],
)
"""What makes a copy the record's, from the surest on."""


def changed(rows: Odd, originals: Collection[int], *, sure: bool = False) -> Longs:
    """Pairs of row numbers, at most `MOST`, in order of the source: a record, and what
    stands for it; `originals`: the marks of copies that are another record's. `sure`:
    only those with the same key and time.
    """
    what = rows[:, alignment.WHAT]
    ups = np.flatnonzero(what == alignment.ONLY_SOURCE)
    downs = np.flatnonzero(what == alignment.ONLY_TARGET)
    ups = ups[~np.isin(rows[ups, alignment.SOURCE_MARK],
                       rows[downs, alignment.TARGET_MARK])]  # fmt: skip
    downs = downs[~np.isin(rows[downs, alignment.TARGET_MARK], list(originals))]
    found: list[tuple[int, int]] = []
    if len(ups):
        gaps = np.unique(rows[ups, alignment.TARGET])
        index = np.searchsorted(gaps, rows[downs, alignment.TARGET])
        lowest = np.full(len(gaps) + 1, np.iinfo(np.int64).max)
        places = np.searchsorted(gaps, rows[ups, alignment.TARGET])
        np.minimum.at(lowest, places, rows[ups, alignment.SOURCE])
        near = rows[downs, alignment.SOURCE] >= lowest[index]
        downs, index = downs[near], index[near]
        for columns in _IDENTITIES[:1] if sure else _IDENTITIES:
            mine, theirs = (
                _grouped(rows, each, gap, columns)
                for each, gap in (
                    (ups, rows[ups, alignment.TARGET]),
                    (downs, gaps[index]),
                )
            )
            for identity, here in mine.items():
                there = theirs.get(identity, [])
                if len(here) == len(there) and _in_one_gap(rows, here, there):
                    found += zip(here, there, strict=True)
            pairs = np.array(found, np.int64).reshape(-1, 2)
            ups = np.setdiff1d(ups, pairs[:, 0])
            kept = ~np.isin(downs, pairs[:, 1])
            downs, index = downs[kept], index[kept]
    pairs = np.array(found[:MOST], np.int64).reshape(-1, 2)
    return pairs[np.argsort(rows[pairs[:, 0], alignment.SOURCE])]


def differences(terms: ProofTerms, of: CopiedPartition, pairs: Longs) -> Odd:
    """A row for each pair of offsets, ascending on the source, that is not equal."""
    found = [np.empty((0, alignment.ODD_COLUMNS), np.int64)]
    far = (np.abs(np.diff(pairs, axis=0)) > _FAR).any(axis=1)
    for near in np.split(pairs, np.flatnonzero(far) + 1):
        runs = np.concatenate([near, np.ones((len(near), 1), np.int64)], axis=1)
        (up, down), (last_up, last_down) = near.min(axis=0), near.max(axis=0)
        odd = compare(
            terms,
            Range(
                of=of, source_first=int(up), source_end=int(last_up) + 1,
                target_first=int(down), target_end=int(last_down) + 1,
                packed=PackedRuns.of(runs),
            ),
        ).odd  # fmt: skip
        found.append(odd[odd[:, alignment.WHAT] == alignment.UNEQUAL])
    return np.concatenate(found)


def _grouped(
    rows: Odd, numbers: Longs, gaps: Longs, columns: list[int]
) -> dict[tuple[int, ...], list[int]]:
    groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
    if alignment.TIME not in columns:  # that both have no key says nothing
        keyed = rows[numbers, alignment.KEY_SIZE] >= 0
        numbers, gaps = numbers[keyed], gaps[keyed]
    told = np.concatenate([gaps[:, None], rows[numbers][:, columns]], axis=1)
    for number, identity in zip(numbers.tolist(), told.tolist(), strict=True):
        groups[tuple(identity)].append(number)
    return groups


def _in_one_gap(rows: Odd, ups: list[int], downs: list[int]) -> bool:
    """Whether no pair stands between these records and these copies: a place is the
    last one before the next pair.
    """
    return bool(
        rows[ups, alignment.SOURCE].max() <= rows[downs, alignment.SOURCE].min()
        and rows[downs, alignment.TARGET].max() <= rows[ups, alignment.TARGET].min()
    )
