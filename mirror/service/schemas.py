"""The job that keeps the target's schema registry in step with the source's.

Main type: `SchemaJob`, for one flow and all of its runs, with what it shows in the
store. `schemas.sync` compares and writes.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
import threading
import time
from typing import TYPE_CHECKING

from mirror.schemas.comparing import RegistryPair, copies_deletes, precedes
from mirror.schemas.sync import sync
from mirror.service.scheduler import Job
from mirror.status.events import Event, EventKind
from mirror.status.states import SchemaState
from mirror.status.values import MOST_SUBJECTS, SchemaStatus, SubjectStatus
from mirror.topics.merging import by_role

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.schemas.registry.values import Subject
    from mirror.schemas.rules import SchemasResult
    from mirror.status.store import StatusStore

SCHEMAS = "schemas"
_LEVELS_PER_LOOK = 50
"""Subjects whose levels are compared although nothing else is new: registries do not
list levels."""


class SchemaJob:
    """The job of one flow."""

    def __init__(
        self,
        flow: FlowConfig,
        config: MirrorConfig,
        *,
        store: StatusStore,
        passive: Callable[[], Collection[str]] = frozenset,
        must_wait: Callable[[], bool] = lambda: False,
    ) -> None:
        """`passive` as in `TopicJobs`; `must_wait` as in `Jobs`."""
        self._must_wait = must_wait
        self._stopping = threading.Event()
        self._turn = threading.Lock()
        """Held by a turn: one that does not end with its run lasts into the next."""
        self._store = store
        self._passive = passive
        self._status = SchemaStatus()
        self._opened: tuple[Cluster, RegistryPair] | None = None
        self._levels: Iterator[Subject] = iter(())
        self.adopt(flow, config)

    def adopt(self, flow: FlowConfig, config: MirrorConfig) -> None:
        """Use other settings from the next run on."""
        self._flow = flow
        self._config = config
        if flow.schemas != self._status.mode:
            self._status = replace(
                self._status,
                mode=flow.schemas,
                states={},
                subjects=(),
                synced_at=0.0 if flow.schemas == "off" else time.time(),
            )
        self._show()

    def stop(self) -> None:
        """Have a running turn end after the version that it writes."""
        self._stopping.set()

    def go_on(self) -> None:
        """Let later turns write again. One that still runs stays stopped."""
        self._stopping = threading.Event()

    def jobs(self) -> list[Job]:
        self.go_on()
        flow = self._flow
        if flow.schemas == "off":
            if self._turn.acquire(blocking=False):
                try:
                    self._close()
                finally:
                    self._turn.release()
            return []
        return [
            Job(name=SCHEMAS, seconds=flow.schemas_seconds, work=self._sync, waits=True)
        ]

    def _sync(self, _source: Cluster, target: Cluster) -> None:
        with self._turn:
            self._look(target)

    def _look(self, target: Cluster) -> None:
        order = by_role(self._config.enabled_flows, self._passive())
        registries = self._registries(target)
        registries.deletes = copies_deletes(self._flow, order)
        registries.reserves = precedes(self._flow, order)
        before = registries.failed
        try:
            found = sync(registries, levels_of=self._some_levels())
        finally:
            failed = registries.failed - before
            self._status = replace(
                self._status, request_failures=self._status.request_failures + failed
            )
            self._show()
        self._report(found)

    def _registries(self, target: Cluster) -> RegistryPair:
        """They are kept, with what was read, for as long as the job's connections."""
        if self._opened is None or self._opened[0] is not target:
            self._close()
            stopping = self._stopping
            registries = RegistryPair.open(
                self._flow,
                self._config.clusters,
                target,
                going_on=lambda: not (stopping.is_set() or self._must_wait()),
            )
            self._opened = (target, registries)
        return self._opened[1]

    def _close(self) -> None:
        if self._opened is not None:
            self._opened[1].close()
            self._opened = None

    def _some_levels(self) -> set[Subject]:
        return set(islice(self._levels, _LEVELS_PER_LOOK))

    def _report(self, found: SchemasResult) -> None:
        if not (rest := list(self._levels)):
            rest = [each.subject for each in found.subjects]
        self._levels = iter(rest)
        deleted = sum(each.delete for each in found.writes)
        for each in found.writes:
            version = each.version
            what = "deleted" if each.delete else f"copied with id {each.shown_id}"
            self._event(
                str(version.full_subject),
                f"schema {version.full_subject} version {version.version} {what}",
            )
        for level in found.levels:
            self._event(
                str(level.subject),
                f"level of {level.subject or 'the registry'} set to "
                f"{level.then or 'that of its context'}",
            )
        old = self._status
        self._status = replace(
            old,
            states={str(state): count for state, count in found.states.items()},
            synced_at=time.time(),
            versions_copied=old.versions_copied + len(found.writes) - deleted,
            versions_deleted=old.versions_deleted + deleted,
            levels_set=old.levels_set + len(found.levels),
            subjects=tuple(
                SubjectStatus(
                    subject=str(each.subject),
                    state=each.state,
                    reason=each.reason,
                    versions=each.versions,
                    there=each.there,
                )
                for each in found.subjects
                if each.state is not SchemaState.SYNCED or each.reason
            )[:MOST_SUBJECTS],
        )
        self._show()

    def _event(self, subject: str, text: str) -> None:
        self._store.trail.add(
            Event(
                kind=EventKind.SCHEMA_CHANGED,
                flow=self._flow.name,
                cluster=self._flow.target,
                subject=subject,
                text=text,
            )
        )

    def _show(self) -> None:
        self._store.update(
            self._flow.name, lambda flow: replace(flow, schemas=self._status)
        )
