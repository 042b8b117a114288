"""The ways that topics take through several flows, found by trying names.

Main type: `Ways`, all ways from one cluster to others, each with the names that get
through and their names at its end. The names to try come from the flows' own filters:
those listed, and those that patterns could match. A pattern that is too complex to make
up names for counts as matching everything with the same beginning: rather one way too
many than one too few. No cluster is asked.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
import functools
from itertools import islice, product
import re
from typing import TYPE_CHECKING

from mirror.policy.naming import LEGAL_NAME, is_internal, why_illegal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from mirror.config.schema import FlowConfig

MOST_HOPS = 4
"""Longer ways are not followed: a mesh of ten clusters has millions."""
_MOST_NAMES = 2000
_FEWEST_NAMES = 8
_MOST_STEPS = 400_000
"""Limit on names times flows, which takes about a second."""
_MOST_PER_PATTERN = 40
_MOST_WORDS = 12
_ANYTHING = "topic"
"""Stands for what a pattern leaves open."""
_TEXT = re.compile(r"(?:(?:(?<!\\)[a-zA-Z0-9_-]|\\[.\-])(?![*?{]))+")
_COUNT = r"[*+?]|\{\d+(?:,\d*)?\}"
_GROUP = re.compile(rf"\((?:\?:|\?P<\w+>)?([^()]*)\)({_COUNT})?")
_OPEN = re.compile(rf"(?:\\[wdWDS]|(?<!\\)\.|\[\^?\]?[^\]]*\])(?:{_COUNT})?\??")


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowPath:
    """Flows in a row, and the names that topics have at their end."""

    flows: tuple[FlowConfig, ...]
    names: Mapping[str, str]
    """By each topic of the first cluster, its name at the end; without topics that
    never get there."""

    @property
    def source(self) -> str:
        return self.flows[0].source

    @property
    def target(self) -> str:
        return self.flows[-1].target

    @property
    def between(self) -> set[str]:
        """The clusters on the way."""
        return {flow.target for flow in self.flows[:-1]}

    def __str__(self) -> str:
        return " -> ".join([self.source, *(flow.target for flow in self.flows)])


class Ways:
    """The ways through a set of flows."""

    def __init__(self, flows: Sequence[FlowConfig]) -> None:
        self._from: dict[str, list[FlowConfig]] = {}
        for flow in flows:
            self._from.setdefault(flow.source, []).append(flow)
        self._steps = {flow.name: _Step(flow) for flow in flows}
        self._listed = {
            name for flow in flows for name in literal_topics(flow, partly=True)
        }
        most = _MOST_STEPS // max(1, _count_ways(self._from))
        self._names = tuple(
            islice(_names_to_try(flows), min(max(most, _FEWEST_NAMES), _MOST_NAMES))
        )

    def is_listed(self, topic: str) -> bool:
        """Whether the user wrote that name, so that a message may use it."""
        return topic in self._listed

    def again(self, circle: FlowPath, name: str) -> str | None:
        """The name of `name`'s copy after one more round; None if a flow stops it."""
        current: str | None = name
        for flow in circle.flows:
            if current is not None:
                current = self._steps[flow.name].copy_of(current)
        return current

    def starting_at(self, source: str) -> Iterator[FlowPath]:
        """Ways to clusters not yet visited, or back to `source`; short ones first."""
        started = deque(
            [FlowPath(flows=(), names={name: name for name in self._names})]
        )
        while started:
            way = started.popleft()
            here = way.target if way.flows else source
            visited = {source, *(flow.target for flow in way.flows)}
            for flow in self._from.get(here, ()):
                if flow.target in visited and flow.target != source:
                    continue
                step = self._steps[flow.name]
                names = {
                    topic: copy
                    for topic, name in way.names.items()
                    if (copy := step.copy_of(name)) is not None
                }
                if not names:
                    continue
                longer = FlowPath(flows=(*way.flows, flow), names=names)
                yield longer
                if flow.target != source and len(longer.flows) < MOST_HOPS:
                    started.append(longer)


