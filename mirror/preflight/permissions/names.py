"""The names that a flow's rights cover: topics, copies, heartbeats, transactions.

Functions from flows to extents; all pure. Internal topics are named by the modules that
own them. Exclude filters are ignored: ACLs cannot express them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.config.pair_settings import pair_name
from mirror.metadata import acl_ownership
from mirror.policy.naming import HEARTBEATS
from mirror.preflight.permissions.extent import (
    ALL,
    LITERAL,
    Extent,
    beginning,
    extents,
    named,
    without_covered,
)
from mirror.recovery import journal
from mirror.relay import target

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mirror.config.schema import FlowConfig, MirrorConfig

CLUSTER = "kafka-cluster"
"""The only name of the only resource of its kind."""


def cluster(_flow: FlowConfig, _config: MirrorConfig) -> tuple[Extent, ...]:
    """The cluster as a whole."""
    return named(CLUSTER)


def groups(flow: FlowConfig, _config: MirrorConfig) -> tuple[Extent, ...]:
    """The groups whose positions a flow mirrors, named alike on both sides."""
    return extents(flow.groups)


def copied(flow: FlowConfig, config: MirrorConfig) -> tuple[Extent, ...]:
    """The source's topics that a flow copies."""
    heartbeats = _heartbeats(flow, config.enabled_flows)
    return without_covered([*extents(flow.topics), *heartbeats])


def copies(flow: FlowConfig, config: MirrorConfig) -> tuple[Extent, ...]:
    """The names of their copies on the target."""
    policy = flow.replication_policy
    found = [
        Extent(name=policy.target_topic(each.name))
        for each in _heartbeats(flow, config.enabled_flows)
    ]
    for each in extents(flow.topics):
        found += _copies_of(each, flow)
    return without_covered(found)


def heartbeats_on(alias: str, flows: Sequence[FlowConfig]) -> tuple[Extent, ...]:
    """The cluster's own topic of heartbeats, and the copies that flows bring there,
    over any number of hops.
    """
    return named(*sorted(_known_heartbeats(flows).get(alias, {HEARTBEATS})))


def transactional_ids(flow: FlowConfig) -> str:
    """The prefix of all transactional ids of a flow, for every slot."""
    first = target.transactional_ids(flow.name, 0)[0]
    return first.removesuffix("0.0")


def acl_topics(_flow: FlowConfig, _config: MirrorConfig) -> tuple[Extent, ...]:
    """The topics that say which ACLs of a cluster are mirror's, for every source."""
    return (beginning(acl_ownership.topic_name("").partition(".")[0] + "."),)


CALLED_ACL_TOPICS = "`mirror-acls.` as a prefix"


def is_paired(flow: FlowConfig, config: MirrorConfig) -> bool:
    """Whether the flow is one of the two of a pair."""
    return bool(config.pairs_of(flow.source, flow.target))


def is_fenced(flow: FlowConfig, config: MirrorConfig) -> bool:
    """Whether switches of one of the flow's pairs keep producers out by ACLs."""
    pairs = config.pairs_of(flow.source, flow.target)
    return any(pair.fence == "acl" for pair in pairs)


def pairs(flow: FlowConfig, _config: MirrorConfig) -> tuple[Extent, ...]:
    """The transactional id under which operators of the flow's pair write."""
    return named(journal.transactional_id(pair_name(flow.source, flow.target)))


def _copies_of(each: Extent, flow: FlowConfig) -> list[Extent]:
    policy = flow.replication_policy
    if each.pattern == LITERAL and each != ALL:
        return [Extent(name=policy.target_topic(each.name))]
    return [
        Extent(name=names.start) if names.whole else beginning(names.start)
        for names in policy.target_names("" if each == ALL else each.name)
    ]


def _heartbeats(flow: FlowConfig, flows: Sequence[FlowConfig]) -> tuple[Extent, ...]:
    """The source's heartbeats that a flow copies, whatever its patterns say."""
    if not flow.heartbeats_replication:
        return ()
    policy = flow.replication_policy
    return tuple(
        each
        for each in heartbeats_on(flow.source, flows)
        if not policy.is_cycle(each.name, flow.target)
    )


def _known_heartbeats(flows: Iterable[FlowConfig]) -> dict[str, set[str]]:
    """By cluster, the heartbeat topics that will exist."""
    flows = list(flows)
    known = {alias: {HEARTBEATS} for f in flows for alias in (f.source, f.target)}
    # One round per cluster: no path without a cycle is longer.
    for _ in range(len(known)):
        for flow in flows:
            policy, wants = flow.replication_policy, flow.topic_filter
            known[flow.target] |= {
                policy.target_topic(name)
                for name in known[flow.source]
                if wants.matches(name) and not policy.is_cycle(name, flow.target)
            }
    return known
