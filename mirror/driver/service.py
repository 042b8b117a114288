"""The service: every flow of a configuration under one Spark session, supervised.

Main type: `Service`. Each flow has a thread that runs it while this instance leads it
and, when it fails, runs it again after a growing pause, with the reason in its state;
flows do not know of each other. Another configuration is handed to the flows that it
concerns. SIGTERM and SIGINT let running transactions finish, then end all.
"""

from __future__ import annotations

from dataclasses import asdict, replace
import functools
import gc
import signal
import threading
import time
from typing import TYPE_CHECKING

import structlog

from mirror import __version__
from mirror import log as logs
from mirror.config import changes
from mirror.config.changes import Effect
from mirror.driver.autoscale import share
from mirror.driver.executors import PreferredExecutors, warm_up
from mirror.driver.flow import Flow
from mirror.driver.leadership import Leadership
from mirror.driver.query import short
from mirror.driver.query_progress import QueryListener
from mirror.driver.session import (
    cores,
    end,
    is_alive,
    on_signals,
    session,
    wait_for_cores,
)
from mirror.errors import MirrorError
from mirror.host import usable_cores
from mirror.status.config import ConfigStatus
from mirror.status.events import Event, Kind
from mirror.status.store import StatusStore
from mirror.status.values import FlowState
from mirror.web.server import StatusServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from pyspark.sql import SparkSession

    from mirror.config.changes import Changes
    from mirror.config.schema import MirrorConfig
    from mirror.driver.reload import Reading, Watch

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
_SPARE_SLOTS = 16
"""For flows and tasks that come while it runs; a thread each, as long as none does."""


