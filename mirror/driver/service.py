"""The service: every flow of a configuration under one Spark session.

Main type: `Service`. It starts Spark, the HTTP port and the flows, and passes a new
configuration to the flows that it affects. On SIGTERM and SIGINT it lets running
transactions finish, then ends. `supervisor` runs the flows, `config_follower` accepts
or refuses configurations.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
import functools
import signal
import threading
import time
from typing import TYPE_CHECKING

import structlog

from mirror import __version__, patience
from mirror.clusters import error_counts
from mirror.driver.answering import Answering
from mirror.driver.autoscale import share
from mirror.driver.config_follower import ConfigFollower
from mirror.driver.drills import Drills
from mirror.driver.flow import Flow
from mirror.driver.flow_status import INSTANCES
from mirror.driver.leadership import Leadership
from mirror.driver.pairs import PairFollower
from mirror.driver.passive import PassiveClusters
from mirror.driver.query_progress import QueryListener
from mirror.driver.resources import ResourceWatch
from mirror.driver.session import (
    cores,
    end,
    is_alive,
    on_signals,
    session,
    wait_for_cores,
)
from mirror.driver.supervisor import Supervisor
from mirror.host import process_name, usable_cores
from mirror.recovery import audit
from mirror.status.events import Event, EventKind
from mirror.status.states import FlowState
from mirror.status.store import StatusStore
from mirror.web.server import StatusServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from pyspark.sql import SparkSession

    from mirror.config.changes import Changes
    from mirror.config.schema import MirrorConfig
    from mirror.driver.drills import Rehearse
    from mirror.driver.passive import CountTail, SettleFence
    from mirror.driver.proofs import ServiceProofs
    from mirror.driver.reload import Watch

log = structlog.get_logger()

_STOP_SECONDS = 10.0
"""Orchestrators kill what has not ended 30 seconds after SIGTERM, some a minute."""
_SPARE_SLOTS = 16
"""For flows and tasks added while the service runs; each costs one idle thread."""


class Service:
    """Runs flows until stopped."""

    def __init__(
        self,
        config: MirrorConfig,
        *,
        once: bool = False,
        watch: Watch | None = None,
        proofs: ServiceProofs | None = None,
        settle_fence: SettleFence | None = None,
        rehearse: Rehearse | None = None,
        new_count: Callable[[], CountTail] | None = None,
    ) -> None:
        """`watch` provides new configurations; None: this one never changes. `proofs`
        proves copies meanwhile; None: none are proven. `settle_fence` lays fences that
        failovers owe, and `new_count` begins to count a tail; without them no one
        looks at passive clusters. `rehearse` carries out drills; None: there are none.
        """
        self._once = once
        self._proofs = proofs
        self._watch = watch
        flows = [flow for flow in config.flows.values() if flow.enabled]
        self.store = StatusStore(tuple(flow.name for flow in flows))
        self.store.errors.also(error_counts.counted)
        self._follower = ConfigFollower(config, watch, self.store)
        self._stopping = threading.Event()
        self._answering = Answering(self.store)
        self._led: dict[str, bool] = {}
        """Whether this instance led a flow at the last look."""
        self._rivals: dict[str, str] = {}
        """What was last told of instances that select other topics."""
        self._pairs = PairFollower(config, self.store, changed=self._notify)
        self._leadership = Leadership(
            flows, config.clusters, group=None if once else config.service.group
        )
        self._passive = (
            None
            if settle_fence is None or new_count is None
            else PassiveClusters(
                lambda: self._follower.config,
                self._pairs,
                settle_fence,
                leads=self._leadership.leads,
                new_count=new_count,
            )
        )
        self._drills = (
            None
            if rehearse is None
            else Drills(
                lambda: self._follower.config,
                self._pairs,
                rehearse,
                leads=self._leadership.leads,
            )
        )
        self._flows = {
            flow.name: Flow(
                flow,
                config,
                store=self.store,
                pairs=self._pairs,
                once=once,
                proofs=proofs,
            )
            for flow in flows
        }

    def run(self, *, ready: Callable[[str], None] | None = None) -> bool:
        """Run until a signal, or with `once` until every flow has caught up.

        `ready` gets the status URL as soon as the port answers. Returns whether every
        flow ended well: none failed, none left a partition behind or was stopped early.

        Raises:
            JavaMissingError: Spark cannot start.
        """
        service = self._follower.config.service
        server = StatusServer(
            self.store,
            service.http_host,
            service.http_port,
            per_partition=service.metrics_per == "partition",
            access=service,
        )
        kept = audit.keeping(self.store.trail, self._follower.config, by=process_name())
        with server, kept:
            if ready is not None:
                ready(server.url)
            self.store.trail.add(
                Event(
                    kind=EventKind.SERVICE_STARTED, text=f"mirror {__version__} starts"
                )
            )
            self._listen_to_signals()
            spark, listener = None, QueryListener(self.store)
            self._follower.start()
            self._leadership.start()
            self._pairs.start()
            self._answering.follow(self._follower.config)
            beside = [each for each in (self._passive, self._drills) if each]
            for each in beside:
                each.start()
            try:
                # A local session cannot get more threads after its start.
                slots = max(self._least_slots(), usable_cores())
                spare = 0 if self._watch is None else _SPARE_SLOTS
                # In the main thread Spark would install a handler of Ctrl-C.
                with ThreadPoolExecutor(1, "spark-start") as starting:
                    begun = starting.submit(session, service, slots=slots + spare)
                    spark = begun.result()
                on_signals(
                    spark, {each.name: call for each, call in self._calls().items()}
                )
                spark.streams.addListener(listener)
                self._warn_of_few(wait_for_cores(spark, slots, self._stopping))
                self._leadership.ready()
                supervisor = Supervisor(
                    spark,
                    self.store,
                    self._leadership,
                    self._pairs,
                    once=self._once,
                    most_slots=functools.partial(self._most_slots, spark),
                    stop_service=self.stop,
                )
                if self._proofs is not None:
                    self._proofs.begin(spark, self.store, supervisor.preferred.beside)
                for flow in self._flows.values():
                    self._begin(flow, supervisor)
                resources = ResourceWatch(spark, self.store)
                while supervisor.wait(0.2):  # in slices: signals are handled here
                    self._follow_leadership_and_roles()
                    self._see_off(supervisor)
                    self._follow_config(spark, supervisor)
                    resources.look()
                    self.store.turned()
            finally:
                self._follower.close()
                for each in reversed(beside):
                    each.close()
                self._leadership.close()
                self._pairs.close()
                self._answering.close()
                if spark is not None and is_alive(spark):
                    end(spark, listener)
        if self._once and self._stopping.is_set():
            log.error("stopped before everything was copied")
            return False
        states = self.store.read().flows
        return all(
            state.state is FlowState.STOPPED and not (self._once and state.faulted)
            for state in states
        )

    def stop(self) -> None:
        """Finish running transactions and end `run`. Clusters that do not answer hold
        that up for a while only.
        """
        if not self._stopping.is_set():
            log.info("stopping")
            patience.end_at(time.monotonic() + _STOP_SECONDS)
        self._stopping.set()
        for flow in list(self._flows.values()):
            flow.stop()

    def _begin(self, flow: Flow, supervisor: Supervisor) -> None:
        supervisor.begin(flow)
        if self._stopping.is_set():  # `stop` may have run before the flow was there
            flow.stop()

    def _see_off(self, supervisor: Supervisor) -> None:
        """Forget flows that were removed from the configuration and have ended."""
        if self._stopping.is_set():
            return
        gone = [
            name
            for name in self._flows
            if not self._is_configured(name) and not supervisor.runs(name)
        ]
        for name in gone:
            del self._flows[name]
            supervisor.forget(name)
            self.store.remove(name)
        if gone:
            self._take_part()

    def _follow_config(self, spark: SparkSession, supervisor: Supervisor) -> None:
        """Apply a new configuration, if there is one."""
        # Wait for removed flows to end: the next configuration may have them again.
        if self._stopping.is_set() or not all(map(self._is_configured, self._flows)):
            return
        if (found := self._follower.take()) is not None:
            self._go_by(found)
            for name in found.added:
                self._begin(self._flows[name], supervisor)
            if found.added:
                self._warn_of_few(cores(spark))

    def _is_configured(self, name: str) -> bool:
        flow = self._follower.config.flows.get(name)
        return flow is not None and flow.enabled

    def _go_by(self, found: Changes) -> None:
        """Pass the new configuration to the flows that it affects."""
        config = self._follower.config
        for name in found.removed:
            self._flows[name].stop()
        for name, effect in found.effects.items():
            self._flows[name].adopt(config, effect)
        for name in found.added:
            self.store.add(name)
            self._flows[name] = Flow(
                config.flows[name],
                config,
                store=self.store,
                pairs=self._pairs,
                proofs=self._proofs,
            )
        self._take_part()

    def _take_part(self) -> None:
        config = self._follower.config
        flows = [
            config.flows.get(name, flow.config) for name, flow in self._flows.items()
        ]
        self._leadership.change(flows, config.clusters)
        self._answering.follow(config)

    def _follow_leadership_and_roles(self) -> None:
        for flow in list(self._flows.values()):
            ends = flow.config.source, flow.config.target
            leads = self._leadership.leads(flow.name)
            # Of two runs that copy at least once, none fences the other.
            fenced = flow.config.exactly_once and self._leadership.keeps(flow.name)
            if not ((leads or fenced) and self._pairs.may_copy(*ends)):
                flow.rest(rest=True)
            self._tell_of_rivals(flow)
            if leads != self._led.get(flow.name):
                self._led[flow.name] = leads
                flow.notify()
            flow.follow_roles()

    def _tell_of_rivals(self, flow: Flow) -> None:
        told = self._leadership.rivals(flow.name, settled=True)
        if told != self._rivals.get(flow.name, ""):
            self._rivals[flow.name] = told
            flow.problems.tell(INSTANCES, [told] if told else [])

    def _notify(self) -> None:
        for flow in list(self._flows.values()):
            flow.notify()

    def _least_slots(self) -> int:
        return sum(flow.config.tasks or 1 for flow in self._flows.values())

    def _most_slots(self, spark: SparkSession) -> int:
        """How many slots each flow without `tasks` may have now."""
        available = cores(spark)
        if str(spark.sparkContext.master).startswith("local"):
            # Local mode has a thread for every slot, but not as many cores.
            available = min(available, usable_cores())
        elif any(flow.config.verify != "off" for flow in self._flows.values()):
            available -= 1  # for the task that proves copies
        flows = list(self._flows.values())
        return share(available, [flow.config.tasks for flow in flows])

    def _warn_of_few(self, available: int) -> None:
        if available < (slots := self._least_slots()):
            log.warning(
                "Spark has fewer cores than slots: some copy nothing until others end "
                "their lease; give it more cores, or set fewer tasks",
                cores=available, slots=slots,
            )  # fmt: skip

    def _listen_to_signals(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return

        def handle(number: int, _frame: FrameType | None) -> None:
            # In a thread: the calls take locks that the interrupted code may hold.
            threading.Thread(target=calls[signal.Signals(number)]).start()

        calls = self._calls()
        for number in calls:
            signal.signal(number, handle)

    def _calls(self) -> dict[signal.Signals, Callable[[], None]]:
        """What to call on each signal."""
        calls = {signal.SIGTERM: self.stop, signal.SIGINT: self.stop}
        if self._watch is not None:
            calls[signal.SIGHUP] = self._watch.ask
        return calls
