"""Which records of a tail a command is about.

Main function: `chosen`, by a `Choice`. Pure.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from mirror.proofs.settling import NO_STAMP
from mirror.records import alignment, to_columns

if TYPE_CHECKING:
    import numpy.typing as npt

    from mirror.recovery.tails.order import Choice
    from mirror.recovery.tails.tail import Offsets, TailPartition


def chosen(part: TailPartition, choice: Choice) -> npt.NDArray[np.bool_]:
    """Which of the partition's records are chosen."""
    if not re.fullmatch(choice.topic, part.topic) or choice.partition not in (
        None,
        part.partition,
    ):
        return np.zeros(part.records, np.bool_)
    taken = np.ones(part.records, np.bool_)
    if choice.key is not None:
        taken &= part.keys == key_mark(choice.key)
    if choice.since_ms is not None:
        taken &= part.times >= choice.since_ms
    if choice.until_ms is not None:
        taken &= part.times < choice.until_ms
    return taken


def key_mark(key: bytes) -> int:
    """The mark of a key, as `TailPartition.keys` has it."""
    place = np.zeros((1, to_columns.PLACE_COLUMNS), np.int64)
    place[0, to_columns.KEY_SIZE] = place[0, to_columns.END] = len(key)
    marks, keys = np.empty((2, 1), np.int64)
    buffer = np.frombuffer(bytearray(key), np.uint8)
    alignment.describe(buffer, place, NO_STAMP, 0, marks, keys)
    return int(keys[0])


def consecutive(offsets: Offsets) -> list[tuple[int, int]]:
    """Ascending offsets as ranges, each from its first to its last one."""
    cuts = np.flatnonzero(np.diff(offsets) != 1) + 1
    return [
        (int(part[0]), int(part[-1])) for part in np.split(offsets, cuts) if len(part)
    ]
