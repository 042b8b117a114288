"""Checks of flows that copy schemas, over the whole configuration.

Main function: `problems`. It finds flows without a registry on both sides, into the
registry that they read from, circles in which contexts grow, and translated ids where
something would bring records back. Pure: two addresses of one registry are found only
by `mirror check`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.policy.naming import SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mirror.config.schema import FlowConfig, MirrorConfig


def problems(config: MirrorConfig, names: Mapping[str, str]) -> list[str]:
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
