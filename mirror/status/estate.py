"""The clusters and flows of all sites as one picture: which clusters are the same.

Main types: `Estate`, made by `merged` from sites; `EstateCluster`, a cluster in it;
`EstateFlow`, a flow. Clusters with one id are one place, whatever each site calls it;
while an id is not known, a cluster belongs to its site alone. Of flows between two
places the picture has one, that of the service which leads it. Pure.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror.status import wording
from mirror.status.sites import UNKNOWN
from mirror.status.states import FlowState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirror.status.sites import Site, SiteFlow

Key = tuple[str, str]
"""The cluster's id, or the site and the alias."""
_SHORT_ID = 8
_CALM = (FlowState.STANDBY, FlowState.RESTING, FlowState.STOPPED, UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class EstateCluster:
    """A cluster."""

    name: str
    """What sites call it: the first site's alias, then other ones."""
    cluster_id: str
    silent: tuple[str, ...]
    """Which sites get no answer from it, since when and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EstateFlow:
    """A flow of one site between two places."""

    site: Site
    flow: SiteFlow
    source: EstateCluster
    target: EstateCluster

    @property
    def state(self) -> str:
        """What is known of it now."""
        return self.flow.state if self.site.answers else UNKNOWN

    @property
    def notes(self) -> tuple[str, ...]:
        """Throughput and lag, in short lines."""
        if not self.site.answers:
            return (f"since {wording.moment(self.site.since)}",)
        runs = self.flow.state == FlowState.RUNNING
        notes = [wording.rate(self.flow.bytes_per_second)] if runs else []
        if self.flow.lag_seconds >= 0:
            notes.append(f"{wording.duration(self.flow.lag_seconds)} behind")
        if self.flow.faulted:
            notes.append(f"{self.flow.faulted} FAULTED")
        return tuple(notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estate:
    """All sites together."""

    sites: tuple[Site, ...]
    places: tuple[EstateCluster, ...]
    ways: tuple[EstateFlow, ...]
    """Every flow of every site."""
    drawn: tuple[EstateFlow, ...]
    """One for each two places: of several, the one in most trouble."""

    @property
    def silent(self) -> tuple[Site, ...]:
        """The sites that do not answer."""
        return tuple(site for site in self.sites if not site.answers)


def merged(sites: Iterable[Site]) -> Estate:
    """One picture of all sites; one that occurs twice, by its instance, counts once."""
    apart: list[Site] = []
    for site in sites:
        if not site.instance or all(site.instance != e.instance for e in apart):
            apart.append(site)
    keys = {
        (site.name, alias): key for site in apart for alias, key in _keys(site).items()
    }
    places = _places(apart, keys)
    ways = tuple(
        EstateFlow(
            site=site,
            flow=flow,
            source=places[keys[site.name, flow.source]],
            target=places[keys[site.name, flow.target]],
        )
        for site in apart
        for flow in site.flows
    )
    return Estate(
        sites=tuple(apart),
        places=tuple(places.values()),
        ways=ways,
        drawn=_drawn(ways),
    )


def _keys(site: Site) -> dict[str, Key]:
    """What each alias of a site stands for."""
    ids = {each.alias: each.cluster_id for each in site.clusters}
    ends = [end for flow in site.flows for end in (flow.source, flow.target)]
    return {
        alias: ("", ids[alias]) if ids.get(alias) else (site.name, alias)
        for alias in dict.fromkeys([*ends, *ids])
    }


def _places(
    sites: Sequence[Site], keys: Mapping[tuple[str, str], Key]
) -> dict[Key, EstateCluster]:
    aliases: dict[Key, list[str]] = {}
    for (_, alias), key in keys.items():
        aliases.setdefault(key, []).append(alias)
    silent: dict[Key, list[str]] = {}
    for site in sites:
        for each in site.clusters:
            if site.answers and not each.answers:
                since = wording.moment(each.since)
                text = f"{site.name}, since {since}: {each.reason}"
                silent.setdefault(keys[site.name, each.alias], []).append(text)
    names = {key: " / ".join(dict.fromkeys(some)) for key, some in aliases.items()}
    times = Counter(names.values())
    return {
        key: EstateCluster(
            name=name if times[name] == 1 else f"{name} ({_told_apart(key)})",
            cluster_id="" if key[0] else key[1],
            silent=tuple(silent.get(key, ())),
        )
        for key, name in names.items()
    }


def _told_apart(key: Key) -> str:
    """What tells a cluster from another one of the same name."""
    return key[0] or key[1][:_SHORT_ID]


def _drawn(ways: Iterable[EstateFlow]) -> tuple[EstateFlow, ...]:
    best: dict[tuple[str, str], EstateFlow] = {}
    for way in ways:
        ends = way.source.name, way.target.name
        best[ends] = min(best.get(ends, way), way, key=_trouble)
    return tuple(best.values())


def _trouble(way: EstateFlow) -> tuple[bool, bool]:
    """What is in trouble comes first, then what runs, then what is calm."""
    return way.state in _CALM, way.state == FlowState.RUNNING
