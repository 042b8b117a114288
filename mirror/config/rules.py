"""What only the whole configuration can tell: flows that would harm each other.

Main function: `problems`. It finds flows onto themselves, topics that two flows
would mix up, records that would be doubled and records that would go round for
ever. Pure: no cluster is asked, so two aliases of one cluster under different host
names are found only when the service connects.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from mirror.config.document import Path, dotted
from mirror.config.overlap import Hop, could_pass, literal_topics

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mirror.config.schema import FlowConfig, MirrorConfig

_MOST_HOPS = 4
"""Longer ways are not followed: a mesh of ten clusters has millions of them."""


def problems(
    config: MirrorConfig,
    *,
    spelled: Mapping[Path, str] | None = None,
    complete: bool = True,
) -> list[str]:
    """Everything wrong with the flows as a whole.

    `spelled` are the flows' names as the user wrote them. Not `complete`: unsound
    flows are left out already, so that too few flows say nothing.
    """
    names = {
        name: (spelled or {}).get(("flows", name), dotted(("flows", name)))
        for name in config.flows
    }
    found = []
    if complete and not any(flow.enabled for flow in config.flows.values()):
        found.append("flows: none is enabled, so there is nothing to do")
    found += _onto_themselves(config, names)
    flows = [
        flow
        for flow in config.flows.values()
        if flow.enabled and flow.source != flow.target
    ]
    return found + _mixed_up(flows, names) + _doubled(flows) + _endless(flows)


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


def _mixed_up(flows: Sequence[FlowConfig], names: Mapping[str, str]) -> list[str]:
    """Different topics, one copy: only flows that list topics by name can tell."""
    found = []
    for one, other in combinations(flows, 2):
        merge = one.policy == other.policy == "identity"
        if one.target != other.target or merge:
            continue
        common = _copies(one).keys() & _copies(other).keys()
        if common:
            copy = min(common)
            found.append(
                f"{names[one.name]} and {names[other.name]}: {_copies(one)[copy]} of "
                f"{one.source} and {_copies(other)[copy]} of {other.source} would both "
                f"be copied to {copy} on {one.target}; give one flow another policy or "
                "separator"
            )
    return found


def _copies(flow: FlowConfig) -> dict[str, str]:
    hop = Hop(prefix="", flow=flow)
    return {
        hop.prefix_behind + topic: topic
        for topic in literal_topics(flow) or ()
        if hop.passes(topic)
    }


def _doubled(flows: Sequence[FlowConfig]) -> list[str]:
    """Two ways to one cluster that end in the same name: every record twice."""
    found = {}
    for source in dict.fromkeys(flow.source for flow in flows):
        ways: dict[tuple[str, str], list[list[Hop]]] = {}
        for way in _ways(flows, source):
            key = (way[-1].flow.target, way[-1].prefix_behind)
            ways.setdefault(key, []).append(way)
        for (target, _), parallel in ways.items():
            for one, other in combinations(parallel, 2):
                # A shared part would only repeat what its end already says.
                if (source, target) in found or _share_a_cluster(one, other):
                    continue
                witness = could_pass([*one, *other])
                if witness is not None:
                    found[source, target] = (
                        f"flows: {_spelled_out(one)} and {_spelled_out(other)} bring "
                        f"{witness or 'the same topics'} of {source} to {target} "
                        "under one name, so every record would be doubled; remove one "
                        "way, or let them copy different topics"
                    )
    return list(found.values())


def _endless(flows: Sequence[FlowConfig]) -> list[str]:
    """Circles in which neither names nor headers stop a record."""
    found: dict[frozenset[str], str] = {}
    for source in dict.fromkeys(flow.source for flow in flows):
        for way in _ways(flows, source, circle=True):
            members = frozenset(hop.flow.name for hop in way)
            unstamped = [hop.flow.name for hop in way if not hop.flow.provenance]
            if members in found or not unstamped or _names_stop(way):
                continue
            if could_pass(way) is not None:
                found[members] = (
                    f"flows: {_spelled_out(way)} is a circle, and provenance is off "
                    f"on {' and '.join(unstamped)}: records would go round for ever; "
                    "turn provenance on"
                )
    return list(found.values())


def _names_stop(way: Sequence[Hop]) -> bool:
    """MirrorMaker 2's rule works where one prefixed name is prefixed again."""
    return any(
        first.flow.policy == second.flow.policy == "default"
        for first, second in zip(way, [*way[1:], way[0]], strict=True)
    )


def _ways(
    flows: Sequence[FlowConfig], source: str, *, circle: bool = False
) -> Iterator[list[Hop]]:
    """Ways from `source` to clusters not yet visited, or back to it in a circle."""
    started: list[list[Hop]] = [[]]
    while started:
        way = started.pop(0)
        here = way[-1].flow.target if way else source
        prefix = way[-1].prefix_behind if way else ""
        visited = {source, *(hop.flow.target for hop in way)}
        for flow in flows:
            if flow.source != here:
                continue
            longer = [*way, Hop(prefix=prefix, flow=flow)]
            if flow.target not in visited:
                if not circle:
                    yield longer
                if len(longer) < _MOST_HOPS:
                    started.append(longer)
            elif circle and flow.target == source:
                yield longer


def _share_a_cluster(one: Sequence[Hop], other: Sequence[Hop]) -> bool:
    return bool(
        {hop.flow.target for hop in one[:-1]} & {hop.flow.target for hop in other[:-1]}
    )


def _spelled_out(way: Sequence[Hop]) -> str:
    return " -> ".join([way[0].flow.source, *(hop.flow.target for hop in way)])
