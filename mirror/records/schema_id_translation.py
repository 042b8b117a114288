"""Gives records the ids of schemas that another registry has for the same schemas.

Main type: `IdMap`. Its loops overwrite the four bytes of ids in keys, values and header
ids, so no record grows; a GUID, and an id that the map does not have, stay. A record
must pass once: ids of one registry are ids of the other as well. So `replace` is for
what was just laid out for the target, never for what was fetched, which a slot may work
on again; `replaced` makes a copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numba
import numpy as np

from mirror.records import to_columns
from mirror.records.compiled import compiled, equals, sized, varint
from mirror.records.schema_ids import ID_SIZE, KEY_HEADER, VALUE_HEADER

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from mirror.records.batch import Buffer
    from mirror.records.listing import Listed

    Ids = npt.NDArray[np.uint32]

_IN_BUFFER = [
    *(to_columns.KEY_AT, to_columns.VALUE_AT),
    *(to_columns.HEADERS_AT, to_columns.END),
]


@numba.njit(inline="always")
def _put(buffer, at, sources, targets):
    """Replace the id behind this magic byte; whether the map has it."""
    number = np.uint32(0)
    for i in range(1, ID_SIZE):
        number = np.uint32((number << np.uint32(8)) | np.uint32(buffer[at + i]))
    low, high = 0, sources.size
    while low < high:
        middle = (low + high) >> 1
        if sources[middle] < number:
            low = middle + 1
        else:
            high = middle
    if low == sources.size or sources[low] != number:
        return False
    number = targets[low]
    for i in range(1, ID_SIZE):
        shift = np.uint32(8 * (ID_SIZE - 1 - i))
        buffer[at + i] = np.uint8((number >> shift) & np.uint32(255))
    return True


@numba.njit(inline="always")
def _replaced(buffer, at, size, sources, targets):
    """Replace the id here, if there is one that the map has; whether it did."""
    return size >= ID_SIZE and buffer[at] == 0 and _put(buffer, at, sources, targets)


@numba.njit(inline="always")
def _header(buffer, at, end, sources, targets, key_header, value_header):
    """The same for one header; also where the next one begins, beyond the end if this
    one does not fit.
    """
    name_size, name_at, p = sized(buffer, at, end)
    size, at, p = sized(buffer, p, end)
    found = p <= end and (
        equals(buffer, name_at, name_size, key_header)
        or equals(buffer, name_at, name_size, value_header)
    )
    return found and _replaced(buffer, at, size, sources, targets), p


@compiled("int64(uint8[::1], int64, uint32[::1], uint32[::1], uint8[::1], uint8[::1])")
def _replace(buffer, count, sources, targets, key_header, value_header):
    """Replace the ids in `count` records; how many have another now. -1: one does not
    fit, and those before it are changed.
    """
    changed = 0
    at, limit = np.int64(0), buffer.size
    for _ in range(count):
        size, body = varint(buffer, at, limit)
        if size < 1 or size > limit - body:
            return -1
        end = body + size
        _, p = varint(buffer, body + 1, end)
        _, p = varint(buffer, p, end)
        key_size, key_at, p = sized(buffer, p, end)
        value_size, value_at, p = sized(buffer, p, end)
        headers, p = varint(buffer, p, end)
        if p > end or headers < 0 or headers > end - p:
            return -1
        is_new = _replaced(buffer, key_at, key_size, sources, targets)
        is_new |= _replaced(buffer, value_at, value_size, sources, targets)
        for _ in range(headers):
            found, p = _header(
                buffer, p, end, sources, targets, key_header, value_header
            )
            is_new |= found
        if p != end:
            return -1
        changed += is_new
        at = end
    return changed


@compiled(
    "void(uint8[::1], int64[:, ::1], uint32[::1], uint32[::1], uint8[::1], uint8[::1])"
)
def _replace_at(buffer, places, sources, targets, key_header, value_header):
    """Replace the ids in records that `to_columns.find` has listed."""
    for row in range(places.shape[0]):
        for at, size in (
            (to_columns.KEY_AT, to_columns.KEY_SIZE),
            (to_columns.VALUE_AT, to_columns.VALUE_SIZE),
        ):
            _replaced(buffer, places[row, at], places[row, size], sources, targets)
        p, end = places[row, to_columns.HEADERS_AT], places[row, to_columns.END]
        while p < end:
            _, p = _header(buffer, p, end, sources, targets, key_header, value_header)


@dataclass(frozen=True, slots=True, eq=False)
class IdMap:
    """The target's id for each of the source's ids, which ascend."""

    sources: Ids
    targets: Ids

    @classmethod
    def of(cls, ids: Mapping[int, int]) -> IdMap:
        known = sorted(ids)
        return cls(
            np.array(known, np.uint32),
            np.array([ids[each] for each in known], np.uint32),
        )

    def __len__(self) -> int:
        return len(self.sources)

    def as_dict(self) -> dict[int, int]:
        """What it was made of."""
        return dict(zip(self.sources.tolist(), self.targets.tolist(), strict=True))

    def with_more(self, ids: Mapping[int, int]) -> IdMap:
        """The same with these, which count where both have one."""
        more = IdMap.of(ids)
        known, at = np.unique(
            np.concatenate([more.sources, self.sources]), return_index=True
        )
        return IdMap(known, np.concatenate([more.targets, self.targets])[at])

    def replace(self, records: Buffer, count: int) -> int:
        """Replace the ids in these, as many as `count`; returns how many records have
        another id now.
        """
        changed = int(
            _replace(
                records, count, self.sources, self.targets, KEY_HEADER, VALUE_HEADER
            )
        )
        assert changed >= 0, "we have laid them out ourselves"
        return changed

    def replaced(self, part: Listed) -> Listed:
        """Copies of these records, with the ids replaced."""
        if not len(part.places):
            return part
        begin = int(part.places[:, to_columns.KEY_AT].min())
        buffer = part.buffer[begin : int(part.places[:, to_columns.END].max())].copy()
        places = part.places.copy()
        places[:, _IN_BUFFER] -= begin
        _replace_at(
            buffer, places, self.sources, self.targets, KEY_HEADER, VALUE_HEADER
        )
        return part._replace(buffer=buffer, places=places)
