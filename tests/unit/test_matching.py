"""Which records belong together by their marks, against a slow search for the best."""

from __future__ import annotations

from itertools import pairwise
import random

import numpy as np
import pytest

from mirror.proofs.by_content import matched

pytestmark = pytest.mark.unit

Pairs = list[tuple[int, int]]


def _matched(source: str, target: str) -> Pairs:
    pairs = matched(
        *(np.array([ord(x) for x in y], np.int64) for y in (source, target))
    )
    return [(int(up), int(down)) for up, down in pairs]


def _longest(source: str, target: str) -> int:
    """The length of the longest common subsequence."""
    best = [0] * (len(target) + 1)
    for one in source:
        before = 0
        for at, other in enumerate(target, 1):
            before, best[at] = (
                best[at],
                before + 1 if one == other else max(best[at], best[at - 1]),
            )
    return best[-1]


@pytest.mark.parametrize(
    ("source", "target", "pairs"),
    [
        ("", "", []),
        ("abc", "", []),
        ("abc", "abc", [(0, 0), (1, 1), (2, 2)]),
        ("abc", "ac", [(0, 0), (2, 1)]),  # b is missing
        ("abc", "axbyc", [(0, 0), (1, 2), (2, 4)]),  # others' records in between
        ("abcd", "abcbcd", [(0, 0), (1, 1), (2, 2), (3, 5)]),  # repeated: the first
        ("abc", "abcabc", [(0, 0), (1, 1), (2, 2)]),
        ("xaxbx", "xaxbx", [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)]),
        ("xxxa", "xxxa", [(0, 0), (1, 1), (2, 2), (3, 3)]),  # alike, as many
        ("xxa", "x?xa", [(0, 0), (1, 2), (2, 3)]),
        ("xxa", "xa", [(2, 1)]),  # alike, and one too few: which?
        ("axxb", "axxxb", [(0, 0), (3, 4)]),
        ("axb", "axxb", [(0, 0), (1, 1), (2, 3)]),
        ("xxx", "xx", []),
        ("xyxyc", "xyc", [(4, 2)]),
        ("abcdef", "adbcef", [(0, 0), (1, 2), (2, 3), (4, 4), (5, 5)]),  # d moved
        ("ab", "bab", [(0, 1), (1, 2)]),
    ],
)
def test_what_belongs_together(source: str, target: str, pairs: Pairs) -> None:
    """Order decides where it can; where it cannot, nothing is matched."""
    assert _matched(source, target) == pairs


@pytest.mark.parametrize("seed", range(200))
def test_pairs_are_equal_and_in_order(seed: int) -> None:
    """Whatever is lost, repeated, moved or added: pairs say the same, ascend on both
    sides, and of different records no more could be matched.
    """
    chance = random.Random(seed)
    letters = "".join(map(chr, range(0x4E00, 0x4E00 + chance.choice([3, 40, 400]))))
    source = "".join(chance.choice(letters) for _ in range(chance.randrange(150)))
    if seed % 2:  # no two alike
        source = "".join(dict.fromkeys(source))
    made = list(source)
    for _ in range(chance.randrange(12)):
        at, size = chance.randrange(len(made) + 1), chance.randrange(6)
        part = made[at : at + size]
        match chance.randrange(4):
            case 0:
                del made[at : at + size]
            case 1:
                made[at:at] = part
            case 2:
                made[at:at] = "?" * size
            case _:
                del made[at : at + size]
                to = chance.randrange(len(made) + 1)
                made[to:to] = part
    target = "".join(made)

    pairs = _matched(source, target)

    assert all(source[up] == target[down] for up, down in pairs)
    assert all(a < c and b < d for (a, b), (c, d) in pairwise(pairs))
    if seed % 2:
        assert len(pairs) == _longest(source, target)


def test_many_holes_and_many_records_of_others() -> None:
    """Every tenth record lost, as many of others between: all others are matched."""
    marks = np.random.default_rng(1).integers(-(1 << 63), 1 << 63 - 1, 100_000)
    kept = np.delete(marks, np.arange(0, len(marks), 10))
    target = np.repeat(kept, 2)
    target[1::2] = np.arange(len(kept))

    pairs = matched(marks, target)

    assert len(pairs) == len(kept)
