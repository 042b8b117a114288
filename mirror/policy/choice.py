"""Which naming policies there are, by the name that a flow's setting `policy` gives.

Main functions: `make_policy`, and `why_unfit`, what keeps a policy from being made.
Policies: MirrorMaker 2's default one, and one by rules; without any, all topics keep
their names, as with MirrorMaker 2's identity policy. A further policy is a class behind
`ReplicationPolicy`, and its name here.
"""

from __future__ import annotations

from dataclasses import dataclass
import re
from typing import TYPE_CHECKING, Literal

from mirror.policy.naming import HEARTBEATS, LEGAL_NAME, NameRange, is_heartbeats

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mirror.policy.naming import ReplicationPolicy


PolicyName = Literal["default", "identity", "rename"]
DESCRIPTION = (
    "default: the copy is called <source><separator><topic>; "
    "identity: the copy has the topic's own name; rename: as `rename` says."
)


def make_policy(
    name: PolicyName,
    *,
    source_alias: str,
    separator: str = ".",
    rules: Sequence[Rule] = (),
    aliases: tuple[str, ...] | None = None,
) -> ReplicationPolicy:
    """The policy that a flow's settings name. `aliases`: see `is_heartbeats`.

    Raises:
        ValueError: as `why_unfit` says.
    """
    if name == "default":
        return DefaultPolicy(source_alias=source_alias, separator=separator)
    if name == "rename" and (reason := why_unfit(name, rules)):
        raise ValueError(reason)
    return RenamePolicy(
        source_alias=source_alias,
        separator=separator,
        rules=tuple(rules) if name == "rename" else (),
        aliases=aliases,
    )


def why_unfit(name: PolicyName, rules: Sequence[Rule]) -> str | None:
    """Why a policy does not go with these rules; None if it does."""
    if name == "rename" and not rules:
        return (
            "policy rename needs rules; give it rename, such as "
            "[{match: 'orders\\.(.*)', to: 'eu.\\1'}]"
        )
    if rules and name != "rename":
        return (
            f"policy {name} would not use rename; set policy to rename, or rename to []"
        )
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultPolicy:
    """The copy's name is the source's alias, the separator, and the topic's name.

    Any name with the separator in it looks like a copy: `prod.orders` is taken for
    a copy of `orders` from the cluster `prod`. MirrorMaker 2 reads it the same way.
    """

    source_alias: str
    separator: str = "."

    @property
    def names_source(self) -> bool:
        return True

    @property
    def patterns(self) -> tuple[str, ...]:
        return ()

    def target_topic(self, topic: str) -> str:
        return f"{self.source_alias}{self.separator}{topic}"

    def target_names(self, start: str) -> tuple[NameRange, ...]:
        return (NameRange(start=self.target_topic(start)),)

    def topic_source(self, name: str) -> str | None:
        alias, _, upstream = name.partition(self.separator)
        # Java's split drops empty parts at the end: "orders." is not a copy of "".
        return alias if upstream.replace(self.separator, "") else None

    def upstream_topic(self, name: str) -> str | None:
        if self.topic_source(name) is None:
            return None
        return name.partition(self.separator)[2]

    def original_topic(self, name: str) -> str:
        while (upstream := self.upstream_topic(name)) is not None:
            name = upstream
        return name

    def is_cycle(self, topic: str, target_alias: str) -> bool:
        name: str | None = topic
        while name is not None:
            if self.topic_source(name) == target_alias:
                return True
            name = self.upstream_topic(name)
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class RenamePolicy:
    """The first rule that fits names the copy; a topic that none fits keeps its name.

    Only `heartbeats` keep the prefix. Read backwards, a name is what the first rule
    that could have made it says, or the topic's own where no rule touches it. Names
    cannot reveal a loop.
    """

    source_alias: str
    rules: tuple[Rule, ...] = ()
    """Empty: all topics keep their names."""
    separator: str = "."
    aliases: tuple[str, ...] | None = None
    """Clusters whose heartbeats these are; see `is_heartbeats`."""

    @property
    def names_source(self) -> bool:
        return False

    @property
    def patterns(self) -> tuple[str, ...]:
        return tuple(rule.match for rule in self.rules)

    def target_topic(self, topic: str) -> str:
        if self._is_heartbeats(topic):
            return self._prefixing().target_topic(topic)
        for rule in self.rules:
            if (name := rule.apply(topic)) is not None:
                return name
        return topic

    def target_names(self, start: str) -> tuple[NameRange, ...]:
        # A topic that no rule fits keeps its name.
        return (NameRange(start=start), *(rule.names() for rule in self.rules))

    def topic_source(self, name: str) -> str | None:
        if self._is_heartbeats(name):
            return self._prefixing().topic_source(name)
        return None if self.upstream_topic(name) is None else self.source_alias

    def upstream_topic(self, name: str) -> str | None:
        if self._is_heartbeats(name):
            return self._prefixing().upstream_topic(name)
        for rule in self.rules:
            topic = rule.undo(name)
            # An earlier rule may have taken that topic for itself.
            if topic is not None and self.target_topic(topic) == name:
                return topic
        return name if self.target_topic(name) == name else None

    def original_topic(self, name: str) -> str:
        if self._is_heartbeats(name):
            return HEARTBEATS
        return self.upstream_topic(name) or name

    def is_cycle(self, topic: str, target_alias: str) -> bool:
        return self._is_heartbeats(topic) and (
            self._prefixing().is_cycle(topic, target_alias)
        )

    def _is_heartbeats(self, name: str) -> bool:
        return is_heartbeats(name, self.separator, self.aliases)

    def _prefixing(self) -> DefaultPolicy:
        return DefaultPolicy(source_alias=self.source_alias, separator=self.separator)


# ---- a rule: a pattern for the topic, a name for its copy ----


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
