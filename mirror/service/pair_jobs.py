"""What a service does for its pairs from time to time: owed fences, counts, drills.

Main types: `PassiveClusters`, with a thread for each member of a pair, since one that
is gone keeps only its own thread waiting, and `Drills`, with one thread for all pairs,
away from the slots. What lays fences, reads tails and drills stands above this room:
the command line passes it in. Of several instances the one that leads the flow into the
active cluster changes ACLs and counts its tail; all count writes. The one that leads
the flow out of it drills; the journal says when the last drill was.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from mirror.clusters import cpu_share
from mirror.clusters.cluster import Cluster
from mirror.clusters.reach import Reach
from mirror.config import scopes
from mirror.errors import MirrorError
from mirror.host import process_name
from mirror.log import LogThrottle
from mirror.pairs import roles
from mirror.pairs.journal import JournalReader, Kind
from mirror.pairs.risk import PassiveWrites

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirror.config.pair_settings import PairConfig
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.pairs.journal import Entry
    from mirror.service.pairs import PairFollower


log = structlog.get_logger()

_PAUSE_SECONDS = 0.5
_LOOK_SECONDS = 10.0
"""Between looks at clusters that owe nothing."""
_TAIL_SECONDS = 30.0
"""Between counts of a tail."""


class SettleFence(Protocol):
    """Lays the fence that a cluster owes, lifts one that must not be there, and undoes
    what is pending.
    """

    def __call__(
        self,
        config: MirrorConfig,
        pair: PairConfig,
        cluster: Cluster,
        entries: Callable[[], Sequence[Entry]],
        *,
        by: str,
    ) -> bool:
        """As `recovery.owed.settle_fence`."""


class CountTail(Protocol):
    """Counts what is not settled of a flow's tail, again and again."""

    def look(self, flow: FlowConfig, source: Cluster, target: Cluster) -> int:
        """As `recovery.tails.unsettled.Unsettled.look`."""


