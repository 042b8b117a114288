"""What the ids of one registry mean, so that those of two can be compared.

Main function: `meanings`, over whole contexts. A `Meaning` has no id, subject or
version, which may be others in another registry: only what a reader needs.
"""

from __future__ import annotations

from collections import defaultdict
import hashlib
from typing import TYPE_CHECKING, NamedTuple

from mirror.schemas.registry.values import HIGHEST_ID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.schemas.registry.registry import Registry
    from mirror.schemas.registry.values import Key, SchemaVersion

_DEEPEST = 100
"""How many schemas may refer to each other in a row; what is below does not count."""


class Meaning(NamedTuple):
    """What an id stands for."""

    kind: str
    sha256: str
    """Of the text."""
    refers_to: str
    """A digest of the meanings of what it refers to; empty: of nothing."""

    def differs(self, other: Meaning) -> bool:
        """Whether the text alone is another one."""
        return (self.kind, self.sha256) != (other.kind, other.sha256)


def meanings(registry: Registry, contexts: Iterable[str]) -> dict[int, Meaning]:
    """By id, without those that mean several things in these contexts.

    Raises:
        RegistryError: the registry cannot be asked.
    """
    versions = {
        each.key: each
        for context in contexts
        for each in registry.versions(context)
        if each.context == context  # some registries list other contexts, too
    }
    known: dict[Key, Meaning] = {}
    found: dict[int, set[Meaning]] = defaultdict(set)
    for key, version in versions.items():
        if 0 <= version.id <= HIGHEST_ID:
            found[version.id].add(_meaning(key, versions, known))
    return {number: some.pop() for number, some in found.items() if len(some) == 1}


def _meaning(
    key: Key,
    versions: Mapping[Key, SchemaVersion],
    known: dict[Key, Meaning],
    depth: int = 0,
) -> Meaning:
    if key in known:
        return known[key]
    if key not in versions or depth == _DEEPEST:
        return Meaning("", "", "")
    version = versions[key]
    needed = sorted(
        (reference.name, _meaning(at, versions, known, depth + 1))
        for reference, at in zip(version.references, version.refers_to, strict=True)
    )
    digest = hashlib.sha256(repr(needed).encode()).hexdigest() if needed else ""
    known[key] = Meaning(version.kind, version.sha256, digest)
    return known[key]
