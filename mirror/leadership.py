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
from mirror.complaint import Complaint
from mirror.errors import AuthorizationError, ClusterError

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
        self._stopping = threading.Event()
        self._ready = threading.Event()
        self._known = {target: _Known() for target in set(self._target.values())}
        self._threads = [
            threading.Thread(
                target=self._attend, args=(target,), name=f"mirror-group-{target}"
            )
            for target in self._known
            if group is not None
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def ready(self) -> None:
        """Flows could begin at once from here on."""
        self._ready.set()

    def close(self) -> None:
        """Leave the groups, so that others take over at once."""
        self._stopping.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(_PAUSE_SECONDS * 3)

    def leads(self, flow: str) -> bool:
        if self._group is None:
            return True
        known = self._known[self._target[flow]]
        if known.alone:
            return True
        fresh = time.monotonic() - known.heard_at < _VALID_SECONDS
        return fresh and flow in known.mine

    def leader(self, flow: str) -> str:
        """The name of the instance that leads it; empty while not known."""
        if self.leads(flow):
            return self.name
        leader = self._known[self._target[flow]].leaders.get(flow, "")
        return "" if leader == self.name else leader

    def trouble(self, flow: str) -> str:
        """Why it is not known who leads it; empty if that takes no help."""
        return self._known[self._target[flow]].trouble

    def _attend(self, target: str) -> None:
        """The thread of one target's group."""
        assert self._group is not None
        complaint = Complaint()
        known = self._known[target]
        cluster = Cluster(self._clusters[target], client_id=f"mirror.{self.name}")
        membership = Membership(cluster, self._group, share=self._share)
        while not self._stopping.is_set():
            pause = _PAUSE_SECONDS
            try:
                if not cluster.cluster_id:
                    cluster.connect()
                self._take_part(target, membership)
            except AuthorizationError as error:
                known.alone = True
                pause = _ALONE_SECONDS
                if complaint.due(str(error)):
                    log.warning(
                        "instances cannot agree who leads: this one leads all; give it "
                        "READ on the group, or set service.group to null",
                        group=self._group, cluster=target, error=str(error),
                    )  # fmt: skip
            except ClusterError as error:
                known.trouble = str(error)
                if complaint.due(str(error)):
                    log.warning("cannot agree who leads", cluster=target,
                                error=str(error))  # fmt: skip
            self._stopping.wait(pause)
        # Who cannot be reached will find out by itself.
        with contextlib.suppress(ClusterError):
            membership.leave()
        cluster.close()

    def _take_part(self, target: str, membership: Membership) -> None:
        known = self._known[target]
        while not self._stopping.is_set():
            ready = self._ready.is_set()
            got = json.loads(membership.join(self._wish(target, ready=ready)))
            before = known.leaders
            known.leaders = got["leaders"]
            known.mine = frozenset(got["yours"])
            known.heard_at = time.monotonic()
            known.trouble, known.alone = "", False
            if known.leaders != before:
                log.info("leaders", cluster=target, **known.leaders)
            while not self._stopping.wait(_HEARTBEAT_SECONDS):
                began = time.monotonic()
                if not membership.heartbeat() or ready != self._ready.is_set():
                    break
                known.heard_at = began
            if not membership.member_id:  # the others count us out
                known.heard_at = float("-inf")

    def _wish(self, target: str, *, ready: bool) -> bytes:
        flows = [flow for flow, to in self._target.items() if to == target]
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