class PassiveClusters:
    """Looks at the members of all pairs until closed."""

    def __init__(
        self,
        config: Callable[[], MirrorConfig],
        follower: PairFollower,
        settle_fence: SettleFence,
        *,
        leads: Callable[[str], bool],
        new_count: Callable[[], CountTail],
    ) -> None:
        """`config`: the one in effect; `leads`: whether this instance leads a flow;
        `new_count` begins to count a tail.
        """
        self.config, self.follower = config, follower
        self.settle_fence, self.leads, self.new_count = settle_fence, leads, new_count
        self._closing = threading.Event()
        members = [
            _Member(self, pair, alias)
            for pair in config().recovery.values()
            for alias in pair.members
        ]
        self._threads = [
            threading.Thread(
                target=member.watch,
                args=(self._closing,),
                name=f"mirror-passive-{member.name}",
            )
            for member in members
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._closing.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()


class _Member:
    """One cluster of one pair."""

    def __init__(self, every: PassiveClusters, pair: PairConfig, alias: str) -> None:
        self.name = f"{pair.name}-{alias}"
        self._pair, self._alias = pair, alias
        self._config, self._follower = every.config, every.follower
        self._settle_fence, self._leads = every.settle_fence, every.leads
        self._new_count = every.new_count
        self._by = f"service {process_name()}"
        self._throttle = LogThrottle()
        self._looked_at = 0.0
        self._laid = 0
        """The epoch of the last fence that was laid here."""
        self._writes: PassiveWrites | None = None
        self._tail = every.new_count()
        self._tail_epoch = 0
        self._tail_at = 0.0

    def watch(self, closing: threading.Event) -> None:
        cluster = self._new_cluster()
        while not closing.wait(_PAUSE_SECONDS):
            try:
                self._turn(cluster)
                continue
            except MirrorError as error:
                self._failed(str(error))
            except Exception as error:
                log.exception("a look at a pair failed", cluster=self._alias)
                self._failed(f"{type(error).__name__}: {error}"[:300])
            cluster.close()  # its brokers may come back elsewhere
            cluster = self._new_cluster()
        cluster.close()

    def _new_cluster(self) -> Cluster:
        clusters = self._config().clusters
        cluster = Cluster(clusters[self._alias], client_id="mirror.passive")
        self._reader = JournalReader(cluster)
        return cluster

    def _failed(self, error: str) -> None:
        self._follower.show_passive(self._pair, self._alias, error=error)
        if self._throttle.due(error):
            log.warning("a look at a pair failed", cluster=self._alias, error=error)

    def _turn(self, cluster: Cluster) -> None:
        """Raises MirrorError: try again."""
        role = self._follower.role(self._pair)
        if not role.epoch:
            return
        entries = self._follower.entries(self._pair)
        other = self._pair.other_than(role.active)
        leads = self._leads(f"{other}->{role.active}")
        owes = self._pair.fence == "acl" and leads and self._laid != role.epoch
        made = roles.owed(entries) if owes else None
        now = time.monotonic()
        if not (
            (made is not None and made.source == self._alias)
            or now - self._looked_at > _LOOK_SECONDS
        ):
            return
        self._looked_at = now
        if not cluster.cluster_id:
            cluster.connect()
        if leads:
            self._settle_here(cluster, role.epoch)
        writes = tail = None
        if rests := self._alias == other and not self._pair.both_ways:
            writes = self._count(cluster, entries, role.epoch)
        self._follower.show_passive(self._pair, self._alias, writes=writes)
        if rests and leads:
            tail = self._count_tail(cluster, entries, role.epoch)
            self._follower.show_passive(self._pair, self._alias, tail=tail)
        self._throttle.clear()

    def _settle_here(self, cluster: Cluster, epoch: int) -> None:
        def now() -> tuple[Entry, ...]:
            here = self._reader.read(wait=False, seconds=0.0)
            known = self._follower.entries(self._pair)
            return roles.merged(here, known, pair=self._pair.name)

        if self._settle_fence(self._config(), self._pair, cluster, now, by=self._by):
            if self._laid != epoch:
                log.info("the pending fence is laid", cluster=self._alias)
            self._laid = epoch

    def _count(self, cluster: Cluster, entries: Sequence[Entry], epoch: int) -> int:
        """-1: no topic tells."""
        other = self._pair.other_than(self._alias)
        out, back = (
            scopes.within(self._flow(*ends), self._pair)
            for ends in ((self._alias, other), (other, self._alias))
        )
        if self._writes is None or self._writes.epoch != epoch:
            self._writes = PassiveWrites(entries)
        found = self._writes.look(cluster, out, back, at=time.time())
        return -1 if found is None else found

    def _count_tail(
        self, cluster: Cluster, entries: Sequence[Entry], epoch: int
    ) -> int | None:
        """None: not now. Only a failover leaves a tail."""
        made = roles.newest_role(entries)
        if made is None or made.kind is not Kind.FAILOVER:
            return 0
        now = time.monotonic()
        if self._tail_epoch != epoch:
            self._tail, self._tail_epoch = self._new_count(), epoch
        elif now - self._tail_at < _TAIL_SECONDS:
            return None
        self._tail_at = now
        clusters = self._config().clusters
        active = Cluster(clusters[made.target], client_id="mirror.passive")
        with contextlib.closing(active):
            active.connect()
            flow = self._flow(self._alias, made.target)
            return self._tail.look(flow, cluster, active)

    def _flow(self, source: str, target: str) -> FlowConfig:
        """Also one that another instance runs (`mirror run --clusters`)."""
        flows = self._config().enabled_flows
        return next(f for f in flows if (f.source, f.target) == (source, target))


# ---- drills ----


_DRILL_PAUSE_SECONDS = 1.0
_FIRST_DRILL_SECONDS = 300.0
"""A service that has just started copies first what it has missed."""
_DRILL_SHARE = cpu_share.SHARE / 2
"""Of a core: no one waits for these drills."""
_DRILL_AGAIN_SECONDS = 60.0
"""After a drill that could not be carried out."""


class Rehearse(Protocol):
    """Drills a failover along a flow, and keeps the outcome in the journal."""

    def __call__(
        self,
        config: MirrorConfig,
        pair: PairConfig,
        flow: FlowConfig,
        reach: Callable[[str], Cluster],
        *,
        by: str,
    ) -> tuple[Any, str]:
        """As `recovery.drilling.runner.rehearse`."""


class Drills:
    """Drills all pairs until closed."""

    def __init__(
        self,
        config: Callable[[], MirrorConfig],
        follower: PairFollower,
        rehearse: Rehearse,
        *,
        leads: Callable[[str], bool],
    ) -> None:
        """`config`: the one in effect; `leads`: whether this instance leads a flow."""
        self._config, self._follower = config, follower
        self._rehearse, self._leads = rehearse, leads
        self._by = f"service {process_name()}"
        self._began = time.time()
        self._tried: dict[str, float] = {}
        self._throttle = LogThrottle()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mirror-drills")

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(_DRILL_PAUSE_SECONDS):
            for pair in self._config().recovery.values():
                self._turn(pair)

    def _turn(self, pair: PairConfig) -> None:
        try:
            if (flow := self._due(pair)) is not None:
                self._drill(pair, flow)
        except MirrorError as error:
            self._failed(pair, str(error))
        except Exception as error:
            log.exception("a drill failed", pair=pair.name)
            self._failed(pair, f"{type(error).__name__}: {error}"[:300])

    def _due(self, pair: PairConfig) -> FlowConfig | None:
        """The flow along which a drill is due; None: none is."""
        every, now = pair.drill_every_seconds, time.time()
        status = self._follower.role(pair)
        if not every or not status.epoch:
            return None
        other = pair.other_than(status.active)
        flow = self._config().flows.get(f"{status.active}->{other}")
        if flow is None:  # another instance runs it (`mirror run --clusters`)
            return None
        if not self._leads(flow.name):
            return None
        if self._follower.switching(flow.source, flow.target):
            return None
        last = max((each.at for each in self._follower.drills(pair)), default=0.0)
        due = max(
            last + every,
            max(self._began, status.since) + min(every, _FIRST_DRILL_SECONDS),
            self._tried.get(pair.name, 0.0) + min(every, _DRILL_AGAIN_SECONDS),
        )
        return flow if now >= due else None

    def _drill(self, pair: PairConfig, flow: FlowConfig) -> None:
        config = self._config()
        self._tried[pair.name] = time.time()
        with (
            cpu_share.gently(_DRILL_SHARE),
            Reach(config.clusters, client_id="mirror.drill") as reach,
        ):
            done, not_kept = self._rehearse(config, pair, flow, reach, by=self._by)
        log.info("drill", pair=pair.name, verdict=str(done.text))
        if not_kept:
            self._failed(pair, not_kept)

    def _failed(self, pair: PairConfig, error: str) -> None:
        if self._throttle.due(error):
            log.warning("a drill failed", pair=pair.name, error=error)
