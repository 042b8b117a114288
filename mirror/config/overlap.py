"""Whether a topic could pass every one of several flows' filters.

Main function: `could_pass`, given `Hop`s: a flow, and what earlier flows have put
before the topic's name. Literal topics are tried out. Patterns can only be told
apart by how they begin, so the answer errs towards yes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
import re
from typing import TYPE_CHECKING

from mirror.policy import LEGAL_NAME, TopicFilter, make_policy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.config.schema import FlowConfig

_LITERAL_START = re.compile(r"((?:[a-zA-Z0-9_-]|\\[.\-])(?![*?{]))*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """A flow on a topic's way, and the prefix that the topic has when it gets there."""

    prefix: str
    flow: FlowConfig

    @property
    def prefix_behind(self) -> str:
        """The prefix with which the topic leaves the flow."""
        if self.flow.policy == "identity":
            return self.prefix
        return f"{self.flow.source}{self.flow.separator}{self.prefix}"

    def passes(self, topic: str) -> bool:
        """Whether the flow copies a topic that began its way as `topic`."""
        flow, name = self.flow, self.prefix + topic
        policy = make_policy(
            flow.policy, source_alias=flow.source, separator=flow.separator
        )
        wanted = TopicFilter(
            include=flow.topics, exclude=flow.topics_exclude, separator=flow.separator
        )
        return wanted.matches(name) and not policy.is_cycle(name, flow.target)


def could_pass(hops: Sequence[Hop]) -> str | None:
    """A topic that passes all hops, "" if there may well be one; None if none can."""
    for hop in hops:
        names = literal_topics(hop.flow)
        if names is not None:
            return next(
                (
                    topic
                    for name in names
                    if name.startswith(hop.prefix)
                    and (topic := name.removeprefix(hop.prefix))
                    and all(each.passes(topic) for each in hops)
                ),
                None,
            )
    apart = any(
        not _starts_agree(one, other)
        for one, other in combinations(hops, 2)
        if one.prefix == other.prefix
    )
    return None if apart or not all(hop.flow.topics for hop in hops) else ""


def literal_topics(flow: FlowConfig) -> tuple[str, ...] | None:
    """The topics' names, if the flow lists names; None if it has a real pattern."""
    names = tuple(re.sub(r"\\([.\-])", r"\1", pattern) for pattern in flow.topics)
    return names if all(LEGAL_NAME.fullmatch(name) for name in names) else None


def _starts_agree(one: Hop, other: Hop) -> bool:
    return any(
        mine.startswith(theirs) or theirs.startswith(mine)
        for mine in map(_literal_start, one.flow.topics)
        for theirs in map(_literal_start, other.flow.topics)
    )


def _literal_start(pattern: str) -> str:
    """How every name that the pattern matches begins."""
    if "|" in pattern:
        return ""
    match = _LITERAL_START.match(pattern)
    return match.group().replace("\\", "") if match else ""
