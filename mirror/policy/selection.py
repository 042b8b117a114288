"""Which topics of a source a flow copies, and which of them it cannot.

Main types: `TopicFilter` (which names a flow wants), `TopicMapping` (one topic and its
copy). `select_topics` puts filter and policy together. No cluster is asked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import difflib
import re
from typing import TYPE_CHECKING

from mirror.policy.naming import (
    HEARTBEATS,
    SCHEMAS,
    is_heartbeats,
    is_internal,
    why_illegal,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from mirror.policy.naming import ReplicationPolicy


_FEW_LETTERS = 6


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFilter:
    """The topics that a flow wants: patterns that must match a whole name.

    Exclude wins over include. Internal topics of brokers and mirrors never match.
    Heartbeats, with or without prefixes, match if requested; otherwise the topic
    `heartbeats` matches only a pattern that spells it out. A schema registry's topic
    matches only if it is listed, unless its copy has another name.
    """

    include: tuple[str, ...]
    """Regular expressions; empty: no topic."""
    exclude: tuple[str, ...] = ()
    """Regular expressions; empty: no topic is left out."""
    separator: str = "."
    heartbeats: bool = False
    """Whether heartbeats match, whatever the patterns say."""
    aliases: tuple[str, ...] | None = None
    """Clusters whose heartbeats these are; see `is_heartbeats`."""
    schemas: bool = False
    """Whether the topic `_schemas` matches like any other one."""
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
        if self.heartbeats and is_heartbeats(name, self.separator, self.aliases):
            return True
        if name == HEARTBEATS and not any(HEARTBEATS in text for text in self.include):
            return False
        if name == SCHEMAS and self.holds_schemas_back:
            return False
        return _any_matches(self._patterns[0], name) and not self.excludes(name)

    def excludes(self, name: str) -> bool:
        """Whether an exclude pattern matches."""
        return _any_matches(self._patterns[1], name)

    @property
    def holds_schemas_back(self) -> bool:
        """Whether `_schemas` would match, but is not listed."""
        return (
            not (self.schemas or SCHEMAS in self.include)
            and _any_matches(self._patterns[0], SCHEMAS)
            and not self.excludes(SCHEMAS)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFilter:
    """Which groups a flow translates: patterns that must match a whole name."""

    include: tuple[str, ...]
    """Regular expressions; empty: no group."""
    exclude: tuple[str, ...] = ()
    """Regular expressions, which win over `include`; empty: no group is left out."""

    def matches(self, group: str) -> bool:
        return any(re.fullmatch(pattern, group) for pattern in self.include) and not (
            any(re.fullmatch(pattern, group) for pattern in self.exclude)
        )


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


def unmatched(patterns: Iterable[str], names: Collection[str]) -> tuple[str, ...]:
    """The patterns that match no name."""
    compiled = ((pattern, re.compile(pattern)) for pattern in patterns)
    return tuple(
        pattern
        for pattern, each in compiled
        if not any(each.fullmatch(name) for name in names)
    )


def nearest(pattern: str, names: Iterable[str]) -> str:
    """The name that was probably meant by a pattern that matches none; empty if no
    name is that much like it.
    """
    literal = re.sub(r"[.\\^$]*[*+?]?", "", pattern)
    alike = [n for n in names if abs(len(n) - len(pattern)) <= _FEW_LETTERS]
    close = difflib.get_close_matches(literal, alike, n=1, cutoff=0.7)
    return close[0] if close else ""


def _any_matches(patterns: Iterable[re.Pattern[str]], name: str) -> bool:
    return any(pattern.fullmatch(name) for pattern in patterns)
