"""Which flows a pair feeds, and whether one of them can go on for the other.

Main functions: `alternating`, the flows of which always one rests, and `problems`. The
active cluster of a pair copies to the clusters under `feeds`, and the flow out of the
other one rests; after a switch they change places. So both must make one copy of each
topic, and the pair's own flows must say which records came. Pure.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from mirror.config import values
from mirror.config.document import dotted
from mirror.config.overlap import literal_topics

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mirror.config.pair_settings import PairConfig
    from mirror.config.schema import FlowConfig, MirrorConfig


def alternating(config: MirrorConfig) -> frozenset[frozenset[str]]:
    """The names of each two flows of which only one copies at a time."""
    return frozenset(
        frozenset(names)
        for pair in config.recovery.values()
        for names in zip(*(flows_from(pair, m) for m in pair.members), strict=True)
    )


def flows_from(pair: PairConfig, member: str) -> list[str]:
    """The names of the flows by which a cluster of the pair feeds others."""
    return [f"{member}->{alias}" for alias in pair.feeds]


def resting(pairs: Iterable[PairConfig], active: Mapping[str, str]) -> frozenset[str]:
    """The names of the flows that rest; `active`: the active cluster by pair."""
    return frozenset(
        name
        for pair in pairs
        for name in flows_from(pair, pair.other_than(active[pair.name]))
    )


def copying(config: MirrorConfig, rests: frozenset[str], own: str) -> MirrorConfig:
    """The configuration as the flow `own` sees it: without others that rest, which
    write nothing now.
    """
    if not rests - {own}:
        return config
    flows = (e for e in config.enabled_flows if e.name == own or e.name not in rests)
    return config.model_copy(update={"everywhere": tuple(flows)})


def problems(config: MirrorConfig) -> list[str]:
    """What keeps a flow from going on for the other one."""
    found: list[str] = []
    for pair in config.recovery.values():
        for alias in pair.feeds:
            found += _of_cluster(config, pair, alias)
    for one, other in combinations(config.recovery.values(), 2):
        shared = {
            f"{source}->{target}"
            for source in one.members
            for target in one.feeds
            if other.is_fed_by(source, target)
        }
        if shared:
            found.append(
                f"recovery: {one.name} and {other.name} both decide when {min(shared)} "
                "rests; leave its target out of the feeds of one"
            )
    return found


def _of_cluster(config: MirrorConfig, pair: PairConfig, alias: str) -> Iterator[str]:
    where = f"{dotted(('recovery', pair.name))}.feeds"
    if alias not in config.clusters:
        near = values.near(alias, config.clusters)
        yield f'{where}: there is no cluster "{alias}"{near}'
        return
    flows = {member: config.flows.get(f"{member}->{alias}") for member in pair.members}
    for member, flow in flows.items():
        name = f"{member}->{alias}"
        if flow is None or not flow.enabled:
            yield (
                f"{where}: {name} is {'turned off' if flow else 'missing'}; the pair "
                f"feeds {alias} from either of its clusters, so add it under flows"
            )
        elif config.pairs_of(member, alias):
            yield (
                f"{where}: {name} belongs to the pair of {member} and {alias}, which "
                f"decides when it copies; leave {alias} out"
            )
        elif wrong := _wrong_setting(flow):
            yield f"{where}: {name} cannot go on for the other flow {wrong}"
    one, other = (flows[member] for member in pair.members)
    if one is not None and other is not None:
        yield from _named_apart(config, pair, where, one, other)


def _wrong_setting(flow: FlowConfig) -> str:
    if not flow.exactly_once:
        return "without exactly_once: nothing says what was copied; turn it on"
    if not flow.provenance:
        return "without provenance: records would come again; turn it on"
    return ""


def _named_apart(
    config: MirrorConfig,
    pair: PairConfig,
    where: str,
    one: FlowConfig,
    other: FlowConfig,
) -> Iterator[str]:
    """Flows whose copies would change their names with a switch."""
    names = (f"{pair.one}->{pair.other}", f"{pair.other}->{pair.one}")
    own = [flow for name in names if (flow := config.flows.get(name))]
    for flow in (*own, one, other):
        if flow.replication_policy.names_source:
            yield (
                f"{where}: with the policy {flow.policy} of {flow.name} the copies on "
                f"{one.target} would have other names after a switch; use identity or "
                "rename"
            )
            return
    for there in own:
        direct, onward = (one, other) if there.source == one.source else (other, one)
        for topic in literal_topics(direct, partly=True):
            copy = there.replication_policy.target_topic(topic)
            if not (
                direct.topic_filter.matches(topic)
                and there.topic_filter.matches(topic)
                and onward.topic_filter.matches(copy)
            ):
                continue
            names_there = direct.replication_policy.target_topic(topic)
            if (then := onward.replication_policy.target_topic(copy)) != names_there:
                yield (
                    f"{where}: {topic} of {direct.source} is {names_there} on "
                    f"{direct.target}, and would be {then} after a switch; give "
                    f"{direct.name} and {onward.name} the same names"
                )
