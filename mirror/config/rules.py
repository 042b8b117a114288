"""Checks that need the whole configuration: flows that would harm each other.

Main function: `problems`. It finds flows from a cluster to itself, topics that two
flows would mix up, records that would be doubled, and records or names that would
circulate endlessly. Pure: it asks no cluster, so two aliases of one cluster under
different host names are found only when the service connects.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from mirror.config import feeding, schema, scopes
from mirror.config.document import Path, dotted
from mirror.config.overlap import FlowPath, Ways, literal_topics
from mirror.config.values import near
from mirror.policy.choice import why_unfit
from mirror.policy.naming import SCHEMAS, why_illegal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from mirror.config.pair_settings import PairConfig
    from mirror.config.schema import FlowConfig, MirrorConfig


_ROUNDS = 4
"""A name that has not come back after these rounds never will."""


def problems(
    config: MirrorConfig,
    *,
    spelled: Mapping[Path, str] | None = None,
    complete: bool = True,
) -> list[str]:
    """Everything wrong with the flows as a whole.

    `spelled` has the flows' names as the user wrote them. Not `complete`: invalid flows
    are already left out, so a missing flow means nothing.
    """
    names = {
        name: (spelled or {}).get(("flows", name), dotted(("flows", name)))
        for name in config.flows
    }
    found = []
    if complete and not any(flow.enabled for flow in config.flows.values()):
        found.append("flows: none is enabled, so there is nothing to do")
    found += _audit(config, complete=complete)
    found += _onto_themselves(config, names)
    found += registry_problems(config, names)
    if complete:
        found += [*schema.login_problems(config, names), *_pairs_without_flows(config)]
    found += _same_offsets_in_pairs(config, names)
    found += _protected_in_pairs(config, names)
    found += _pairs_that_share(config)
    unruled = _rules_and_policies_apart(config, names)
    if unruled:  # the names of such flows' copies are unknown
        return found + unruled
    if complete:
        found += feeding.problems(config)
    flows = [
        flow
        for flow in config.flows.values()
        if flow.enabled and flow.source != flow.target
    ]
    found += _joined(flows, names) + _mixed_up(flows, names)
    ways = Ways(flows)
    alternating = feeding.alternating(config)
    doubled: dict[tuple[str, str], str] = {}
    circles: dict[frozenset[str], str] = {}
    for source in dict.fromkeys(flow.source for flow in flows):
        parallel: dict[tuple[str, str, str], list[FlowPath]] = {}
        for way in ways.starting_at(source):
            if way.target == source:
                members = frozenset(flow.name for flow in way.flows)
                if members not in circles and (text := _endless(way, ways)):
                    circles[members] = text
            elif (source, way.target) not in doubled and (
                text := _doubled(way, parallel, ways, alternating)
            ):
                doubled[source, way.target] = text
    return [*found, *doubled.values(), *circles.values()]


def _audit(config: MirrorConfig, *, complete: bool) -> list[str]:
    if config.service.audit is None:
        return []
    alias, topic = config.service.audit
    where = f'service.audit_topic: "{config.service.audit_topic}"'
    if not (alias and topic):
        return [f"{where} is not ALIAS/TOPIC, such as A/mirror-audit.internal"]
    if complete and alias not in config.clusters:
        hint = near(alias, config.clusters)
        return [f'{where}: there is no cluster "{alias}" in the configuration{hint}']
    wrong = why_illegal(topic)
    return [f"{where}: {wrong.replace('the target name ', '')}"] if wrong else []


def _onto_themselves(config: MirrorConfig, names: Mapping[str, str]) -> list[str]:
    found = []
    for name, flow in config.flows.items():
        source, target = (
            config.clusters.get(alias) for alias in (flow.source, flow.target)
        )
        if flow.source == flow.target:
            found.append(f"{names[name]}: source and target are the same cluster")
        elif source and target:
            common = {server.lower() for server in source.bootstrap_servers} & {
                server.lower() for server in target.bootstrap_servers
            }
            if common:
                found.append(
                    f"{names[name]}: {flow.source} and {flow.target} are the same "
                    f"cluster: both have {min(common)} in bootstrap_servers"
                )
    return found


def _pairs_without_flows(config: MirrorConfig) -> list[str]:
    found = []
    for pair in config.recovery.values():
        for name in (f"{pair.one}->{pair.other}", f"{pair.other}->{pair.one}"):
            flow, where = config.flows.get(name), dotted(("recovery", pair.name))
            if flow is None or not flow.enabled:
                found.append(
                    f"{where}: a pair needs a flow each way, and {name} is "
                    f"{'turned off' if flow else 'missing'}; add it under flows"
                )
            elif not flow.exactly_once:
                found.append(
                    f"{where}: without exactly_once a switch cannot tell what was "
                    f"copied; turn it on for {name}"
                )
            elif pair.leave_out_away and not flow.provenance:
                found.append(
                    f"{where}.leave_out_away: without provenance nothing tells where a "
                    f"record was written; turn it on for {name}"
                )
    return found


def _same_offsets_in_pairs(config: MirrorConfig, names: Mapping[str, str]) -> list[str]:
    """A pair's clusters are written by turns, so each offset is given once."""
    found = []
    for name, flow in config.flows.items():
        ends = flow.source, flow.target
        if flow.offsets != "same":
            continue
        if fed_by := config.pair_feeding(*ends):
            found.append(
                f"{names[name]}.offsets: same is not possible from a pair "
                f"({fed_by.name}): two flows write the copies; use offsets: translated"
            )
        back = config.flows.get(f"{flow.target}->{flow.source}")
        found += [
            f"{names[name]}.offsets: same is not possible in the pair {pair.name}: "
            f"{why}, or use offsets: translated"
            for pair in config.pairs_of(*ends)
            if (why := _why_not_same(flow, back, pair))
        ]
    return found


