"""Names: which topics a flow copies, and what their copies are called.

Main types: `TopicFilter` (which names a flow wants), `ReplicationPolicy` (the
name on the target, and back) and `TopicMapping` (one topic and its copy).
`select_topics` combines them. The rules are MirrorMaker 2's, name for name;
`RenamePolicy` is ours. The provenance header stops loops of records; the rule here
only looks at names. This module contacts no cluster.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import re
from typing import TYPE_CHECKING, Protocol

from mirror.policy.renaming import LEGAL_NAME, Rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HEARTBEATS = "heartbeats"
MAX_NAME_LENGTH = 249


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMapping:
    """One topic of the source, and its copy on the target."""

    topic: str
    target_topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A wanted topic whose copy cannot have the policy's name."""

    topic: str
    target_topic: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The verdict on a source's topics, without topics that no pattern matches."""

    mappings: tuple[TopicMapping, ...]
    """Topics to copy, sorted by name."""
    rejected: tuple[Rejection, ...]
    """Wanted topics that cannot be copied: to be shown, never silently dropped."""
    cycles: tuple[str, ...]
    """Wanted topics whose names say that they came from the target."""


class ReplicationPolicy(Protocol):
    """How copies are named, and what a name reveals about a topic's origin."""

    def target_topic(self, topic: str) -> str:
        """The name of the copy."""

    def topic_source(self, name: str) -> str | None:
        """Alias of the cluster that `name` was copied from; None if not a copy."""

    def upstream_topic(self, name: str) -> str | None:
        """The topic's name on the cluster it was copied from; None if not a copy."""

    def original_topic(self, name: str) -> str:
        """The name before the first hop."""

    def is_cycle(self, topic: str, target_alias: str) -> bool:
        """Whether the name says that the topic already came through the target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultPolicy:
    """The copy's name is the source's alias, the separator, and the topic's name.

    Any name with the separator in it looks like a copy: `prod.orders` is taken for
    a copy of `orders` from the cluster `prod`. MirrorMaker 2 reads it the same way.
    """

    source_alias: str
    separator: str = "."

    def target_topic(self, topic: str) -> str:
        return f"{self.source_alias}{self.separator}{topic}"

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
class IdentityPolicy:
    """The copy has the topic's own name. Only `heartbeats` keep the prefix.

    Every topic may have come from the source, so names cannot reveal a loop.
    """

    source_alias: str
    separator: str = "."

    def target_topic(self, topic: str) -> str:
        if self.is_heartbeats(topic):
            return self._prefixing().target_topic(topic)
        return topic

    def topic_source(self, name: str) -> str | None:
        if self.is_heartbeats(name):
            return self._prefixing().topic_source(name)
        return self.source_alias

    def upstream_topic(self, name: str) -> str | None:
        if self.is_heartbeats(name):
            return self._prefixing().upstream_topic(name)
        return name

    def original_topic(self, name: str) -> str:
        return HEARTBEATS if self.is_heartbeats(name) else name

    def is_cycle(self, topic: str, target_alias: str) -> bool:
        if self.is_heartbeats(topic):
            return self._prefixing().is_cycle(topic, target_alias)
        return False

    def is_heartbeats(self, name: str) -> bool:
        return self._prefixing().original_topic(name) == HEARTBEATS

    def _prefixing(self) -> DefaultPolicy:
        return DefaultPolicy(source_alias=self.source_alias, separator=self.separator)


@dataclass(frozen=True, slots=True, kw_only=True)
class RenamePolicy:
    """The first rule that matches names the copy; a topic without one keeps its name.

    Only `heartbeats` keep the prefix. In reverse, the first rule that could have made
    the name gives the topic, or the name is the topic's own if no rule applies. Names
    cannot reveal a loop.
    """

    source_alias: str
    rules: tuple[Rule, ...]
    separator: str = "."

    def target_topic(self, topic: str) -> str:
        if self._unruled().is_heartbeats(topic):
            return self._unruled().target_topic(topic)
        for rule in self.rules:
            if (name := rule.apply(topic)) is not None:
                return name
        return topic

    def topic_source(self, name: str) -> str | None:
        if self._unruled().is_heartbeats(name):
            return self._unruled().topic_source(name)
        return None if self.upstream_topic(name) is None else self.source_alias

    def upstream_topic(self, name: str) -> str | None:
        if self._unruled().is_heartbeats(name):
            return self._unruled().upstream_topic(name)
        for rule in self.rules:
            topic = rule.undo(name)
            # An earlier rule may match that topic.
            if topic is not None and self.target_topic(topic) == name:
                return topic
        return name if self.target_topic(name) == name else None

    def original_topic(self, name: str) -> str:
        if self._unruled().is_heartbeats(name):
            return HEARTBEATS
        return self.upstream_topic(name) or name

    def is_cycle(self, topic: str, target_alias: str) -> bool:
        return self._unruled().is_cycle(topic, target_alias)

    def _unruled(self) -> IdentityPolicy:
        return IdentityPolicy(source_alias=self.source_alias, separator=self.separator)


def make_policy(
    kind: str,
    *,
    source_alias: str,
    separator: str = ".",
    rules: Sequence[Rule] = (),
) -> ReplicationPolicy:
    """The policy that a flow's settings name: `default`, `identity` or `rename`."""
    if kind == "identity":
        return IdentityPolicy(source_alias=source_alias, separator=separator)
    if kind == "rename":
        if not rules:
            raise ValueError("policy rename without rules")
        return RenamePolicy(
            source_alias=source_alias, separator=separator, rules=tuple(rules)
        )
    return DefaultPolicy(source_alias=source_alias, separator=separator)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFilter:
    """The topics that a flow wants: patterns that must match a whole name.

    Exclude wins over include. Internal topics of brokers and mirrors never match.
    Heartbeats, with or without prefixes, match if requested; otherwise the topic
    `heartbeats` matches only a pattern that spells it out.
    """

    include: tuple[str, ...]
    """Regular expressions; empty: no topic."""
    exclude: tuple[str, ...] = ()
    """Regular expressions; empty: no topic is left out."""
    separator: str = "."
    heartbeats: bool = False
    """Whether heartbeats match, whatever the patterns say."""
    _patterns: tuple[tuple[re.Pattern[str], ...], ...] = field(
        init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        compiled = tuple(
            tuple(re.compile(pattern) for pattern in patterns)
            for patterns in (self.include, self.exclude)
        )
        object.__setattr__(self, "_patterns", compiled)

    def matches(self, name: str) -> bool:
        if is_internal(name, self.separator):
            return False
        if self.heartbeats and name.rpartition(self.separator)[2] == HEARTBEATS:
            return True
        if name == HEARTBEATS and not any(HEARTBEATS in text for text in self.include):
            return False
        return _any_matches(self._patterns[0], name) and not self.excludes(name)

    def excludes(self, name: str) -> bool:
        """Whether an exclude pattern matches."""
        return _any_matches(self._patterns[1], name)


def is_internal(name: str, separator: str = ".") -> bool:
    """Whether a topic belongs to brokers, to MirrorMaker 2 or to us."""
    if name.startswith("__"):
        return True
    for mark in {".", separator}:
        if name.endswith(
            (f"{mark}checkpoints{mark}internal", f"{mark}offset-map{mark}internal")
        ):
            return True
        if name.endswith(f"{mark}internal") and name.startswith(("mm2", "mirror-")):
            return True
    return False


def select_topics(
    names: Iterable[str],
    topic_filter: TopicFilter,
    policy: ReplicationPolicy,
    target_alias: str,
) -> Selection:
    """Decide for each topic of the source whether it is copied, and to which name."""
    wanted = [name for name in sorted(set(names)) if topic_filter.matches(name)]
    cycles = {topic for topic in wanted if policy.is_cycle(topic, target_alias)}
    copies = {
        topic: policy.target_topic(topic) for topic in wanted if topic not in cycles
    }
    topics_of: dict[str, list[str]] = {}
    for topic, target_topic in copies.items():
        topics_of.setdefault(target_topic, []).append(topic)
    mappings: list[TopicMapping] = []
    rejected: list[Rejection] = []
    for topic, target_topic in copies.items():
        reason = why_illegal(target_topic)
        if reason is None and is_internal(target_topic, topic_filter.separator):
            reason = f'the target name "{target_topic}" is reserved for internal topics'
        if reason is None and len(topics_of[target_topic]) > 1:
            reason = (
                f"{' and '.join(topics_of[target_topic])} would both be copied to "
                f'"{target_topic}"; leave one out, or rename it'
            )
        if reason is None:
            mappings.append(TopicMapping(topic=topic, target_topic=target_topic))
        else:
            rejected.append(
                Rejection(topic=topic, target_topic=target_topic, reason=reason)
            )
    return Selection(
        mappings=tuple(mappings),
        rejected=tuple(rejected),
        cycles=tuple(sorted(cycles)),
    )


def why_illegal(name: str) -> str | None:
    """Why no cluster would accept `name` for a topic; None if one would."""
    if name in {"", ".", ".."}:
        return f'a topic cannot be named "{name}"'
    if len(name) > MAX_NAME_LENGTH:
        return (
            f'the target name "{name}" has {len(name)} characters; '
            f"Kafka allows {MAX_NAME_LENGTH}"
        )
    if not LEGAL_NAME.fullmatch(name):
        return (
            f'the target name "{name}" has characters that Kafka does not allow; '
            "letters, digits, dot, underscore and hyphen are allowed"
        )
    return None


def _any_matches(patterns: Iterable[re.Pattern[str]], name: str) -> bool:
    return any(pattern.fullmatch(name) for pattern in patterns)
