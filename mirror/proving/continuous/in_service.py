"""Proves copies while a service runs: `verify: new` and `verify: rolling`.

Main types: `ServiceProofs`, which `mirror run` gives to the service, and `FlowProofs`,
the job of one flow. Every few seconds it compares what its budget allows, new copies
first, and reports what it found. `schedule` says how much, `new_copies` and
`past_copies` what.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
import threading
import time
from typing import TYPE_CHECKING

from mirror.jobs.scheduler import Job
from mirror.proving.comparing import Compared
from mirror.proving.continuous.new_copies import NewCopies
from mirror.proving.continuous.one_task import OneTask, StoppedError, Turn
from mirror.proving.continuous.past_copies import PastCopies, is_place
from mirror.proving.continuous.schedule import Budget, Costs, Lane, range_bytes, size
from mirror.proving.continuous.standing import ProofStanding
from mirror.proving.continuous.step import ProofStep
from mirror.proving.spark_runner import BesideSlots
from mirror.recovery import proofs
from mirror.status.counts import Counts
from mirror.status.events import Event, EventKind
from mirror.status.verify import OFF, RESULTS, UNPROVEN, VerifyStatus
from mirror.status.wording import NOTHING, some

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.proving.continuous.step import Outcome
    from mirror.status.store import StatusStore
    from mirror.status.verify import FindingStatus

TopicPartition = tuple[str, int]

_JOB = "verify"
_SECONDS = 5.0
_MOST_BYTES = 1 << 30
"""In one step: others get their turn, and little is lost if the flow ends."""
_RESTS = 20.0
"""A step reads the whole offset map. After it, this many times as long passes until
the next one: a long map must not cost more than the records."""
_NO_CORE = "no core is free beside the slots: give Spark one more, or set fewer tasks"
_IN_EVENT = 20


class ServiceProofs:
    """Those of all flows of a service, which share one task."""

    def __init__(self) -> None:
        self._tasks: OneTask | None = None
        self._wanted = False

    def begin(
        self,
        spark: SparkSession,
        store: StatusStore,
        room: Callable[[], tuple[bool, str | None]],
    ) -> None:
        """Carry out tasks in this session. `room`: whether a core is free beside the
        slots, and where; None: anywhere.
        """

        def obstacle() -> str:
            return catching_up(store) or ("" if room()[0] else _NO_CORE)

        runner = BesideSlots(spark, lambda: room()[1])
        self._tasks = OneTask(runner, obstacle)
        if self._wanted:
            threading.Thread(target=runner.warm_up, daemon=True).start()

    def of(
        self, flow: FlowConfig, config: MirrorConfig, store: StatusStore
    ) -> FlowProofs:
        """For one flow; `config` has all of them."""
        self._wanted |= flow.verify != OFF
        return FlowProofs(flow, config, store=store, tasks=self._begun)

    def _begun(self) -> OneTask:
        assert self._tasks is not None, "jobs begin after Spark"
        return self._tasks


def catching_up(store: StatusStore) -> str:
    """Which flow is catching up, in words; empty if none is."""
    behind = (flow.name for flow in store.read().flows if flow.catching_up)
    name = next(behind, "")
    return f"flow {name} is catching up" if name else ""


class FlowProofs:
    """Those of one flow, across its runs."""

    def __init__(
        self,
        flow: FlowConfig,
        config: MirrorConfig,
        *,
        store: StatusStore,
        tasks: Callable[[], OneTask],
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._stopping = threading.Event()
        self._costs = Costs()
        self._new = NewCopies(self._costs)
        self._past = PastCopies(self._costs)
        self._standing = ProofStanding()
        self._records = Counter(dict.fromkeys((*RESULTS, UNPROVEN), 0))
        self._budget = Budget(flow.verify_share, now=time.monotonic())
        self._lane, self._alone = Lane.NEW, True
        """What the running task is charged to."""
        self._needed = 0.0
        """What comparing all that was copied so far would cost."""
        self._due = self._surveying = 0.0
        self._proven_at, self._share, self._waiting = 0.0, -1.0, ""
        self.adopt(flow, config)

    def adopt(self, flow: FlowConfig, config: MirrorConfig) -> None:
        """Use new settings from the next `job` on."""
        self._flow = flow
        self._config = config
        self._budget.share = flow.verify_share

    def job(self) -> Job | None:
        """The job of a run that begins; None: nothing is to be proven."""
        self._stopping = threading.Event()
        if self._flow.verify == OFF:
            self._show(VerifyStatus())
            return None
        # From here on an alert can tell that nothing gets proven.
        self._proven_at = self._proven_at or time.time()
        self._tell()
        return Job(name=_JOB, seconds=_SECONDS, work=self._work)

    def stop(self) -> None:
        """End the running task, and begin no other, until the next `job`."""
        self._stopping.set()

    def _work(self, source: Cluster, target: Cluster) -> None:
        stopping = self._stopping
        now = time.monotonic()
        partitions = self._earn(now)
        if not partitions or now < self._due or stopping.is_set():
            return
        if self._saves_up():
            return
        tasks = self._tasks()
        if reason := tasks.obstacle():
            self._waits(reason)
            return
        turn = Turn(tasks, stopping, waits=self._waits, done=self._done)
        step = ProofStep(self._config, self._flow, source, target, turn)
        try:
            with tasks.turn(stopping):
                self._prove(step, partitions)
        except StoppedError:
            return
        finally:
            # The first one also compiles what reads the map.
            usual = min(step.surveying, self._surveying)
            self._due = time.monotonic() + _RESTS * usual
            self._surveying = step.surveying
            self._tell()

    def _saves_up(self) -> bool:
        """Whether not even one range is affordable yet: a step would read the whole
        map for nothing, and put off the next one for `_RESTS` times as long.
        """
        left = self._budget.allowed - self._budget.spent
        return self._needed > self._budget.allowed and left < self._costs.least

    def _earn(self, now: float) -> list[TopicPartition]:
        """Take note of what was copied; returns all partitions, sorted."""
        every = {
            (each.topic, each.partition): each.counts
            for each in self._store.flow(self._flow.name).partitions
        }
        self._budget.earn({key: each.bytes for key, each in every.items()}, now)
        self._costs.least = self._budget.least
        totals: dict[str, Counts] = {}
        for (topic, _), counts in every.items():
            totals[topic] = totals.get(topic, Counts()) + counts
        self._needed = 0.0
        for topic, counts in totals.items():
            offsets = counts.records + counts.skipped + counts.removed
            offsets += counts.looped + counts.away
            self._costs.guess(topic, copied=counts.bytes, offsets=offsets)
            left = self._budget.allowed - self._budget.spent
            each = range_bytes(left, self._costs.least)
            self._needed += self._costs.of_window(topic, offsets, each)
        return sorted(every)

    def _prove(self, step: ProofStep, partitions: list[TopicPartition]) -> None:
        known = proofs.read(step.target, self._flow.source)
        ends = {key: each for key, each in known.items() if not is_place(each)}
        self._standing.seen(ends)
        self._standing.only({topic for topic, _ in partitions})
        rolling = self._flow.verify == "rolling"
        self._lane, self._alone = Lane.NEW, not rolling
        found = self._new.prove(
            step, ends, left=self._left(),
            enough=self._budget.allowed / (1 + rolling) >= self._needed,
        )  # fmt: skip
        self._take(found.outcomes, found.at)
        if found.covered:
            self._proven_at = found.at
        if found.share >= 0:
            self._share = found.share
        failures = [each.failure for each in found.outcomes.values() if each.failure]
        if rolling:
            self._lane, self._alone = Lane.PAST, found.all
            if (left := self._left()) >= range_bytes(left, self._costs.least):
                at = time.time()
                passed = self._past.prove(step, known, partitions, left=left)
                self._take(passed.outcomes, at)
                for proof in passed.disproven:
                    self._new.disproven(proof)
                for proof in passed.proven:
                    self._new.moved(proof)
                self._past.keep(step, passed)
                failures += [passed.failure] if passed.failure else []
        self._waiting = next(iter([*found.obstacles, *failures]), "")

    def _left(self) -> float:
        return min(self._budget.left(self._lane, alone=self._alone), _MOST_BYTES)

    def _done(self, result: object, fetched: int) -> None:
        """A task has ended."""
        self._budget.spend(fetched, self._lane, alone=self._alone)
        if isinstance(result, Compared) and not result.range.is_late:
            topic = result.range.of.topic
            self._costs.learn(
                topic, fetched=fetched, offsets=size(result.range),
                payload=result.source_bytes,
            )  # fmt: skip

    def _take(self, outcomes: Mapping[TopicPartition, Outcome], at: float) -> None:
        for key, outcome in outcomes.items():
            counts = outcome.account.document()
            self._records.update({each: counts[each] for each in RESULTS})
            self._records[UNPROVEN] += outcome.unproven
            news = self._standing.proven(key, outcome.ranges, outcome.findings, at=at)
            if news:
                self._store.trail.add(_event(self._flow, news))

    def _waits(self, reason: str) -> None:
        if reason != self._waiting:
            self._waiting = reason
            self._tell()

    def _tell(self) -> None:
        rolling = self._flow.verify == "rolling"
        status = VerifyStatus(
            mode=self._flow.verify,
            proven_at=self._proven_at,
            share=self._share,
            records=dict(self._records),
            read_bytes=int(self._budget.spent),
            findings=len(self._standing),
            shown=self._standing.shown,
            waiting=self._waiting,
            rounds=self._past.rounds,
            round_share=self._past.share if rolling else -1.0,
        )
        self._show(status)

    def _show(self, status: VerifyStatus) -> None:
        self._store.update(self._flow.name, lambda flow: replace(flow, verify=status))


def _event(flow: FlowConfig, news: Sequence[FindingStatus]) -> Event:
    first = news[0]
    where = f"{first.topic}-{first.partition}"
    return Event(
        kind=EventKind.COPY_DIFFERS,
        flow=flow.name,
        cluster=flow.target,
        subject=where,
        text=f"{some(len(news), 'finding')} in the copy of {where}; the first: "
        f"{first.kind}, {first.count} at {_offset(first.source)} on the source, "
        f"{_offset(first.target)} in {first.target_topic}: {first.detail}",
        details={"findings": [asdict(each) for each in news[:_IN_EVENT]]},
    )


def _offset(offset: int | None) -> str:
    return NOTHING if offset is None else f"offset {offset}"