def _why_not_same(flow: FlowConfig, back: FlowConfig | None, pair: PairConfig) -> str:
    if pair.both_ways:
        return "clusters written at once give offsets twice; turn both_ways off"
    if flow.replication_policy.names_source:
        return "both clusters write one topic by turns; set policy: identity"
    if not flow.provenance:
        return "only the header says which records came back; turn provenance on"
    if back is None:
        return ""  # which is another problem
    if (flow.offsets, flow.offsets_exclude) != (back.offsets, back.offsets_exclude):
        return f"{back.name} has other offsets; set it, and offsets_exclude, in both"
    if flow.fill != back.fill:
        return f"{back.name} has another fill; set it in both"
    return ""


def _protected_in_pairs(config: MirrorConfig, names: Mapping[str, str]) -> list[str]:
    """What is a copy now is written by applications after a switch."""
    return [
        f"{names[name]}.protect: acl is not possible in the pair {pairs[0].name}: a "
        "switch lets applications write to the copies; set protect: none, and fence: "
        "acl in the pair, which keeps them from the cluster that is left"
        for name, flow in config.flows.items()
        if flow.protect == "acl"
        and (pairs := config.pairs_of(flow.source, flow.target))
    ]


def _pairs_that_share(config: MirrorConfig) -> list[str]:
    """Pairs of the same clusters must say what belongs to which of them."""
    found = []
    for one, other in combinations(config.recovery.values(), 2):
        if set(one.members) != set(other.members):
            continue
        both = f"recovery: {one.name} and {other.name}"
        if whole := [pair.name for pair in (one, other) if pair.scope is None]:
            found.append(
                f"{both} share their clusters, and {whole[0]} has all of their topics; "
                f'give it a name, as in "{whole[0]}/orders", or remove it'
            )
        elif shared := scopes.overlap(one, other):
            found.append(f"{both} both have {shared}; each may belong to one only")
    return found


def _rules_and_policies_apart(
    config: MirrorConfig, names: Mapping[str, str]
) -> list[str]:
    return [
        f"{names[name]}: {reason}"
        for name, flow in config.flows.items()
        if (reason := why_unfit(flow.policy, flow.rename))
    ]


