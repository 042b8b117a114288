"""A flow from top to bottom: one source, one target, one streaming query.

Main type: `Flow`. Its order of work: reach both clusters, find topics and make their
copies, become the only writer, then run one streaming query whose micro-batches are
leases, while a thread looks for new topics. Any failure ends `run`; whoever called
it decides when to run again. How a lease is carried out is `relay`'s duty.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

import structlog

from mirror.clusters.admin import topic_admin
from mirror.clusters.cluster import Cluster
from mirror.config.changes import Effect
from mirror.driver.assignment import Placement
from mirror.driver.autoscale import Sizing
from mirror.driver.flow_status import StatusWriter
from mirror.driver.ownership import take_ownership
from mirror.driver.query import LeaseQuery, LeaseResult, Terms, short
from mirror.driver.reload import Pending
from mirror.driver.spark_checkpoint import own, state_folder
from mirror.driver.topic_changes import TopicChanges
from mirror.errors import ClusterError, FlowError
from mirror.jobs.groups import NOT_LOOKED_AT, GroupJobs
from mirror.jobs.scheduler import Job, Jobs
from mirror.jobs.topics import CONFIGS as TOPIC_CONFIGS
from mirror.jobs.topics import TopicJobs
from mirror.log import LogThrottle
from mirror.metadata import topics
from mirror.metadata.merging import Merging
from mirror.metadata.topics import TopicsResult
from mirror.offsets import progress
from mirror.offsets.groups import Copy
from mirror.recovery.pauses import Pauses, PausesReader
from mirror.relay import dead_letters
from mirror.relay.lease import Plan
from mirror.status.events import Event, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.driver.executors import PreferredExecutors
    from mirror.status.store import StatusStore

log = structlog.get_logger()

_TOPICS = "topics"
_PAUSES_SECONDS = 2.0
"""How often to look what somebody wants to rest."""


class Flow:
    """Mirrors one cluster into another until told to stop."""

    def __init__(
        self,
        flow: FlowConfig,
        config: MirrorConfig,
        *,
        store: StatusStore,
        once: bool = False,
    ) -> None:
        """`config` is the whole one: flows that meet in a topic have to agree."""
        self.name = flow.name
        self._store = store
        self._problems: dict[str, tuple[str, ...]] = {}
        self._problems_lock = threading.Lock()
        self._topic_jobs = TopicJobs(flow, config, store=store, tell=self._tell_of)
        self._state = state_folder(config.service.state_dir)
        self._throttle = LogThrottle()
        self._once = once
        self._stopping = threading.Event()
        self._stirred = threading.Event()
        self._resting = threading.Event()
        self._status_writer = StatusWriter(flow.name, store)
        self._placement = Placement()
        self._run: LeaseQuery | None = None
        store.update(flow.name, source=flow.source, target=flow.target)
        self._found = TopicsResult(topics=())
        self._lock = threading.Lock()
        self._changes = TopicChanges(flow, store)
        self._pauses: PausesReader | None = None
        self._paused = Pauses()
        self._pending = Pending()
        self._sizing = Sizing(flow.tasks)
        self._go_by(config)
        self._ids: dict[str, str] = {}
        """Of both clusters by alias: a later run must not take another for either."""
        self._jobs = Jobs(flow.name, self._clusters, (), store=store, ids={})

    def stop(self) -> None:
        """Finish the running transactions and end `run`. Returns at once."""
        self._stopping.set()
        self._stirred.set()
        if self._run is not None:
            self._run.end()

    def rest(self, *, rest: bool) -> None:
        """End `run` because another instance leads, or may do so; or be ready again."""
        if not rest:
            self._resting.clear()
        elif not self._resting.is_set():
            self._resting.set()
            if self._run is not None:
                self._run.end()

    @property
    def resting(self) -> bool:
        return self._resting.is_set()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def wait_stopping(self, seconds: float) -> None:
        self._stopping.wait(seconds)

    def pause(self, seconds: float) -> None:
        """Wait, unless it is to stop or to go by another configuration."""
        if not self.stopping:
            self._stirred.wait(seconds)

    def adopt(self, config: MirrorConfig, effect: Effect) -> None:
        """Go by another configuration, soon; `effect` is what it asks of this flow."""
        self._pending.put(config, effect)
        if effect:
            self._stirred.set()
            if (run := self._run) is not None:
                run.nudge()

    def run(
        self,
        spark: SparkSession,
        *,
        preferred: PreferredExecutors,
        most_slots: Callable[[], int],
    ) -> bool:
        """Mirror until stopped, or with `once` until caught up.

        Flows share `preferred`. `most_slots` limits the slots where `tasks` is not set.
        Returns whether to run again at once: another slot count is wanted.

        Raises:
            MirrorError: the flow cannot go on now; run it again to recover.
        """
        self._stirred.clear()
        self._take_up()
        self._status_writer.begin(self.config)
        with contextlib.ExitStack() as stack:
            source, target = (
                Cluster(
                    config,
                    client_id=f"mirror.{self.name}",
                    cluster_id=self._ids.get(config.alias, ""),
                )
                for config in self._clusters
            )
            stack.callback(source.close)
            stack.callback(target.close)
            source.connect()
            target.connect()
            if source.cluster_id == target.cluster_id:
                raise FlowError(
                    f"flow {self.name}: {source.alias} and {target.alias} are one and "
                    f"the same cluster ({source.cluster_id}); it would copy its copies"
                )
            self._ids = {each.alias: each.cluster_id for each in (source, target)}
            self._paused = PausesReader(target, self.config).read()
            self._changes.begin()
            found = self.discover(source, target)
            dead_letters.prepare(target, self.config)
            slots = self._sizing.begin(_partitions(found), most_slots())
            generation = take_ownership(
                self.config,
                source,
                target,
                slots=slots,
                partitions={
                    (topic.topic, partition): topic.topic_id
                    for topic in found.topics
                    for partition in range(topic.partitions)
                },
            )
            log.info("flow starts", flow=self.name, slots=slots,
                     topics=len(found.topics))  # fmt: skip
            known = progress.read(target, progress.topic_name(self.config.source))
            self._changes.remember(known.positions)
            found = self.discover(source, target)
            ends = _ends(source, found) if self._once else None
            run = LeaseQuery(
                spark,
                self._plan(source, target),
                Terms(generation=generation, slots=slots, ends=ends),
                placement=self._placement,
                preferred=preferred,
                log_settings=self._log_settings,
                took=self._took,
            )
            stack.callback(run.close)
            self._run = run
            self._direct(found)
            if self._pending.effect:
                run.nudge()
            if self._stopping.is_set() or self.resting:
                return False
            query = run.start(stack.enter_context(own(self._state, self.name)))
            self._begin_jobs()
            try:
                self._watch(query, run, (source, target), most_slots)
            finally:
                self._run = None
                run.stop(query)
                self._jobs.close()
                self._status_writer.rest()
            if self._once:
                self._jobs.turn()
        return run.again

    def _take_up(self) -> Effect:
        """Go by the newest configuration there is; what that asks for."""
        if (found := self._pending.take()) is None:
            return Effect.NONE
        if found.config.flows[self.name].tasks != self.config.tasks:
            self._sizing = Sizing(found.config.flows[self.name].tasks)
        self._go_by(found.config)
        if Effect.JOBS in found.effect:
            with self._problems_lock:
                self._problems = {_TOPICS: self._problems.get(_TOPICS, ())}
            self._store.update(self.name, jobs=(), **NOT_LOOKED_AT)
        return found.effect

    def _go_by(self, config: MirrorConfig) -> None:
        self.config = flow = config.flows[self.name]
        self._clusters = (config.clusters[flow.source], config.clusters[flow.target])
        self._log_settings = (config.service.log_level, config.service.log_format)
        self._merging = Merging(config.enabled_flows)
        self._feeders = config.feeders(flow)
        self._topic_jobs.adopt(flow, config)
        self._changes.adopt(flow)
        self._store.update(self.name, sla_seconds=flow.sla_seconds)

    def _follow(self, run: LeaseQuery, source: Cluster, target: Cluster) -> None:
        """Go on by another configuration, if there is one, in the midst of a run."""
        if Effect.RUN in self._pending.effect:
            run.begin_again()  # which takes it up
            return
        if Effect.JOBS in self._pending.effect:
            self._jobs.close()  # or they would show again what is forgotten
        effect = self._take_up()
        if Effect.LEASES in effect:
            run.go_by(self._plan(source, target), self._log_settings)
        if Effect.JOBS in effect:
            self._begin_jobs()

    def _plan(self, source: Cluster, target: Cluster) -> Plan:
        return Plan(
            flow=self.config,
            source=self._clusters[0],
            target=self._clusters[1],
            source_id=source.cluster_id,
            target_id=target.cluster_id,
            feeders=self._feeders,
            service=self._status_writer.service,
        )

    def _begin_jobs(self) -> None:
        """Begin what runs beside the data; anew, if it runs already."""
        self._jobs.close()
        self._jobs = Jobs(
            self.name, self._clusters, self._wanted_jobs(), store=self._store,
            ids=self._ids,
        )  # fmt: skip
        self._jobs.start()

    def _wanted_jobs(self) -> list[Job]:
        """What runs beside the data."""
        groups = GroupJobs(
            self.config, self._copies, store=self._store, tell=self._tell_of
        )
        pauses = Job(name="pauses", seconds=_PAUSES_SECONDS, work=self._look_at_pauses)
        return [*self._topic_jobs.jobs(), *groups.jobs(), pauses]

    def _copies(self) -> dict[str, Copy]:
        """The topics that are copied, as of the last look."""
        return {
            each.topic: Copy(
                topic=each.target_topic,
                partitions=each.partitions,
                merged=not self._merging.is_alone(self.config, each.topic),
            )
            for each in self._found.topics
        }

    def _look_at_pauses(self, _source: Cluster, target: Cluster) -> None:
        """Let rest what somebody wants to rest, soon after they said so."""
        if self._pauses is None or self._pauses.target is not target:
            self._pauses = PausesReader(target, self.config)
        paused = self._pauses.read()
        if paused != self._paused:
            self._store.trail.add(paused.event(self.name))
        self._paused = paused
        self._direct(self._found)

    def _direct(self, found: TopicsResult) -> None:
        """Tell the query what to copy from now on."""
        with self._lock:
            self._found = found
            if self._run is not None:
                self._run.update(found, self._paused)

    def discover(self, source: Cluster, target: Cluster) -> TopicsResult:
        """Look for topics once, and say what changed."""
        found = topics.sync(source, target, self.config)
        self._tell_topics(Kind.TOPIC_CREATED, "created", found.created)
        self._tell_topics(Kind.TOPIC_GROWN, "has more partitions", found.grown)
        if found.created:
            # Several flows may write it: they have to agree on its configs.
            self._jobs.kick(TOPIC_CONFIGS)
        found, problems = self._changes.look(source, found)
        self._tell_of(_TOPICS, problems)
        return found

    def _tell_topics(self, kind: Kind, what: str, names: Sequence[str]) -> None:
        for name in names:
            self._store.trail.add(
                Event(kind=kind, flow=self.name, cluster=self.config.target,
                      subject=name, text=f"target topic {name} {what}")
            )  # fmt: skip

    def _tell_of(self, whose: str, problems: Sequence[str]) -> None:
        """Show problems beside those that others see."""
        with self._problems_lock:
            self._problems[whose] = tuple(problems)
            together = dict.fromkeys(each for some in self._problems.values()
                                     for each in some)  # fmt: skip
            self._store.update(self.name, problems=tuple(together))

    def _took(self, lease: LeaseResult) -> None:
        """Show what one lease did, and see whether its slots are the right number."""
        self._status_writer.add(lease, self.config)
        if self._run is not None and self._sizing.outdated(self._status_writer.samples):
            log.info(
                "flow needs another number of slots", flow=self.name, slots=lease.slots,
                busy=round(self._status_writer.samples[-1].busy, 2),
            )  # fmt: skip
            self._run.begin_again()

    def _watch(
        self,
        query: StreamingQuery,
        run: LeaseQuery,
        clusters: tuple[Cluster, Cluster],
        most_slots: Callable[[], int],
    ) -> None:
        """Look for new topics until the query ends, fails, or must end."""
        while not run.wait(self.config.refresh_topics_seconds):
            if not query.isActive:
                break
            self._follow(run, *clusters)
            if run.over.is_set():
                break
            try:
                found = self.discover(*clusters)
                self._direct(found)
                if self._sizing.outgrown(_partitions(found), most_slots()):
                    run.begin_again()
                self._throttle.clear()
            except ClusterError as error:
                # Leases go on and say themselves whether they can still copy.
                if self._throttle.due(str(error)):
                    log.warning("looking for topics failed", flow=self.name,
                                error=str(error))  # fmt: skip
        if not run.ended.is_set():
            raise FlowError(f"flow {self.name}: {run.failure or _cause(query)}")


def _partitions(found: TopicsResult) -> int:
    return sum(topic.partitions for topic in found.topics)


def _ends(source: Cluster, found: TopicsResult) -> dict[tuple[str, int], int]:
    return topic_admin.list_offsets(
        source,
        [(t.topic, p) for t in found.topics for p in range(t.partitions)],
        timestamp=topic_admin.LATEST,
    )


def _cause(query: StreamingQuery) -> str:
    error = query.exception()
    return short(error) if error is not None else "its streaming query ended"
