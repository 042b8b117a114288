"""Follows the journals of pairs: which flows may copy, and which jobs a switch holds.

Main type: `PairFollower`, with a thread per cluster that reads its journal every
second. A flow may copy once its target's journal was read and says, together with the
other one, that its source is active; while a switch is under way, jobs that would
change what it moves wait. It gives a new pair its first role, and brings to each
journal what only the other one has.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import os
import socket
import threading
import time
from typing import TYPE_CHECKING

import structlog

from mirror import retry
from mirror.clusters.cluster import Cluster
from mirror.errors import MirrorError
from mirror.log import LogThrottle
from mirror.recovery import journal, roles
from mirror.recovery.journal import JournalReader
from mirror.status.pairs import MemberStatus, PairStatus

if TYPE_CHECKING:
    from mirror.config.pair_settings import PairConfig
    from mirror.config.schema import MirrorConfig
    from mirror.recovery.journal import Entry
    from mirror.recovery.roles import Role, Run
    from mirror.status.store import StatusStore

log = structlog.get_logger()

_PAUSE_SECONDS = 1.0


@dataclass(slots=True, kw_only=True)
class _Member:
    """What one cluster's journal says."""

    entries: tuple[Entry, ...] = ()
    read_at: float = 0.0
    error: str = ""
    throttle: LogThrottle = field(default_factory=LogThrottle)


class PairFollower:
    """Knows the roles of all pairs. Thread-safe."""

    def __init__(self, config: MirrorConfig, store: StatusStore) -> None:
        self._pairs = dict(config.recovery)
        self._clusters = config.clusters
        self._store = store
        self._by = f"service {socket.gethostname()}:{os.getpid()}"
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._members = {
            alias: _Member() for pair in self._pairs.values() for alias in pair.members
        }
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
        journal was never read.
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
            return pair.both_ways or self._role(pair).active == source

    def trouble(self, target: str) -> str:
        """Why the journal of a flow's target cannot be read; empty if it can be."""
        with self._lock:
            return self._members[target].error

    def holds(self, source: str, target: str) -> bool:
        """Whether a switch or failover of these clusters is under way."""
        pair = self._pair(source, target)
        if pair is None:
            return False
        with self._lock:
            return self._run(pair) is not None

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
                    pause = retry.RUN.after(pause)
                    self._failed(member, str(error))
                except Exception as error:
                    log.exception("reading the journal failed", cluster=alias)
                    pause = retry.RUN.after(pause)
                    self._failed(member, f"{type(error).__name__}: {error}"[:300])
                self._show()
                self._closing.wait(pause)
        finally:
            cluster.close()

    def _took(self, alias: str, entries: tuple[Entry, ...]) -> None:
        with self._lock:
            member = self._members[alias]
            member.entries, member.read_at, member.error = entries, time.time(), ""

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
        if not self._entries(pair):
            return roles.first_role(pair, at=time.time(), by=self._by)
        if self._run(pair) is not None:
            return ()  # its operator writes both journals
        known = {(each.run, each.number) for each in there.entries}
        return tuple(e for e in self._entries(pair) if (e.run, e.number) not in known)

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
        role, run = self._role(pair), self._run(pair)
        return PairStatus(
            name=pair.name,
            active=role.active,
            epoch=role.epoch,
            since=role.since,
            run=run.text if run is not None else "",
            members=tuple(
                MemberStatus(
                    cluster=alias,
                    active=_active(pair, self._members[alias].entries),
                    read_at=self._members[alias].read_at,
                    error=self._members[alias].error,
                )
                for alias in pair.members
            ),
        )


def _active(pair: PairConfig, entries: tuple[Entry, ...]) -> str:
    """The active cluster by one journal; empty if it has no role."""
    found = roles.role(roles.merged(entries, pair=pair.name), pair)
    return found.active if found.epoch else ""
