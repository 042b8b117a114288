"""The leases of one run of a flow, under one generation.

Main type: `Leases`, which the flow's streaming query (`query`) carries out one after
the other. It passes assignments to tasks as rows, waits for their reports, gives up on
a task that hangs, and ends the running lease early on request. `flow` decides what to
mirror, and what happens after a failure.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
import math
import threading
import time
from typing import TYPE_CHECKING

import structlog

from mirror.clusters.admin import topic_admin
from mirror.copying.lease import REPORT_SCHEMA, PartitionReport, from_row
from mirror.copying.task import TERM, RelayTask, to_row, to_term
from mirror.errors import FlowError
from mirror.service.assignment import LONGEST_SECONDS, Assignments, lease_length
from mirror.service.autoscale import behind
from mirror.service.executors import slot_frames
from mirror.service.query import short
from mirror.service.same_offsets import NONE
from mirror.service.wakeup import Wakeup
from mirror.status.states import PartitionState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import DataFrame

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig
    from mirror.copying.lease import Assignment, LeasePlan
    from mirror.log import Settings
    from mirror.pairs.control import Pauses
    from mirror.service.assignment import Placement, Spread
    from mirror.service.executors import PreferredExecutors
    from mirror.service.ownership import Owned
    from mirror.service.query import LeaseQuery
    from mirror.service.same_offsets import SameOffsets
    from mirror.topics.topics import TopicsResult


log = structlog.get_logger()

_GRACE_SECONDS = 10.0
"""How long a lease may overrun before it is given up."""
_COLD_SECONDS = 60.0
"""The same for the first lease, which waits for workers to start."""
_OVERDUE = "a slot did not come back after its lease: it waits, or its process hangs"
_STOP_SECONDS = 4.0
"""How long running transactions have to finish when a flow stops."""
_AHEAD_SECONDS = 5.0
"""How long processes of more slots may take to start before a run ends for them."""
_LOOK_SECONDS = 5.0
"""How soon the end of a query is noticed that fails between two leases."""
_TURN_SECONDS = 1.0
"""The longest lease while slots take turns, as there are fewer cores than slots."""
_GAPS = 20
"""The length of a lease depends on this many of the last gaps, and the time on credit
in them: Spark's work for a lease costs the same."""
_DECIDE_AGAIN_SECONDS = 30.0
"""How long a run goes on beside topics whose leaders were away when it began."""
_WARM_UP_LEASES = 5
_WARM_UP_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTerms:
    """What is fixed for one run of a flow."""

    owned: Owned
    slots: int
    same: SameOffsets = NONE
    ends: dict[tuple[str, int], int] | None
    """The run ends once it has reached these source positions; None: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseResult:
    """What one lease did."""

    number: int
    slots: int
    seconds: float
    """Since the end of the previous lease; for the first one, since its own start."""
    gap_seconds: float
    """The part of it in which no slot worked; -1 while unknown."""
    reports: list[PartitionReport]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """A frame that Spark has planned, and what it was planned for."""

    task: RelayTask
    spread: Spread
    places: Sequence[str | None]
    frame: DataFrame


class Leases:
    """Leases, one after the other, until they are asked to end, or one fails."""

    def __init__(
        self,
        query: LeaseQuery,
        plan: LeasePlan,
        terms: RunTerms,
        *,
        placement: Placement,
        preferred: PreferredExecutors,
        log_settings: Settings,
        took: Callable[[LeaseResult], None],
    ) -> None:
        """Nothing runs before `begin`.

        `query`, `placement` and `preferred` outlive this run; `took` is called after
        every lease.
        """
        self.ended = threading.Event()
        """Set once it is asked to end."""
        self.over = threading.Event()
        """Set once it is asked to end, or has failed."""
        self.first_done = threading.Event()
        """Set after the first lease, or once there will be none."""
        self._woken = threading.Event()
        self.failure = ""
        self.again = False
        """Whether another run is to follow."""
        self.wakeup = Wakeup(
            preferred.spark.conf.get("spark.driver.host") or "127.0.0.1",
            bind=preferred.spark.conf.get("spark.driver.bindAddress", None),
        )
        self._query = query
        self._flow = plan.flow
        self._took = took
        self._owned = terms.owned
        self._task = RelayTask(
            plan=replace(plan, slot_ids=terms.owned.slot_ids),
            wakeup=self.wakeup.address,
            wakeup_token=self.wakeup.token,
            log_settings=log_settings,
        )
        self._slots = terms.slots
        self._rates = Rates(terms.slots)
        self._ends = terms.ends
        self._placement = placement
        self._preferred = preferred
        self._same = terms.same
        self._began = time.monotonic()
        self._made = Assignments(terms.same)
        self._assignments: tuple[Assignment, ...] = ()
        self._gaps: deque[float] = deque(maxlen=_GAPS)
        self._behind = False
        self._number = self._carried_out = 0
        self._planned: _Planned | None = None
        hands_over = plan.flow.exactly_once or preferred.alone
        self._credit = Credit(possible=hands_over and terms.ends is None)
        self._finished_at: float | None = None
        self._idle = threading.Event()
        self._idle.set()

    def begin(self) -> None:
        self._query.carry_out(self._lease)

    def update(self, found: TopicsResult, pauses: Pauses) -> None:
        """Mirror these topics from the next lease on; if they have changed, it starts
        now. Paused topics keep their slots.
        """
        if self._must_decide(found):
            self.begin_again()
            return
        assignments = self._made.assign(found, pauses)
        if assignments == self._assignments:
            return
        self._assignments = assignments
        self.wakeup.send()

    def _must_decide(self, found: TopicsResult) -> bool:
        """Whether only another run can say how some topic's copy is to be written."""
        if self._same is NONE:
            return False
        if any(not self._same.knows(each.topic) for each in found.topics):
            return True
        if any(each.target_topic in found.created for each in found.topics):
            return True  # a copy was deleted
        waited = time.monotonic() - self._began
        undecided = self._same.waiting.keys() - self._same.padding
        undecided -= self._same.comparing.keys()
        return bool(undecided) and waited > _DECIDE_AGAIN_SECONDS

    def apply_plan(self, plan: LeasePlan, log_settings: Settings) -> None:
        """Use this plan from now on: slots restart under the same generation."""
        self._flow = plan.flow
        plan = replace(plan, slot_ids=self._owned.slot_ids)
        self._task = replace(self._task, plan=plan, log_settings=log_settings)
        self.wakeup.send()

    def wake(self) -> None:
        """Let `wait` return now."""
        self._woken.set()

    def wait(self, seconds: float) -> bool:
        """Wait at most this long; returns whether it is asked to end, or has failed, or
        its query has.
        """
        until = time.monotonic() + seconds
        while (active := self._query.active) and (left := until - time.monotonic()) > 0:
            if self._woken.wait(min(left, _LOOK_SECONDS)):
                break
        self._woken.clear()
        return self.over.is_set() or not active

    def begin_again(self, slots: int = 0) -> None:
        """End, to be followed by a new run, which gets a new generation. If that has
        more `slots`, this one copies on until their processes have started.
        """

        def end_later() -> None:
            self._preferred.await_processes(self._flow.name, _AHEAD_SECONDS)
            self.end()

        self.again = True
        if slots <= self._slots:
            self.end()
            return
        self._preferred.start_processes(self._flow.name, slots)
        threading.Thread(target=end_later, daemon=True).start()

    def end(self) -> None:
        """Start no more leases; the running one ends with its current transaction."""
        self.ended.set()
        self.over.set()
        self.first_done.set()
        self.wake()
        self.wakeup.send()

    def stop(self) -> None:
        """End after the running lease, for which this does not wait long: the query can
        go on with another run only if that has ended.
        """
        self.end()
        # A query that failed after a lease with credit began no other one.
        if self._query.active and not self._idle.wait(_STOP_SECONDS):
            log.warning("lease does not end: stopping it", flow=self._flow.name)
        else:
            self._query.pause()

    def close(self) -> None:
        self.wakeup.close()

    def _lease(self) -> None:
        """One lease: this is the streaming query's micro-batch."""
        self._idle.clear()
        try:
            if not self._number:
                # A slot whose process still starts would get a second one.
                self._preferred.await_processes(self._flow.name, _COLD_SECONDS)
            self.wakeup.mute()
            # Check after muting: `end` sets this before it sends the wake-up.
            if self._credit.given or not self.ended.is_set():
                self._carry_out()
        finally:
            if not self._credit.given:
                self._idle.set()

    def _carry_out(self) -> None:
        before = self._finished_at or time.monotonic()
        self._number += 1
        places = self._preferred.places_of(self._flow.name, self._slots)
        turns = self._preferred.turns()
        seconds = self._seconds() if turns == 1 else min(self._seconds(), _TURN_SECONDS)
        task = self._task
        spread = self._placement.spread(self._assignments, self._slots)
        last = self._planned
        same = last is not None and last.task is task and last.spread == spread
        closes = self._credit.must_end(before=self.ended.is_set() or not same)
        if closes and last is not None:
            seconds, frame = 0.0, last.frame
        else:
            frame = self._frame(task, spread, places)
        # Slots that take turns read in a part of the time only.
        limit = (self._flow.max_bytes_per_second or 0) * turns
        rates = self._rates.parts(limit)
        term = to_term(
            self._number,
            seconds,
            rates,
            takes_turns=turns > 1,
            credit=self._credit.possible and turns == 1 and not closes,
        )
        self._preferred.spark.sparkContext.setLocalProperty(TERM, term)
        grace = _GRACE_SECONDS if self._number > 1 else _COLD_SECONDS
        overdue = threading.Timer(
            seconds * turns + grace, self._give_up, [self._number]
        )
        overdue.start()
        try:
            reports = [from_row(row) for row in frame.collect()]
        except Exception as error:  # noqa: BLE001  whatever Spark raises for a job
            self._credit.given = False  # the next run fences
            if self.ended.is_set():
                return
            # Short, and without its cause: see spark.driver.extraJavaOptions.
            self.failure = self.failure or short(error)
            self.over.set()
            self.wake()
            raise FlowError(self.failure) from None
        finally:
            self._carried_out = self._number
            overdue.cancel()
            self._finished_at = time.monotonic()
            self.first_done.set()
        took = self._finished_at - before
        gap = self._gap(took, reports) if turns == 1 else -1.0
        self._placement.learn(reports)
        self._rates.learn(reports)
        self._credit.learn(reports)
        if closes and self._credit.given:
            self._credit.given = False  # the next run fences
            if not self.ended.is_set():
                self.begin_again()
        self._behind = behind(reports)
        self._took(
            LeaseResult(
                number=self._number, slots=self._slots, seconds=took,
                gap_seconds=gap, reports=reports,
            )
        )  # fmt: skip
        if self._ends is not None and self._caught_up(reports):
            self.end()

    def _gap(self, took: float, reports: list[PartitionReport]) -> float:
        """How long nothing was copied in the `took` seconds since the last lease."""
        worked = max((report.slot_seconds for report in reports), default=0.0)
        if self._number == 1 or not worked:
            return -1.0
        on_credit = max(report.slot_credit_seconds for report in reports)
        if self._number > _WARM_UP_LEASES:
            self._gaps.append(max(took - worked + on_credit, 0.0))
        return max(took - worked, 0.0)

    def _seconds(self) -> float:
        longest = self._flow.lease_seconds or lease_length(
            self._gaps, catching_up=self._behind
        )
        if self._ends is not None:
            longest = min(longest, 1.0)
        if self._number <= _WARM_UP_LEASES:
            return min(longest, _WARM_UP_SECONDS)
        return longest

    def _frame(
        self, task: RelayTask, spread: Spread, places: Sequence[str | None]
    ) -> DataFrame:
        """One single-partition frame per slot, each with its own worker.

        Building and planning it takes 10 ms or more per slot, while no slot works, so
        it is reused as long as nothing in it changes.
        """
        last = self._planned
        same = last is not None and last.task is task and last.spread == spread
        assert same or not self._credit.given, "a slot may copy what another one gets"
        if last and same and last.places == places:
            return last.frame
        union = slot_frames(
            self._preferred.spark,
            self._flow.name,
            {slot: to_row(slot, self._owned.run, p) for slot, p in spread.items()},
            places,
            work=task,
            schema=REPORT_SCHEMA,
        )
        self._planned = _Planned(task=task, spread=spread, places=places, frame=union)
        return union

    def _give_up(self, number: int) -> None:
        """A task hangs: end the query, so that the next run of the flow fences it."""
        if self._carried_out == number:  # just in time
            return
        log.error("lease overdue: abandoning it", flow=self._flow.name, lease=number)
        self.failure = _OVERDUE
        self._query.cancel()

    def _caught_up(self, reports: list[PartitionReport]) -> bool:
        assert self._ends is not None
        return all(
            report.state in {PartitionState.FAULTED, PartitionState.PAUSED}
            or report.position >= self._ends.get((report.topic, report.partition), 0)
            for report in reports
        )


