"""What compiled loops share: how they are compiled, and reading numbers safely.

`varint` and `sized` read what any producer may have written, so they never read past
the given end. `copy_bytes` is memcpy. `compiled` decorates loops that other modules
call; the functions here are inlined into those loops. Format: Kafka's message format
v2.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
import numba
from numba.core import cgutils, types
from numba.extending import intrinsic
import numpy as np

_NO_NUMBER = -2  # neither a size nor null


def compiled(signature: str) -> Any:
    """A decorator. The signature is spelled out: a call with other types fails at once
    instead of compiling a second version in the middle of a flow. No kernel creates
    arrays, so none counts references to its arguments, which would take longer than
    processing a record with headers.
    """
    njit: Any = numba.njit
    return njit(signature, cache=True, nogil=True, _nrt=False)


def _memcpy(_context, out, _at, source, _start, _size):
    """Copy bytes with memcpy: numba's own slices copy one by one."""
    signature = types.void(out, types.int64, source, types.int64, types.int64)

    def build(context, builder, signature, values):
        to, at, come_from, start, size = values
        to = context.make_array(signature.args[0])(context, builder, to).data
        come_from = context.make_array(signature.args[2])(
            context, builder, come_from
        ).data
        byte = ir.IntType(8)
        cgutils.raw_memcpy(
            builder,
            builder.gep(to, [at], source_etype=byte),
            builder.gep(come_from, [start], source_etype=byte),
            size,
            1,
        )
        return context.get_dummy_value()

    return signature, build


copy_bytes: Any = intrinsic(_memcpy)


@numba.njit(inline="always")
def varint(buffer, at, end):
    """A number and the position after it. If it does not end before `end`, the position
    is `end + 1` and stays so in later reads: one check after the last read is enough.
    """
    value = np.uint64(0)
    shift = np.uint64(0)
    while at < end and shift < np.uint64(70):
        byte = np.uint64(buffer[at])
        at += 1
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), at
        shift += np.uint64(7)
    return np.int64(_NO_NUMBER), end + 1


@numba.njit(inline="always")
def sized(buffer, at, end):
    """Size (-1: null) and start of a value with its size in front, and the position
    after it; a size of -2 and `end + 1` if it does not end before `end`.
    """
    size, start = varint(buffer, at, end)
    if size < -1 or size > end - start:
        return np.int64(_NO_NUMBER), end + 1, end + 1
    return size, start, start + max(size, 0)


@numba.njit(inline="always")
def put_varint(out, at, value):
    rest = np.uint64((value << 1) ^ (value >> 63))
    while rest >= np.uint64(0x80):
        out[at] = np.uint8((rest & np.uint64(0x7F)) | np.uint64(0x80))
        at += 1
        rest >>= np.uint64(7)
    out[at] = np.uint8(rest)
    return at + 1


@numba.njit(inline="always")
def varint_size(value):
    rest = np.uint64((value << 1) ^ (value >> 63))
    size = 1
    while rest >= np.uint64(0x80):
        size += 1
        rest >>= np.uint64(7)
    return size


@numba.njit(inline="always")
def ends_with(buffer, start, size, suffix):
    if size < suffix.size:
        return False
    first = start + size - suffix.size
    for i in range(suffix.size):
        if buffer[first + i] != suffix[i]:
            return False
    return True


@numba.njit(inline="always")
def equals(buffer, start, size, wanted):
    return size == wanted.size and ends_with(buffer, start, size, wanted)
