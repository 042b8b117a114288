"""A compiled loop that takes our stamps off records that come home.

`take` leaves out the last header of listed records, where it says that they came from
a given cluster: so they are again what was written there. Bytes in, numbers out: no
allocation, no Python object, no I/O.
"""

from __future__ import annotations

from mirror.records import to_columns
from mirror.records.compiled import compiled, ends_with, equals, sized


@compiled("int64(uint8[::1], int64[:, ::1], uint8[::1], uint8[::1], uint8[::1])")
def take(buffer, places, via, suffix, home):
    """Leave out the last header of each record, if it is called `via` and its value
    ends in `suffix`: such records are without it in `places`, and have 1 in `home`.

    Returns the index, counted from 1, of the first record that has such a header
    before its last one; 0 if there is none.
    """
    elsewhere = 0
    for index in range(places.shape[0]):
        headers = places[index, to_columns.HEADERS]
        at = places[index, to_columns.HEADERS_AT]
        for header in range(headers):
            begin = at
            size, start, at = sized(buffer, at, buffer.size)
            value_size, value, at = sized(buffer, at, buffer.size)
            if not equals(buffer, start, size, via):
                continue
            if not ends_with(buffer, value, value_size, suffix):
                continue
            if header + 1 == headers:
                places[index, to_columns.HEADERS] = headers - 1
                places[index, to_columns.END] = begin
                home[index] = 1
            elif elsewhere == 0:
                elsewhere = index + 1
    return elsewhere