class _Step:
    """One flow, as names see it."""

    def __init__(self, flow: FlowConfig) -> None:
        self._flow = flow
        self._filter = flow.topic_filter
        self._policy = flow.replication_policy
        self._excluded = flow.topic_filter.excludes
        self._starts = tuple(
            _start(pattern) for pattern in flow.topics if not _meant_by(pattern, ())
        )
        self.copy_of = functools.lru_cache(maxsize=None)(self._copy_of)

    def _copy_of(self, name: str) -> str | None:
        if not self._wants(name) or self._policy.is_cycle(name, self._flow.target):
            return None
        copy = self._policy.target_topic(name)
        return None if why_illegal(copy) else copy

    def _wants(self, name: str) -> bool:
        if self._filter.matches(name):
            return True
        return (
            name.startswith(self._starts)
            and not is_internal(name, self._flow.separator)
            and not self._excluded(name)
        )


def literal_topics(flow: FlowConfig, *, partly: bool = False) -> tuple[str, ...]:
    """The topics' names, if the flow lists names and nothing else; with `partly`, those
    that it lists beside patterns.
    """
    listed = tuple(filter(None, map(_as_name, flow.topics)))
    return listed if partly or len(listed) == len(flow.topics) else ()


def _count_ways(flows_from: Mapping[str, Sequence[FlowConfig]]) -> int:
    count = 0
    started: deque[tuple[str, ...]] = deque((source,) for source in flows_from)
    while started:
        way = started.popleft()
        for flow in flows_from.get(way[-1], ()):
            count += 1
            if flow.target not in way and len(way) < MOST_HOPS:
                started.append((*way, flow.target))
    return count


def _names_to_try(flows: Sequence[FlowConfig]) -> dict[str, None]:
    """Names that flows copy, and the names that these had on earlier clusters."""
    # Any one flow of a policy will do: no policy needs its alias to read a name back.
    policies = {
        (flow.policy, flow.separator, flow.rename): flow.replication_policy
        for flow in flows
    }.values()
    ruled = [pattern for policy in policies for pattern in policy.patterns]
    patterns = list(dict.fromkeys([p for f in flows for p in f.topics] + ruled))
    words = dict.fromkeys(
        [
            _ANYTHING,
            *(_plain(text) for each in patterns for text in _TEXT.findall(each)),
        ]
    )
    few = list(words)[:_MOST_WORDS]
    # Names that the user wrote come first: messages use them.
    names = dict.fromkeys(
        name for flow in flows for name in literal_topics(flow, partly=True)
    )
    for pattern in patterns:
        names |= dict.fromkeys(
            _meant_by(pattern, tuple(few)) or (_start(pattern) + _ANYTHING,)
        )
    for _ in range(MOST_HOPS):
        before = {
            topic: None
            for policy in policies
            for name in names
            if (topic := policy.upstream_topic(name)) and topic not in names
        }
        if not before or len(names) > _MOST_NAMES:
            break
        names |= before
    return names


@functools.lru_cache(maxsize=1024)
def _meant_by(pattern: str, words: tuple[str, ...]) -> tuple[str, ...]:
    """Some names that the pattern matches; none if it is too complex."""
    if name := _as_name(pattern):
        return (name,)
    for fillings in (words or (_ANYTHING,), ("", ".", "-", "_", "0", "a")):
        names = dict.fromkeys(
            name
            for name in islice(_filled(pattern, fillings), 20 * _MOST_PER_PATTERN)
            if LEGAL_NAME.fullmatch(name) and re.fullmatch(pattern, name)
        )
        if names:
            return tuple(islice(names, _MOST_PER_PATTERN))
    return ()


def _filled(pattern: str, words: Iterable[str]) -> Iterator[str]:
    """The pattern with one text in place of each choice that it leaves open."""
    group = _GROUP.search(pattern)
    if group is not None:
        choices = group[1].split("|")
        if group[2] and group[2][0] in "*?":
            choices.append("")
        for choice in choices:
            rest = pattern[: group.start()] + choice + pattern[group.end() :]
            yield from _filled(rest, words)
        return
    for choice in pattern.split("|"):
        texts = _OPEN.split(choice)
        for filling in product(words, repeat=len(texts) - 1):
            yield "".join(
                _plain(text) + word
                for text, word in zip(texts, (*filling, ""), strict=True)
            )


def _as_name(pattern: str) -> str | None:
    """The name, if the pattern is one; its dots mean dots, whatever else they match."""
    name = re.sub(r"\\([.\-])", r"\1", pattern)
    return name if LEGAL_NAME.fullmatch(name) else None


def _start(pattern: str) -> str:
    """The text that every name begins with that the pattern matches."""
    text = None if "|" in pattern else _TEXT.match(pattern)
    return _plain(text.group()) if text else ""


def _plain(text: str) -> str:
    return re.sub(r"\\([.\-])|[*+?^$]", r"\1", text)
