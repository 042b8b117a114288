"""A flow from top to bottom: one source, one target, one streaming query.

Main type: `Flow`. Its order of work: reach both clusters, find topics and make their
copies, become the only writer, then run one streaming query whose micro-batches are
leases, while a thread looks for new topics. Any failure ends `run`; whoever called
it decides when to run again. How a lease is carried out is `relay`'s duty.
"""

from __future__ import annotations

import contextlib
from dataclasses import asdict
import math
import shutil
import threading
import time
from typing import TYPE_CHECKING, Any

import structlog

from mirror.clusters import admin
from mirror.clusters.cluster import Cluster
from mirror.complaint import Complaint
from mirror.errors import ClusterError, FlowError
from mirror.group_jobs import GroupJobs
from mirror.jobs import Job, Jobs
from mirror.leases import Placement
from mirror.metadata import topics
from mirror.metadata.merging import Merging
from mirror.metadata.topics import TopicsResult
from mirror.observe.events import Event, Kind
from mirror.observe.status import FlowState
from mirror.offsets import progress
from mirror.offsets.groups import Copy
from mirror.pace import pace, recent, sample
from mirror.query import LeaseQuery, LeaseResult, Terms, report_seconds, short
from mirror.recovery.pauses import Pauses, PausesReader
from mirror.relay import dead_letters
from mirror.relay.latency import bounds
from mirror.relay.lease import Plan
from mirror.relay.ownership import take_ownership
from mirror.scoreboard import Scoreboard, common_reason, slot_loads
from mirror.sizing import LONGEST_SECONDS, Sizing
from mirror.topic_changes import TopicChanges
from mirror.topic_jobs import CONFIGS as TOPIC_CONFIGS
from mirror.topic_jobs import TopicJobs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.executors import Homes
    from mirror.observe.status import Board
    from mirror.pace import Pace, Sample

log = structlog.get_logger()

_PAUSES_SECONDS = 2.0
"""How often to look what somebody wants to rest."""
_PACE_SECONDS = 10.0
"""How often to log how catching up gets on."""
_AT_REST: dict[str, Any] = {
    "slot_loads": (),
    "records_per_second": 0.0,
    "bytes_per_second": 0.0,
    "catching_up": False,
    "remaining_seconds": -1.0,
}
"""What a flow's status says of its pace while no lease runs."""


