"""What differs between two configurations, and what it takes to go on with the new one.

Main function: `compare`, which returns `Changes`: each setting with its old and its new
value, the flows that come, go or change, the `Effect` of that on each of them, and what
only a restart of the service can change. Pure: nothing is read or done here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Flag, auto
import hashlib
import json
from typing import TYPE_CHECKING, Any

from mirror.config.document import Path, dotted
from mirror.config.group_settings import GroupSettings
from mirror.config.origins import HIDDEN, shown
from mirror.config.topic_sync import TopicSync

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pydantic import BaseModel

    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.config.service_settings import ServiceConfig


class Effect(Flag):
    """What a running flow has to do to go by its new settings."""

    NONE = 0
    LOOK = auto()
    """Look for topics at once; leases go on."""
    JOBS = auto()
    """Begin its jobs anew, and look; leases go on."""
    LEASES = auto()
    """Give its slots a new plan; the running lease ends early, within transactions."""
    RUN = auto()
    """End within its transactions and run again, which takes a second or two."""


_LOOK = {
    *("topics", "topics_exclude", "refresh_topics_seconds", "sla_seconds"),
    *("least_partitions", "min_insync_replicas"),
}
_JOBS = {
    *TopicSync.model_fields,
    *GroupSettings.model_fields,
    "replication_factor",
    "start",
}
_LEASES = {
    *("on_loss", "on_recreated_topic", "compression", "isolation_level"),
    *("lease_seconds", "transform", "transform_options", "max_unpacked_bytes"),
}
_NEVER_IN_A_FLOW = {
    # Copies would get other names, beside those that there are.
    *("policy", "rename", "separator"),
    # Without it nobody can be fenced, so the earlier run has to be gone for sure.
    "exactly_once",
}
_NEVER_IN_A_CLUSTER = {
    # Under these addresses there may be another cluster, with other records.
    "bootstrap_servers",
}
_AT_ONCE_IN_SERVICE = {"log_level", "log_format", "reload_seconds"}


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
    refused: tuple[str, ...] = ()
    """Why this takes a restart of the service; empty if it does not."""

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
    """What differs, as far as it counts: what is not enabled does not."""
    before, after = _running(old), _running(new)
    kept = [flow for name, flow in after.items() if name in before]
    effects = {flow.name: Effect.NONE for flow in kept}
    found = [
        *_of_clusters(old, new, kept),
        *(each for flow in kept for each in _of_flow(before[flow.name], flow)),
        *_of_service(old.service, new.service),
    ]
    for each in found:
        for flow in each.flows:
            effects[flow] |= each.effect
    return Changes(
        settings=tuple(each.change for each in found),
        added=tuple(name for name in after if name not in before),
        removed=tuple(name for name in before if name not in after),
        effects=effects,
        refused=tuple(_needs_restart(each.change) for each in found if each.restart),
    )


def effect_of(setting: str) -> Effect:
    """What a change of a flow's setting asks of the flow; what is not known by name,
    a new run, which begins with everything.
    """
    known = {Effect.LOOK: _LOOK, Effect.JOBS: _JOBS, Effect.LEASES: _LEASES}
    found = (effect for effect, names in known.items() if setting in names)
    return next(found, Effect.RUN)


def version(config: MirrorConfig) -> str:
    """The same for configurations that say the same, secrets aside: twelve digits."""
    document = {
        "clusters": {a: _document(each) for a, each in config.clusters.items()},
        "flows": [[name, _document(each)] for name, each in config.flows.items()],
        "service": _document(config.service),
    }
    text = json.dumps(document, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """One change, and what it asks of these flows."""

    change: Change
    flows: tuple[str, ...] = ()
    effect: Effect = Effect.NONE
    restart: bool = False


def _running(config: MirrorConfig) -> dict[str, FlowConfig]:
    return {name: flow for name, flow in config.flows.items() if flow.enabled}


def _of_clusters(
    old: MirrorConfig, new: MirrorConfig, kept: Sequence[FlowConfig]
) -> Iterator[_Found]:
    for alias, cluster in new.clusters.items():
        if (known := old.clusters.get(alias)) is None:
            continue  # only flows that are new, too, can have to do with it
        users = tuple(f.name for f in kept if alias in {f.source, f.target})
        for name, change in _differences(("clusters", alias), known, cluster):
            yield _Found(
                change=change,
                flows=users,
                effect=Effect.RUN,
                restart=bool(users) and name in _NEVER_IN_A_CLUSTER,
            )


def _of_flow(old: FlowConfig, new: FlowConfig) -> Iterator[_Found]:
    for name, change in _differences(("flows", new.name), old, new):
        yield _Found(
            change=change,
            flows=(new.name,),
            effect=effect_of(name),
            restart=name in _NEVER_IN_A_FLOW,
        )


def _of_service(old: ServiceConfig, new: ServiceConfig) -> Iterator[_Found]:
    for name, change in _differences(("service",), old, new):
        yield _Found(change=change, restart=name not in _AT_ONCE_IN_SERVICE)


def _needs_restart(change: Change) -> str:
    hidden = HIDDEN in (change.old, change.new)
    what = "" if hidden else f"from {_text(change.old)} to {_text(change.new)}, "
    return f"{change.setting}: is changed {what}which takes a restart of the service"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _differences(
    place: Path, old: BaseModel, new: BaseModel
) -> Iterator[tuple[str, Change]]:
    for name in type(new).model_fields:
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            yield (
                name,
                Change(
                    setting=dotted((*place, name)),
                    old=_shown(name, before),
                    new=_shown(name, after),
                ),
            )


def _document(section: BaseModel) -> dict[str, Any]:
    return {
        name: _shown(name, getattr(section, name))
        for name in type(section).model_fields
    }


def _shown(name: str, value: Any) -> Any:
    return HIDDEN if name == "spark" and value else shown(name, value)
