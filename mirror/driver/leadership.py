"""Which of several instances leads which flow.

Main types: `Leadership`, which is asked, and `share`, the rule: evenly, and moved as
little as that allows. Instances meet in a consumer group on each flow's target; who is
silent there for six seconds leads nothing any more. It only saves work: what keeps a
second writer from doing harm is fencing (`relay.ownership`), which does not trust it.
"""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass, field
import json
import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import structlog

from mirror.clusters.cluster import Cluster
from mirror.clusters.membership import SESSION_SECONDS, Membership
from mirror.errors import AuthorizationError, ClusterError
from mirror.log import LogThrottle

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.config.cluster_settings import ClusterConfig
    from mirror.config.schema import FlowConfig

log = structlog.get_logger()

_HEARTBEAT_SECONDS = 0.5
_VALID_SECONDS = SESSION_SECONDS + 3.0
"""A new sharing may take three seconds, in which the last one holds."""
_PAUSE_SECONDS = 1.0
_ALONE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What one instance says to the others."""

    name: str
    flows: tuple[str, ...]
    """Those it could lead."""
    leads: tuple[str, ...] = ()
    """Those it leads now."""
    ready: bool = True
    """Whether it could begin at once; else it gets what nobody else could lead."""


def share(wishes: Mapping[str, Wish]) -> dict[str, str]:
    """The member that shall lead each flow."""
    able = {
        flow: _ready([m for m, wish in wishes.items() if flow in wish.flows], wishes)
        for flow in {flow for wish in wishes.values() for flow in wish.flows}
    }
    # Who is the only one for a flow shall not have to lead others as well.
    wanted = sorted(able, key=lambda flow: (len(able[flow]), flow))
    load = dict.fromkeys(wishes, 0)
    members = {member for some in able.values() for member in some}
    fair = -(-len(wanted) // max(len(members), 1))
    leaders: dict[str, str] = {}
    for flow in wanted:
        now = [member for member in able[flow] if flow in wishes[member].leads]
        if now and load[keeps := _least(now, wishes, load)] < fair:
            leaders[flow] = keeps
            load[keeps] += 1
    for flow in wanted:
        if flow not in leaders:
            leaders[flow] = chosen = _least(able[flow], wishes, load)
            load[chosen] += 1
    return leaders


def _ready(members: list[str], wishes: Mapping[str, Wish]) -> list[str]:
    return [member for member in members if wishes[member].ready] or members


def _least(
    members: Iterable[str], wishes: Mapping[str, Wish], load: Mapping[str, int]
) -> str:
    return min(members, key=lambda m: (load[m], wishes[m].name, m))


@dataclass(slots=True)
class _Known:
    """What one thread knows of its target's flows."""

    heard_at: float = float("-inf")
    """When the coordinator last confirmed it."""
    leaders: Mapping[str, str] = field(default_factory=dict)
    """The leading instance's name by flow."""
    mine: frozenset[str] = frozenset()
    alone: bool = False
    """The cluster does not let us be in a group: this instance leads all."""
    trouble: str = ""
    """Why nothing is known."""
    leaving: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None


