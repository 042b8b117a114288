"""What compiled loops share: how they are compiled, and reading numbers safely.

`varint` and `sized` read what any producer may have written, so they never read past
the given end. `copy_bytes` is memcpy, `same_bytes` memcmp, `word` reads eight bytes at
once, `prefetch` asks for memory ahead. `compiled` decorates loops that other modules
call; the functions here are inlined into those loops. Format: Kafka's message format
v2.
"""

from __future__ import annotations

from functools import cache
import hashlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llvmlite import ir
import numba
from numba.core import cgutils, types
from numba.extending import intrinsic
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

_LOG = logging.getLogger(__name__)
_NO_NUMBER = -2  # neither a size nor null


def compiled(signature: str) -> Any:
    """A decorator. The signature is spelled out: a call with other types fails at once
    instead of compiling a second version in the middle of a flow. No kernel creates
    arrays, so none counts references to its arguments, which would take longer than
    processing a record with headers.
    """

    def compile_(function: Callable[..., Any]) -> Any:
        kernel = _njit(nogil=True, _nrt=False)(function)
        kernel.enable_caching()
        # numba holds its cache against the kernel's own file. What is inlined from its
        # neighbours counts as well: an upgrade would leave their old code in use.
        file = kernel._cache._cache_file  # noqa: SLF001  there is no other way
        folder = Path(function.__code__.co_filename).parent
        file._source_stamp = (file._source_stamp, _content(folder))  # noqa: SLF001
        file.load = _announcing(file.load)
        kernel.compile(signature)
        kernel.disable_compile()
        return kernel

    return compile_


_njit: Any = numba.njit
called = _njit(_nrt=False)
"""A decorator for what such loops call. Others are inlined, which makes them faster and
takes the compiler longer."""


def _announcing(load: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same, but says so when the cache has no kernel, which is then compiled."""

    def load_or_announce(key: Any) -> Any:
        found = load(key)
        if found is None:
            _announce()
        return found

    return load_or_announce


@cache
def _announce() -> None:
    # Once, and as a warning: commands that set up no log print these on stderr.
    _LOG.warning(
        "compiling what copies records, once for this installation: half a minute of "
        "CPU or more (mirror compile does it ahead)"
    )


@cache
def _content(folder: Path) -> str:
    """A hash of all modules in a folder."""
    found = sorted(folder.glob("*.py"))
    return hashlib.sha256(b"".join(each.read_bytes() for each in found)).hexdigest()


def _data(context, builder, kind, value):
    return context.make_array(kind)(context, builder, value).data


def _memcpy(_context, out, _at, source, _start, _size):
    """Copy bytes with memcpy: numba's own slices copy one by one."""
    signature = types.void(out, types.int64, source, types.int64, types.int64)

    def build(context, builder, signature, values):
        to, at, come_from, start, size = values
        to = _data(context, builder, signature.args[0], to)
        come_from = _data(context, builder, signature.args[2], come_from)
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


def _memcmp(_context, left, _at, right, _start, _size):
    """Whether bytes are the same: numba compares them one by one."""
    signature = types.boolean(left, types.int64, right, types.int64, types.int64)

    def build(context, builder, signature, values):
        one, at, other, start, size = values
        byte = ir.IntType(8)
        one = _data(context, builder, signature.args[0], one)
        other = _data(context, builder, signature.args[2], other)
        compare = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(
                ir.IntType(32), (byte.as_pointer(), byte.as_pointer(), ir.IntType(64))
            ),
            "memcmp",
        )
        found = builder.call(
            compare,
            (
                builder.gep(one, [at], source_etype=byte),
                builder.gep(other, [start], source_etype=byte),
                size,
            ),
        )
        return builder.icmp_signed("==", found, ir.IntType(32)(0))

    return signature, build


same_bytes: Any = intrinsic(_memcmp)


def _word(_context, source, _at):
    """Eight bytes at any place, as a number in the order of the machine."""
    signature = types.uint64(source, types.int64)

    def build(context, builder, signature, values):
        source, at = values
        data = _data(context, builder, signature.args[0], source)
        place = builder.gep(data, [at], source_etype=ir.IntType(8))
        number = ir.IntType(64)
        pointer = builder.bitcast(place, number.as_pointer())
        return builder.load(pointer, align=1, typ=number)

    return signature, build


word: Any = intrinsic(_word)


def _prefetch(_context, source, _at):
    """Bring a place into the cache without waiting for it; it may be out of bounds."""
    signature = types.void(source, types.int64)

    def build(context, builder, signature, values):
        source, at = values
        data = _data(context, builder, signature.args[0], source)
        place = builder.gep(data, [at], source_etype=ir.IntType(8))
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [place.type, number, number, number])
        prefetch_ = builder.module.declare_intrinsic(
            "llvm.prefetch", (place.type,), kind
        )
        # To read, to keep in all caches, and data.
        builder.call(prefetch_, [place, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return signature, build


prefetch: Any = intrinsic(_prefetch)


@numba.njit(inline="always")
def _signed(value):
    return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1))


@called
def _long_varint(buffer, at, end):
    """As `varint`, of any length."""
    value = np.uint64(0)
    shift = np.uint64(0)
    while at < end and shift < np.uint64(70):
        byte = np.uint64(buffer[at])
        at += 1
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            return _signed(value), at
        shift += np.uint64(7)
    return np.int64(_NO_NUMBER), end + 1


@numba.njit(inline="always")
def varint(buffer, at, end):
    """A number and the position after it. If it does not end before `end`, the position
    is `end + 1` and stays so in later reads: one check after the last read is enough.
    """
    # Nearly all are this short. An unsigned place saves asking whether it is negative.
    if at < end:
        low = np.uint64(buffer[np.uint64(at)])
        if low < np.uint64(0x80):
            return _signed(low), at + 1
        if at + 1 < end:
            high = np.uint64(buffer[np.uint64(at + 1)])
            if high < np.uint64(0x80):
                low &= np.uint64(0x7F)
                return _signed(low | (high << np.uint64(7))), at + 2
    return _long_varint(buffer, at, end)


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
        out[np.uint64(at)] = np.uint8((rest & np.uint64(0x7F)) | np.uint64(0x80))
        at += 1
        rest >>= np.uint64(7)
    out[np.uint64(at)] = np.uint8(rest)
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