def _joined(flows: Sequence[FlowConfig], names: Mapping[str, str]) -> list[str]:
    """Two topics of one flow with one copy, as far as topics are listed by name."""
    found = []
    for flow in flows:
        topics_of: dict[str, list[str]] = {}
        for topic, copy in _copies(flow):
            topics_of.setdefault(copy, []).append(topic)
        found += [
            f"{names[flow.name]}: {' and '.join(topics)} of {flow.source} would both "
            f"be copied to {copy} on {flow.target}; leave one out, or rename it"
            for copy, topics in topics_of.items()
            if len(topics) > 1
        ]
    return found


def _mixed_up(flows: Sequence[FlowConfig], names: Mapping[str, str]) -> list[str]:
    """Different topics with one copy, of flows that list topics by name."""
    found = []
    for one, other in combinations(flows, 2):
        # A user who chooses the copies' names means to merge them.
        merge = not (
            one.replication_policy.names_source or other.replication_policy.names_source
        )
        if one.target != other.target or merge:
            continue
        ours, theirs = ({c: t for t, c in _copies(flow)} for flow in (one, other))
        if common := ours.keys() & theirs.keys():
            copy = min(common)
            found.append(
                f"{names[one.name]} and {names[other.name]}: {ours[copy]} of "
                f"{one.source} and {theirs[copy]} of {other.source} would both "
                f"be copied to {copy} on {one.target}; give one flow another policy or "
                "separator"
            )
    return found


def _copies(flow: FlowConfig) -> Iterator[tuple[str, str]]:
    """The topics that a flow lists by name, each with its copy's name."""
    wanted, policy = flow.topic_filter, flow.replication_policy
    for topic in dict.fromkeys(literal_topics(flow)):
        if wanted.matches(topic) and not policy.is_cycle(topic, flow.target):
            yield topic, policy.target_topic(topic)


def _doubled(
    way: FlowPath,
    parallel: dict[tuple[str, str, str], list[FlowPath]],
    ways: Ways,
    alternating: Collection[frozenset[str]],
) -> str | None:
    """Two ways to one cluster that end in the same name would copy records twice,
    unless one always rests.
    """
    for topic, copy in way.names.items():
        known = parallel.setdefault((way.target, topic, copy), [])
        for other in known:
            # A shared part would only repeat what its end already says.
            if not (way.between & other.between or _alternate(way, other, alternating)):
                what = topic if ways.is_listed(topic) else "the same topics"
                return (
                    f"flows: {other} and {way} bring {what} of {way.source} to "
                    f"{way.target} under one name, so every record would be doubled; "
                    "remove one way, or let them copy different topics"
                )
        known.append(way)
    return None


def _alternate(
    one: FlowPath, other: FlowPath, alternating: Collection[frozenset[str]]
) -> bool:
    """Whether of a flow of the one way and a flow of the other one always one rests."""
    return any(
        frozenset((ours.name, theirs.name)) in alternating
        for ours in one.flows
        for theirs in other.flows
    )


def _endless(circle: FlowPath, ways: Ways) -> str | None:
    """A circle in which neither names nor headers stop a record, or names grow."""
    unstamped = [flow.name for flow in circle.flows if not flow.provenance]
    for topic, first in circle.names.items():
        called = [topic, first]
        while called[-1] not in called[:-1] and len(called) <= _ROUNDS:
            name = ways.again(circle, called[-1])
            if name is None:
                break
            called.append(name)
        else:
            if called[-1] not in called[:-1]:
                what = (
                    f"topic {topic}" if ways.is_listed(topic) else f'a topic "{topic}"'
                )
                return (
                    f"flows: {circle} is a circle in which names grow: {what} would "
                    f"come back as {called[1]}, then as {called[2]}, and so on; give "
                    "its flows one policy and separator, or let them copy different "
                    "topics"
                )
            if unstamped:
                return (
                    f"flows: {circle} is a circle, and provenance is off on "
                    f"{' and '.join(unstamped)}: records would circulate endlessly; "
                    "turn provenance on"
                )
    return None


# ---- checks of flows that copy schemas, over the whole configuration ----
#
# Main function: `problems`. It finds flows without a registry on both sides, into
# the registry that they read from, circles in which contexts grow, and translated
# ids where something would bring records back. Pure: two addresses of one registry
# are found only by `mirror check`.


