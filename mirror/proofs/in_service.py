"""Proves copies while a service runs: `verify: new` and `verify: rolling`.

Main types: `ServiceProofs`, which `mirror run` gives to the service, and `FlowProofs`,
the job of one flow. Every few seconds it compares what its budget allows, new copies
first, and reports what it found. `steps` says what, and how much. What compares is
loaded when a flow wants it.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor, wait
import contextlib
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
import threading
import time
from typing import TYPE_CHECKING, Any

from mirror.errors import MirrorError
from mirror.pairs import proofs
from mirror.proofs.runners import BesideSlots
from mirror.proofs.steps import (
    Budget,
    Costs,
    Lane,
    NewCopies,
    PastCopies,
    ProofStep,
    is_place,
    range_bytes,
    size,
)
from mirror.service.scheduler import Job
from mirror.status.events import Event, EventKind
from mirror.status.values import (
    OFF,
    RESULTS,
    UNPROVEN,
    Counts,
    FindingStatus,
    VerifyStatus,
)
from mirror.status.wording import NOTHING, some

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Collection,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from pyspark.sql import SparkSession

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.pairs.proofs import Proof
    from mirror.proofs.account import ProofFinding
    from mirror.proofs.ranges import Range
    from mirror.proofs.verification import PartitionProof
    from mirror.status.store import StatusStore


_JOB = "verify"
_SECONDS = 5.0
_MOST_BYTES = 1 << 30
"""In one step: others get their turn, and little is lost if the flow ends."""
_RESTS = 20.0
"""A step reads the whole offset map. After it, this many times as long passes until
the next one: a long map must not cost more than the records."""
_NO_CORE = "no core is free beside the slots: give Spark one more, or set fewer tasks"
_IN_EVENT = 20
_LOOK_SECONDS = 0.2
_MOST_SHOWN = 100
_MOST_KEPT = 10_000
"""Of one partition; the alert needs no more."""


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

    def of_flow(
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


def load() -> None:
    """Load what compares, if it is not yet: its kernels take a third of a second of CPU
    and 100 MB, and by default no flow proves its copies.
    """
    from mirror.proofs import verification  # noqa: F401, PLC0415


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
        self._unresolved = UnresolvedFindings()
        self._records = Counter(dict.fromkeys((*RESULTS, UNPROVEN), 0))
        self._budget = Budget(flow.verify_share, now=time.monotonic())
        self._lane, self._alone = Lane.NEW, True
        """What the running task is charged to."""
        self._needed = 0.0
        """What comparing all that was copied so far would cost."""
        self._due = self._surveying = 0.0
        self._waiting = ""
        self._wanted = False
        """Whether the flow has ever asked for proofs."""
        self.adopt(flow, config)

    def adopt(self, flow: FlowConfig, config: MirrorConfig) -> None:
        """Use new settings from the next `job` on."""
        self._flow = flow
        self._config = config
        self._budget.share = flow.verify_share
        if flow.verify != OFF and not self._wanted:
            self._wanted = True
            # It earns from now on, not since the service began.
            self._budget = Budget(flow.verify_share, now=time.monotonic())
            load()

    def job(self) -> Job | None:
        """The job of a run that begins; None: nothing is to be proven."""
        self._stopping = threading.Event()
        if not self._wanted:
            return None
        if self._flow.verify == OFF:
            self._show(VerifyStatus())
            return None
        # From here on an alert can tell that nothing gets proven.
        self._new.proven_at = self._new.proven_at or time.time()
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
        left = self._budget.allowed - self._budget.spent
        if self._needed > self._budget.allowed and left < self._costs.least:
            # Not even one range is affordable yet: a step would read the whole map for
            # nothing, and put off the next one for `_RESTS` times as long.
            return
        tasks = self._tasks()
        if reason := tasks.obstacle():
            self._waits(reason)
            return
        turn = Turn(tasks=tasks, stopping=stopping, waits=self._waits, done=self._done)
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
            offsets = counts.records + counts.removed
            offsets += max(counts.skipped, counts.fillers)
            offsets += counts.looped + counts.away
            self._costs.guess(topic, copied=counts.bytes, offsets=offsets)
            left = self._budget.allowed - self._budget.spent
            each = range_bytes(left, self._costs.least)
            self._needed += self._costs.of_window(topic, offsets, each)
        return sorted(every)

    def _prove(self, step: ProofStep, partitions: list[TopicPartition]) -> None:
        known = proofs.read(step.target, self._flow.source)
        ends = {key: each for key, each in known.items() if not is_place(each)}
        self._unresolved.seen(ends)
        self._unresolved.only({topic for topic, _ in partitions})
        rolling = self._flow.verify == "rolling"
        self._lane, self._alone = Lane.NEW, not rolling
        at = time.time()
        made = self._new.prove(
            step, ends, at=at, left=self._left(),
            enough=self._budget.allowed / (1 + rolling) >= self._needed,
        )  # fmt: skip
        self._take(made, at)
        failures = [each.failure for each in made.values() if each.failure]
        if rolling:
            self._lane, self._alone = Lane.PAST, self._new.is_through
            if (left := self._left()) >= range_bytes(left, self._costs.least):
                at = time.time()
                made = self._past.prove(step, known, partitions, at=at, left=left)
                self._take(made, at)
                for proof in self._past.disproven:
                    self._new.disproven(proof)
                for proof in self._past.proven:
                    self._new.moved(proof)
                self._past.keep(step)
                failures += [self._past.failure] if self._past.failure else []
        self._waiting = next(iter([*self._new.obstacles, *failures]), "")

    def _left(self) -> float:
        return min(self._budget.left(self._lane, alone=self._alone), _MOST_BYTES)

    def _done(self, result: object, fetched: int) -> None:
        """A task has ended."""
        from mirror.proofs.comparing import Compared  # noqa: PLC0415  loaded by then

        self._budget.spend(fetched, self._lane, alone=self._alone)
        if isinstance(result, Compared) and not result.range.is_late:
            topic = result.range.of.topic
            self._costs.learn(
                topic, fetched=fetched, offsets=size(result.range),
                payload=result.account.source_bytes,
            )  # fmt: skip

    def _take(self, made: Mapping[TopicPartition, PartitionProof], at: float) -> None:
        for key, proof in made.items():
            counts = proof.account.document()
            self._records.update({each: counts[each] for each in RESULTS})
            self._records[UNPROVEN] += proof.unproven
            news = self._unresolved.proven(key, proof.ranges, proof.wrong, at=at)
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
            proven_at=self._new.proven_at,
            share=self._new.share,
            records=dict(self._records),
            read_bytes=int(self._budget.spent),
            findings=len(self._unresolved),
            shown=self._unresolved.shown,
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


# ---- carries out tasks, one at a time ----
#
# `OneTask` is shared by all flows of a service. While something is in the way it waits,
# after it has cancelled the running task, and runs that again later.


class StoppedError(MirrorError):
    """The flow ends, or its settings have changed."""


class OneTask:
    """Runs one task at a time, of all flows."""

    def __init__(self, runner: BesideSlots, obstacle: Callable[[], str]) -> None:
        """`obstacle`: why none may run now; empty if one may."""
        self.obstacle = obstacle
        self._runner = runner
        self._turn = threading.Lock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="mirror-proof")

    @contextlib.contextmanager
    def turn(self, stopping: threading.Event) -> Iterator[None]:
        """One flow's turn; others wait. What a flow does in it takes no more than its
        budget, and then it rests, so that each gets a turn.

        Raises:
            StoppedError: the flow ends meanwhile.
        """
        while not self._turn.acquire(timeout=_LOOK_SECONDS):
            if stopping.is_set():
                raise StoppedError("stopped")
        try:
            yield
        finally:
            self._turn.release()

    def run(self, task: Callable[[], Any], of: Turn) -> tuple[Any, int]:
        """What the task returns, and how many bytes it has fetched.

        Raises:
            StoppedError: the flow ends.
            MirrorError: what the task raised.
        """
        from mirror.proofs.log_stream import metered  # noqa: PLC0415  with kernels

        while True:
            while reason := self.obstacle():
                of.waits(reason)
                if of.stopping.wait(_LOOK_SECONDS):
                    break
            if of.stopping.is_set():
                raise StoppedError("stopped")
            of.waits("")
            results = self._runner.results([partial(metered, task)])
            future = self._pool.submit(next, results)
            cancelled = False
            while not wait([future], _LOOK_SECONDS).done:
                if of.stopping.is_set() or self.obstacle():
                    self._runner.cancel()
                    cancelled = True
            if not cancelled or future.exception() is None:
                found: tuple[Any, int] = future.result()
                return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The `Runner` of one flow."""

    tasks: OneTask
    stopping: threading.Event
    waits: Callable[[str], None]
    """Gets the reason, or "" when it goes on."""
    done: Callable[[object, int], None]
    """Gets each result, and how many bytes it took."""

    def results(self, tasks: Iterable[Callable[[], Any]]) -> Iterator[Any]:
        """What the tasks return, in order."""
        for task in tasks:
            result, fetched = self.tasks.run(task, self)
            self.done(result, fetched)
            yield result


