"""Decides which of several instances leads which flow.

Main type: `Leadership`. Main function: `choose_leaders`, which spreads flows evenly and
moves as few as possible. Instances meet in a consumer group on each flow's target; one
that is silent there for six seconds loses its flows, one that is seen to die
(`Lifelines`) at once. `rivals` finds instances that select other topics: the leader
alone copies. Leadership only avoids wasted work: fencing (`ownership`) keeps a second
writer from doing harm, and does not rely on it.
"""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass, field
import errno
import hashlib
import ipaddress
import json
import os
import select
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import structlog

from mirror.clusters.cluster import Cluster
from mirror.clusters.membership import SESSION_SECONDS, Membership
from mirror.errors import AuthorizationError, ClusterError
from mirror.host import process_name
from mirror.log import LogThrottle
from mirror.service.wakeup import ended

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirror.clusters.wire.connection import Connection
    from mirror.config.cluster_settings import ClusterConfig
    from mirror.config.schema import FlowConfig


log = structlog.get_logger()

_HEARTBEAT_SECONDS = 0.5
_VALID_SECONDS = SESSION_SECONDS + 3.0
"""A rebalance may take three seconds, during which the last result holds."""
_PAUSE_SECONDS = 1.0
_ALONE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberInfo:
    """What one instance tells the others."""

    name: str
    flows: tuple[str, ...]
    """Flows it could lead."""
    leads: tuple[str, ...] = ()
    """Flows it leads now."""
    ready: bool = True
    """Whether it could start at once; if not, it only gets flows that no ready instance
    can lead."""
    selects: Mapping[str, str] = field(default_factory=dict)
    """By flow, a fingerprint of what it selects; earlier releases say nothing."""
    lifeline: Address | None = None
    """Where others see that it lives; None: nowhere, as in earlier releases."""