def registry_problems(config: MirrorConfig, names: Mapping[str, str]) -> list[str]:
    """`names`: how the user wrote each flow's name."""
    copying = [
        flow
        for flow in config.flows.values()
        if flow.enabled and flow.schemas != "off" and flow.source != flow.target
    ]
    found = [
        f"{names[flow.name]}.schemas_ids: {text}"
        for flow in config.flows.values()
        if flow.enabled and flow.schemas_ids == "translate"
        for text in _translating(config, flow)
    ]
    for flow in copying:
        where = names[flow.name]
        found += [f"{where}: {text}" for text in _of_flow(config, flow)]
        if flow.schemas_context and (circle := _back(flow, copying)):
            way = ", ".join(each.name for each in (flow, *circle))
            found.append(
                f"{where}.schemas_context: {way} copy schemas in a circle, and each "
                f"round would put them below {flow.schemas_context} once more; remove "
                "it, or set schemas to off in one of them"
            )
    return found


def _of_flow(config: MirrorConfig, flow: FlowConfig) -> Iterator[str]:
    ends = [config.clusters.get(alias) for alias in (flow.source, flow.target)]
    without = [each.alias for each in ends if each and each.schema_registry is None]
    if without:
        yield (
            f"schemas: {flow.schemas} needs a registry on both clusters, and "
            f"{' and '.join(without)} has none; add "
            f"clusters.{without[0]}.schema_registry"
        )
    urls = [
        {url.lower() for url in each.schema_registry.url}
        for each in ends
        if each and each.schema_registry
    ]
    if len(urls) > 1 and (common := urls[0] & urls[1]):
        yield (
            f"schemas: {flow.source} and {flow.target} have one registry, "
            f"{min(common)}, so there is nothing to copy; set schemas to off"
        )
    for each in config.flows.values():
        if each.enabled and each.target == flow.target and SCHEMAS in each.topics:
            what = "topics" if each is flow else f"topics of {each.name}"
            yield (
                f"schemas: {flow.schemas} writes to the registry of {flow.target}, and "
                f"{what} lists {SCHEMAS}, where a registry keeps the same; use one of "
                "them"
            )


def _translating(config: MirrorConfig, flow: FlowConfig) -> Iterator[str]:
    """Why a flow's records cannot get other ids."""
    keep = "or set schemas_ids: keep"
    if flow.schemas != "require":
        yield (
            f"translate needs schemas: require, and it is {flow.schemas}: a record "
            f"could be copied before its new id is known; set require, {keep}"
        )
    elif not flow.schemas_topics:
        yield (
            "translate needs schemas_topics, which is empty, so no record would get "
            f"its new id; list topics, {keep}"
        )
    if not flow.provenance:
        yield (
            "translate changes records, and provenance: false copies them byte for "
            f"byte; turn provenance on, {keep}"
        )
    back, why = f"{flow.target}->{flow.source}", ""
    pairs = config.pairs_of(flow.source, flow.target)
    feeding = config.pair_feeding(flow.source, flow.target)
    if pairs or feeding:
        pair = pairs[0] if pairs else feeding
        why = f"the pair {pair.name if pair else ''} of the section recovery"
    elif (other := config.flows.get(back)) and other.enabled:
        why = f"the flow {back}"
    if why:
        yield (
            f"translate does not go with {why}: records that come home would need "
            f"their old ids back, which mirror cannot give them yet; remove it, {keep}"
        )


def _back(flow: FlowConfig, flows: Sequence[FlowConfig]) -> tuple[FlowConfig, ...]:
    """The flows that lead from a flow's target back to its source; none: they do
    not.
    """
    ways: list[tuple[FlowConfig, ...]] = [
        (e,) for e in flows if e.source == flow.target
    ]
    seen = {flow.target}
    while ways:
        way = ways.pop(0)
        end = way[-1].target
        if end == flow.source:
            return way
        if end not in seen:
            seen.add(end)
            ways += [(*way, each) for each in flows if each.source == end]
    return ()
