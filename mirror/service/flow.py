"""A flow from top to bottom: one source, one target, one streaming query.

Main type: `Flow`. Each of its runs connects to both clusters, finds topics and creates
their copies, becomes the only writer, then lets the query carry out its leases, and
looks for new topics meanwhile. Any failure ends `run`; `supervisor` decides when to run
again. `copying` carries out the leases.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import partial
import threading
import time
from typing import TYPE_CHECKING

import structlog

from mirror import patience
from mirror.clusters.cluster import Cluster
from mirror.config.schema import for_tasks
from mirror.config.section import Effect
from mirror.copying import dead_letters
from mirror.copying.lease import HOLE, LeasePlan
from mirror.errors import ClusterError, FlowError, MirrorError
from mirror.log import LogThrottle
from mirror.offsets import progress
from mirror.pairs import selection
from mirror.service import same_offsets
from mirror.service.assignment import Placement
from mirror.service.autoscale import Sizing
from mirror.service.beginning import Beginning, refuse_if_rested
from mirror.service.flow_status import INSTANCES, Problems, StatusWriter
from mirror.service.groups import GroupJobs, without_groups
from mirror.service.leases import LeaseResult, Leases, RunTerms, ends_of
from mirror.service.ownership import Instance, require_kept
from mirror.service.protecting import ProtectJob
from mirror.service.query import lease_query, state_folder
from mirror.service.reload import PendingConfig
from mirror.service.same_offsets import PaddingJob
from mirror.service.scheduler import Job, Jobs
from mirror.service.schemas import SchemaJob
from mirror.service.standby import AccessJob, EndsJob, StandbyJob
from mirror.service.taking_up import Comparisons
from mirror.service.topics import CONFIGS, TOPICS, CopiedTopics, TopicJobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mirror.config.pair_settings import PairConfig
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.log import Settings
    from mirror.pairs.control import Pauses
    from mirror.service.executors import PreferredExecutors
    from mirror.service.ownership import Owned
    from mirror.service.pairs import PairFollower
    from mirror.service.query import LeaseQuery
    from mirror.service.same_offsets import SameOffsets
    from mirror.service.scheduler import FlowProofs, ServiceProofs
    from mirror.service.taking_up import Compare
    from mirror.status.store import StatusStore
    from mirror.topics.topics import TopicsResult


log = structlog.get_logger()

_NOTE_SECONDS = 2.0
"""A note of what the flow selects holds up copying for no longer."""
_COMPARE_SECONDS = 1.0
"""Between the turns in which a run with an end compares copies."""
_AGAIN_SECONDS = 10.0
"""After looking for topics failed, if `refresh_topics_seconds` is longer."""
_ALONE_SECONDS = 5.0
"""How long the jobs of a run wait for its first lease."""


class Flow:
    """Mirrors one cluster into another until stopped."""

    def __init__(
        self,
        flow: FlowConfig,
        config: MirrorConfig,
        *,
        store: StatusStore,
        pairs: PairFollower,
        once: bool = False,
        proofs: ServiceProofs | None = None,
        compare: Compare | None = None,
    ) -> None:
        """`config` has all flows: those that write to the same topic must agree.
        `compare`: None if no copy that exists is taken up with `offsets: same`.
        """
        self.name = flow.name
        self._store = store
        self._state = state_folder(config.service.state_dir)
        self._throttle = LogThrottle()
        self._pairs = pairs
        self._once = once
        self._stopping = threading.Event()
        self._news = threading.Event()
        self._resting = threading.Event()
        self._runs_resting_jobs = False
        """Whether the jobs of a flow that rests run."""
        self._status_writer = StatusWriter(flow.name, store)
        self.problems = Problems(flow.name, store)
        self._topics = CopiedTopics(
            flow,
            config,
            store=store,
            problems=self.problems,
            created=lambda: self._jobs.compare_configs(),  # noqa: PLW0108  made later
            copy=self._copy,
        )
        self._jobs = FlowJobs(
            flow,
            config,
            store=store,
            problems=self.problems,
            topics=self._topics,
            pairs=pairs,
            proofs=None if proofs is None else proofs.of_flow(flow, config, store),
            unsafe=self._begin_again,
        )
        self._placement = Placement()
        self._run: Leases | None = None
        self._pending = PendingConfig()
        self._sizing = Sizing(flow.tasks)
        self._beginning = Beginning(pairs, Instance(config, once=once))
        self._comparisons = Comparisons(
            compare, tell=partial(self.problems.tell, "copies")
        )
        self._before_copying: list[Job] = []
        """Jobs of this run alone, for topics that wait for them."""
        self._holes: set[str] = set()
        """Topics with a source offset without a record, which are to be translated."""
        self._noted: object = None
        """What was noted last of what the flow selects."""
        self._ids: dict[str, str] = {}
        """The ids of both clusters, by alias, from the first connection on: later runs
        must reach the same ones."""
        store.update(
            flow.name,
            lambda now: replace(now, source=flow.source, target=flow.target),
        )
        self._apply(config)
        self._told = self._by_roles()

    def stop(self) -> None:
        """Finish the running transactions and end `run`. Returns at once."""
        self._stopping.set()
        self._news.set()
        self._end_run()

    def rest(self) -> None:
        """End `run`, because another instance leads or may lead, or because the flow
        may not copy.
        """
        if not self._resting.is_set():
            self._noted = None  # another instance may select something else
            self._resting.set()
            self._end_run()

    def resume(self) -> None:
        """Allow `run` again."""
        self._resting.clear()

    def _begin_again(self) -> None:
        """Have another run begin, which finds out whether it may."""
        if (run := self._run) is not None:
            run.begin_again()

    def _end_run(self) -> None:
        if (run := self._run) is not None:
            run.end()

    @property
    def cluster_ids(self) -> Mapping[str, str]:
        """Of the clusters that the last run connected to, by alias."""
        return self._ids

    @property
    def resting(self) -> bool:
        return self._resting.is_set()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def wait_for_news(self, seconds: float) -> None:
        """Wait, but return early to stop, or where `notify` was called."""
        self._news.wait(seconds)
        self._news.clear()

    def notify(self) -> None:
        """Whether the flow may run may have changed."""
        self._news.set()

    def pause(self, seconds: float) -> None:
        """Wait, but return early to stop or to apply another configuration."""
        if not self.stopping:
            self._news.wait(seconds)

    def adopt(self, config: MirrorConfig, effect: Effect) -> None:
        """Apply another configuration soon; `effect` is its effect on this flow."""
        self._pending.put(config, effect)
        if effect:
            self._tell_news()

    def follow_roles(self) -> None:
        """Soon take up what a switch of a named pair has given to this flow, leave what
        it has taken, and know which flows copy beside it.
        """
        if (by_roles := self._by_roles()) != self._told:
            self._told = by_roles
            self._pending.add(Effect.JOBS, self._whole_config)
            self._tell_news()

    def _by_roles(self) -> tuple[tuple[PairConfig, ...], frozenset[str]]:
        rests_in = self._pairs.rests_in(self.config.source, self.config.target)
        return rests_in, self._pairs.resting()

    def _tell_news(self) -> None:
        self._news.set()
        if (run := self._run) is not None:
            run.wake()

    def run_resting_jobs(self) -> None:
        """Run the jobs that go on while the flow may not copy; it must not run."""
        if self._take_configuration() or not self._runs_resting_jobs:
            self._runs_resting_jobs = True
            self._jobs.rest(self._ids)

    def stop_resting_jobs(self) -> None:
        if self._runs_resting_jobs:
            self._runs_resting_jobs = False
            self._jobs.close()

    def run(
        self, *, preferred: PreferredExecutors, most_slots: Callable[[], int]
    ) -> bool:
        """Mirror until stopped, or with `once` until caught up.

        Flows share `preferred`, a session's. `most_slots` limits the slots if `tasks`
        is not set. Returns whether to run again at once.

        Raises:
            MirrorError: the flow cannot continue; run it again to recover.
        """
        self._news.clear()
        with lease_query(preferred.spark, self.name, self._state) as query:
            again = self._run_once(query, preferred, most_slots)
            while again and query.can_go_on and self._may_go_on:
                self._news.clear()
                again = self._run_once(query, preferred, most_slots)
        if self._once:
            self._jobs.turn()
        return again

    @property
    def _may_go_on(self) -> bool:
        ends = self.config.source, self.config.target
        return not (self.stopping or self.resting) and bool(self._pairs.may_copy(*ends))

    def _run_once(
        self,
        query: LeaseQuery,
        preferred: PreferredExecutors,
        most_slots: Callable[[], int],
    ) -> bool:
        """One run, under one generation. Whether to begin another one at once, for
        example with another number of slots.
        """
        self._take_configuration()
        self._apply(self._whole_config)  # with the roles as they are now
        self._status_writer.begin(self.config)
        refuse_if_rested(self._whole_config, self.config, self._pairs)
        with both_clusters(self._whole_config, self.config, self._ids) as clusters:
            self._ids = {each.alias: each.cluster_id for each in clusters}
            with progress.reading_once():
                terms, found = self._take_over(*clusters, preferred, most_slots)
            run = Leases(
                query,
                self._plan(*clusters),
                terms,
                placement=self._placement,
                preferred=preferred,
                log_settings=self._log_settings,
                took=self._took,
            )
            with contextlib.closing(run):
                self._run = run
                self._topics.copy(found)
                if self._pending.effect:
                    run.wake()
                if self.stopping or self.resting:
                    return False
                self._lease(query, run, clusters, most_slots)
        return run.again

    def _take_over(
        self,
        source: Cluster,
        target: Cluster,
        preferred: PreferredExecutors,
        most_slots: Callable[[], int],
    ) -> tuple[RunTerms, TopicsResult]:
        """Become the only writer; returns this run's terms and its first topics."""
        require_kept(self.config, target)
        self._jobs.require_guarded(source, target)
        self._jobs.look(target)
        self._topics.begin(target)
        found = self._topics.look(source, target)
        dead_letters.prepare(target, self.config)
        slots = self._sizing.begin(found.partitions, most_slots())
        preferred.start_processes(self.name, slots)
        owned = self._beginning.take_over(
            self._whole_config, self.config, source, target,
            slots=slots, found=found, over=lambda: self.stopping or self.resting,
        )  # fmt: skip
        same = self._decide_offsets(source, target, owned, found)
        self._note_selection(target)
        # Only now: who pauses a topic and then fences us relies on it.
        self._topics.follow_pauses(source, target)
        log.info("flow starts", flow=self.name, slots=slots, topics=len(found.topics))
        known = progress.read(target, progress.topic_name(self.config.source))
        self._topics.remember(known)
        found = self._topics.look(source, target)
        ends = ends_of(source, found) if self._once else None
        return RunTerms(owned=owned, slots=slots, same=same, ends=ends), found

    def _decide_offsets(
        self, source: Cluster, target: Cluster, owned: Owned, found: TopicsResult
    ) -> SameOffsets:
        """Which copies have the source's offsets. A run with an end pads or compares
        them first.
        """

        def decide() -> SameOffsets:
            return same_offsets.decide(
                self.config, self._whole_config, source, target, found.topics,
                owned=owned, holes=self._holes, compared=self._comparisons.found,
            )  # fmt: skip

        same = decide()
        comparisons = self._comparisons
        comparisons.begin(self.config, self._whole_config, same.comparing)
        while self._once and not self.stopping and (same.padding or same.comparing):
            PaddingJob(self.config, same, padded=lambda: None).turn(source, target)
            while not (comparisons.over or self._stopping.wait(_COMPARE_SECONDS)):
                comparisons.turn(source, target)
            same = decide()
            comparisons.begin(self.config, self._whole_config, same.comparing)
        self.problems.tell("offsets", same.problems)
        job = PaddingJob(self.config, same, padded=self._begin_again)
        self._before_copying = [job.job()] if job.needed else []
        if same.comparing:
            self._before_copying.append(comparisons.job(self._begin_again))
        return same

    def _note_selection(self, target: Cluster) -> None:
        """Note what the flow selects before it copies that, so that no command takes a
        part of it for the whole. A job notes it where this fails.
        """
        notes = self._jobs.selection
        if notes == self._noted:
            return
        try:
            with patience.until(time.monotonic() + _NOTE_SECONDS):
                selection.write(target, self.config, notes)
            self._noted = notes
        except MirrorError as error:
            log.warning("what the flow selects is not noted yet", flow=self.name,
                        error=str(error))  # fmt: skip

    def _lease(
        self,
        query: LeaseQuery,
        run: Leases,
        clusters: tuple[Cluster, Cluster],
        most_slots: Callable[[], int],
    ) -> None:
        """Copy, and run the jobs, until the run ends."""
        run.begin()
        try:
            # All jobs begin with a turn: it would hold up Spark's plan of a lease.
            run.first_done.wait(_ALONE_SECONDS)
            if self._once or not run.over.is_set():
                self._jobs.begin(self._ids, *self._before_copying)
            self._watch(query, run, clusters, most_slots)
        finally:
            self._run = None
            asked = run.ended.is_set()
            # After a failure they may wait for what the next run ends, and a run that
            # follows need not wait for them, unless their own settings change.
            goes_on = run.again and Effect.JOBS not in self._pending.effect
            try:
                run.stop()
            finally:
                self._jobs.close(wait=asked and not goes_on)
                self._status_writer.rest()

    def _take_configuration(self) -> Effect:
        """Apply the newest configuration; returns what it changes."""
        if (found := self._pending.take()) is None:
            return Effect.NONE
        if found.config.flows[self.name].tasks != self.config.tasks:
            self._sizing = Sizing(found.config.flows[self.name].tasks)
        self._apply(found.config)
        if Effect.JOBS in found.effect:
            self.problems.keep_only(TOPICS, INSTANCES)
            self._store.update(
                self.name, lambda now: replace(without_groups(now), jobs=())
            )
        return found.effect

    def _apply(self, config: MirrorConfig) -> None:
        self._whole_config = config
        self.config = flow = self._pairs.narrowed(config.flows[self.name])
        copying = self._pairs.copying(config, self.name)
        self._topics.adopt(flow, copying)
        self._jobs.adopt(flow, copying)
        self._store.update(
            self.name, lambda now: replace(now, sla_seconds=flow.sla_seconds)
        )

    @property
    def _log_settings(self) -> Settings:
        service = self._whole_config.service
        return service.log_level, service.log_format

    def _follow(self, run: Leases, source: Cluster, target: Cluster) -> None:
        """Apply another configuration, if there is one, during a run."""
        if Effect.RUN in self._pending.effect:
            run.begin_again(self._pending.tasks(self.name))  # the next run applies it
            return
        if Effect.JOBS in self._pending.effect:
            self._jobs.close()  # or they would report the forgotten problems again
        effect = self._take_configuration()
        self._note_selection(target)
        if Effect.LEASES in effect:
            run.apply_plan(self._plan(source, target), self._log_settings)
        if Effect.JOBS in effect:
            self._jobs.begin(self._ids, *self._before_copying)

    def _plan(self, source: Cluster, target: Cluster) -> LeasePlan:
        reads, writes = for_tasks(self._whole_config, self.config)
        return LeasePlan(
            flow=self.config, source=reads, target=writes,
            source_id=source.cluster_id,
            target_id=target.cluster_id,
            feeders=self._whole_config.feeders(self.config),
            appends=self._whole_config.may_append(self.config),
            service=self._status_writer.service,
            fresh_seconds=same_offsets.fresh_seconds(self.config, target),
        )  # fmt: skip

    def _copy(self, found: TopicsResult, paused: Pauses) -> None:
        if (run := self._run) is not None:
            run.update(found, paused)

    def _took(self, lease: LeaseResult) -> None:
        """Report what one lease did, and check whether the number of slots fits."""
        self._status_writer.add(lease, self.config)
        if (run := self._run) is None or run.again:
            return
        if self.config.on_hole == "translate":
            found = {e.topic for e in lease.reports if HOLE in dict(e.failed)}
            if found - self._holes:
                self._holes |= found
                run.begin_again()
                return
        if slots := self._sizing.outdated(self._status_writer.samples):
            log.info(
                "flow needs more or fewer slots", flow=self.name, slots=lease.slots,
                busy=round(self._status_writer.samples[-1].busy, 2),
            )  # fmt: skip
            run.begin_again(slots)

    def _watch(
        self,
        query: LeaseQuery,
        run: Leases,
        clusters: tuple[Cluster, Cluster],
        most_slots: Callable[[], int],
    ) -> None:
        """Look for new topics until the query ends, fails or must end."""
        pause = self.config.refresh_topics_seconds
        while not run.wait(pause):
            self._follow(run, *clusters)
            if run.over.is_set():
                break
            try:
                found = self._topics.look(*clusters)
                self._topics.copy(found)
                if slots := self._sizing.outgrown(found.partitions, most_slots()):
                    run.begin_again(slots)
                self._throttle.clear()
                pause = self.config.refresh_topics_seconds
            except ClusterError as error:
                # Leases continue, and report by themselves if they cannot copy.
                pause = min(self.config.refresh_topics_seconds, _AGAIN_SECONDS)
                if self._throttle.due(str(error)):
                    log.warning("looking for topics failed", flow=self.name,
                                error=str(error))  # fmt: skip
        if not run.ended.is_set():
            raise FlowError(f"flow {self.name}: {run.failure or query.failure}")


