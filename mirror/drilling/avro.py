"""Whether bytes are a value of an Avro schema, found without building the value.

Main function: `walk`. A library's reader trusts what it reads: five bytes can ask it
for a quarter of a billion nulls, and half a megabyte can nest deeper than its stack. So
lengths are held against the end of the bytes here, and depth and steps against limits.
It refuses what no reader takes, and is silent on text that is not UTF-8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirror.errors import BoundsError, ContentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_Named = dict[str, tuple[dict[str, Any], str]]
"""Types by their full names, each with the namespace in which its own names stand."""
_DEEPEST = 200
_MOST_STEPS = 1 << 19
_FIXED_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_LONGEST = {"int": 5, "long": 10}
_NAMED = frozenset({"record", "error", "enum", "fixed"})


def walk(schema: Any, needed: Iterable[Any], content: bytes) -> None:
    """`schema`: as JSON, and `needed`: those that it refers to. What follows the value
    is ignored, as readers do.

    Raises:
        ContentError: the bytes are no such value.
        BoundsError: they are nested too deeply, or have too many parts, to tell.
        Exception: what malformed JSON raises (`errors.MALFORMED`): no Avro schema.
    """
    named: _Named = {}
    for each in (schema, *needed):
        named.update(_names_in(each))
    _AvroWalk(named, content).value(schema, "", 0)


def _names_in(schema: Any) -> Iterator[tuple[str, tuple[dict[str, Any], str]]]:
    left = [(schema, "")]
    while left:
        each, space = left.pop()
        if isinstance(each, list):
            left += [(branch, space) for branch in each]
        if not isinstance(each, dict):
            continue
        kind = each["type"]
        if isinstance(kind, list | dict):
            left.append((kind, space))
        elif kind in {"array", "map"}:
            left.append((each["items" if kind == "array" else "values"], space))
        elif kind in _NAMED:
            name = each["name"]
            if "." not in name:
                given = each.get("namespace", space)
                name = f"{given}.{name}" if given else name
            space = name.rpartition(".")[0]
            yield name, (each, space)
            left += [(field["type"], space) for field in each.get("fields", ())]


class _AvroWalk:
    """One value; `_at` moves on."""

    def __init__(self, named: _Named, content: bytes) -> None:
        self._named = named
        self._content = content
        self._at = 0
        self._steps = 0

    def value(self, schema: Any, space: str, depth: int) -> None:
        self._steps += 1
        if depth > _DEEPEST:
            raise BoundsError(f"it is nested deeper than {_DEEPEST}")
        if self._steps > _MOST_STEPS:
            raise BoundsError(f"it has more than {_MOST_STEPS:,} parts")
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, list):
            chosen = self._choice(len(kind), "branch of a union")
            self.value(kind[chosen], space, depth + 1)
        elif isinstance(kind, dict):
            self.value(kind, space, depth + 1)
        elif kind in _FIXED_SIZES:
            self._skip(_FIXED_SIZES[kind])
        elif kind in _LONGEST:
            self._whole(_LONGEST[kind])
        elif kind in {"bytes", "string"}:
            self._skip(self._whole())
        elif kind in {"array", "map"}:
            self._blocks(schema, space, depth)
        elif kind in _NAMED:
            self._known(*self._named_by(schema["name"], schema, space), depth)
        else:
            self._known(*self._named_by(kind, {}, space), depth)

    def _named_by(
        self, name: str, schema: dict[str, Any], space: str
    ) -> tuple[dict[str, Any], str]:
        space = schema.get("namespace", space)
        full = f"{space}.{name}" if space and "." not in name else name
        found = self._named.get(full) or self._named.get(name)
        if found is None:
            raise ContentError(f"its schema uses {name[:99]!r}, which no text defines")
        return found

    def _known(self, schema: dict[str, Any], space: str, depth: int) -> None:
        if schema["type"] == "enum":
            self._choice(len(schema["symbols"]), "symbol of an enum")
        elif schema["type"] == "fixed":
            self._skip(schema["size"])
        else:
            for field in schema["fields"]:
                self.value(field["type"], space, depth + 1)

    def _blocks(self, schema: dict[str, Any], space: str, depth: int) -> None:
        is_map = schema["type"] == "map"
        item = schema["values" if is_map else "items"]
        while count := self._whole():
            if count < 0:
                self._whole()  # how many bytes they have
            for _ in range(abs(count)):
                if is_map:
                    self.value("string", space, depth + 1)
                self.value(item, space, depth + 1)

    def _choice(self, of: int, what: str) -> int:
        chosen = self._whole(_LONGEST["int"])
        if not 0 <= chosen < of:
            raise ContentError(f"it has {what} {chosen} of {of}")
        return chosen

    def _whole(self, longest: int = 10) -> int:
        found = 0
        for place in range(longest):
            byte = self._content[self._at : self._at + 1]
            self._skip(1)
            found |= (byte[0] & 0x7F) << (7 * place)
            if byte[0] < 0x80:
                return (found >> 1) ^ -(found & 1)
        raise ContentError(f"it has a number of more than {longest} bytes")

    def _skip(self, size: int) -> None:
        if not 0 <= size <= len(self._content) - self._at:
            raise ContentError(f"it ends early, at byte {self._at:,}")
        self._at += size