def ends_of(source: Cluster, found: TopicsResult) -> dict[tuple[str, int], int]:
    """Where a run ends that copies what is there now: `RunTerms.ends`.

    Raises:
        ClusterError: the source does not answer.
    """
    partitions = [(t.topic, p) for t in found.topics for p in range(t.partitions)]
    return topic_admin.list_offsets(source, partitions, timestamp=topic_admin.LATEST)


def report_seconds(flow: FlowConfig) -> float:
    """The longest time from one lease's report to the next one, or to giving it up."""
    return (flow.lease_seconds or LONGEST_SECONDS) + _GRACE_SECONDS


# ---- which slots of a run may copy between its leases, and what that forbids ----
#
# Main type: `Credit`. The successor of a slot on credit fences it, or is the same
# process where nothing fences; another slot that gets one of its partitions does
# neither. So assignments change only after a lease at whose end no slot copies on:
# `must_end` asks for one. It knows neither Spark nor brokers.


class Credit:
    """The credit of all slots of one run."""

    def __init__(self, *, possible: bool) -> None:
        """`possible`: whether a slot stops once its successor copies."""
        self.possible = possible
        self.given = False
        """Whether a slot may copy between the last lease and the next one."""

    def must_end(self, *, before: bool) -> bool:
        """Whether the next lease must end the credit and do nothing else; `before`
        something that only a lease without credit may precede.
        """
        return self.given and before

    def learn(self, reports: Iterable[PartitionReport]) -> None:
        """Note what a lease's reports say."""
        self.given = self.possible and any(each.slot_copies_on for each in reports)


