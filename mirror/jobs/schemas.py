"""The job that keeps the target's schema registry in step with the source's.

Main type: `SchemaJob`, for one flow and all of its runs, with what it shows in the
store. `metadata.schemas` compares and writes.
"""

from __future__ import annotations

from dataclasses import replace
import threading
import time
from typing import TYPE_CHECKING

from mirror.clusters.registry.pace import Pace
from mirror.clusters.registry.registry import Registry
from mirror.jobs.scheduler import Job
from mirror.metadata import schemas
from mirror.metadata.merging import by_role
from mirror.metadata.schema_claims import SchemaClaims
from mirror.status.events import Event, EventKind
from mirror.status.schemas import MOST_SUBJECTS, SchemaStatus, SubjectStatus
from mirror.status.states import SchemaState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.registry.values import Subject
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.metadata.schemas import SchemasResult
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
        tell: Callable[[str, Sequence[str]], None],
        passive: Callable[[], Collection[str]] = frozenset,
        held: Callable[[], bool] = lambda: False,
    ) -> None:
        """`tell` and `passive` as in `TopicJobs`; `held`: whether a switch is under
        way.
        """
        self._held = held
        self._stopping = threading.Event()
        self._store = store
        self._tell = tell
        self._passive = passive
        self._status = SchemaStatus()
        self._claims: tuple[Cluster, SchemaClaims] | None = None
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

    def jobs(self) -> list[Job]:
        self._stopping.clear()
        flow = self._flow
        if flow.schemas == "off":
            self._tell(SCHEMAS, [])
            return []
        return [
            Job(name=SCHEMAS, seconds=flow.schemas_seconds, work=self._sync, waits=True)
        ]

    def _sync(self, _source: Cluster, target: Cluster) -> None:
        flow = self._flow
        rate = flow.schemas_requests_per_second
        with (
            Registry(self._config.clusters[flow.source], pace=Pace(rate)) as source,
            Registry(self._config.clusters[flow.target], pace=Pace(rate)) as registry,
        ):
            ends = schemas.Ends(
                flow=flow,
                source=source,
                target=registry,
                claims=self._claims_on(target),
                going_on=lambda: not (self._stopping.is_set() or self._held()),
                deletes=schemas.copies_deletes(
                    flow, by_role(self._config.enabled_flows, self._passive())
                ),
            )
            try:
                found = schemas.sync(ends, levels_of=self._some_levels())
            finally:
                failed = source.failed + registry.failed
                self._status = replace(
                    self._status,
                    request_failures=self._status.request_failures + failed,
                )
                self._show()
        self._report(found)

    def _claims_on(self, target: Cluster) -> SchemaClaims:
        """What was read is kept as long as the connections."""
        if self._claims is None or self._claims[0] is not target:
            flow = self._flow
            claims = SchemaClaims(
                target, flow.source, replication_factor=flow.replication_factor
            )
            self._claims = (target, claims)
        return self._claims[1]

    def _some_levels(self) -> set[Subject]:
        return {
            subject for subject, _ in zip(self._levels, range(_LEVELS_PER_LOOK),
                                          strict=False)
        }  # fmt: skip

    def _report(self, found: SchemasResult) -> None:
        if not (rest := list(self._levels)):
            rest = [each.subject for each in found.subjects]
        self._levels = iter(rest)
        deleted = sum(each.delete for each in found.writes)
        for each in found.writes:
            version = each.version
            what = "deleted" if each.delete else f"copied with id {version.id}"
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
        self._tell(SCHEMAS, found.problems[:MOST_SUBJECTS])

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
