"""What an ACL can cover: one name, a prefix, or all names.

Main type: `Extent`. `extents` finds those of regular expressions: it splits
alternatives, and a pattern that starts with plain text becomes a prefix. ACLs can
express no more, so an extent may cover more than its pattern, never less. The one
exception: in a pattern that is a plain name, such as `orders.eu`, dots mean dots.
"""

from __future__ import annotations

from dataclasses import dataclass
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LITERAL, PREFIXED = "LITERAL", "PREFIXED"
_MOST_CHOICES = 64
_PLAIN = re.compile(r"[^\\^$|?*+()\[\]{}]+")
_SIMPLE_GROUP = re.compile(r"\((?:\?:|\?P<\w+>)?((?:[^()\\\[\]]|\\.)*)\)(?![*+?{])")
_PIECE = re.compile(r"(\\[^a-zA-Z0-9]|[^\\^$|?*+()\[\]{}.])([*+?{]?)")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Extent:
    """A resource's name, as an ACL gives it."""

    name: str
    """The literal `*` stands for all."""
    pattern: str = LITERAL

    def covers(self, other: Extent) -> bool:
        """Whether this one covers everything in the other."""
        if self == ALL:
            return True
        if self.pattern == PREFIXED:
            return other != ALL and other.name.startswith(self.name)
        return self == other

    def __str__(self) -> str:
        return f"{self.name}*" if self.pattern == PREFIXED else self.name


ALL = Extent(name="*")


def named(*names: str) -> tuple[Extent, ...]:
    """These names and no others."""
    return tuple(Extent(name=name) for name in names)


def beginning(start: str) -> Extent:
    """All names with this prefix."""
    return Extent(name=start, pattern=PREFIXED) if start else ALL


def extents(patterns: Iterable[str]) -> tuple[Extent, ...]:
    """The extents of names that match one of these patterns as a whole, sorted."""
    found = {_extent(choice) for each in patterns for choice in _choices(each)}
    return without_covered(found)


def without_covered(found: Iterable[Extent]) -> tuple[Extent, ...]:
    """Those that no other one covers, sorted."""
    known = set(found)
    return tuple(
        sorted(
            each
            for each in known
            if not any(other != each and other.covers(each) for other in known)
        )
    )


def _choices(pattern: str) -> list[str]:
    """A pattern for each alternative; the pattern's start if there are too many."""
    found, open_ = [], [pattern]
    while open_:
        each = open_.pop()
        alternatives = _alternatives(each)
        if len(alternatives) > 1:
            open_ += alternatives
        elif (group := _SIMPLE_GROUP.search(each)) and _is_first(each, group.start()):
            head, tail = each[: group.start()], each[group.end() :]
            open_ += [f"{head}{part}{tail}" for part in _alternatives(group[1])]
        else:
            found.append(each)
        if len(found) + len(open_) > _MOST_CHOICES:
            return [f"{_start(pattern)}.*" if "|" not in pattern else ".*"]
    return found


def _is_first(pattern: str, at: int) -> bool:
    """Whether no other bracket comes before: a group within one is not free."""
    return re.search(r"(?<!\\)[(\[]", pattern[:at]) is None


def _alternatives(pattern: str) -> list[str]:
    """The pattern, split at bars outside all brackets."""
    parts, depth, at = [""], 0, 0
    in_class = False
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            char = pattern[at : at + 2]
        elif in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
        elif char in "()":
            depth += 1 if char == "(" else -1
        elif char == "|" and depth == 0:
            parts.append("")
            at += 1
            continue
        parts[-1] += char
        at += len(char)
    return parts


def _extent(pattern: str) -> Extent:
    bare = pattern.removeprefix("^").removesuffix("$")
    if _PLAIN.fullmatch(bare):
        return Extent(name=bare)
    start = _start(bare)
    if re.fullmatch(r"(?:\\[^a-zA-Z0-9]|[^\\^$|?*+()\[\]{}.])+", bare):
        return Extent(name=start)
    return beginning(start)


def _start(pattern: str) -> str:
    """The text that every match begins with."""
    return "".join(_pieces(pattern.removeprefix("^")))


def _pieces(pattern: str) -> Iterator[str]:
    at = 0
    while piece := _PIECE.match(pattern, at):
        text, count = piece.groups()
        if count and count != "+":
            return  # it is optional
        yield text[-1]
        if count:
            return
        at = piece.end()
