"""The configs that a copy should have: MirrorMaker 2's rules, and what merging adds.

Main functions: `goal`, the configs that the sources ask for, and `drift`, where a copy
differs from that. Pure: configs come in as `clusters.configs` reads them. Two things
are better than in MirrorMaker 2: brokers' settings do not become overrides of the copy,
and an override removed from the topic is removed from the copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
import functools
import re
from typing import TYPE_CHECKING

from mirror.clusters.admin.configs import Config, Origin
from mirror.status.values import ConfigDrift

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.config.schema import FlowConfig

Configs = Mapping[str, Config]

_OF_THE_LOG = frozenset({"message.format.version", "message.downconversion.enable"})
"""How old brokers store and serve a log. A copy is of format v2 whatever its source is,
and Kafka 4 no longer knows these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfigs:
    """The configs of one of a copy's sources, and the flow whose settings apply."""

    flow: FlowConfig
    configs: Configs


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The configs that a copy should have."""

    flow: FlowConfig
    """The flow whose settings count."""
    values: Mapping[str, str] = field(default_factory=dict)
    left_alone: frozenset[str] = frozenset()
    """Configs that stay as they are on the target."""
    all_left_alone: bool = False
    conflicts: tuple[str, ...] = ()
    """Configs on which the sources disagree, each with its values."""


def wanted(configs: Configs, flow: FlowConfig) -> dict[str, str]:
    """What one source alone would set on its copy."""
    excluded = _excluded(flow.config_properties_exclude)
    return {
        name: config.value
        for name, config in configs.items()
        if config.value is not None
        and config.settable
        and (config.origin is Origin.TOPIC or flow.use_defaults_from == "source")
        and name not in _OF_THE_LOG
        and not excluded.fullmatch(name)
    }


def goal(parts: Sequence[SourceConfigs]) -> Goal:
    """What the sources ask for together; the first of them decides how."""
    flow = parts[0].flow
    each = [wanted(part.configs, flow) for part in parts]
    names = sorted(set().union(*each))
    differing = [name for name in names if len({one.get(name) for one in each}) > 1]
    conflicts = tuple(
        f"{name}: "
        + ", ".join(
            f"{part.flow.source} {one.get(name, 'not set')}"
            for part, one in zip(parts, each, strict=True)
        )
        for name in differing
    )
    if len(parts) > 1 and flow.config_strategy == "target":
        return Goal(flow=flow, all_left_alone=True, conflicts=conflicts)
    if flow.config_strategy == "intersection":
        agreed = {n: v for n, v in each[0].items() if n not in differing}
        return Goal(
            flow=flow,
            values=agreed,
            left_alone=frozenset(differing),
            conflicts=conflicts,
        )
    return Goal(flow=flow, values=each[0], conflicts=conflicts)


def drift(goal: Goal, copy: Configs) -> tuple[ConfigDrift, ...]:
    """Where a copy differs from what it should be, sorted by name."""
    if goal.all_left_alone:
        return ()
    excluded = _excluded(goal.flow.config_properties_exclude)
    overrides = {
        name: config.value
        for name, config in copy.items()
        if config.origin is Origin.TOPIC
        and config.settable
        and not excluded.fullmatch(name)
    }
    if goal.flow.use_defaults_from == "source":
        # The effective value counts, not whether it is set on the topic itself.
        present = {name: config.value for name, config in copy.items()}
        names = set(goal.values)
    else:
        present = overrides
        names = goal.values.keys() | overrides.keys()
    return tuple(
        ConfigDrift(name=name, wanted=goal.values.get(name), found=present.get(name))
        for name in sorted(names - goal.left_alone)
        if goal.values.get(name) != present.get(name)
    )


def changes(found: Sequence[ConfigDrift], copy: Configs) -> dict[str, str | None]:
    """The correction; configs that the target's brokers do not know cannot be
    corrected.
    """
    return {
        each.name: each.wanted
        for each in found
        if each.wanted is None or each.name in copy
    }


@functools.lru_cache(maxsize=64)
def _excluded(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{each})" for each in patterns) or "(?!)")
