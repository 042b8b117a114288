"""Runs each flow in a thread while this instance leads it, and restarts it on failure.

Main type: `Supervisor`. After a failure a flow waits, longer each time, with the reason
in its status; flows do not affect each other. `service` decides which flows there are.
"""

from __future__ import annotations

from dataclasses import replace
import threading
import time
from typing import TYPE_CHECKING, Any

import structlog

from mirror import retry
from mirror.errors import MirrorError, OutdatedRoleError, UnknownRoleError
from mirror.service.executors import PreferredExecutors, warm_up
from mirror.service.query import short
from mirror.service.session import is_alive
from mirror.status.states import FlowState
from mirror.status.store import not_beating

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from mirror.service.flow import Flow
    from mirror.service.leadership import Leadership
    from mirror.service.pairs import PairFollower
    from mirror.status.store import StatusStore

log = structlog.get_logger()

_ATTEMPTS_ONCE = 5
"""A run with `once` must end: after this many failures a flow is given up."""
_REST_SECONDS, _WAIT_SECONDS = 5.0, 1.0
"""Between looks of a flow that rests, or that another instance leads. News wake it
earlier."""
_STABLE_SECONDS = 60.0
"""A run this long counts as recovered: the next pause is short again."""


class Supervisor:
    """The threads of a service's flows."""

    def __init__(
        self,
        spark: SparkSession,
        store: StatusStore,
        leadership: Leadership,
        pairs: PairFollower,
        *,
        once: bool,
        most_slots: Callable[[], int],
        stop_service: Callable[[], None],
    ) -> None:
        """`most_slots` limits the slots of a flow without `tasks`; `stop_service` is
        called when Spark's JVM is gone.
        """
        self._spark = spark
        self._store = store
        self._leadership = leadership
        self._pairs = pairs
        self._once = once
        self._most_slots = most_slots
        self._stop_service = stop_service
        self.preferred = PreferredExecutors(spark)
        self._threads: dict[str, threading.Thread] = {}
        self._warm: set[str] = set()
        """Flows whose slots were started here before."""

    def begin(self, flow: Flow) -> None:
        """Run the flow in its own thread."""
        thread = threading.Thread(
            target=self._supervise, args=(flow,), name=f"mirror-{flow.name}"
        )
        self._threads[flow.name] = thread
        thread.start()

    def runs(self, flow: str) -> bool:
        return self._threads[flow].is_alive()

    def forget(self, flow: str) -> None:
        """Forget a flow that has ended and is no longer configured."""
        del self._threads[flow]
        self.preferred.forget(flow)

    def wait(self, seconds: float) -> bool:
        """Wait at most this long; False once no flow runs."""
        for thread in self._threads.values():
            if thread.is_alive():
                thread.join(seconds)
                return True
        return False

    def _supervise(self, flow: Flow) -> None:
        pause = 0.0
        while self._await_lead(flow):
            started = time.monotonic()
            reason = self._attempt(flow)
            if reason is None:
                break
            if not reason or not self._leadership.leads(flow.name):
                continue
            if time.monotonic() - started > _STABLE_SECONDS:
                pause = 0.0
            restarts = self._store.flow(flow.name).restarts + 1
            self._show(flow, state=FlowState.RETRYING, reason=reason, restarts=restarts)
            if not is_alive(self._spark):
                log.critical("Spark's JVM is gone: the service exits")
                self._show(flow, state=FlowState.FAILED)
                self._stop_service()
                return
            if self._once and restarts >= _ATTEMPTS_ONCE:
                self._show(flow, state=FlowState.FAILED)
                return
            flow.pause(pause)  # none at first: mostly a worker died, and all is well
            pause = retry.RUN.after(pause)
        self._show(flow, state=FlowState.STOPPED)

    def _await_lead(self, flow: Flow) -> bool:
        """Wait until this instance leads the flow and the flow may copy; False if it
        ends before that.
        """
        try:
            while not flow.stopping:
                leader = self._leadership.leader(flow.name)
                may = self._pairs.may_copy(flow.config.source, flow.config.target)
                jobs = may is False and self._leadership.leads(flow.name)
                if not jobs:
                    flow.stop_resting_jobs()
                if leader and not may:
                    if self._once and may is False:
                        return False
                    self._show_resting(flow, leader, known=may is not None, jobs=jobs)
                    if jobs:
                        flow.run_resting_jobs()
                    self.preferred.forget(flow.name)
                    flow.wait_for_news(_WAIT_SECONDS if may is None else _REST_SECONDS)
                    continue
                if self._leadership.leads(flow.name):
                    flow.resume()
                    self._warm.add(flow.name)
                    self._show(flow, leader=leader)
                    return True
                warm = flow.name in self._warm
                self._show_waiting(flow, leader, warm=warm)
                self.preferred.forget(flow.name)
                if leader and not warm:
                    self._warm_up(flow)
                flow.wait_for_news(_WAIT_SECONDS)
            return False
        finally:
            flow.stop_resting_jobs()

    def _warm_up(self, flow: Flow) -> None:
        """Start the slots' processes, which makes a later takeover seconds faster."""
        try:
            warm_up(self._spark, flow.name, [None] * (flow.config.tasks or 1))
        except Exception as error:  # noqa: BLE001  whatever Spark raises for a job
            if not flow.stopping:
                log.warning("slots do not start", flow=flow.name, error=short(error))
        self._warm.add(flow.name)

    def _attempt(self, flow: Flow) -> str | None:
        """Run a flow; returns why it failed, "" to run it again now, None to end."""
        try:
            again = flow.run(preferred=self.preferred, most_slots=self._most_slots)
        except OutdatedRoleError as error:
            self._pairs.note_rest(flow.config.source, flow.config.target, error.epoch)
            return ""
        except UnknownRoleError as error:
            self._pairs.note_unknown_role(flow.name, error)
            return ""
        except MirrorError as error:
            return str(error)
        except Exception as error:
            # An unexpected failure of one flow must not end the others.
            log.exception("flow failed unexpectedly", flow=flow.name)
            return f"{type(error).__name__}: {error}"[:300]
        return "" if again or flow.resting else None

    def _show(self, flow: Flow, **changes: Any) -> None:
        self._store.update(flow.name, lambda old: replace(old, **changes))

    def _show_resting(
        self, flow: Flow, leader: str, *, known: bool, jobs: bool
    ) -> None:
        ends = (flow.config.source, flow.config.target)
        trouble = "" if known else self._pairs.trouble(*ends)
        state = FlowState.RESTING if known else FlowState.STARTING
        if trouble:
            state, trouble = FlowState.RETRYING, f"its pair's journal: {trouble}"
        elif known:
            trouble = self._pairs.why_rests(*ends)
        if not jobs:
            self._store.update(flow.name, not_beating)
        self._show(flow, state=state, reason=trouble, leader=leader)

    def _show_waiting(self, flow: Flow, leader: str, *, warm: bool) -> None:
        trouble = "" if leader else self._leadership.trouble(flow.name)
        # A rolling restart waits for a standby that could take over at once.
        state = FlowState.STANDBY if warm else FlowState.STARTING
        if trouble:
            state = FlowState.RETRYING
        reason = trouble or self._leadership.rivals(flow.name)
        self._show(flow, state=state, reason=reason, leader=leader)
