"""Answers over HTTP, and JSON of others, taken within bounds of size, time and memory.

Main type: `Bounds`. Main functions: `collect` and `body`, which read an answer, and
`parsed`, which makes objects of JSON. A few megabytes of `[{},{},...]` become thirty
times as much in memory, so values are counted before any is made.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass
import itertools
import json
import re
import time
from typing import TYPE_CHECKING, Any
import zlib

from mirror.errors import BoundsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import httpx

_PART = 1 << 20
# What a value follows, outside of texts, or the end. Possessive: no byte is looked at
# twice, also where a text has no end.
_NEXT = re.compile(
    rb'(?:[^",\[{]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"?)*+(?:[,\[{]|\Z)', re.DOTALL
)
UNPACKED = {"Accept-Encoding": "identity"}
"""A header for requests with small answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What an answer may have at most. It takes at most ten times `size`, if it has a
    character of four bytes, else four times, and 256 bytes for each of the `values`.
    """

    size: int
    """Bytes, unpacked."""
    values: int
    """JSON values, those in lists and objects too."""


def collect(
    parts: Iterable[bytes],
    bounds: Bounds,
    *,
    until: float,
    declared: int | None = None,
    encoding: str = "",
) -> bytes:
    """All bytes that come, unpacked. `until`: monotonic. `declared` and `encoding`: how
    many are announced, and how they are packed.

    Raises:
        BoundsError: there are more than there may be.
        TimeoutError: not all of them came in time.
        ValueError: they are not packed as they are said to be, or in another way than
            gzip. Others, or several, unpack to any size at once.
        Exception: what `parts` raises.
    """
    if declared is not None and declared > bounds.size:
        raise BoundsError(f"has {declared:,} bytes, and may have {bounds.size:,}")
    if encoding.lower() not in {"", "identity", "gzip"}:
        raise ValueError("its content is packed in a way that was not asked for")
    unpacking = zlib.decompressobj(wbits=31) if encoding.lower() == "gzip" else None
    found = bytearray()
    came = 0
    for each in parts:
        came += len(each)
        for piece in (each,) if unpacking is None else _pieces(each, unpacking):
            found += piece
            if len(found) > bounds.size:
                break
        if max(len(found), came) > bounds.size:
            raise BoundsError(f"has more than {bounds.size:,} bytes")
        if time.monotonic() > until:
            raise TimeoutError
    if unpacking is not None and came and not unpacking.eof:
        raise ValueError("its gzip ends too early")
    return bytes(found)


def _pieces(packed: bytes, unpacking: zlib._Decompress) -> Iterator[bytes]:
    """Unpacked, each of a megabyte at most; what follows the end of gzip is dropped."""
    while packed and not unpacking.eof:
        try:
            yield unpacking.decompress(packed, _PART)
        except zlib.error as error:
            raise ValueError(f"its gzip is broken: {error}") from error
        packed = unpacking.unconsumed_tail


def body(answer: httpx.Response, bounds: Bounds, *, until: float) -> bytes:
    """The content of a streamed answer. Raises as `collect`."""
    length = answer.headers.get("Content-Length", "")
    return collect(
        answer.iter_raw(),  # the client itself unpacks each part to any size
        bounds,
        until=until,
        declared=int(length) if length.isdecimal() else None,
        encoding=answer.headers.get("Content-Encoding", ""),
    )


def parsed(raw: bytes, bounds: Bounds) -> Any:
    """The document of JSON in UTF-8.

    Raises:
        BoundsError: it is larger, or has more values, than it may, or is nested too
            deep.
        ValueError: it is no JSON.
    """
    if len(raw) > bounds.size:
        raise BoundsError(f"has {len(raw):,} bytes, and may have {bounds.size:,}")
    _require_few(raw, bounds.values)
    try:
        text = raw.removeprefix(codecs.BOM_UTF8).decode(errors="surrogatepass")
        return json.loads(text)
    except RecursionError as error:
        raise BoundsError("is JSON that is nested too deep") from error


def _require_few(raw: bytes, most: int) -> None:
    """Raise if JSON may have more values; names in objects do not count."""
    if raw.count(b",") + raw.count(b"[") + raw.count(b"{") < most:
        return  # most texts of schemas have few enough in them
    if sum(1 for _ in itertools.islice(_NEXT.finditer(raw), most + 1)) > most:
        raise BoundsError(f"has more than {most:,} JSON values")
