"""A rule that renames copies: a pattern for the topic, a name for its copy.

Main type: `Rule`. It maps a topic to its copy and, where its pattern allows, a copy
back to its topic. `choice` chooses between several rules and handles topics without
one.
"""

from __future__ import annotations

from dataclasses import dataclass
import re
from typing import TYPE_CHECKING

from mirror.policy.naming import LEGAL_NAME, NameRange

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Python's and Java's syntax for a group; topic names contain neither \ nor $.
_REFERENCE = re.compile(r"[\\$](\d)|\\g<(\w+)>|\$\{(\w+)\}")
_PIECE = re.compile(
    r"(?P<literal>\\[.\-]|[a-zA-Z0-9_.-])(?![*?+{])"
    r"|\((?:\?P<(?P<name>\w+)>|(?!\?))(?:[^()\\]|\\.)*\)(?![*?+{])"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Names the copies of topics that match a pattern."""

    match: str
    """Regular expression for a topic's whole name."""
    to: str
    """The copy's name; \\1 or $1 stands for a group of `match`."""

    def apply(self, topic: str) -> str | None:
        """The copy's name; None if the rule does not match the topic."""
        match = re.fullmatch(self.match, topic)
        if match is None:
            return None
        return "".join(
            (match[part] or "") if is_group else str(part)
            for is_group, part in _parts(self.to)
        )

    def undo(self, name: str) -> str | None:
        """A topic whose copy would have this name; None if the rule cannot tell.

        It can if `match` consists of plain text and groups, and `to` uses all of them.
        """
        match = re.fullmatch(self._backwards(), name)
        if match is None:
            return None
        found = {key.removeprefix("g"): text for key, text in match.groupdict().items()}
        topic = found.get("0") or self._with_groups(found)
        return topic if topic is not None and self.apply(topic) == name else None

    def names(self) -> NameRange:
        """All names that the rule can give."""
        (is_group, text), *others = _parts(self.to)
        if is_group:
            return NameRange(start="")
        return NameRange(start=str(text), whole=not others)

    def _with_groups(self, found: Mapping[str, str]) -> str | None:
        """`match` with these texts in place of its groups."""
        topic, at, number = "", 0, 0
        while at < len(self.match):
            piece = _PIECE.match(self.match, at)
            if piece is None:
                return None
            at = piece.end()
            if piece["literal"]:
                topic += piece["literal"][-1]
                continue
            number += 1
            text = found.get(str(number), found.get(piece["name"] or ""))
            if text is None:
                return None
            topic += text
        return topic

    def _backwards(self) -> str:
        """A pattern for the copy's name that finds the groups in it."""
        seen: set[str] = set()
        pattern = ""
        for is_group, part in _parts(self.to):
            if not is_group:
                pattern += re.escape(str(part))
            elif str(part) in seen:
                pattern += f"(?P=g{part})"
            else:
                seen.add(str(part))
                pattern += f"(?P<g{part}>.*)"
        return pattern


def why_wrong(rule: Rule) -> str | None:
    """What is wrong with `to`; `match` is a valid pattern already."""
    pattern = re.compile(rule.match)
    if not rule.to:
        return "to is empty; it must be the copy's name"
    for is_group, part in _parts(rule.to):
        if not is_group:
            if not LEGAL_NAME.fullmatch(str(part)):
                return (
                    f'to "{rule.to}" has characters that a topic cannot have; '
                    "letters, digits, dot, underscore, hyphen and groups such as \\1 "
                    "are allowed"
                )
        elif isinstance(part, int):
            if part > pattern.groups:
                return (
                    f'to "{rule.to}" names group {part}, but match "{rule.match}" '
                    f"has {pattern.groups}"
                )
        elif part not in pattern.groupindex:
            return (
                f'to "{rule.to}" names group {part}, which match "{rule.match}" '
                "does not have"
            )
    return None


def _parts(to: str) -> Iterator[tuple[bool, str | int]]:
    """The parts of the copy's name: (is a group, its text or group)."""
    at = 0
    for reference in _REFERENCE.finditer(to):
        if reference.start() > at:
            yield False, _plain(to[at : reference.start()])
        number, *names = reference.groups()
        name = number or next(filter(None, names))
        yield True, int(name) if name.isdigit() else name
        at = reference.end()
    if at < len(to):
        yield False, _plain(to[at:])


def _plain(text: str) -> str:
    return re.sub(r"\\([.\-])", r"\1", text)
