"""The service: every flow of a configuration under one Spark session, supervised.

Main type: `Service`. Each flow has a thread that runs it while this instance leads it
and, when it fails, runs it again after a growing pause, with the reason in its state;
flows do not know of each other. SIGTERM and SIGINT let running transactions finish,
then end all.
"""

from __future__ import annotations

import functools
import gc
import signal
import threading
import time
from typing import TYPE_CHECKING

import structlog

from mirror import __version__
from mirror.errors import MirrorError
from mirror.executors import Homes
from mirror.flow import Flow
from mirror.leadership import Leadership
from mirror.listener import QueryListener
from mirror.machine import usable_cores
from mirror.observe.events import Event, Kind
from mirror.observe.http import StatusServer
from mirror.observe.status import Board, FlowState
from mirror.query import short
from mirror.sizing import share
from mirror.slot_frames import warm_up
from mirror.spark import cores, is_alive, session, stop_on_signals, wait_for_cores

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from pyspark.sql import SparkSession

    from mirror.config.schema import MirrorConfig

log = structlog.get_logger()

_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0
_ATTEMPTS_ONCE = 5
"""A run with an end must end: after so many failures a flow is given up."""
_YOUNG_OBJECTS = 20_000
"""Jobs on many groups make objects by the hundred thousand; at Python's own 700 half of
their time is spent looking for cycles among them, while no other thread runs."""
_STABLE_SECONDS = 60.0
"""A run this long counts as recovered: the next pause is short again."""


