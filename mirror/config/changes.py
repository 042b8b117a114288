"""What differs between two configurations, and how to get from one to the other.

Main function: `compare`, which returns `Changes`: each setting with its old and its new
value, the flows that come, go or change, the `Effect` on each of them, and what only a
restart of the service can change. Pure: nothing is read or done here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import hashlib
from itertools import chain
import json
from typing import TYPE_CHECKING, Any

from mirror.config.document import Path, dotted
from mirror.config.pair_settings import PairConfig
from mirror.config.schema import login_ends
from mirror.config.section import HIDDEN, Effect
from mirror.config.settings import hidden

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.config.section import Section


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One setting that differs. A secret's values are hidden."""

    setting: str
    old: Any
    """As it is written in YAML."""
    new: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """From one configuration to another."""

    settings: tuple[Change, ...] = ()
    added: tuple[str, ...] = ()
    """Flows that run only in the new one, as it orders them."""
    removed: tuple[str, ...] = ()
    """Flows that run only in the old one."""
    effects: Mapping[str, Effect] = field(default_factory=dict)
    """For each flow that runs in both."""
    moved: tuple[str, ...] = ()
    """The clusters of these flows that have other addresses, by alias; logins, too."""
    refused: tuple[str, ...] = ()
    """Why this requires a restart of the service; empty if it does not."""

    def __bool__(self) -> bool:
        return bool(self.settings or self.added or self.removed)

    def __str__(self) -> str:
        return (
            ", ".join(
                [
                    *(f"{c.setting} from {_text(c.old)} to {_text(c.new)}"
                      for c in self.settings),
                    *(f"flow {name} begins" for name in self.added),
                    *(f"flow {name} ends" for name in self.removed),
                ]
            )
            or "nothing changed"
        )  # fmt: skip


def compare(old: MirrorConfig, new: MirrorConfig) -> Changes:
    """What differs. Flows that are not enabled do not count."""
    before, after = _running(old), _running(new)
    kept = [flow for name, flow in after.items() if name in before]
    effects = {flow.name: Effect.NONE for flow in kept}
    found = [
        *_of_clusters(old, new, kept),
        *(each for flow in kept for each in _of_flow(before[flow.name], flow)),
        *_of_pairs(old, new),
        *_of_service(old, new, kept),
    ]
    for each in found:
        for flow in each.flows:
            effects[flow] |= each.effect
    return Changes(
        settings=tuple(each.change for each in found),
        added=tuple(name for name in after if name not in before),
        removed=tuple(name for name in before if name not in after),
        effects=effects,
        moved=_moved(old, new, kept),
        refused=tuple(
            _needs_restart(each.change)
            for each in found
            if Effect.RESTART in each.effect
        ),
    )


def _moved(
    old: MirrorConfig, new: MirrorConfig, kept: Sequence[FlowConfig]
) -> tuple[str, ...]:
    used = {alias for flow in kept for alias in chain(*login_ends(flow)) if alias}
    return tuple(
        alias
        for alias in sorted(used & old.clusters.keys())
        if old.clusters[alias].bootstrap_servers
        != new.clusters[alias].bootstrap_servers
    )


def version(config: MirrorConfig) -> str:
    """The same for configurations that say the same, secrets aside: twelve digits."""
    document = {
        "clusters": {a: _document(each) for a, each in config.clusters.items()},
        "flows": [[name, _document(each)] for name, each in config.flows.items()],
        "recovery": {n: _document(each) for n, each in config.recovery.items()},
        "service": _document(config.service),
    }
    text = json.dumps(document, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True, kw_only=True)
class _FoundChange:
    """One change, and what it asks of these flows."""

    change: Change
    effect: Effect
    flows: tuple[str, ...] = ()


def _running(config: MirrorConfig) -> dict[str, FlowConfig]:
    return {name: flow for name, flow in config.flows.items() if flow.enabled}


def _of_clusters(
    old: MirrorConfig, new: MirrorConfig, kept: Sequence[FlowConfig]
) -> Iterator[_FoundChange]:
    for alias, cluster in new.clusters.items():
        if (known := old.clusters.get(alias)) is None:
            continue  # only flows that are new as well can use it
        users = tuple(f.name for f in kept if alias in chain(*login_ends(f)))
        for name, change in _differences(("clusters", alias), known, cluster):
            effect = cluster.effect(name) if users else Effect.NONE
            yield _FoundChange(change=change, flows=users, effect=effect)


def _of_flow(old: FlowConfig, new: FlowConfig) -> Iterator[_FoundChange]:
    for name, change in _differences(("flows", new.name), old, new):
        yield _FoundChange(change=change, flows=(new.name,), effect=new.effect(name))


def _of_pairs(old: MirrorConfig, new: MirrorConfig) -> Iterator[_FoundChange]:
    for name in dict.fromkeys((*old.recovery, *new.recovery)):
        before, after = old.recovery.get(name), new.recovery.get(name)
        if before is not None and after is not None:
            for field_name, change in _differences(("recovery", name), before, after):
                yield _FoundChange(change=change, effect=after.effect(field_name))
        else:
            change = Change(
                setting=dotted(("recovery", name)),
                old=_document(before) if before else None,
                new=_document(after) if after else None,
            )
            yield _FoundChange(change=change, effect=PairConfig.on_change)


def _of_service(
    old: MirrorConfig, new: MirrorConfig, kept: Sequence[FlowConfig]
) -> Iterator[_FoundChange]:
    flows = tuple(flow.name for flow in kept)
    for name, change in _differences(("service",), old.service, new.service):
        yield _FoundChange(change=change, flows=flows, effect=new.service.effect(name))


def _needs_restart(change: Change) -> str:
    hidden = HIDDEN in (change.old, change.new)
    what = "" if hidden else f"from {_text(change.old)} to {_text(change.new)}, "
    return f"{change.setting}: changed {what}which requires a restart of the service"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _differences(
    place: Path, old: Section, new: Section
) -> Iterator[tuple[str, Change]]:
    for name, info in type(new).model_fields.items():
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            change = Change(
                setting=dotted((*place, name)),
                old=hidden(info, before),
                new=hidden(info, after),
            )
            yield name, change


def _document(section: Section) -> dict[str, Any]:
    return {
        name: hidden(info, getattr(section, name))
        for name, info in type(section).model_fields.items()
    }
