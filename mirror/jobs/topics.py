"""The jobs that keep configs and ACLs of a flow's copies in sync with their topics.

Main type: `TopicJobs`, the jobs of one flow and what they show in the store. `metadata`
compares and changes, `scheduler` does intervals and retries.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import structlog

from mirror.clusters.reach import Reach
from mirror.config import scopes
from mirror.jobs.scheduler import Job
from mirror.log import LogThrottle
from mirror.metadata import acls, configs
from mirror.metadata.merging import Merging, by_role
from mirror.status.events import Event, EventKind
from mirror.status.states import AclState
from mirror.status.values import AclStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from mirror.clusters.admin.acls import Binding
    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.status.store import StatusStore

CONFIGS = "topic-configs"
ACLS = "topic-acls"

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
    ) -> None:
        """`tell` receives a job's name and its current problems. `passive`: the names
        of flows out of clusters that are not active now; `narrowed`: a flow with what
        it copies now.
        """
        self._passive = passive
        self._narrowed = narrowed
        self._store = store
        self._tell = tell
        self._acls = AclStatus()
        self._throttle = LogThrottle()
        self.adopt(flow, config)

    def adopt(self, flow: FlowConfig, config: MirrorConfig) -> None:
        """Use other settings from each job's next run on."""
        self._flow = flow
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
            )
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

    def _sync_configs(self, source: Cluster, target: Cluster) -> None:
        name = self._flow.name
        flows = map(self._narrowed, self._flows)
        merging = Merging(by_role(flows, self._passive()))
        work = configs.sync if self._flow.sync_topic_configs else configs.look
        with Reach(self._clusters, client_id=f"mirror.{name}") as reach:
            found = work(source, target, self._flow, merging, reach)
        for change in found.corrected:
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
        self._tell(CONFIGS, found.problems)

    def _sync_acls(self, source: Cluster, target: Cluster) -> None:
        name = self._flow.name
        whole = next(flow for flow in self._flows if flow.name == name)
        # ACLs of topics that a named pair has moved are no matter of this flow now.
        rests = partial(scopes.left_alone, whole, self._flow)
        found = acls.sync(source, target, self._flow, rests=rests)
        self._tell_acls(EventKind.ACL_ADDED, "ACL added", found.added)
        self._tell_acls(EventKind.ACL_REMOVED, "ACL removed", found.removed)
        if found.reason and self._throttle.due(found.reason):
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