class Service:
    """Runs flows until told to stop."""

    def __init__(self, config: MirrorConfig, *, once: bool = False) -> None:
        self._config = config
        self._once = once
        flows = [flow for flow in config.flows.values() if flow.enabled]
        self.board = Board(tuple(flow.name for flow in flows))
        self._stopping = threading.Event()
        self._warm: set[str] = set()
        """Flows whose slots have been started here once."""
        self._leadership = Leadership(
            flows, config.clusters, group=None if once else config.service.group
        )
        self._flows = [
            Flow(flow, config, board=self.board, once=once) for flow in flows
        ]

    def run(self, *, ready: Callable[[str], None] | None = None) -> bool:
        """Run until a signal, or with `once` until every flow has caught up.

        `ready` is told the status address as soon as it answers. Returns whether
        every flow ended well: none failed, none left a partition behind.

        Raises:
            JavaMissingError: Spark cannot start.
        """
        gc.set_threshold(_YOUNG_OBJECTS, 20, 100)
        service = self._config.service
        server = StatusServer(
            self.board,
            service.http_host,
            service.http_port,
            per_partition=service.metrics_per == "partition",
            access=service,
        )
        with server:
            if ready is not None:
                ready(server.url)
            self.board.trail.add(
                Event(kind=Kind.SERVICE_STARTED, text=f"mirror {__version__} starts")
            )
            self._listen_to_signals()
            self._leadership.start()
            # A local session is as wide as it will ever be from its start.
            slots = max(self._least_slots(), usable_cores())
            spark = session(service, slots=slots)
            self._listen_to_signals()  # again: Spark has put a handler of its own
            stop_on_signals(spark, self.stop)
            spark.streams.addListener(QueryListener(self.board))
            try:
                self._warn_of_few(wait_for_cores(spark, slots, self._stopping))
                self._leadership.ready()
                homes = Homes(spark)
                threads = [
                    threading.Thread(
                        target=self._supervise,
                        args=(flow, spark, homes),
                        name=f"mirror-{flow.name}",
                    )
                    for flow in self._flows
                ]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    while thread.is_alive():  # in slices: signals are handled here
                        thread.join(0.2)
                        self._follow_leadership()
                        self.board.turned()
            finally:
                self._leadership.close()
                if is_alive(spark):
                    spark.stop()
        states = self.board.read().flows
        return all(
            state.state is FlowState.STOPPED and not (self._once and state.faulted)
            for state in states
        )

    def stop(self) -> None:
        """Finish running transactions and end `run`."""
        if not self._stopping.is_set():
            log.info("stopping")
        self._stopping.set()
        for flow in self._flows:
            flow.stop()

    def _follow_leadership(self) -> None:
        for flow in self._flows:
            if not self._leadership.leads(flow.name):
                flow.rest(rest=True)

    def _await_lead(self, flow: Flow, spark: SparkSession) -> bool:
        """Wait until this instance leads the flow; False if it ends before that."""
        while not self._stopping.is_set():
            leader = self._leadership.leader(flow.name)
            if self._leadership.leads(flow.name):
                flow.rest(rest=False)
                self._warm.add(flow.name)
                self.board.update(flow.name, leader=leader)
                return True
            trouble = "" if leader else self._leadership.trouble(flow.name)
            # Who restarts instances one after the other waits for a standby that
            # could take over at once.
            warm = flow.name in self._warm
            state = FlowState.STANDBY if warm else FlowState.STARTING
            self.board.update(
                flow.name,
                state=FlowState.RETRYING if trouble else state,
                reason=trouble,
                leader=leader,
            )
            if leader and not warm:
                self._warm_up(flow, spark)
            self._stopping.wait(0.1)
        return False

    def _warm_up(self, flow: Flow, spark: SparkSession) -> None:
        """With this done, taking over from another instance is seconds quicker."""
        try:
            warm_up(spark, flow.name, flow.config.tasks or 1)
        except Exception as error:  # noqa: BLE001  whatever Spark raises for a job
            if not self._stopping.is_set():
                log.warning("slots do not start", flow=flow.name, error=short(error))
        self._warm.add(flow.name)

    def _least_slots(self) -> int:
        return sum(flow.config.tasks or 1 for flow in self._flows)

    def _most_slots(self, spark: SparkSession) -> int:
        """How many slots each flow may choose to have, as things are now."""
        available = cores(spark)
        if str(spark.sparkContext.master).startswith("local"):
            # It has a thread for every slot, which does not make more cores.
            available = min(available, usable_cores())
        return share(available, [flow.config.tasks for flow in self._flows])

    def _warn_of_few(self, available: int) -> None:
        if available < (slots := self._least_slots()):
            log.warning(
                "Spark has fewer cores than slots: some wait until others end their "
                "lease, and copy nothing meanwhile; give it more, or set fewer tasks",
                cores=available, slots=slots,
            )  # fmt: skip

    def _supervise(self, flow: Flow, spark: SparkSession, homes: Homes) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while self._await_lead(flow, spark):
            started = time.monotonic()
            reason = self._attempt(flow, spark, homes)
            if reason is None:
                break
            if not reason or not self._leadership.leads(flow.name):
                continue
            if time.monotonic() - started > _STABLE_SECONDS:
                pause = _FIRST_PAUSE_SECONDS
            restarts = self.board.flow(flow.name).restarts + 1
            self.board.update(
                flow.name, state=FlowState.RETRYING, reason=reason, restarts=restarts
            )
            if not is_alive(spark):
                log.critical("Spark's JVM is gone: the service ends")
                self.board.update(flow.name, state=FlowState.FAILED)
                self.stop()
                return
            if self._once and restarts >= _ATTEMPTS_ONCE:
                self.board.update(flow.name, state=FlowState.FAILED)
                return
            if self._stopping.wait(pause):
                break
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
        self.board.update(flow.name, state=FlowState.STOPPED)

    def _attempt(self, flow: Flow, spark: SparkSession, homes: Homes) -> str | None:
        """Run a flow: why it failed; empty if it shall run again, None if not."""
        most = functools.partial(self._most_slots, spark)
        try:
            again = flow.run(spark, homes=homes, most_slots=most) or flow.resting
        except MirrorError as error:
            return str(error)
        except Exception as error:
            # A flow that meets the unforeseen must not take the others along.
            log.exception("flow failed unexpectedly", flow=flow.name)
            return f"{type(error).__name__}: {error}"[:300]
        return "" if again else None

    def _listen_to_signals(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return

        def handle(_number: int, _frame: FrameType | None) -> None:
            # Stopping takes locks that the interrupted code may hold.
            threading.Thread(target=self.stop, name="mirror-stop").start()

        signal.signal(signal.SIGTERM, handle)
        signal.signal(signal.SIGINT, handle)
