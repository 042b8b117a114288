"""The order in which schemas are written to a registry.

Main functions: `in_order`, over `RegistryWrite`s, and `narrowed`, which picks some. A
version comes after those before it in its subject and after all that it refers to; it
is deleted once nothing needs it any more. What refers to itself in a circle has no
order and is left out.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from mirror.schemas.registry.values import Key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from mirror.schemas.registry.values import SchemaVersion, Subject

_Node = tuple[Key, bool]
"""A version, and whether it is its deletion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryWrite:
    """One thing to do in the target's registry."""

    version: SchemaVersion
    """As it should be there."""
    delete: bool = False
    """Delete it softly; else register it."""
    force: bool = False
    """Its subject exists already, and others may use it."""
    target_id: int = -1
    """The id that the target has given it; -1: it is not written yet."""

    @property
    def shown_id(self) -> str:
        """The id, and what the target has given instead."""
        if self.target_id in {-1, self.version.id}:
            return str(self.version.id)
        return f"{self.version.id}, as {self.target_id}"

    @property
    def key(self) -> Key:
        return self.version.key


def in_order(
    writes: Iterable[RegistryWrite], versions: Mapping[Key, SchemaVersion]
) -> list[RegistryWrite]:
    """Those that have an order. `versions`: all that the flow copies."""
    by_node: dict[_Node, RegistryWrite] = {
        (each.key, each.delete): each for each in writes
    }
    after: dict[_Node, set[_Node]] = {node: set() for node in by_node}
    previous: dict[Subject, Key] = {}
    for key, deleting in sorted(by_node):
        if deleting:
            after[key, True].add((key, False))
            continue
        after[key, False] |= {(ref, False) for ref in versions[key].refers_to}
        before = previous.get(key[0])
        if before is not None:
            after[key, False].add((before, False))
            if versions[before].is_same(versions[key]):
                # While that one is not deleted, registries answer with it.
                after[key, False].add((before, True))
        previous[key[0]] = key
    for key, version in versions.items():
        for ref in version.refers_to:
            if (ref, True) in after and ref[0] != key[0]:
                # Registries do not delete what something refers to.
                after[ref, True] |= {(key, False), (key, True)}
    return [by_node[node] for node in _sorted(after)]


def narrowed(
    writes: Sequence[RegistryWrite], subjects: Collection[Subject]
) -> list[RegistryWrite]:
    """Those of these subjects and what they refer to, in the same order; of all, if
    none is given.
    """
    if not subjects:
        return list(writes)
    by_key = {each.key: each for each in writes}
    ahead = [key for key in by_key if key[0] in subjects]
    wanted: set[Key] = set()
    while ahead:
        key = ahead.pop()
        if key not in wanted and key in by_key:
            wanted.add(key)
            ahead += by_key[key].version.refers_to
    return [each for each in writes if each.key in wanted]


def _sorted(after: Mapping[_Node, set[_Node]]) -> list[_Node]:
    """Each after those that it comes after, as far as these are among them; without
    circles and what is behind one.
    """
    sorter = TopologicalSorter(
        {node: befores & after.keys() for node, befores in after.items()}
    )
    with contextlib.suppress(CycleError):  # the rest can still be sorted
        sorter.prepare()
    found: list[_Node] = []
    while ready := sorted(sorter.get_ready()):
        found += ready
        sorter.done(*ready)
    return found
