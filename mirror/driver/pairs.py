"""Follows the journals of pairs: which flows may copy, and which jobs a switch holds.

Main type: `PairFollower`, with a thread per cluster that reads its journal every
second. A flow may copy once its target's journal was read and says, together with the
other one, that its source is active; while a switch is under way, jobs that would
change what it moves wait. It gives a new pair its first role, and brings to each
journal what only the other one has, except what an operator is about to write there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import threading
import time
from typing import TYPE_CHECKING

import structlog

from mirror import retry
from mirror.clusters.cluster import Cluster
from mirror.errors import MirrorError
from mirror.host import process_name
from mirror.log import LogThrottle
from mirror.recovery import beginnings, journal, roles
from mirror.recovery.journal import JournalReader, Kind
from mirror.status.pairs import MemberStatus, PairStatus, PassiveStatus, RunStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirror.config.pair_settings import PairConfig
    from mirror.config.schema import MirrorConfig
    from mirror.offsets.progress import Position
    from mirror.recovery.journal import Entry
    from mirror.recovery.roles import Role, Run
    from mirror.status.store import StatusStore

TopicPartition = tuple[str, int]

log = structlog.get_logger()

_PAUSE_SECONDS = 1.0
_MOST_RUNS = 5
_AGAIN = retry.Backoff(0.5, 2.0)
"""After a failure: roles are followed within seconds of a cluster's first answer."""


@dataclass(slots=True, kw_only=True)
class _Member:
    """What one cluster's journal says."""

    entries: tuple[Entry, ...] = ()
    read_at: float = 0.0
    read_monotonic: float = 0.0
    error: str = ""
    throttle: LogThrottle = field(default_factory=LogThrottle)


