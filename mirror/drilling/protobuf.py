"""Whether bytes can be a message of a Protobuf file, by what the wire format says.

Main function: `walk`. It reads which message of the file it is, looks for that message,
and goes through the fields to the end. Types of fields are not compared: a reader skips
what it does not know.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import re

from mirror.errors import BoundsError, ContentError

_DEEPEST = 100
"""As readers have it."""
_MOST_STEPS = 1 << 19
_LEFT_OUT = re.compile(
    r"""//[^\n]*|/\*(?:.*?\*/|.*\Z)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?""",
    re.DOTALL,
)
"""Comments and texts."""
_TOKEN = re.compile(r"[\w.]+|[^\w\s]")
_VARINT, _, _SIZED, _BEGIN, _END = range(5)
_SIZES = {1: 8, 5: 4}


@dataclass(slots=True)
class _Declared:
    """A message, or the file."""

    inner: list[_Declared] = field(default_factory=list)
    counts: bool = True
    """Whether `inner` has all that an index counts: maps and groups are messages, too,
    which clients count differently."""


def walk(text: str, content: bytes) -> None:
    """`content`: the indexes of the message, then the message.

    Raises:
        ContentError: the bytes are no message of this file.
        BoundsError: they are nested too deeply, or have too many parts, to tell.
    """
    indexes, at = _indexes(content)
    here = _declared(text)
    for index in indexes:
        if not here.counts:
            break
        if index >= len(here.inner):
            raise ContentError(
                f"it is message {'.'.join(map(str, indexes))} of the file, which has "
                "no such message"
            )
        here = here.inner[index]
    _fields(content, at)


def _declared(text: str) -> _Declared:
    file = _Declared()
    around = [file]
    """A block of another kind stands for the message that it is in."""
    coming: _Declared | None = None
    words = ["", *_TOKEN.findall(_LEFT_OUT.sub(" ", text)), "", ""]
    for before, word, name, after in zip(
        words, words[1:], words[2:], words[3:], strict=False
    ):
        within = around[-1]
        if word == "message" and before in {"", "{", "}", ";"} and after == "{":
            coming = _Declared()
            within.inner.append(coming)
        elif word == "{":
            around.append(coming or within)
            coming = None
        elif word == "}" and len(around) > 1:
            around.pop()
        elif (word, name) == ("map", "<") or (word == "group" and after == "="):
            within.counts = False
    return file


def _indexes(content: bytes) -> tuple[list[int], int]:
    """Which message it is, from the outermost on, and where it begins."""
    count, at = _whole(content, 0)
    if not count:
        return [0], at
    found: list[int] = []
    for _ in range(count >> 1):
        if len(found) > _DEEPEST:
            raise BoundsError(f"its message is nested deeper than {_DEEPEST}")
        index, at = _whole(content, at)
        found.append(index >> 1)
    return found, at


def _fields(content: bytes, at: int) -> None:
    groups: list[int] = []
    steps = 0
    while at < len(content):
        steps += 1
        if steps > _MOST_STEPS or len(groups) > _DEEPEST:
            raise BoundsError(
                f"it has more than {_MOST_STEPS:,} fields, or {_DEEPEST} in each other"
            )
        tag, at = _whole(content, at)
        number, kind = tag >> 3, tag & 7
        if kind == _BEGIN:
            groups.append(number)
        elif kind == _END and groups and groups[-1] == number:
            groups.pop()
        else:
            at = _behind(content, at, kind)
        if not number or at > len(content):
            raise ContentError(f"it has field {number}, which ends at byte {at:,}")
    if groups:
        raise ContentError(f"it ends within field {groups[-1]}")


def _behind(content: bytes, at: int, kind: int) -> int:
    """Where a field ends."""
    if kind == _VARINT:
        return _whole(content, at)[1]
    if kind == _SIZED:
        size, at = _whole(content, at)
        return at + size
    if kind in _SIZES:
        return at + _SIZES[kind]
    raise ContentError(f"it has a field of kind {kind} at byte {at:,}")


def _whole(content: bytes, at: int) -> tuple[int, int]:
    found = 0
    for place in range(10):
        if at >= len(content):
            raise ContentError(f"it ends early, at byte {at:,}")
        byte = content[at]
        at += 1
        found |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return found, at
    raise ContentError("it has a number of more than 10 bytes")
