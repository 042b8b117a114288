"""The jobs of a flow, which run alongside its leases; each run starts new ones.

Main type: `FlowJobs`, which puts together the jobs for topics, schemas, groups,
standby, pauses and proofs. `jobs.scheduler` runs them and handles their failures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.jobs.groups import GroupJobs
from mirror.jobs.scheduler import Job, Jobs
from mirror.jobs.schemas import SchemaJob
from mirror.jobs.standby import AccessJob, EndsJob, StandbyJob
from mirror.jobs.topics import CONFIGS, TopicJobs
from mirror.recovery import selection

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.driver.copied_topics import CopiedTopics
    from mirror.driver.flow_status import Problems
    from mirror.driver.pairs import PairFollower
    from mirror.driver.proofs import FlowProofs
    from mirror.status.store import StatusStore

_PAUSES_SECONDS = 2.0
"""How often to look for topics that a user pauses or resumes."""


class FlowJobs:
    """The jobs of one flow, across its runs."""

    def __init__(  # noqa: PLR0913  what a flow has for its jobs
        self,
        flow: FlowConfig,
        config: MirrorConfig,
        *,
        store: StatusStore,
        problems: Problems,
        topics: CopiedTopics,
        pairs: PairFollower,
        proofs: FlowProofs | None,
        unsafe: Callable[[], None],
    ) -> None:
        """`pairs` knows whether a switch is under way; `proofs`: None if the copies are
        never proven. `unsafe` is called if a run must not go on.
        """
        self._pairs = pairs
        self._store = store
        self._problems = problems
        self._topics = topics
        self._of_topics = TopicJobs(
            flow,
            config,
            store=store,
            tell=problems.tell,
            passive=pairs.passive,
            narrowed=pairs.narrowed,
            unsafe=unsafe,
        )
        self._schemas = SchemaJob(
            flow,
            config,
            store=store,
            passive=pairs.passive,
            held=self._held,
        )
        self._proofs = proofs
        self._jobs: Jobs | None = None
        self.adopt(flow, config)

    def adopt(self, flow: FlowConfig, config: MirrorConfig) -> None:
        """Use new settings; group jobs use them from the next `begin` on."""
        self._flow = flow
        self._clusters = (config.clusters[flow.source], config.clusters[flow.target])
        self.selection = selection.noted(config, flow.name)
        self._of_topics.adopt(flow, config)
        self._schemas.adopt(flow, config)
        if self._proofs is not None:
            self._proofs.adopt(flow, config)

    def begin(self, ids: Mapping[str, str]) -> None:
        """Start all jobs, after running ones have ended. `ids` are the ids of the
        flow's clusters, by alias.
        """
        self.close()  # before `job()`: it would end that as well
        groups = self._of_groups()
        standby = StandbyJob(
            self._flow,
            self._topics.names,
            store=self._store,
            notes=lambda: self.selection,
        )
        pauses = Job(
            name="pauses", seconds=_PAUSES_SECONDS, work=self._topics.look_at_pauses
        )
        proofs = None if self._proofs is None else self._proofs.job()
        self._start(
            ids,
            *(*self._of_topics.jobs(), *self._schemas.jobs(), *groups.jobs()),
            *(standby.job(), AccessJob(self._flow).job(), pauses),
            *([] if proofs is None else [proofs]),
        )

    def rest(self, ids: Mapping[str, str]) -> None:
        """Start only what goes on while the flow copies nothing: heartbeats, where the
        source's partitions end, and the guard. `ids` as in `begin`.
        """
        self.close()
        ends = EndsJob(self._flow, store=self._store, notes=self.selection)
        groups = self._of_groups().heartbeats(rests=True)
        self._start(ids, *groups, ends.job(), self._of_topics.guard())

    def require_guarded(self, source: Cluster, target: Cluster) -> None:
        """As `TopicJobs.require_guarded`: before a run copies."""
        self._of_topics.require_guarded(source, target)

    def _of_groups(self) -> GroupJobs:
        return GroupJobs(
            self._flow, self._topics.copies, store=self._store, tell=self._problems.tell
        )

    def _start(self, ids: Mapping[str, str], *jobs: Job) -> None:
        self._jobs = Jobs(
            self._flow.name,
            self._clusters,
            jobs,
            store=self._store,
            ids=ids,
            held=self._held,
        )
        self._jobs.start()

    def _held(self) -> bool:
        return self._pairs.holds(self._flow.source, self._flow.target)

    def close(self, *, wait: bool = True) -> None:
        """Start no more turns, and wait a while for the running ones. After a failure
        `begin` waits for them: until the next run has fenced a slot that died, its
        open transactions hold up what reads progress or the offset map.
        """
        self._schemas.stop()
        if self._proofs is not None:
            self._proofs.stop()
        if self._jobs is not None:
            self._jobs.close(wait=wait)

    def compare_configs(self) -> None:
        """Compare the configs of copies now, not at the next interval."""
        if self._jobs is not None:
            self._jobs.kick(CONFIGS)

    def turn(self) -> None:
        """Run each job once, now: the last turn of a run with `once`."""
        self._schemas.go_on()  # the turns before were stopped
        if self._jobs is not None:
            self._jobs.turn()