class PairFollower:
    """Knows the roles of all pairs. Thread-safe."""

    def __init__(self, config: MirrorConfig, store: StatusStore) -> None:
        self._pairs = dict(config.recovery)
        self._clusters = config.clusters
        self._store = store
        self._by = f"service {process_name()}"
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._members = {
            alias: _Member() for pair in self._pairs.values() for alias in pair.members
        }
        self._passive: dict[tuple[str, str], PassiveStatus] = {}
        self._threads = [
            threading.Thread(
                target=self._follow, args=(alias,), name=f"mirror-journal-{alias}"
            )
            for alias in self._members
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._closing.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def may_copy(self, source: str, target: str) -> bool | None:
        """Whether the flow between these clusters may copy now; None while the target's
        journal was never read, or the pair has no role yet.
        """
        pair = self._pair(source, target)
        if pair is None:
            return True
        with self._lock:
            if not self._members[target].read_at:
                return None
            run = self._run(pair)
            if run is not None and run.stops(source, target):
                return False
            role = self._role(pair)
            if not role.epoch:  # a service with another configuration may be first
                return None
            return pair.both_ways or role.active == source

    def trouble(self, source: str, target: str) -> str:
        """Why a journal cannot be read, first the target's; empty if both can be."""
        with self._lock:
            return self._members[target].error or self._members[source].error

    def holds(self, source: str, target: str) -> bool:
        """Whether a switch or failover of these clusters is under way."""
        pair = self._pair(source, target)
        if pair is None:
            return False
        with self._lock:
            return self._run(pair) is not None

    def entries(self, pair: PairConfig) -> tuple[Entry, ...]:
        """What both journals say about a pair, as of their last looks."""
        with self._lock:
            return self._entries(pair)

    def tell(
        self,
        pair: PairConfig,
        alias: str,
        *,
        error: str = "",
        writes: int | None = None,
    ) -> None:
        """Show what a look at a cluster of a pair found. `writes`: None if they could
        not be counted this time.
        """
        with self._lock:
            last = self._passive.get((pair.name, alias), PassiveStatus())
            self._passive[pair.name, alias] = PassiveStatus(
                error=error, writes=last.writes if writes is None else writes
            )

    def passive(self) -> frozenset[str]:
        """The names of the flows into the active clusters of all pairs."""
        with self._lock:
            return frozenset(
                f"{pair.other_than(active)}->{active}"
                for pair in self._pairs.values()
                for active in [self._role(pair).active]
            )

    def begins(
        self, source: str, target: str
    ) -> Mapping[TopicPartition, Position] | None:
        """Where the flow between these clusters begins if it has never run; None: where
        its `start` says.
        """
        pair = self._pair(source, target)
        if pair is None:
            return None
        entries = self.entries(pair)
        made = roles.newest_role(entries)
        if made is None or made.target != source:
            return None
        return beginnings.read(roles.run_of(made, entries).details(roles.ROLE))

    def failed_over(self, source: str, target: str) -> int:
        """The epoch of the failover that made the source of this flow active, so that
        nobody could move the flow's positions; 0 if its role comes from elsewhere.
        """
        pair = self._pair(source, target)
        made = None if pair is None else roles.newest_role(self.entries(pair))
        if made is None or made.kind is not Kind.FAILOVER or made.target != source:
            return 0
        return made.epoch

    def _pair(self, source: str, target: str) -> PairConfig | None:
        return next(
            (p for p in self._pairs.values() if {source, target} == set(p.members)),
            None,
        )

    def _follow(self, alias: str) -> None:
        pause = 0.0
        cluster = Cluster(self._clusters[alias], client_id="mirror.pairs")
        member = self._members[alias]
        try:
            reader = JournalReader(cluster)
            while not self._closing.is_set():
                try:
                    if not cluster.cluster_id:
                        cluster.connect()
                    self._took(alias, reader.read(wait=False))
                    self._complete(alias, cluster)
                    pause = _PAUSE_SECONDS
                    member.throttle.clear()
                except MirrorError as error:
                    pause = _AGAIN.after(pause)
                    self._failed(member, str(error))
                except Exception as error:
                    log.exception("reading the journal failed", cluster=alias)
                    pause = _AGAIN.after(pause)
                    self._failed(member, f"{type(error).__name__}: {error}"[:300])
                self._show()
                self._closing.wait(pause)
        finally:
            cluster.close()

    def _took(self, alias: str, entries: tuple[Entry, ...]) -> None:
        with self._lock:
            member = self._members[alias]
            member.entries, member.error = entries, ""
            member.read_at, member.read_monotonic = time.time(), time.monotonic()

    def _failed(self, member: _Member, error: str) -> None:
        with self._lock:
            member.error = error
        if member.throttle.due(error):
            log.warning("the journal cannot be read", error=error)

    def _complete(self, alias: str, cluster: Cluster) -> None:
        """Write to this cluster's journal what it is missing.

        Raises:
            MirrorError: the cluster does not let us.
        """
        for pair in self._pairs.values():
            if alias not in pair.members:
                continue
            with self._lock:
                missing = self._missing(pair, alias)
            if missing:
                journal.copy(cluster, missing)

    def _missing(self, pair: PairConfig, alias: str) -> tuple[Entry, ...]:
        there = self._members[alias]
        other = self._members[pair.other_than(alias)]
        if not (there.read_at and other.read_at):
            return ()
        entries = self._entries(pair)
        if not entries and alias == roles.first_member(pair):
            return roles.first_role(pair, at=time.time(), by=self._by)
        run = roles.open_run(entries)
        if run is not None and run.first.kind is Kind.SWITCH and not run.moved:
            # Its operator writes both journals, and may still undo it.
            entries = tuple(each for each in entries if each.run != run.first.run)
        return journal.missing(entries, there.entries)

    def _entries(self, pair: PairConfig) -> tuple[Entry, ...]:
        journals = (self._members[alias].entries for alias in pair.members)
        return roles.merged(*journals, pair=pair.name)

    def _role(self, pair: PairConfig) -> Role:
        return roles.role(self._entries(pair), pair)

    def _run(self, pair: PairConfig) -> Run | None:
        return roles.open_run(self._entries(pair))

    def _show(self) -> None:
        with self._lock:
            pairs = tuple(self._status(pair) for pair in self._pairs.values())
        self._store.pairs = pairs

    def _status(self, pair: PairConfig) -> PairStatus:
        entries = self._entries(pair)
        role, run = roles.role(entries, pair), roles.open_run(entries)
        runs = roles.runs(entries)
        owed = roles.owed(entries) if pair.fence == "acl" else None
        return PairStatus(
            name=pair.name,
            active=role.active,
            epoch=role.epoch,
            since=role.since,
            run=run.text if run is not None else "",
            remark=roles.remark(entries, pair),
            step=run.step if run is not None else 0,
            block_seconds=_block_seconds(runs),
            fence_owed=owed.source if owed is not None else "",
            passive=self._passive.get(
                (pair.name, pair.other_than(role.active)), PassiveStatus()
            ),
            runs=tuple(
                RunStatus(
                    name=each.name,
                    text=each.text,
                    began=each.first.at,
                    by=each.first.by,
                )
                for each in runs[: -_MOST_RUNS - 1 : -1]
            ),
            members=tuple(
                MemberStatus(
                    cluster=alias,
                    active=_active(pair, self._members[alias].entries),
                    read_at=self._members[alias].read_at,
                    read_monotonic=self._members[alias].read_monotonic,
                    error=self._members[alias].error,
                )
                for alias in pair.members
            ),
        )


def _block_seconds(runs: Sequence[Run]) -> float:
    """Of the last run that kept producers from writing; -1 if none has."""
    block = next((each.block for each in reversed(runs) if each.block), None)
    if block is None:
        return -1.0
    return max((block.ended or time.time()) - block.began, 0.0)


def _active(pair: PairConfig, entries: tuple[Entry, ...]) -> str:
    """The active cluster by one journal; empty if it has no role."""
    found = roles.role(roles.merged(entries, pair=pair.name), pair)
    return found.active if found.epoch else ""