class Service:
    """Runs flows until told to stop."""

    def __init__(
        self, config: MirrorConfig, *, once: bool = False, watch: Watch | None = None
    ) -> None:
        """`watch` tells of other configurations; None: this one holds to the end."""
        self._config = config
        self._once = once
        self._watch = watch
        flows = [flow for flow in config.flows.values() if flow.enabled]
        self.store = StatusStore(tuple(flow.name for flow in flows))
        self.store.config = ConfigStatus(
            file=str(watch.file) if watch else "",
            version=changes.version(config),
            loaded_at=time.time(),
        )
        self._stopping = threading.Event()
        self._warm: set[str] = set()
        """Flows whose slots have been started here once."""
        self._leadership = Leadership(
            flows, config.clusters, group=None if once else config.service.group
        )
        self._flows = {
            flow.name: Flow(flow, config, store=self.store, once=once) for flow in flows
        }
        self._threads: dict[str, threading.Thread] = {}

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
            self.store,
            service.http_host,
            service.http_port,
            per_partition=service.metrics_per == "partition",
            access=service,
        )
        with server:
            if ready is not None:
                ready(server.url)
            self.store.trail.add(
                Event(kind=Kind.SERVICE_STARTED, text=f"mirror {__version__} starts")
            )
            self._listen_to_signals()
            if self._watch is not None:
                self._watch.look_every(service.reload_seconds)
                self._watch.start()
            self._leadership.start()
            # A local session is as wide as it will ever be from its start.
            slots = max(self._least_slots(), usable_cores())
            spare = 0 if self._watch is None else _SPARE_SLOTS
            spark = session(service, slots=slots + spare)
            self._listen_to_signals()  # again: Spark has put a handler of its own
            on_signals(spark, {each.name: call for each, call in self._calls().items()})
            listener = QueryListener(self.store)
            spark.streams.addListener(listener)
            try:
                self._warn_of_few(wait_for_cores(spark, slots, self._stopping))
                self._leadership.ready()
                preferred = PreferredExecutors(spark)
                for flow in self._flows.values():
                    self._begin(flow, spark, preferred)
                while any(thread.is_alive() for thread in self._threads.values()):
                    for thread in self._threads.values():
                        if thread.is_alive():  # in slices: signals are handled here
                            thread.join(0.2)
                            break
                    self._follow_leadership()
                    self._follow_config(spark, preferred)
                    self.store.turned()
            finally:
                if self._watch is not None:
                    self._watch.close()
                self._leadership.close()
                if is_alive(spark):
                    end(spark, listener)
        states = self.store.read().flows
        return all(
            state.state is FlowState.STOPPED and not (self._once and state.faulted)
            for state in states
        )

    def stop(self) -> None:
        """Finish running transactions and end `run`."""
        if not self._stopping.is_set():
            log.info("stopping")
        self._stopping.set()
        for flow in list(self._flows.values()):
            flow.stop()

    def _begin(
        self, flow: Flow, spark: SparkSession, preferred: PreferredExecutors
    ) -> None:
        thread = threading.Thread(
            target=self._supervise,
            args=(flow, spark, preferred),
            name=f"mirror-{flow.name}",
        )
        self._threads[flow.name] = thread
        thread.start()
        if self._stopping.is_set():  # it may have come too late to be told
            flow.stop()

    def _follow_config(
        self, spark: SparkSession, preferred: PreferredExecutors
    ) -> None:
        """Go by another configuration, if there is one; see off flows that are done."""
        if self._stopping.is_set() or self._watch is None:
            return
        flows = self._config.flows
        gone = [n for n in self._flows if n not in flows or not flows[n].enabled]
        for name in gone:
            if self._threads[name].is_alive():
                return  # one of its name could come again: first things first
            del self._flows[name], self._threads[name]
            preferred.forget(name)
            self.store.remove(name)
        if gone:
            self._take_part()
        if (reading := self._watch.take()) is not None:
            self._read(reading, spark, preferred)

    def _read(
        self, reading: Reading, spark: SparkSession, preferred: PreferredExecutors
    ) -> None:
        """Judge what was read, and go by it if that is possible."""
        for warning in reading.warnings:
            log.warning("configuration", warning=warning)
        known = self.store.config
        problems = reading.problems
        if reading.config is not None:
            found = changes.compare(self._config, reading.config)
            problems = found.refused
        if reading.config is None or problems:
            self.store.config = replace(known, refused_at=reading.at, refused=problems)
            self.store.trail.add(
                Event(
                    kind=Kind.CONFIGURATION_REFUSED,
                    subject=known.file,
                    text="configuration refused, the previous one stays in use: "
                    + "; ".join(problems),
                    details={"problems": list(problems)},
                )
            )
            return
        self.store.config = replace(
            known,
            version=changes.version(reading.config),
            loaded_at=reading.at,
            reloads=known.reloads + bool(found),
            refused_at=0.0,
            refused=(),
        )
        self._go_by(reading.config, found)
        for name in found.added:
            self._begin(self._flows[name], spark, preferred)
        if found.added:
            self._warn_of_few(cores(spark))

    def _go_by(self, config: MirrorConfig, found: Changes) -> None:
        before, self._config = self._config.service, config
        now = config.service
        log_settings = (now.log_level, now.log_format)
        effect = Effect.NONE
        if log_settings != (before.log_level, before.log_format):
            effect = Effect.LEASES  # workers log, too
            logs.set_up(*log_settings)
        assert self._watch is not None
        self._watch.look_every(now.reload_seconds)
        self.store.trail.add(
            Event(
                kind=Kind.CONFIGURATION_RELOADED,
                subject=self.store.config.file,
                text=f"configuration reloaded: {found}",
                details={
                    "version": self.store.config.version,
                    "settings": [asdict(change) for change in found.settings],
                    "added": list(found.added),
                    "removed": list(found.removed),
                },
            )
        )
        for name in found.removed:
            self._flows[name].stop()
        for name, asked in found.effects.items():
            self._flows[name].adopt(config, asked | effect)
        for name in found.added:
            self.store.add(name)
            self._flows[name] = Flow(config.flows[name], config, store=self.store)
        self._take_part()

    def _take_part(self) -> None:
        flows = [self._config.flows.get(name, flow.config)
                 for name, flow in self._flows.items()]  # fmt: skip
        self._leadership.change(flows, self._config.clusters)

    def _follow_leadership(self) -> None:
        for flow in list(self._flows.values()):
            if not self._leadership.leads(flow.name):
                flow.rest(rest=True)

    def _await_lead(self, flow: Flow, spark: SparkSession) -> bool:
        """Wait until this instance leads the flow; False if it ends before that."""
        while not flow.stopping:
            leader = self._leadership.leader(flow.name)
            if self._leadership.leads(flow.name):
                flow.rest(rest=False)
                self._warm.add(flow.name)
                self.store.update(flow.name, leader=leader)
                return True
            trouble = "" if leader else self._leadership.trouble(flow.name)
            # Who restarts instances one after the other waits for a standby that
            # could take over at once.
            warm = flow.name in self._warm
            state = FlowState.STANDBY if warm else FlowState.STARTING
            self.store.update(
                flow.name,
                state=FlowState.RETRYING if trouble else state,
                reason=trouble,
                leader=leader,
            )
            if leader and not warm:
                self._warm_up(flow, spark)
            flow.wait_stopping(0.1)
        return False

    def _warm_up(self, flow: Flow, spark: SparkSession) -> None:
        """With this done, taking over from another instance is seconds quicker."""
        try:
            warm_up(spark, flow.name, flow.config.tasks or 1)
        except Exception as error:  # noqa: BLE001  whatever Spark raises for a job
            if not flow.stopping:
                log.warning("slots do not start", flow=flow.name, error=short(error))
        self._warm.add(flow.name)

    def _least_slots(self) -> int:
        return sum(flow.config.tasks or 1 for flow in self._flows.values())

    def _most_slots(self, spark: SparkSession) -> int:
        """How many slots each flow may choose to have, as things are now."""
        available = cores(spark)
        if str(spark.sparkContext.master).startswith("local"):
            # It has a thread for every slot, which does not make more cores.
            available = min(available, usable_cores())
        flows = list(self._flows.values())
        return share(available, [flow.config.tasks for flow in flows])

    def _warn_of_few(self, available: int) -> None:
        if available < (slots := self._least_slots()):
            log.warning(
                "Spark has fewer cores than slots: some copy nothing until others end "
                "their lease; give it more cores, or set fewer tasks",
                cores=available, slots=slots,
            )  # fmt: skip

    def _supervise(
        self, flow: Flow, spark: SparkSession, preferred: PreferredExecutors
    ) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while self._await_lead(flow, spark):
            started = time.monotonic()
            reason = self._attempt(flow, spark, preferred)
            if reason is None:
                break
            if not reason or not self._leadership.leads(flow.name):
                continue
            if time.monotonic() - started > _STABLE_SECONDS:
                pause = _FIRST_PAUSE_SECONDS
            restarts = self.store.flow(flow.name).restarts + 1
            self.store.update(
                flow.name, state=FlowState.RETRYING, reason=reason, restarts=restarts
            )
            if not is_alive(spark):
                log.critical("Spark's JVM is gone: the service exits")
                self.store.update(flow.name, state=FlowState.FAILED)
                self.stop()
                return
            if self._once and restarts >= _ATTEMPTS_ONCE:
                self.store.update(flow.name, state=FlowState.FAILED)
                return
            flow.pause(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
        self.store.update(flow.name, state=FlowState.STOPPED)

    def _attempt(
        self, flow: Flow, spark: SparkSession, preferred: PreferredExecutors
    ) -> str | None:
        """Run a flow: why it failed; empty if it shall run again, None if not."""
        most = functools.partial(self._most_slots, spark)
        try:
            again = (
                flow.run(spark, preferred=preferred, most_slots=most) or flow.resting
            )
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

        def handle(number: int, _frame: FrameType | None) -> None:
            # These take locks that the interrupted code may hold.
            threading.Thread(target=calls[signal.Signals(number)]).start()

        calls = self._calls()
        for number in calls:
            signal.signal(number, handle)

    def _calls(self) -> dict[signal.Signals, Callable[[], None]]:
        """What signals do."""
        calls = {signal.SIGTERM: self.stop, signal.SIGINT: self.stop}
        if self._watch is not None:
            calls[signal.SIGHUP] = self._watch.ask
        return calls
