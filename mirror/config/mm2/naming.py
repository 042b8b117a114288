"""How a file of MirrorMaker 2 names copies, where that is not as its aliases say.

Main function: `settle`. `source.cluster.alias` calls a flow's source something else in
the names of copies, and an empty separator joins alias and topic. What one of mirror's
policies does as well is rewritten so; the rest is refused with what to write.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import permutations
from typing import TYPE_CHECKING

from mirror.config.mm2 import readers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SOURCE, _TARGET = "source.cluster.alias", "target.cluster.alias"
ALIASES = (_SOURCE, _TARGET)
"""Keys of a connector, also where a cluster is called source or target."""
_SEPARATOR = "replication.policy.separator"
_CLASS = "replication.policy.class"
_IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
_KEEP = f"to keep names write {_CLASS} = {_IDENTITY}"


@dataclass(slots=True)
class Naming:
    """A file's settings and aliases, as `settle` leaves them."""

    settings: dict[str, str]
    aliases: list[str]
    warnings: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def settle(settings: Mapping[str, str], aliases: Sequence[str]) -> Naming:
    """Remove the keys that give copies other names than aliases and policy do."""
    found = Naming(dict(settings), list(aliases))
    called: dict[str, set[str]] = {}
    for source, target in permutations(aliases, 2):
        flow = _Flow(source, target, settings)
        if settings.get(f"{flow.name}.enabled", "").lower() == "true":
            name = flow.get(_SOURCE, source)
            if not _keeps_names(flow, name, found):
                called.setdefault(source, set()).add(name)
            if (other := flow.get(_TARGET, target)) != target:
                found.warnings.append(
                    f"{flow.key(_TARGET)}: not needed, ignored: {target} is not called "
                    f"{other} here, also not in mm2-offset-syncs.{target}.internal"
                )
    for key in settings:
        if key in ALIASES or ("->" in key and key.endswith(ALIASES)):
            del found.settings[key]
    for source, names in called.items():
        if names - {source, ""}:
            _call(source, names, found)
    return found


@dataclass(frozen=True, slots=True)
class _Flow:
    source: str
    target: str
    settings: Mapping[str, str]

    @property
    def name(self) -> str:
        return f"{self.source}->{self.target}"

    def key(self, rest: str) -> str:
        """As the file has it: of the flow, else of all."""
        own = f"{self.name}.{rest}"
        return own if own in self.settings else rest

    def get(self, rest: str, default: str) -> str:
        return self.settings.get(self.key(rest), default)


def _keeps_names(flow: _Flow, name: str, found: Naming) -> bool:
    """Whether the flow's copies have the names of their topics."""
    separator = flow.get(_SEPARATOR, ".")
    try:
        identity = readers.policy(flow.get(_CLASS, readers.DEFAULT)) == "identity"
    except ValueError:  # where the class is read, it is refused
        if not separator:
            found.settings.pop(flow.key(_SEPARATOR), None)
        return True
    if not separator:
        found.settings.pop(flow.key(_SEPARATOR), None)
        if identity or not name:
            found.settings[f"{flow.name}.{_CLASS}"] = _IDENTITY
            _once(
                f"{flow.key(_SEPARATOR)}: is empty: topics keep their names, as with "
                f"{_IDENTITY}; copies of heartbeats and internal topics have dots in "
                "their names here",
                found.warnings,
            )
            return True
        _once(
            f"{flow.key(_SEPARATOR)}: is empty, so that MirrorMaker 2 calls the copy "
            f"of orders {name}orders; {_KEEP}, else a separator",
            found.problems,
        )
    elif not name and not identity:
        _once(
            f"{flow.key(_SOURCE)}: is empty, so that MirrorMaker 2 calls the copy of "
            f"orders {separator}orders; {_KEEP}",
            found.problems,
        )
    return identity


def _call(source: str, names: set[str], found: Naming) -> None:
    """Call a cluster what its copies are called after."""
    name, *others = sorted(names - {""})
    if others or name in found.aliases:
        found.problems.append(
            f'{_SOURCE}: copies of {source} are called after "{name}", and mirror '
            "knows a cluster by one name; write that one in clusters and in all keys"
        )
        return
    found.warnings.append(
        f"{_SOURCE}: the cluster {source} is called {name} here, as its copies are; "
        "mirror adopt finds what MirrorMaker 2 has copied with --offsets-topic "
        f"mm2-offsets.{source}.internal"
    )
    starts = {
        f"{source}.": f"{name}.",
        f"{source}->": f"{name}->",
        **{f"{each}->{source}.": f"{each}->{name}." for each in found.aliases},
    }
    found.aliases = [name if each == source else each for each in found.aliases]
    found.settings = {
        next(
            (
                f"{new}{key.removeprefix(old)}"
                for old, new in starts.items()
                if key.startswith(old)
            ),
            key,
        ): value
        for key, value in found.settings.items()
    }


def _once(text: str, texts: list[str]) -> None:
    if text not in texts:
        texts.append(text)
