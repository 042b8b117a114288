"""The jobs that keep configs and ACLs of a flow's copies in sync with their topics, and
guard mirror's own topics.

Main type: `TopicJobs`, the jobs of one flow and what they show in the store. `metadata`
compares and changes, `scheduler` does intervals and retries.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
import math
import time
from typing import TYPE_CHECKING

import structlog

from mirror.clusters.reach import Reach
from mirror.config import own_topics, scopes
from mirror.errors import ClusterError
from mirror.service.scheduler import Job
from mirror.status.events import Event, EventKind
from mirror.status.states import AclState
from mirror.status.values import AclStatus
from mirror.topics import acls, configs, guarding
from mirror.topics.merging import Merging, by_role

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from mirror.clusters.admin.acls import Binding
    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.status.store import StatusStore
    from mirror.topics.guarding import Wrong

CONFIGS = "topic-configs"
ACLS = "topic-acls"
OWN = "own-topics"
_OWN_SECONDS, _RECENT_SECONDS = 60.0, 300.0
"""Brokers look every five minutes for what they may delete."""

log = structlog.get_logger()


class TopicJobs:
    """The jobs of one flow, for all of its runs."""

    def __init__(
        self,
        flow: FlowConfig,
        config: MirrorConfig,
        *,
        store: StatusStore,
        tell: Callable[[str, Sequence[str]], None],
        passive: Callable[[], Collection[str]] = frozenset,
        narrowed: Callable[[FlowConfig], FlowConfig] = lambda flow: flow,
        unsafe: Callable[[], None] = lambda: None,
    ) -> None:
        """`tell` receives a job's name and its current problems. `passive`: the names
        of flows out of clusters that are not active now; `narrowed`: a flow with what
        it copies now. `unsafe` is called if the flow must not go on copying.
        """
        self._unsafe = unsafe
        self._guarded_at = -math.inf
        self._passive = passive
        self._narrowed = narrowed
        self._store = store
        self._tell = tell
        self._acls = AclStatus()
        self._corrected: frozenset[str] = frozenset()
        """Configs that the last round changed, in words."""
        self.adopt(flow, config)

    def adopt(self, flow: FlowConfig, config: MirrorConfig) -> None:
        """Use other settings from each job's next run on."""
        self._flow = flow
        self._config = config
        self._clusters = config.clusters
        self._flows = tuple(config.enabled_flows)
        if flow.sync_topic_acls == (self._acls.state is AclState.OFF):
            waiting = AclState.WAITING if flow.sync_topic_acls else AclState.OFF
            self._acls = replace(self._acls, state=waiting, reason="")
        self._show_acls()

    def jobs(self) -> list[Job]:
        flow = self._flow
        found = [
            Job(
                name=CONFIGS,
                seconds=flow.sync_topic_configs_seconds,
                work=self._sync_configs,
                waits=True,
            ),
            self.guard(),
        ]
        if flow.sync_topic_acls:
            found.append(
                Job(
                    name=ACLS,
                    seconds=flow.sync_topic_acls_seconds,
                    work=self._sync_acls,
                    waits=True,
                )
            )
        return found

    def guard(self) -> Job:
        """The one that a flow has that copies nothing, too."""
        return Job(name=OWN, seconds=_OWN_SECONDS, work=self._guard)

    def require_guarded(self, source: Cluster, target: Cluster) -> None:
        """Correct mirror's own topics, unless that was done lately: after a fault, runs
        begin without it.

        Raises:
            ClusterError: one of them may lose what a run relies on, and cannot be
                corrected.
        """
        if time.monotonic() - self._guarded_at < _RECENT_SECONDS:
            return
        if unsafe := self._correct(source, target):
            raise ClusterError("; ".join(unsafe))

    def _guard(self, source: Cluster, target: Cluster) -> None:
        if self._correct(source, target):
            self._unsafe()

    def _correct(self, source: Cluster, target: Cluster) -> list[str]:
        """Returns why no run may copy."""
        problems: list[str] = []
        unsafe: list[str] = []
        every = own_topics.of_flow(self._config, self._flow)
        for cluster in (source, target):
            found = guarding.correct(
                cluster, [each for each in every if each.alias == cluster.alias]
            )
            for wrong in found.corrected:
                self._store.trail.add(corrected(cluster, wrong, self._flow.name))
            problems += map(str, found.left)
            unsafe += map(str, found.unsafe)
        self._tell(OWN, problems)
        self._guarded_at = -math.inf if unsafe else time.monotonic()
        return unsafe

    def _sync_configs(self, source: Cluster, target: Cluster) -> None:
        name = self._flow.name
        flows = map(self._narrowed, self._flows)
        merging = Merging(by_role(flows, self._passive()))
        work = configs.sync if self._flow.sync_topic_configs else configs.look
        with Reach(self._clusters, client_id=f"mirror.{name}") as reach:
            found = work(source, target, self._flow, merging, reach)
        in_vain = [each for each in found.corrected if each in self._corrected]
        self._corrected = frozenset(found.corrected)
        for change in sorted(self._corrected.difference(in_vain)):
            self._store.trail.add(
                Event(
                    kind=EventKind.CONFIG_CHANGED,
                    flow=name,
                    cluster=self._flow.target,
                    subject=change.partition(": ")[0],
                    text=f"config of copy {change}",
                )
            )
        self._store.update(name, lambda flow: replace(flow, drift=found.drift))
        taken = (
            f"config of copy {each}: the cluster took it, and does not have it now: if "
            "no one changes it back, leave it out with config_properties_exclude"
            for each in in_vain
        )
        self._tell(CONFIGS, [*found.problems, *taken])

    def _sync_acls(self, source: Cluster, target: Cluster) -> None:
        name = self._flow.name
        whole = next(flow for flow in self._flows if flow.name == name)
        # ACLs of topics that a named pair has moved are no matter of this flow now.
        rests = partial(scopes.left_alone, whole, self._flow)
        found = acls.sync(source, target, self._flow, rests=rests)
        self._tell_acls(EventKind.ACL_ADDED, "ACL added", found.added)
        self._tell_acls(EventKind.ACL_REMOVED, "ACL removed", found.removed)
        if found.reason and found.reason != self._acls.reason:
            log.info("ACLs are not synced", flow=name, reason=found.reason)
        self._acls = replace(
            self._acls,
            state=found.state,
            reason=found.reason,
            bindings=len(found.wanted),
            added=self._acls.added + len(found.added),
            removed=self._acls.removed + len(found.removed),
        )
        self._show_acls()
        not_permitted = found.state is AclState.NOT_PERMITTED
        self._tell(ACLS, [found.reason] if not_permitted else found.problems)

    def _show_acls(self) -> None:
        self._store.update(self._flow.name, lambda flow: replace(flow, acls=self._acls))

    def _tell_acls(
        self, kind: EventKind, what: str, bindings: Sequence[Binding]
    ) -> None:
        for binding in bindings:
            self._store.trail.add(
                Event(
                    kind=kind,
                    flow=self._flow.name,
                    cluster=self._flow.target,
                    subject=binding.topic,
                    text=f"{what}: {binding}",
                )
            )


def corrected(cluster: Cluster, wrong: Wrong, flow: str = "") -> Event:
    """What tells that one of mirror's own topics was corrected."""
    text = f"config of {wrong.topic.name} corrected: {wrong}"
    compacted = wrong.config == own_topics.POLICY and wrong.then == "compact"
    if compacted and (first := guarding.begins_at(cluster, wrong.topic.name)):
        text += f"; what stood before its offset {first} is deleted"
    return Event(
        kind=EventKind.CONFIG_CHANGED,
        flow=flow,
        cluster=cluster.alias,
        subject=wrong.topic.name,
        text=text,
    )
