"""What one service tells another about its clusters and flows: the answer of `/site`.

Main types: `Site`, with `SiteCluster` and `SiteFlow`. `own_site` makes one from a
status, `document` writes it, `read_site` and `read_sites` read what came over the
network. What others wrote becomes printable and short texts, finite numbers and
bounded lists, or is refused.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
import math
from typing import TYPE_CHECKING, Any

from mirror import __version__
from mirror.errors import MALFORMED, MirrorError
from mirror.status.states import FlowState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mirror.status.values import ServiceStatus

FORMAT_VERSION = 1
UNKNOWN = "UNKNOWN"
"""The state of a flow whose service does not answer, or says what is no state."""
HERE = "this service"
_SILENT_SECONDS = 45.0
"""After so long without an answer, a site counts as one that gives none."""
_MOST = 1000
"""Clusters or flows of a site."""
_MOST_SITES = 100
_LONGEST_TEXT = 300
_LARGEST = 1e18
_LATEST = 1e11
"""Epoch seconds that are still a date."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteCluster:
    """A cluster as one service knows it."""

    alias: str
    cluster_id: str
    """As its brokers say; empty while not known."""
    answers: bool
    since: float
    """Since when it does, or does not; epoch seconds."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteFlow:
    """A flow of one service."""

    name: str
    source: str
    target: str
    """Aliases of that service."""
    state: str
    since: float
    reason: str
    lag: int
    lag_seconds: float
    records: int
    bytes_per_second: float
    faulted: int
    restarts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One service, as of its last answer."""

    name: str
    """Host and port; `HERE` for the service that is asked."""
    instance: str = ""
    """A name that its process has chosen; empty before its first answer."""
    version: str = ""
    answers: bool = True
    since: float = 0.0
    """Since when it answers, or does not; epoch seconds."""
    heard_at: float = 0.0
    """When it last answered, epoch seconds; 0: never."""
    reason: str = ""
    """Why it does not answer; empty if it does."""
    clusters: tuple[SiteCluster, ...] = ()
    flows: tuple[SiteFlow, ...] = ()

    def with_leaders(self, others: Iterable[Site]) -> Site:
        """The same, with what the leader of a flow says of it where this instance only
        stands by. `others`: instances behind the same address, the latest first.
        """
        led: dict[str, SiteFlow] = {}
        for site in others:
            for flow in site.flows:
                if flow.state != FlowState.STANDBY:
                    led.setdefault(flow.name, flow)
        return replace(
            self,
            flows=tuple(
                led.get(flow.name, flow) if flow.state == FlowState.STANDBY else flow
                for flow in self.flows
            ),
        )

    def as_of(self, now: float) -> Site:
        """The same, silent if its last answer is too old."""
        if not self.answers or now - self.heard_at <= _SILENT_SECONDS:
            return self
        reason = "no answer in time"
        return replace(self, answers=False, since=self.heard_at, reason=reason)


def own_site(status: ServiceStatus, instance: str, now: float) -> Site:
    """The service's own part of the estate."""
    return Site(
        name=HERE,
        instance=instance,
        version=status.version,
        since=status.started,
        heard_at=now,
        clusters=tuple(
            SiteCluster(
                alias=each.alias,
                cluster_id=each.cluster_id,
                answers=each.answers,
                since=each.since,
                reason=each.reason,
            )
            for each in status.clusters
        ),
        flows=tuple(
            SiteFlow(
                name=flow.name,
                source=flow.source or flow.name.partition("->")[0],
                target=flow.target or flow.name.partition("->")[2],
                state=str(flow.state),
                since=flow.since,
                reason=flow.reason,
                lag=flow.lag,
                lag_seconds=flow.lag_seconds,
                records=flow.records,
                bytes_per_second=flow.bytes_per_second,
                faulted=flow.faulted,
                restarts=flow.restarts,
            )
            for flow in status.flows
        ),
    )


def site_document(site: Site) -> dict[str, Any]:
    """What a service answers a peer."""
    return {
        "format_version": FORMAT_VERSION,
        "instance": site.instance,
        "version": site.version,
        "clusters": [asdict(each) for each in site.clusters],
        "flows": [asdict(each) for each in site.flows],
    }


def estate_document(sites: Sequence[Site]) -> dict[str, Any]:
    """What a service answers its own commands: itself, then its peers."""
    return {
        "format_version": FORMAT_VERSION,
        "version": __version__,
        "sites": [asdict(site) for site in sites],
    }


def read_site(found: Any, name: str, *, now: float) -> Site:
    """A peer's answer.

    Raises:
        MirrorError: it is none, or has a format that this version does not know.
    """
    try:
        _require_format(found)
        return Site(
            name=name, instance=_text(found["instance"]), since=now, heard_at=now,
            **_content(found),
        )  # fmt: skip
    except MALFORMED as error:
        raise MirrorError("it does not answer as a mirror service does") from error


def read_sites(found: Any) -> tuple[Site, ...]:
    """The sites of an `estate_document`.

    Raises:
        MirrorError: it is none.
    """
    try:
        _require_format(found)
        return tuple(
            Site(
                name=_text(each["name"]),
                instance=_text(each["instance"]),
                answers=each["answers"] is True,
                since=_moment(each["since"]),
                heard_at=_moment(each["heard_at"]),
                reason=_text(each["reason"]),
                **_content(each),
            )
            for each in _listed(found["sites"], _MOST_SITES)
        )
    except MALFORMED as error:
        raise MirrorError("it does not answer as a mirror service does") from error


def _require_format(found: Any) -> None:
    if (version := found["format_version"]) != FORMAT_VERSION:
        raise MirrorError(
            f"it answers in format {_text(str(version))}, but this version of mirror "
            f"reads {FORMAT_VERSION}"
        )


def _content(found: Any) -> dict[str, Any]:
    return {
        "version": _text(found["version"]),
        "clusters": tuple(map(_cluster, _listed(found["clusters"], _MOST))),
        "flows": tuple(map(_flow, _listed(found["flows"], _MOST))),
    }


def _cluster(found: Any) -> SiteCluster:
    return SiteCluster(
        alias=_text(found["alias"]),
        cluster_id=_text(found["cluster_id"]),
        answers=found["answers"] is True,
        since=_moment(found["since"]),
        reason=_text(found["reason"]),
    )


def _flow(found: Any) -> SiteFlow:
    state = _text(found["state"])
    return SiteFlow(
        name=_text(found["name"]),
        source=_text(found["source"]),
        target=_text(found["target"]),
        state=state if state in set(FlowState) else UNKNOWN,
        since=_moment(found["since"]),
        reason=_text(found["reason"]),
        lag=int(_number(found["lag"])),
        lag_seconds=_number(found["lag_seconds"]),
        records=int(_number(found["records"])),
        bytes_per_second=_number(found["bytes_per_second"]),
        faulted=int(_number(found["faulted"])),
        restarts=int(_number(found["restarts"])),
    )


def _listed(found: Any, most: int) -> list[Any]:
    if not isinstance(found, list) or len(found) > most:
        raise ValueError("not a list, or a long one")
    return found


def _text(found: Any) -> str:
    if not isinstance(found, str):
        raise TypeError("not text")
    short = found[:_LONGEST_TEXT]
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}"
                   for each in short)  # fmt: skip


def _moment(found: Any) -> float:
    """Epoch seconds."""
    if not 0 <= (moment := _number(found)) <= _LATEST:
        raise ValueError("no date")
    return moment


def _number(found: Any) -> float:
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise TypeError("not a number")
    if not math.isfinite(found) or abs(found) > _LARGEST:
        raise ValueError("not a number to show")
    return found
