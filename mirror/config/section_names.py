"""What the keys of sections say: which cluster, which flow, which pair.

Main function: `complete`, which brings a document's sections into the model's shape.
`flow_ends` and `pair_members` read single keys, as commands do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mirror.config.values import refuse, shown


def flow_ends(name: str) -> tuple[str, str] | None:
    """Source and target of "A->B", or of "A/B" for shells; None if it is neither."""
    for arrow in ("->", "/"):
        source, found, target = (part.strip() for part in name.partition(arrow))
        if found and source and target:
            return source, target
    return None


def pair_members(name: str) -> tuple[str, str] | None:
    """Both clusters of "A<->B"; None if it is no pair's name."""
    one, found, other = (part.strip() for part in name.partition("<->"))
    return (one, other) if found and one and other and one != other else None


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
        members = pair_members(str(key))
        if members is None:
            refuse(f'{shown(key)} is not a pair\'s name; use "A<->B"')
        name = "<->".join(sorted(members))
        if name in shaped:
            refuse(f"the pair {name} is given twice")
        ends = {"one": members[0], "other": members[1]}
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