class Flow:
    """Mirrors one cluster into another until told to stop."""

    def __init__(
        self,
        flow: FlowConfig,
        config: MirrorConfig,
        *,
        board: Board,
        once: bool = False,
    ) -> None:
        """`config` is the whole one: flows that meet in a topic have to agree."""
        self.config = flow
        self.name = flow.name
        self._clusters = (config.clusters[flow.source], config.clusters[flow.target])
        self._board = board
        self._problems: dict[str, tuple[str, ...]] = {}
        self._problems_lock = threading.Lock()
        self._merging = Merging(config.enabled_flows)
        self._topic_jobs = TopicJobs(flow, config, board=board, tell=self._tell_of)
        self._kick: Callable[[str], None] = lambda _job: None
        service = config.service
        self._checkpoint = service.state_dir / f"{flow.source}-to-{flow.target}"
        self._log_settings = (service.log_level, service.log_format)
        self._complaint = Complaint()
        self._once = once
        self._stopping = threading.Event()
        self._resting = threading.Event()
        self._scores = Scoreboard()
        self._placement = Placement()
        self._sizing = Sizing(flow.tasks)
        self._samples: list[Sample] = []
        self._told_pace_at = -math.inf
        self._run: LeaseQuery | None = None
        board.update(
            flow.name,
            source=flow.source,
            target=flow.target,
            sla_seconds=flow.sla_seconds,
            bounds=bounds(flow.sla_seconds),
        )
        self._found = TopicsResult(topics=())
        self._lock = threading.Lock()
        self._changes = TopicChanges(flow, board)
        self._pauses: PausesReader | None = None
        self._paused = Pauses()

    def stop(self) -> None:
        """Finish the running transactions and end `run`. Returns at once."""
        self._stopping.set()
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

    def run(
        self, spark: SparkSession, *, homes: Homes, most_slots: Callable[[], int]
    ) -> bool:
        """Mirror until stopped, or with `once` until caught up.

        `homes` are shared with other flows. `most_slots` says how many are chosen at
        most where the user sets no `tasks`.
        Returns whether to run again at once: another slot count is wanted.

        Raises:
            MirrorError: the flow cannot go on now; run it again to recover.
        """
        self._board.update(self.name, state=FlowState.STARTING, reason="", **_AT_REST)
        with contextlib.ExitStack() as stack:
            source, target = (
                Cluster(config, client_id=f"mirror.{self.name}")
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
            self._paused = PausesReader(target, self.config).read()
            self._changes.begin()
            found = self.discover(source, target)
            dead_letters.prepare(target, self.config)
            slots = self._sizing.begin(_partitions(found), most_slots())
            self._samples.clear()
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
            plan = Plan(
                flow=self.config,
                source=self._clusters[0],
                target=self._clusters[1],
                source_id=source.cluster_id,
                target_id=target.cluster_id,
            )
            ends = _ends(source, found) if self._once else None
            run = LeaseQuery(
                spark,
                plan,
                Terms(generation=generation, slots=slots, ends=ends),
                placement=self._placement,
                homes=homes,
                log_settings=self._log_settings,
                took=self._show,
            )
            stack.callback(run.close)
            self._run = run
            self._direct(found)
            if self._stopping.is_set() or self.resting:
                return False
            shutil.rmtree(self._checkpoint, ignore_errors=True)
            query = run.start(self._checkpoint)
            jobs = Jobs(self.name, self._clusters, self._jobs(), board=self._board)
            jobs.start()
            self._kick = jobs.kick
            try:
                self._watch(query, run, (source, target), most_slots)
            finally:
                self._run = None
                run.stop(query)
                jobs.close()
                self._board.update(self.name, **_AT_REST)
            if self._once:
                jobs.turn()
        return run.again

    def _jobs(self) -> list[Job]:
        """What runs beside the data."""
        groups = GroupJobs(
            self.config, self._copies, board=self._board, tell=self._tell_of
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
            self._board.trail.add(_pauses_changed(self.name, paused))
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
            self._kick(TOPIC_CONFIGS)
        found, problems = self._changes.look(source, found)
        self._tell_of("topics", problems)
        return found

    def _tell_topics(self, kind: Kind, what: str, names: Sequence[str]) -> None:
        for name in names:
            self._board.trail.add(
                Event(kind=kind, flow=self.name, cluster=self.config.target,
                      subject=name, text=f"target topic {name} {what}")
            )  # fmt: skip

    def _tell_of(self, whose: str, problems: Sequence[str]) -> None:
        """Show problems beside those that others see."""
        with self._problems_lock:
            self._problems[whose] = tuple(problems)
            together = dict.fromkeys(each for some in self._problems.values()
                                     for each in some)  # fmt: skip
            self._board.update(self.name, problems=tuple(together))

    def _show(self, lease: LeaseResult) -> None:
        """Show what one lease did."""
        self._samples.append(
            sample(lease.reports, seconds=lease.seconds, slots=lease.slots)
        )
        self._samples[:] = recent(self._samples, LONGEST_SECONDS)
        now = pace(self._samples)
        partitions = self._scores.add(lease.reports, reported := time.time())
        self._board.update(
            self.name,
            state=FlowState.RUNNING,
            reason=common_reason(lease.reports),
            leases=lease.number,
            slots=lease.slots,
            slot_loads=slot_loads(lease.reports, lease.slots),
            lease_gap_ms=lease.gap_seconds * 1000 if lease.gap_seconds >= 0 else -1.0,
            records_per_second=now.records_per_second,
            bytes_per_second=now.bytes_per_second,
            catching_up=now.catching_up,
            remaining_seconds=now.remaining_seconds,
            reported_at=reported,
            report_due=reported + report_seconds(self.config),
            transactions=self._scores.transactions,
            times=self._scores.times,
            partitions=partitions,
        )
        self._tell(now)
        if self._run is not None and self._sizing.outdated(self._samples):
            log.info(
                "flow needs another number of slots", flow=self.name,
                slots=lease.slots, busy=round(self._samples[-1].busy, 2),
            )  # fmt: skip
            self._run.begin_again()

    def _tell(self, now: Pace) -> None:
        """Log how catching up gets on."""
        due = time.monotonic() - self._told_pace_at >= _PACE_SECONDS
        if now.catching_up and due:
            self._told_pace_at = time.monotonic()
            left = now.remaining_seconds
            log.info(
                "catching up", flow=self.name, lag=self._samples[-1].lag,
                records_per_second=round(now.records_per_second),
                bytes_per_second=round(now.bytes_per_second),
                remaining_seconds=round(left) if left >= 0 else None,
            )  # fmt: skip

    def _watch(
        self,
        query: StreamingQuery,
        run: LeaseQuery,
        clusters: tuple[Cluster, Cluster],
        most_slots: Callable[[], int],
    ) -> None:
        """Look for new topics until the query ends, fails, or must end."""
        while not run.over.wait(self.config.refresh_topics_seconds):
            if not query.isActive:
                break
            try:
                found = self.discover(*clusters)
                self._direct(found)
                if self._sizing.outgrown(_partitions(found), most_slots()):
                    run.begin_again()
                self._complaint.clear()
            except ClusterError as error:
                # Leases go on and say themselves whether they can still copy.
                if self._complaint.due(str(error)):
                    log.warning("looking for topics failed", flow=self.name,
                                error=str(error))  # fmt: skip
        if not run.ended.is_set():
            raise FlowError(f"flow {self.name}: {run.failure or _cause(query)}")


def _pauses_changed(flow: str, pauses: Pauses) -> Event:
    resting = [rule.topics for rule in pauses.rules if rule.paused]
    return Event(
        kind=Kind.FLOW_PAUSED if resting else Kind.FLOW_RESUMED,
        flow=flow,
        text=f"paused: topics {', '.join(resting)}" if resting else "nothing is paused",
        details={"rules": [asdict(rule) for rule in pauses.rules]},
    )


def _partitions(found: TopicsResult) -> int:
    return sum(topic.partitions for topic in found.topics)


def _ends(source: Cluster, found: TopicsResult) -> dict[tuple[str, int], int]:
    return admin.list_offsets(
        source,
        [(t.topic, p) for t in found.topics for p in range(t.partitions)],
        timestamp=admin.LATEST,
    )


def _cause(query: StreamingQuery) -> str:
    error = query.exception()
    return short(error) if error is not None else "its streaming query ended"
