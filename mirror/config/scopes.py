"""Which topics and groups belong to which pair, where several share two clusters.

Pairs with names (`A<->B/orders`) move applications one by one. Main functions:
`within`, a flow with what belongs to one pair, and `without`, a flow that leaves some
pairs alone; both are ordinary flows, so whatever selects topics and groups by a flow
follows. `claimed_twice` and `overlap` find what several claim. Pure.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.config.pair_settings import PairConfig
    from mirror.config.schema import FlowConfig

_FLAGS = re.compile(r"\(\?([aimsux]+)\)")
"""Of a whole pattern; they stand at its beginning."""


def within(flow: FlowConfig, pair: PairConfig) -> FlowConfig:
    """The flow with the topics and groups of a pair only; a pair without a name has all
    of them.
    """
    if pair.scope is None:
        return flow
    return flow.model_copy(
        update={
            "topics_exclude": (*flow.topics_exclude, _all_but(pair.topics)),
            "groups_exclude": (*flow.groups_exclude, _all_but(pair.groups)),
            "heartbeats_replication": False,  # they belong to no application
        }
    )


def without(flow: FlowConfig, pairs: Iterable[PairConfig]) -> FlowConfig:
    """The flow without the topics and groups of these pairs."""
    left = tuple(pairs)
    if not left:
        return flow
    return flow.model_copy(
        update={
            "topics_exclude": (
                *flow.topics_exclude,
                *(each for pair in left for each in pair.topics),
            ),
            "groups_exclude": (
                *flow.groups_exclude,
                *(each for pair in left for each in pair.groups),
            ),
        }
    )


def has_topic(pair: PairConfig, name: str, into: FlowConfig) -> bool:
    """Whether a topic of a cluster belongs to a pair, by its own name or as the copy of
    one that does; `into`: the pair's flow into that cluster.
    """
    if pair.scope is None:
        return True
    names = (name, into.replication_policy.upstream_topic(name))
    return any(_matches(pair.topics, each) for each in names if each)


def has_group(pair: PairConfig, name: str) -> bool:
    return pair.scope is None or _matches(pair.groups, name)


def left_alone(whole: FlowConfig, now: FlowConfig, copy: str) -> bool:
    """Whether a topic of the target is the copy of one that the whole flow has and
    `now`, the same flow with what it copies now, has not.
    """
    topic = whole.replication_policy.upstream_topic(copy)
    return (
        topic is not None
        and whole.topic_filter.matches(topic)
        and not now.topic_filter.matches(topic)
    )


def claimed_twice(
    pairs: Iterable[PairConfig], *, topics: Iterable[str], groups: Iterable[str]
) -> tuple[str, ...]:
    """The topics and groups that match several of these pairs, in words."""
    named = [pair for pair in pairs if pair.scope is not None]
    found = []
    for what, names in (("topic", topics), ("group", groups)):
        for name in sorted(set(names)):
            owners = [p.name for p in named if _matches(getattr(p, f"{what}s"), name)]
            if len(owners) > 1:
                found.append(f"{what} {name} belongs to {' and '.join(owners)}")
    return tuple(found)


def overlap(one: PairConfig, other: PairConfig) -> str:
    """What both pairs claim as far as patterns tell, in words; empty if nothing."""
    for what in ("topics", "groups"):
        ours, theirs = getattr(one, what), getattr(other, what)
        for patterns, others in ((ours, theirs), (theirs, ours)):
            for each in patterns:
                if each in others or _matches(others, each.replace("\\", "")):
                    return f"{each} in {what}"
    return ""


def _matches(patterns: Iterable[str], name: str) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in patterns)


def _all_but(patterns: Iterable[str]) -> str:
    """A pattern of all names that none of these match."""
    return rf"(?!{_either(patterns)}\Z)(?s:.*)"


def _either(patterns: Iterable[str]) -> str:
    """A pattern of what one of these matches; without any, of nothing."""
    return f"(?:{'|'.join(map(_grouped, patterns)) or '(?!)'})"


def _grouped(pattern: str) -> str:
    """The same pattern, as a part of another one."""
    flags = _FLAGS.match(pattern)
    if flags is None:
        return f"(?:{pattern})"
    return f"(?{flags[1]}:{pattern[flags.end() :]})"