def choose_leaders(infos: Mapping[str, MemberInfo]) -> dict[str, str]:
    """Choose the member that leads each flow."""
    able = {
        flow: _ready([m for m, info in infos.items() if flow in info.flows], infos)
        for flow in {flow for info in infos.values() for flow in info.flows}
    }
    # The only candidate for a flow should not have to lead others as well.
    wanted = sorted(able, key=lambda flow: (len(able[flow]), flow))
    load = dict.fromkeys(infos, 0)
    members = {member for some in able.values() for member in some}
    fair = -(-len(wanted) // max(len(members), 1))
    leaders: dict[str, str] = {}
    for flow in wanted:
        now = [member for member in able[flow] if flow in infos[member].leads]
        if now and load[keeps := _least(now, infos, load)] < fair:
            leaders[flow] = keeps
            load[keeps] += 1
    for flow in wanted:
        if flow not in leaders:
            leaders[flow] = chosen = _least(able[flow], infos, load)
            load[chosen] += 1
    return leaders


def _ready(members: list[str], infos: Mapping[str, MemberInfo]) -> list[str]:
    return [member for member in members if infos[member].ready] or members


def _least(
    members: Iterable[str], infos: Mapping[str, MemberInfo], load: Mapping[str, int]
) -> str:
    return min(members, key=lambda m: (load[m], infos[m].name, m))


@dataclass(slots=True)
class _KnownFlows:
    """What one thread knows about its target's flows."""

    heard_at: float = float("-inf")
    """When the coordinator last confirmed it."""
    leaders: Mapping[str, str] = field(default_factory=dict)
    """The leading instance's name by flow."""
    mine: frozenset[str] = frozenset()
    alone: bool = False
    """The cluster does not let us join the group: this instance leads all flows."""
    trouble: str = ""
    """Why nothing is known."""
    others: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By flow, the instances that select other topics for it."""
    others_since: Mapping[str, float] = field(default_factory=dict)
    """By flow, since when there are any without a break, monotonic."""
    thread: threading.Thread | None = None
    leaving: threading.Event = field(init=False)

    def __post_init__(self) -> None:
        self.leaving = threading.Event()

    def note_others(self, others: Mapping[str, Sequence[str]]) -> None:
        now, before = time.monotonic(), self.others_since
        self.others_since = {flow: before.get(flow, now) for flow in others}
        self.others = others


class Leadership:
    """Knows at any moment which flows this instance leads. Thread-safe."""

    def __init__(
        self,
        flows: Iterable[FlowConfig],
        clusters: Mapping[str, ClusterConfig],
        *,
        group: str | None,
    ) -> None:
        """`group` is the consumer group of all instances; None: this one leads every
        flow.
        """
        self.name = process_name()
        self._flows = {flow.name: flow for flow in flows}
        self._clusters = clusters
        self._group = group
        self._ready = threading.Event()
        self._known = {target: _KnownFlows() for target in self._targets}

    @property
    def _targets(self) -> set[str]:
        return {flow.target for flow in self._flows.values()}

    def start(self) -> None:
        for target, known in self._known.items():
            self._join(target, known)

    def change(
        self, flows: Iterable[FlowConfig], clusters: Mapping[str, ClusterConfig]
    ) -> None:
        """From now on, take part for these flows, over these clusters.

        Call it only after a flow that is left out has ended: others take it over.
        """
        self._flows = {flow.name: flow for flow in flows}
        self._clusters = {**self._clusters, **clusters}
        for alias in self._targets - self._known.keys():
            self._known[alias] = known = _KnownFlows()
            self._join(alias, known)
        for alias in self._known.keys() - self._targets:
            self._leave([self._known.pop(alias)])

    def ready(self) -> None:
        """From now on, flows could start here at once."""
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

    def keeps(self, flow: str) -> bool:
        """Whether this instance may go on with a run that it has begun. Its group's
        coordinator may be silent for long, as while the broker that had been it is
        dead: an instance that is elected meanwhile fences the run, which then ends.
        """
        if self._group is None:
            return True
        known = self._known_of(flow)
        return known.alone or flow in known.mine

    def leader(self, flow: str) -> str:
        """The name of the instance that leads the flow; empty while unknown."""
        if self.leads(flow):
            return self.name
        leader = self._known_of(flow).leaders.get(flow, "")
        return "" if leader == self.name else leader

    def trouble(self, flow: str) -> str:
        """Why the flow's leader is unknown; empty if there is no error."""
        return self._known_of(flow).trouble

    def rivals(self, flow: str, *, settled: bool = False) -> str:
        """Which instances of this group select other topics for a flow, in words; empty
        if none do. `settled`: only if that is no rolling restart.
        """
        known, now = self._known_of(flow), time.monotonic()
        others = known.others.get(flow, ())
        seconds = now - known.others_since.get(flow, now)
        if settled and seconds < ROLLING_SECONDS:
            return ""
        return rivals_text(flow, others, seconds)

    def _known_of(self, flow: str) -> _KnownFlows:
        """What is known about a flow's target; nothing for a removed flow."""
        config = self._flows.get(flow)
        return (
            _KnownFlows()
            if config is None
            else self._known.get(config.target, _KnownFlows())
        )

    def _join(self, target: str, known: _KnownFlows) -> None:
        if self._group is not None:
            known.thread = threading.Thread(
                target=self._follow_group,
                args=(target, known, self._group),
                name=f"mirror-group-{target}",
            )
            known.thread.start()

    @staticmethod
    def _leave(some: Iterable[_KnownFlows]) -> None:
        some = list(some)
        for known in some:
            known.leaving.set()
        for known in some:
            if known.thread is not None:
                known.thread.join(_PAUSE_SECONDS * 3)

    def _follow_group(self, target: str, known: _KnownFlows, group: str) -> None:
        """The thread of one target's group."""
        throttle = LogThrottle()
        config = self._clusters[target]
        cluster = Cluster(config, client_id=f"mirror.{self.name}")
        membership = Membership(cluster, group, share=self._share)
        lifelines = Lifelines()
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
                if lifelines.address is None:
                    _listen(lifelines, cluster)
                self._take_part(target, known, membership, lifelines, config)
                continue
            except AuthorizationError as error:
                known.alone = True
                known.note_others({})
                pause = _ALONE_SECONDS
                if throttle.due(str(error)):
                    log.warning(
                        "instances cannot elect a leader: this one leads all; grant it "
                        "READ on the group, or set service.group to null",
                        group=group, cluster=target, error=str(error),
                    )  # fmt: skip
            except ClusterError as error:
                # Any connection may break: a second failure tells that more is wrong.
                if known.trouble and throttle.due(str(error)):
                    log.warning("cannot elect a leader", cluster=target,
                                error=str(error))  # fmt: skip
                known.trouble = str(error)
            known.leaving.wait(pause)
        # An unreachable coordinator notices by itself, when the session times out.
        with contextlib.suppress(ClusterError):
            membership.leave()
        lifelines.close()  # not before: others would see a death
        cluster.close()

    def _take_part(
        self,
        target: str,
        known: _KnownFlows,
        membership: Membership,
        lifelines: Lifelines,
        config: ClusterConfig,
    ) -> None:
        """Take part until it must leave, or until the cluster's settings change."""
        while not known.leaving.is_set() and config == self._clusters[target]:
            ready, flows = self._ready.is_set(), self._flows_of(target)
            selects = _selects(flows)
            info = self._own_info(flows, lifelines.address, ready=ready)
            got = json.loads(membership.join(info))
            before = known.leaders
            known.leaders = got["leaders"]
            known.mine = frozenset(got["yours"])
            known.note_others(got.get("others", {}))
            known.heard_at = time.monotonic()
            known.trouble, known.alone = "", False
            lifelines.hold(_addresses(got.get("lifelines", {})))
            if known.leaders != before:
                log.info("leaders", cluster=target, **known.leaders)
            while not known.leaving.wait(_HEARTBEAT_SECONDS):
                began = time.monotonic()
                if not membership.heartbeat():
                    break
                known.heard_at = began
                if dead := lifelines.dead():
                    log.warning("instances have died", members=sorted(dead))
                    membership.remove(dead, reason="died")
                    break
                if (
                    ready != self._ready.is_set()
                    or selects != _selects(self._flows_of(target))
                    or config != self._clusters[target]
                ):
                    break
            if not membership.member_id:  # the group has removed us
                known.heard_at, known.mine = float("-inf"), frozenset()

    def _flows_of(self, target: str) -> list[FlowConfig]:
        return [flow for flow in self._flows.values() if flow.target == target]

    def _own_info(
        self, flows: list[FlowConfig], lifeline: Address | None, *, ready: bool
    ) -> bytes:
        info = MemberInfo(
            name=self.name,
            flows=tuple(flow.name for flow in flows),
            leads=tuple(flow.name for flow in flows if self.leads(flow.name)),
            ready=ready,
            selects=_selects(flows),
            lifeline=lifeline,
        )
        return json.dumps(asdict(info)).encode()

    @staticmethod
    def _share(texts: Mapping[str, bytes]) -> Mapping[str, bytes]:
        infos = {member: _parse(text) for member, text in texts.items()}
        leaders = choose_leaders(infos)
        names = {flow: infos[member].name for flow, member in leaders.items()}
        return {
            member: json.dumps(
                {
                    "leaders": names,
                    "yours": [f for f, leader in leaders.items() if leader == member],
                    "others": rivals(infos, member),
                    "lifelines": {
                        other: info.lifeline
                        for other, info in infos.items()
                        if other != member and info.lifeline
                    },
                }
            ).encode()
            for member in infos
        }


def _selects(flows: Iterable[FlowConfig]) -> dict[str, str]:
    return {flow.name: fingerprint(flow) for flow in flows}


def _parse(text: bytes) -> MemberInfo:
    fields: dict[str, Any] = json.loads(text)
    return MemberInfo(
        name=fields["name"],
        flows=tuple(fields["flows"]),
        leads=tuple(fields["leads"]),
        ready=fields["ready"],
        selects=fields.get("selects", {}),
        lifeline=address_in(fields.get("lifeline")),
    )


def _addresses(given: Mapping[str, Any]) -> dict[str, Address]:
    found = ((member, address_in(each)) for member, each in given.items())
    return {member: address for member, address in found if address is not None}


def _listen(lifelines: Lifelines, cluster: Cluster) -> None:
    try:
        lifelines.listen(host_towards(cluster.any_connection()))
    except OSError as error:
        log.warning(
            "other instances will not see at once if this one dies", error=str(error)
        )


# ---- instances of one group that select other topics ----


ROLLING_SECONDS = 180.0
"""A rolling restart, or a changed file on its way to all instances, takes less."""


def fingerprint(flow: FlowConfig) -> str:
    """The same for flows that select the same topics."""
    text = json.dumps([sorted(flow.topics), sorted(flow.topics_exclude)])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def rivals(infos: Mapping[str, MemberInfo], member: str) -> dict[str, list[str]]:
    """By flow, the instances that select other topics for it than this member."""
    found: dict[str, list[str]] = {}
    for flow, own in infos[member].selects.items():
        others = (w.name for w in infos.values() if w.selects.get(flow, own) != own)
        if names := sorted(others):
            found[flow] = names
    return found


def rivals_text(flow: str, others: Sequence[str], seconds: float) -> str:
    """What to tell of a flow; empty if there is nothing, or not yet."""
    if not others:
        return ""
    if seconds < ROLLING_SECONDS:
        return (
            f"{', '.join(others)} of the same service.group selects other topics, as "
            "during a rolling restart"
        )
    return (
        f"{', '.join(others)} of the same service.group selects other topics, and only "
        f"the leader of {flow} copies. Give all of them one configuration, with all "
        "topics that the flow is to copy"
    )


# ---- notices at once when the process of another instance has died ----
#
# Each instance listens on a free port, and holds a connection to each other one's.
# The system ends the connections of a dead process and refuses new ones: seconds
# before its session in the group expires. Nothing is sent. What cannot be told from
# a broken network (a lost host, a packet filter, a process that hangs) is left to
# that session. Main type: `Lifelines`, for one thread.


Address = tuple[str, int]

_MOST_HELD = 100
"""Connections that others may hold; one more closes the oldest."""
_ANSWER_MS = 20
"""How long a host that has just ended a connection has to take or refuse another one.
Later its answer is seen at the next look."""
_LAST_PORT = (1 << 16) - 1
_UNDER_WAY = frozenset({0, errno.EINPROGRESS})


class Lifelines:
    """The connections of one instance to the others, and theirs to it."""

    def __init__(self) -> None:
        self.address: Address | None = None
        """Where it listens; None: the others cannot watch this instance."""
        self._listener: socket.socket | None = None
        self._held: list[socket.socket] = []
        self._lines: dict[str, _Line] = {}

    def listen(self, host: str) -> Address:
        """Listen on a free port of `host`, an address of this machine; returns both.

        Raises:
            OSError: it cannot.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family)
        self._listener.setblocking(False)
        self.address = (host, self._listener.getsockname()[1])
        return self.address

    def hold(self, addresses: Mapping[str, Address]) -> None:
        """Hold connections to these members, and to no others."""
        for member in self._lines.keys() - addresses.keys():
            self._lines.pop(member).close()
        for member in addresses.keys() - self._lines.keys():
            self._lines[member] = _Line(addresses[member])

    def dead(self) -> frozenset[str]:
        """The members whose process has died, as far as it can be told now."""
        self._accept()
        return frozenset(m for m, line in self._lines.items() if line.is_dead())

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        for stranger in self._held:
            stranger.close()
        for line in self._lines.values():
            line.close()

    def _accept(self) -> None:
        if self._listener is None:
            return
        # The system takes connections for us, so this may be late.
        with contextlib.suppress(OSError):
            while True:
                self._held.append(self._listener.accept()[0])
        self._held = [each for each in self._held if not ended(each)]
        while len(self._held) > _MOST_HELD:
            self._held.pop(0).close()


class _Line:
    """A connection to one member."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._was_open = self._is_open = False
        self._error = 0
        """What came of the attempt to connect, unless it is under way."""
        self._socket: socket.socket | None = None
        self._connect()

    def is_dead(self) -> bool:
        """Whether it was open, has ended, and is refused now."""
        if not self._is_open:
            return self._is_refused(0)
        if self._socket is None or not ended(self._socket):
            return False
        self._is_open = False
        self._connect()
        return self._is_refused(_ANSWER_MS)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connect(self) -> None:
        self.close()
        family = socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET
        try:
            self._socket = socket.socket(family, socket.SOCK_STREAM)
        except OSError:  # too many open files: nothing can be told of this member
            return
        self._socket.setblocking(False)
        self._error = self._socket.connect_ex(self._address)

    def _is_refused(self, wait_ms: int) -> bool:
        """Whether the last attempt is refused, by a host that took an earlier one."""
        if self._socket is None:
            return False
        error = self._error
        if error in _UNDER_WAY:
            poller = select.poll()
            poller.register(self._socket, select.POLLOUT)
            if not poller.poll(wait_ms):
                return False
            error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if not error:
            self._is_open = self._was_open = True
            return False
        self.close()
        return self._was_open and error == errno.ECONNREFUSED


def address_in(given: Any) -> Address | None:
    """What another instance says, if that is an address."""
    try:
        host, port = given
        found = str(ipaddress.ip_address(host)), int(port)
    except (TypeError, ValueError):
        return None
    return found if 0 < found[1] <= _LAST_PORT else None


def host_towards(connection: Connection) -> str:
    """The address of this machine that a broker sees."""
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        return str(same.getsockname()[0])
