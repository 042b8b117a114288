"""Whether a named pair is closed: nothing reads or writes both inside and outside.

Main function: `findings`. A group that reads both would lose one half when the pair
moves, and a transaction of one producer cannot write to two clusters. What two pairs
claim is found here as well, since patterns alone do not tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.clusters.admin import group_offsets, groups, transactions
from mirror.config import scopes
from mirror.pairs.journal import Kind
from mirror.policy.naming import is_internal
from mirror.policy.selection import GroupFilter
from mirror.recovery.stage import Finding, Level
from mirror.topics.topics import select

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from mirror.config.schema import FlowConfig
    from mirror.recovery.stage import Stage


def findings(stage: Stage, unseen: list[str]) -> Iterator[Finding]:
    """Look at the source; `unseen` gets what it does not tell. A pair without a name
    has everything, so it is closed.

    Raises:
        ClusterError: it does not answer, or refuses.
    """
    if stage.pair.scope is None:
        return
    source = stage.source
    # Whole: the stage has them with what belongs to the pair only.
    flows = {flow.name: flow for flow in stage.config.enabled_flows}
    whole = [flows[flow.name] for flow in (stage.flow, stage.reverse)]
    separators = {flow.separator for flow in whole}
    there = {
        name: topic
        for name, topic in source.topics().items()
        if not any(is_internal(name, each) for each in separators)
        and not stage.reverse.is_heartbeats(name)
    }
    inside = {
        name for name in there if scopes.has_topic(stage.pair, name, stage.reverse)
    }
    wanted = [
        GroupFilter(include=flow.groups, exclude=flow.groups_exclude) for flow in whole
    ]
    listed = [
        name
        for name in groups.list_groups(source)
        if any(each.matches(name) for each in wanted)
    ]
    pairs = stage.config.pairs_of(*stage.pair.members)
    names = [topic.topic for topic in select(source, whole[0]).topics]
    wrote = transactions.find_writers(source, there)
    unseen += (
        f"who writes to {name} in transactions: {why}"
        for name, why in sorted(wrote.unseen.items())
    )
    for reason in (
        *scopes.claimed_twice(pairs, topics=names, groups=listed),
        *_groups(stage, listed, there, inside),
        *_producers(stage, wrote.topics.items(), inside),
    ):
        yield Finding(
            level=Level.NOT_READY,
            subject=f"pair {stage.pair.name}",
            reason=reason,
            fix="let each pair have all that belongs together",
            refuses=(Kind.SWITCH,),
        )


def _groups(
    stage: Stage,
    listed: Iterable[str],
    there: Collection[str],
    inside: Collection[str],
) -> Iterator[str]:
    name = stage.pair.name
    read = group_offsets.fetch(stage.source, listed).groups
    for group, offsets in sorted(read.items()):
        topics = {topic for topic, _ in offsets if topic in there}
        ours, others = sorted(topics & set(inside)), sorted(topics - set(inside))
        if scopes.has_group(stage.pair, group):
            if others:
                yield (
                    f"group {group} of {name} also reads {others[0]}, which is not "
                    f"of it; {_STREAMS}"
                )
        elif ours:
            yield (
                f"group {group} is not of {name} and reads {ours[0]}, which is; add "
                "it to the pair's groups, or delete the offsets that it no longer needs"
            )


def _producers(
    stage: Stage, wrote: Iterable[tuple[str, frozenset[str]]], inside: Collection[str]
) -> Iterator[str]:
    own = tuple(f"mirror.{flow.name}." for flow in _into(stage))
    for transactional_id, topics in sorted(wrote):
        ours, others = sorted(topics & set(inside)), sorted(topics - set(inside))
        if ours and others and not transactional_id.startswith(own):
            yield (
                f"the producer {transactional_id} writes in transactions to {ours[0]} "
                f"of {stage.pair.name} and to {others[0]}, which is not of it; "
                f"{_STREAMS}"
            )


def _into(stage: Stage) -> list[FlowConfig]:
    """The flows that write to the source, or have: also those that rest now."""
    flows = stage.config.flows.values()
    return [flow for flow in flows if flow.target == stage.flow.source]


_STREAMS = (
    "add it to the pair's topics, as also the internal topics of a Streams application"
    " (-changelog, -repartition)"
)