# ---- how a flow's max_bytes_per_second is divided among its slots ----
#
# Pure part: `divide`. Main type: `Rates`, which remembers what each slot has read
# in the last leases. A slot that reads less than its part leaves the rest to the
# others, so that the flow as a whole reads as much as it may, wherever its records
# are.


_WANTS_MORE = 0.8
"""A slot that reads this share of its part could read more."""
_HEADROOM = 1.5
"""What a slot keeps over what it reads: it may have more to read in the next lease."""
_LEAST_SHARE = 0.1
"""Of an equal part: what even an idle slot keeps."""
_SMOOTHED_SECONDS = 5.0


def divide(limit: float, wanted: Sequence[float]) -> tuple[float, ...]:
    """A part of the limit for each slot: what it wants, or as much as every other that
    wants more. What is left then goes to all equally.
    """
    parts = dict.fromkeys(range(len(wanted)), 0.0)
    left, unserved = limit, sorted(parts, key=lambda slot: wanted[slot])
    while unserved:
        slot = unserved[0]
        parts[slot] = min(wanted[slot], left / len(unserved))
        left -= parts[slot]
        del unserved[0]
    return tuple(part + left / len(parts) for part in parts.values())


class Rates:
    """The limit of one run's slots."""

    def __init__(self, slots: int) -> None:
        self._read: list[float | None] = [None] * slots
        """Bytes per second that each has read lately; None: not known yet."""
        self._parts: tuple[float, ...] = ()
        self._limit = 0.0

    def parts(self, limit: float) -> tuple[float, ...]:
        """What each slot may read per second in the next lease; () without a limit."""
        if not limit:
            self._parts = ()
            return ()
        slots = len(self._read)
        if not self._parts:
            self._parts = (limit / slots,) * slots
        elif limit != self._limit:
            # A slot that read all it might does so again, in proportion.
            by = limit / self._limit
            self._parts = tuple(part * by for part in self._parts)
            self._read = [None if read is None else read * by for read in self._read]
        least = limit / slots * _LEAST_SHARE
        self._parts = divide(
            limit,
            [
                self._wants(read, part, least)
                for read, part in zip(self._read, self._parts, strict=True)
            ],
        )
        self._limit = limit
        return self._parts

    def learn(self, reports: Iterable[PartitionReport]) -> None:
        """Note what slots have read in one lease."""
        size = [0] * len(self._read)
        seconds = [0.0] * len(self._read)
        empty = set(range(len(self._read)))
        for report in reports:
            empty.discard(report.slot)
            size[report.slot] += report.bytes_in
            seconds[report.slot] = max(seconds[report.slot], report.slot_seconds)
        for slot in empty:  # without partitions
            self._read[slot] = 0.0
        for slot, took in enumerate(seconds):
            if took > 0:
                rate = size[slot] / took
                before = self._read[slot]
                known = rate if before is None else before
                share = 1 - math.exp(-took / _SMOOTHED_SECONDS)
                self._read[slot] = known + share * (rate - known)

    @staticmethod
    def _wants(read: float | None, part: float, least: float) -> float:
        if read is None or read >= part * _WANTS_MORE:
            return math.inf
        return max(read * _HEADROOM, least)
