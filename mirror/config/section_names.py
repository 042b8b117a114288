"""What the keys of sections say: which cluster, which flow, which pair.

Main function: `complete`, which brings a document's sections into the model's shape.
`flow_ends` and `pair_parts` read single keys, as commands do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mirror.config.pair_settings import pair_name
from mirror.config.values import refuse, shown


def flow_ends(name: str) -> tuple[str, str] | None:
    """Source and target of "A->B", or of "A/B" for shells; None if it is neither."""
    for arrow in ("->", "/"):
        source, found, target = (part.strip() for part in name.partition(arrow))
        if found and source and target:
            return source, target
    return None


def scoped_flow(name: str) -> tuple[str, str | None]:
    """A flow's name, and that of a pair behind it: "A->B/orders", or "A/B/orders"."""
    ends, found, scope = name.rpartition("/")
    if found and flow_ends(ends) is not None:
        return ends, scope.strip()
    return name, None


def pair_parts(name: str) -> tuple[str, str, str | None] | None:
    """Both clusters of "A<->B", and the name behind them in "A<->B/orders"; None if it
    is no pair's name.
    """
    members, named, scope = (part.strip() for part in name.partition("/"))
    one, found, other = (part.strip() for part in members.partition("<->"))
    if not (found and one and other and one != other) or (named and not scope):
        return None
    return one, other, scope or None


def complete(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in what keys say (alias, source, target), and add defaults to flows.

    Entries that are not mappings stay as they are; the model refuses them.
    """
    shaped = dict(raw)
    defaults = shaped.pop("defaults", None) or {}
    if isinstance(clusters := shaped.get("clusters"), Mapping):
        shaped["clusters"] = {
            name: {**entry, "alias": name} if isinstance(entry, Mapping) else entry
            for name, entry in clusters.items()
        }
    if isinstance(flows := shaped.get("flows"), Mapping):
        shaped["flows"] = _complete_flows(flows, defaults)
    if isinstance(pairs := shaped.get("recovery"), Mapping):
        shaped["recovery"] = _complete_pairs(pairs)
    return shaped


def _complete_pairs(pairs: Mapping[str, Any]) -> dict[str, Any]:
    shaped: dict[str, Any] = {}
    for key, entry in pairs.items():
        parts = pair_parts(str(key))
        if parts is None:
            refuse(f'{shown(key)} is not a pair\'s name; use "A<->B"')
        one, other, scope = parts
        name = pair_name(one, other, scope)
        if name in shaped:
            refuse(f"the pair {name} is given twice")
        ends = {"one": one, "other": other, "scope": scope}
        shaped[name] = {**entry, **ends} if isinstance(entry, Mapping) else entry
    return shaped


def _complete_flows(
    flows: Mapping[str, Any], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    shaped: dict[str, Any] = {}
    for key, given in flows.items():
        entry = {} if given is None else given
        ends = flow_ends(str(key))
        if ends is None:
            refuse(f'{shown(key)} is not a flow\'s name; use "A->B"')
        name = "->".join(ends)
        if name in shaped:
            refuse(f"the flow {name} is given twice")
        if isinstance(entry, Mapping):
            entry = {**defaults, **entry, "source": ends[0], "target": ends[1]}
        shaped[name] = entry
    return shaped