# ---- connections of one run of a flow to its source and its target ----


@contextlib.contextmanager
def both_clusters(
    config: MirrorConfig, flow: FlowConfig, ids: Mapping[str, str]
) -> Iterator[tuple[Cluster, Cluster]]:
    """The source and the target, which must have these `ids`, by alias, where one is
    known from an earlier run.

    Raises:
        FlowError: they are the same cluster.
        ClusterError: one does not answer, or is another cluster than before.
    """
    with contextlib.ExitStack() as stack:
        source, target = (
            Cluster(
                config.clusters[alias],
                client_id=f"mirror.{flow.name}",
                cluster_id=ids.get(alias, ""),
            )
            for alias in (flow.source, flow.target)
        )
        stack.callback(source.close)
        stack.callback(target.close)
        source.connect()
        target.connect()
        if source.cluster_id == target.cluster_id:
            raise FlowError(
                f"flow {flow.name}: {source.alias} and {target.alias} are the same "
                f"cluster ({source.cluster_id}); it would copy its own copies"
            )
        yield source, target


# ---- the jobs of a flow, which run alongside its leases; each run starts new ones ----
#
# Main type: `FlowJobs`, which puts together the jobs for topics, schemas, groups,
# standby, pauses, protection and proofs. `scheduler` runs them and handles their
# failures.


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
            must_wait=self._must_wait,
        )
        self._protection = ProtectJob(flow, config, tell=problems.tell)
        self._proofs = proofs
        self._jobs: Jobs | None = None
        self.adopt(flow, config)

    def adopt(self, flow: FlowConfig, config: MirrorConfig) -> None:
        """Use new settings; group jobs use them from the next `begin` on."""
        self._flow = flow
        self._rests_in = self._pairs.rests_in(flow.source, flow.target)
        self._clusters = (config.clusters[flow.source], config.clusters[flow.target])
        self.selection = selection.noted(config, flow.name)
        self._of_topics.adopt(flow, config)
        self._schemas.adopt(flow, config)
        self._protection.adopt(flow, config)
        if self._proofs is not None:
            self._proofs.adopt(flow, config)

    def begin(self, ids: Mapping[str, str], *more: Job) -> None:
        """Start all jobs, after running ones have ended. `ids` are the ids of the
        flow's clusters, by alias; `more`: jobs of this run alone.
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
            name="pauses", seconds=_PAUSES_SECONDS, work=self._topics.follow_pauses
        )
        proofs = None if self._proofs is None else self._proofs.job()
        self._start(
            ids,
            *(*self._of_topics.jobs(), *self._schemas.jobs(), *groups.jobs()),
            *(standby.job(), AccessJob(self._flow).job(), pauses),
            *self._protection.jobs(),
            *([] if proofs is None else [proofs]),
            *more,
        )

    def rest(self, ids: Mapping[str, str]) -> None:
        """Start only what goes on while the flow copies nothing: heartbeats, where the
        source's partitions end, the guard, and protection. `ids` as in `begin`.
        """
        self.close()
        ends = EndsJob(self._flow, store=self._store, notes=self.selection)
        groups = self._of_groups().heartbeats(rests=True)
        guard = self._of_topics.guard()
        self._start(ids, *groups, ends.job(), *self._protection.resting(guard))

    def require_guarded(self, source: Cluster, target: Cluster) -> None:
        """As `TopicJobs.require_guarded`: before a run copies."""
        self._of_topics.require_guarded(source, target)

    def look(self, target: Cluster) -> None:
        """Find out what earlier runs have left, before `begin`."""
        self._protection.begin(target)

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
            must_wait=self._must_wait,
        )
        self._jobs.start()

    def _must_wait(self) -> bool:
        """Whether a switch is under way, or has taken the target away from the flow: a
        run ends only with its lease, which may wait for a cluster that is dead.
        """
        ends = self._flow.source, self._flow.target
        if self._pairs.switching(*ends) or not self._pairs.may_copy(*ends):
            return True
        return self._pairs.rests_in(*ends) != self._rests_in

    def close(self, *, wait: bool = True) -> None:
        """Start no more turns, and wait a while for the running ones. After a failure
        `begin` waits for them: until the next run has fenced a slot that died, its
        open transactions hold up what reads progress or the offset map.
        """
        self._schemas.stop()
        self._protection.stop()
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
        self._protection.go_on()
        if self._jobs is not None:
            self._jobs.turn()