class Leadership:
    """Knows at any moment which flows this instance leads. Thread-safe."""

    def __init__(
        self,
        flows: Iterable[FlowConfig],
        clusters: Mapping[str, ClusterConfig],
        *,
        group: str | None,
    ) -> None:
        """`group`: where instances meet; None: this one leads every flow."""
        self.name = f"{socket.gethostname()}:{os.getpid()}"
        self._target = {flow.name: flow.target for flow in flows}
        self._clusters = clusters
        self._group = group
        self._ready = threading.Event()
        self._known = {target: _Known() for target in set(self._target.values())}

    def start(self) -> None:
        for target, known in self._known.items():
            self._take_seat(target, known)

    def change(
        self, flows: Iterable[FlowConfig], clusters: Mapping[str, ClusterConfig]
    ) -> None:
        """Take part for these flows from now on, by way of these connections.

        Not before a flow that is left out has ended: others take it over.
        """
        target = {flow.name: flow.target for flow in flows}
        self._clusters = {**self._clusters, **clusters}
        for alias in set(target.values()) - self._known.keys():
            self._known[alias] = known = _Known()
            self._take_seat(alias, known)
        self._target = target
        for alias in self._known.keys() - set(target.values()):
            self._leave([self._known.pop(alias)])

    def ready(self) -> None:
        """Flows could begin at once from here on."""
        self._ready.set()

    def close(self) -> None:
        """Leave the groups, so that others take over at once."""
        self._leave(self._known.values())

    def leads(self, flow: str) -> bool:
        if self._group is None:
            return True
        known = self._known_of(flow)
        if known.alone:
            return True
        fresh = time.monotonic() - known.heard_at < _VALID_SECONDS
        return fresh and flow in known.mine

    def leader(self, flow: str) -> str:
        """The name of the instance that leads it; empty while not known."""
        if self.leads(flow):
            return self.name
        leader = self._known_of(flow).leaders.get(flow, "")
        return "" if leader == self.name else leader

    def trouble(self, flow: str) -> str:
        """Why it is not known who leads it; empty if that takes no help."""
        return self._known_of(flow).trouble

    def _known_of(self, flow: str) -> _Known:
        """Nothing, of a flow that was left out meanwhile."""
        return self._known.get(self._target.get(flow, ""), _Known())

    def _take_seat(self, target: str, known: _Known) -> None:
        if self._group is not None:
            known.thread = threading.Thread(
                target=self._attend,
                args=(target, known, self._group),
                name=f"mirror-group-{target}",
            )
            known.thread.start()

    @staticmethod
    def _leave(some: Iterable[_Known]) -> None:
        some = list(some)
        for known in some:
            known.leaving.set()
        for known in some:
            if known.thread is not None:
                known.thread.join(_PAUSE_SECONDS * 3)

    def _attend(self, target: str, known: _Known, group: str) -> None:
        """The thread of one target's group."""
        throttle = LogThrottle()
        config = self._clusters[target]
        cluster = Cluster(config, client_id=f"mirror.{self.name}")
        membership = Membership(cluster, group, share=self._share)
        while not known.leaving.is_set():
            pause = _PAUSE_SECONDS
            try:
                if config != self._clusters[target]:
                    cluster.close()
                    config = self._clusters[target]
                    cluster = Cluster(config, client_id=f"mirror.{self.name}")
                    membership.go_on(cluster)
                if not cluster.cluster_id:
                    cluster.connect()
                self._take_part(target, known, membership, config)
                continue
            except AuthorizationError as error:
                known.alone = True
                pause = _ALONE_SECONDS
                if throttle.due(str(error)):
                    log.warning(
                        "instances cannot elect a leader: this one leads all; grant it "
                        "READ on the group, or set service.group to null",
                        group=group, cluster=target, error=str(error),
                    )  # fmt: skip
            except ClusterError as error:
                known.trouble = str(error)
                if throttle.due(str(error)):
                    log.warning("cannot elect a leader", cluster=target,
                                error=str(error))  # fmt: skip
            known.leaving.wait(pause)
        # Who cannot be reached will find out by itself.
        with contextlib.suppress(ClusterError):
            membership.leave()
        cluster.close()

    def _take_part(
        self,
        target: str,
        known: _Known,
        membership: Membership,
        config: ClusterConfig,
    ) -> None:
        """Until it shall leave, or the cluster is to be reached in another way."""
        while not known.leaving.is_set() and config == self._clusters[target]:
            ready, flows = self._ready.is_set(), self._flows_of(target)
            wish = self._wish(flows, ready=ready)
            got = json.loads(membership.join(wish))
            before = known.leaders
            known.leaders = got["leaders"]
            known.mine = frozenset(got["yours"])
            known.heard_at = time.monotonic()
            known.trouble, known.alone = "", False
            if known.leaders != before:
                log.info("leaders", cluster=target, **known.leaders)
            while not known.leaving.wait(_HEARTBEAT_SECONDS):
                began = time.monotonic()
                if not membership.heartbeat():
                    break
                known.heard_at = began
                if (
                    ready != self._ready.is_set()
                    or flows != self._flows_of(target)
                    or config != self._clusters[target]
                ):
                    break
            if not membership.member_id:  # the others count us out
                known.heard_at = float("-inf")

    def _flows_of(self, target: str) -> list[str]:
        return [flow for flow, to in self._target.items() if to == target]

    def _wish(self, flows: list[str], *, ready: bool) -> bytes:
        leads = [flow for flow in flows if self.leads(flow)]
        wish = Wish(name=self.name, flows=tuple(flows), leads=tuple(leads), ready=ready)
        return json.dumps(asdict(wish)).encode()

    @staticmethod
    def _share(said: Mapping[str, bytes]) -> Mapping[str, bytes]:
        wishes = {member: _parse(text) for member, text in said.items()}
        leaders = share(wishes)
        names = {flow: wishes[member].name for flow, member in leaders.items()}
        return {
            member: json.dumps(
                {
                    "leaders": names,
                    "yours": [f for f, leader in leaders.items() if leader == member],
                }
            ).encode()
            for member in wishes
        }


def _parse(text: bytes) -> Wish:
    said: dict[str, Any] = json.loads(text)
    return Wish(
        name=said["name"],
        flows=tuple(said["flows"]),
        leads=tuple(said["leads"]),
        ready=said["ready"],
    )
