"""The jobs that keep on the target what only the source knows.

Main types, of one flow: `StandbyJob`, which every five seconds looks where the source's
partitions end, shows what a failover would lose, and writes the ends to the standby
topic, with what the flow selects; `EndsJob`, which only writes that, for a flow that
rests; and `AccessJob`, which every minute writes there who may do what on the source,
and who writes in transactions, as far as mirror may see it.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
import time
from typing import TYPE_CHECKING

from mirror.errors import MirrorError
from mirror.offsets.progress import ProgressReader, topic_name
from mirror.offsets.standby import StandbyWriter
from mirror.pairs import access, risk, selection
from mirror.pairs.risk import RiskTracker, SourceEnds, with_copies
from mirror.service.scheduler import Job
from mirror.status.states import PartitionState
from mirror.topics import topics

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig
    from mirror.offsets.standby import Fields
    from mirror.status.store import StatusStore
    from mirror.status.values import FlowStatus

STANDBY, ACCESS = "standby", "access"
_SECONDS, _ACCESS_SECONDS = 5.0, 60.0
_FAULT_SECONDS = 10.0
"""What is set aside for less may pass, as while a leader moves."""
_REST_SECONDS = 15.0
"""Of a flow that rests, whose source is passive."""
_LIST_SECONDS = 30.0
"""How often a flow that rests looks for topics that are new."""


class StandbyJob:
    """The job of one flow, for one of its runs."""

    def __init__(
        self,
        flow: FlowConfig,
        topics: Callable[[], Collection[str]],
        *,
        store: StatusStore,
        notes: Callable[[], Mapping[str, Fields]],
    ) -> None:
        """`topics`: the names of the source topics that are copied now; `notes`: what
        the flow selects now (`selection.noted`).
        """
        self._flow = flow
        self._topics = topics
        self._store = store
        self._notes = notes
        kinds = {risk.ENDS, selection.KIND}
        self._writer = StandbyWriter(flow, kinds)
        self._tracker: tuple[Cluster, RiskTracker] | None = None

    def job(self) -> Job:
        return Job(name=STANDBY, seconds=_SECONDS, work=self._look)

    def _look(self, source: Cluster, target: Cluster) -> None:
        if self._tracker is None or self._tracker[0] is not target:
            known = {}
            # What cannot be read, `keep` raises or replaces: the risk is shown first.
            with contextlib.suppress(MirrorError):
                known = risk.read_ends(self._writer.known(target), self._flow.source)
            reader = ProgressReader(target, topic_name(self._flow.source))
            # Not waiting for transactions: what they copy counts at the next look.
            tracker = RiskTracker(
                known,
                lambda: with_copies(reader.read(wait=False), self._flow, target),
            )
            self._tracker = (target, tracker)
        at = time.time()
        found = self._tracker[1].look(source, self._topics(), at=at)
        self._show(lambda flow: replace(flow, risk=found.risk))
        self._writer.put(target, selection.KIND, self._notes(), at=at)
        faulted = self._faulted(at - _FAULT_SECONDS)
        self._writer.keep(
            target,
            risk.ENDS,
            {
                name: each.fields(at, faulted.get(name, {}))
                for name, each in found.ends.items()
            },
            at=at,
            look={"cluster_id": source.cluster_id},
        )
        self._show(lambda flow: replace(flow, standby_at=at))

    def _faulted(self, before: float) -> dict[str, dict[int, str]]:
        """Why partitions are set aside since before that time, by topic."""
        found: dict[str, dict[int, str]] = {}
        for each in self._store.flow(self._flow.name).partitions:
            if each.state is PartitionState.FAULTED and each.since < before:
                found.setdefault(each.topic, {})[each.partition] = each.reason
        return found

    def _show(self, change: Callable[[FlowStatus], FlowStatus]) -> None:
        self._store.update(self._flow.name, change)


class EndsJob:
    """The job of one flow while it rests, on the instance that leads it. It needs no
    fence: of two that write for a moment, the later one reads what the other wrote.
    """

    def __init__(
        self, flow: FlowConfig, *, store: StatusStore, notes: Mapping[str, Fields]
    ) -> None:
        """`notes`: what the flow selects (`selection.noted`)."""
        self._flow = flow
        self._store = store
        self._notes = notes
        kinds = {risk.ENDS, selection.KIND}
        self._writer = StandbyWriter(flow, kinds)
        self._ends: tuple[Cluster, SourceEnds] | None = None
        self._names: tuple[str, ...] = ()
        self._list_at = 0.0

    def job(self) -> Job:
        return Job(name=STANDBY, seconds=_REST_SECONDS, work=self._look)

    def _look(self, source: Cluster, target: Cluster) -> None:
        if self._ends is None or self._ends[0] is not target:
            known = risk.read_ends(self._writer.known(target), self._flow.source)
            self._ends = (target, SourceEnds(known))
        at = time.time()
        self._writer.put(target, selection.KIND, self._notes, at=at)
        list_at, self._list_at = self._list_at, 0.0  # at once, if this look fails
        if time.monotonic() >= list_at:
            found = topics.select(source, self._flow).topics
            self._names = tuple(each.topic for each in found)
            list_at = time.monotonic() + _LIST_SECONDS
        seen = self._ends[1].look(source, self._names, at=at)
        self._list_at = list_at
        self._writer.keep(
            target,
            risk.ENDS,
            {name: each.fields(at) for name, each in seen.items()},
            at=at,
            look={"cluster_id": source.cluster_id},
        )
        self._store.update(self._flow.name, lambda flow: replace(flow, standby_at=at))


class AccessJob:
    """The job of one flow, for one of its runs."""

    def __init__(self, flow: FlowConfig) -> None:
        self._writer = StandbyWriter(flow, access.KINDS)

    def job(self) -> Job:
        return Job(name=ACCESS, seconds=_ACCESS_SECONDS, work=self._look)

    def _look(self, source: Cluster, target: Cluster) -> None:
        at = time.time()
        for kind, seen in access.look(source).items():
            look = {"cluster_id": source.cluster_id}
            if seen.unseen:
                look[access.UNSEEN] = seen.unseen
            wanted = seen.entries
            if wanted is None:  # what it said before may still be so
                known = self._writer.known(target).entries[kind]
                wanted = {name: entry.fields for name, entry in known.items()}
            self._writer.keep(target, kind, wanted, at=at, look=look)