# ---- findings that nothing has shown to be gone ----
#
# A finding goes when its range is proven again without it, when somebody runs `mirror
# verify` past it, or with its topic.


class UnresolvedFindings:
    """Those of one flow."""

    def __init__(self) -> None:
        self._found: dict[TopicPartition, list[FindingStatus]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._found.values()))

    @property
    def shown(self) -> tuple[FindingStatus, ...]:
        """The first ones."""
        every = (one for _, each in sorted(self._found.items()) for one in each)
        return tuple(islice(every, _MOST_SHOWN))

    def proven(
        self,
        key: TopicPartition,
        ranges: Sequence[Range],
        found: Iterable[ProofFinding],
        *,
        at: float,
    ) -> tuple[FindingStatus, ...]:
        """These ranges were compared, and this was found; returns what is new."""
        before = self._found.get(key, [])
        now = [
            FindingStatus(
                kind=each.kind.value, topic=each.topic, partition=each.partition,
                source=each.source, target_topic=each.target_topic, target=each.target,
                count=each.count, detail=each.detail, found_at=at,
            )
            for each in found
        ]  # fmt: skip
        kept = [each for each in before if not any(_is_in(each, r) for r in ranges)]
        self._found[key] = [*kept, *now][:_MOST_KEPT]
        known = {_identity(each) for each in before}
        return tuple(each for each in now if _identity(each) not in known)

    def seen(self, proofs: Mapping[TopicPartition, Proof]) -> None:
        """Forget what somebody's proof, made later, has passed."""
        for key, found in [*self._found.items()]:
            if (proof := proofs.get(key)) is not None:
                self._found[key] = [one for one in found if not _passed(one, proof)]

    def only(self, topics: Collection[str]) -> None:
        """Forget what was found in other topics."""
        self._found = {
            key: found for key, found in self._found.items() if key[0] in topics
        }


def _is_in(one: FindingStatus, work: Range) -> bool:
    if one.source is not None:
        return work.source_first <= one.source < work.source_end
    return one.target is not None and work.target_first <= one.target < work.target_end


def _passed(one: FindingStatus, proof: Proof) -> bool:
    if proof.at < one.found_at:
        return False
    if one.source is not None:
        return one.source < proof.source_offset
    return one.target is not None and one.target < proof.target_offset


def _identity(one: FindingStatus) -> tuple[object, ...]:
    return one.kind, one.source, one.target
