"""The service: every flow of a configuration under one Spark session.

Main type: `Service`. It starts Spark, the HTTP port and the flows, and passes a new
configuration to the flows that it affects. On SIGTERM and SIGINT it lets running
transactions finish, then ends. `supervisor` runs the flows, `ConfigFollower` accepts
or refuses configurations; `ClusterWatch`, `ResourceWatch` and `QueryListener` look
after what else the status says.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, replace
from datetime import datetime
import functools
import json
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql.streaming.listener import (
    JStreamingQueryListener,
    QueryProgressEvent,
    StreamingQueryListener,
)
import structlog

from mirror import __version__, patience
from mirror import log as logs
from mirror.clusters import error_counts
from mirror.clusters.cluster import Cluster
from mirror.config import changes
from mirror.config.schema import login_ends
from mirror.errors import MirrorError
from mirror.host import memory_use, process_name, process_use, usable_cores
from mirror.observing.receipts import ReceiptDesk
from mirror.observing.server import StatusServer
from mirror.pairs import audit
from mirror.service.autoscale import share
from mirror.service.flow import Flow
from mirror.service.flow_status import INSTANCES
from mirror.service.leadership import Leadership
from mirror.service.pair_jobs import Drills, PassiveClusters
from mirror.service.pairs import PairFollower
from mirror.service.reload import AddressCheck
from mirror.service.session import (
    cores,
    end,
    is_alive,
    on_signals,
    session,
    wait_for_cores,
)
from mirror.service.supervisor import Supervisor
from mirror.status.events import Event, EventKind
from mirror.status.states import FlowState
from mirror.status.store import StatusStore
from mirror.status.values import ClusterStatus, ConfigStatus, JvmStatus, ResourceStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from mirror.config.changes import Changes
    from mirror.config.cluster_settings import ClusterConfig
    from mirror.config.schema import MirrorConfig
    from mirror.service.pair_jobs import CountTail, Rehearse, SettleFence
    from mirror.service.reload import Reading, Watch
    from mirror.service.scheduler import ServiceProofs
    from mirror.service.taking_up import Compare
    from mirror.status.values import FlowStatus

log = structlog.get_logger()

_STOP_SECONDS = 10.0
"""Orchestrators kill what has not ended 30 seconds after SIGTERM, some a minute."""
_SPARE_SLOTS = 16
"""For flows and tasks added while the service runs; each costs one idle thread."""


class Service:
    """Runs flows until stopped."""

    def __init__(  # noqa: PLR0913  what stands above it is passed in
        self,
        config: MirrorConfig,
        *,
        once: bool = False,
        watch: Watch | None = None,
        proofs: ServiceProofs | None = None,
        compare: Compare | None = None,
        settle_fence: SettleFence | None = None,
        rehearse: Rehearse | None = None,
        new_count: Callable[[], CountTail] | None = None,
    ) -> None:
        """`watch` provides new configurations; None: this one never changes. `proofs`
        proves copies meanwhile; None: none are proven. `compare`: as of `Flow`.
        `settle_fence` lays fences that failovers owe, and `new_count` begins to count
        a tail; without them no one looks at passive clusters. `rehearse` carries out
        drills; None: there are none.
        """
        self._once = once
        self._proofs = proofs
        self._compare = compare
        self._watch = watch
        flows = [flow for flow in config.flows.values() if flow.enabled]
        self.store = StatusStore(tuple(flow.name for flow in flows))
        self.store.errors.also(error_counts.counted)
        self._follower = ConfigFollower(
            config, watch, self.store, ids=self._cluster_ids
        )
        self._stopping = threading.Event()
        self._cluster_watch = ClusterWatch(self.store)
        self._led: dict[str, bool] = {}
        """Whether this instance led a flow at the last look."""
        self._reported_rivals: dict[str, str] = {}
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
                compare=compare,
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
        receipts = ReceiptDesk(lambda: self._follower.config)
        server = StatusServer(
            self.store,
            service.http_host,
            service.http_port,
            per_partition=service.metrics_per == "partition",
            access=service,
            receipts=receipts,
        )
        audited = audit.keeping(
            self.store.trail, lambda: self._follower.config, by=process_name()
        )
        with closing(receipts), server, audited:
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
            self._cluster_watch.follow(self._follower.config)
            pair_jobs = [each for each in (self._passive, self._drills) if each]
            for each in pair_jobs:
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
                    self._proofs.begin(
                        spark, self.store, supervisor.preferred.free_core
                    )
                for flow in self._flows.values():
                    self._begin(flow, supervisor)
                resources = ResourceWatch(spark, self.store)
                while supervisor.wait(0.2):  # in slices: signals are handled here
                    self._follow_leadership_and_roles()
                    self._remove_stopped_flows(supervisor)
                    self._follow_config(spark, supervisor)
                    resources.look()
                    self.store.turned()
            finally:
                self._follower.close()
                for each in reversed(pair_jobs):
                    each.close()
                self._leadership.close()
                self._pairs.close()
                self._cluster_watch.close()
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

    def _remove_stopped_flows(self, supervisor: Supervisor) -> None:
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
            self._follow_configuration()

    def _follow_config(self, spark: SparkSession, supervisor: Supervisor) -> None:
        """Apply a new configuration, if there is one."""
        # Wait for removed flows to end: the next configuration may have them again.
        if self._stopping.is_set() or not all(map(self._is_configured, self._flows)):
            return
        if (found := self._follower.take()) is not None:
            self._apply(found)
            for name in found.added:
                self._begin(self._flows[name], supervisor)
            if found.added:
                self._warn_of_few(cores(spark))

    def _is_configured(self, name: str) -> bool:
        flow = self._follower.config.flows.get(name)
        return flow is not None and flow.enabled

    def _apply(self, found: Changes) -> None:
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
                compare=self._compare,
            )
        self._follow_configuration()

    def _follow_configuration(self) -> None:
        config = self._follower.config
        flows = [
            config.flows.get(name, flow.config) for name, flow in self._flows.items()
        ]
        self._leadership.change(flows, config.clusters)
        self._pairs.adopt(config.clusters)
        self._cluster_watch.follow(config)

    def _cluster_ids(self) -> dict[str, str]:
        """By alias: of the clusters that flows run with, else of those that answer."""
        found = {each.alias: each.cluster_id for each in self.store.clusters}
        for flow in self._flows.values():
            found |= flow.cluster_ids
        return {alias: each for alias, each in found.items() if each}

    def _follow_leadership_and_roles(self) -> None:
        for flow in list(self._flows.values()):
            ends = flow.config.source, flow.config.target
            leads = self._leadership.leads(flow.name)
            # Of two runs that copy at least once, none fences the other.
            fenced = flow.config.exactly_once and self._leadership.keeps(flow.name)
            if not ((leads or fenced) and self._pairs.may_copy(*ends)):
                flow.rest()
            self._report_rivals(flow)
            if leads != self._led.get(flow.name):
                self._led[flow.name] = leads
                flow.notify()
            flow.follow_roles()

    def _report_rivals(self, flow: Flow) -> None:
        told = self._leadership.rivals(flow.name, settled=True)
        if told != self._reported_rivals.get(flow.name, ""):
            self._reported_rivals[flow.name] = told
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


# ---- accepts or refuses new configurations ----
#
# Main type: `ConfigFollower`. It compares each reading of the file with the
# configuration in use and keeps the newest one that is usable; `Service` applies it
# to the flows.


class ConfigFollower:
    """Holds the newest usable configuration."""

    def __init__(
        self,
        config: MirrorConfig,
        watch: Watch | None,
        store: StatusStore,
        *,
        ids: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """`watch` provides new configurations; None: this one never changes. `ids`: the
        ids of clusters, by alias, as far as they are known.
        """
        self.config = config
        self._ids = ids
        self._asking: tuple[Reading, Changes, AddressCheck] | None = None
        """A usable reading whose new addresses are asked which clusters they are."""
        self._watch = watch
        self._store = store
        store.config = ConfigStatus(
            file=str(watch.file) if watch else "",
            version=changes.version(config),
            loaded_at=time.time(),
        )

    def start(self) -> None:
        if self._watch is not None:
            self._watch.look_every(self.config.service.reload_seconds)
            self._watch.start()

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()

    def take(self) -> Changes | None:
        """Apply the newest reading; returns its changes, or None if there is none, it
        was refused, or its addresses have not answered yet.
        """
        if self._watch is None or (reading := self._watch.take()) is None:
            return self._take_asked()
        self._asking = None  # what was read before
        for warning in reading.warnings:
            log.warning("configuration", warning=warning)
        if reading.config is None:
            self._refuse(reading.at, reading.problems)
            return None
        found = changes.compare(self.config, reading.config)
        if found.refused:
            self._refuse(reading.at, found.refused)
            return None
        if found.moved:
            self._asking = (reading, found, self._ask(found.moved, reading.config))
            return None
        return self._accept(reading, found)

    def _ask(self, moved: Sequence[str], config: MirrorConfig) -> AddressCheck:
        ids = dict(self._ids())
        for flow in config.flows.values():
            for alias, login in login_ends(flow):
                if login is not None and alias in ids:
                    ids[login] = ids[alias]
        return AddressCheck([config.clusters[alias] for alias in moved], ids)

    def _take_asked(self) -> Changes | None:
        if self._asking is None or (problems := self._asking[2].problems) is None:
            return None
        reading, found, _ = self._asking
        self._asking = None
        if problems:
            self._refuse(reading.at, problems)
            return None
        return self._accept(reading, found)

    def _accept(self, reading: Reading, found: Changes) -> Changes:
        assert reading.config is not None
        known = self._store.config
        self._store.config = replace(
            known,
            version=changes.version(reading.config),
            loaded_at=reading.at,
            reloads=known.reloads + bool(found),
            refused_at=0.0,
            refused=(),
        )
        self._apply(reading.config)
        self._announce(found)
        return found

    def _refuse(self, at: float, problems: tuple[str, ...]) -> None:
        known = self._store.config
        self._store.config = replace(known, refused_at=at, refused=problems)
        self._store.trail.add(
            Event(
                kind=EventKind.CONFIGURATION_REFUSED,
                subject=known.file,
                text="configuration refused, the previous one stays in use: "
                + "; ".join(problems),
                details={"problems": list(problems)},
            )
        )

    def _apply(self, config: MirrorConfig) -> None:
        """Apply the service's own settings."""
        before, now = self.config.service, config.service
        self.config = config
        if self._watch is not None:
            self._watch.look_every(now.reload_seconds)
        log_settings = (now.log_level, now.log_format)
        if log_settings != (before.log_level, before.log_format):
            logs.set_up(*log_settings)

    def _announce(self, found: Changes) -> None:
        self._store.trail.add(
            Event(
                kind=EventKind.CONFIGURATION_RELOADED,
                subject=self._store.config.file,
                text=f"configuration reloaded: {found}",
                details={
                    "version": self._store.config.version,
                    "settings": [asdict(change) for change in found.settings],
                    "added": list(found.added),
                    "removed": list(found.removed),
                },
            )
        )


# ---- asks every cluster of the flows from time to time whether it answers ----
#
# Main type: `ClusterWatch`, with a thread per cluster, away from flows and slots: a
# cluster that hangs delays no other one's answer. What it finds is in the status and
# its metric; a change is an event. Each instance asks for itself, also one that
# stands by.


ASK_SECONDS = 10.0
_PATIENCE_SECONDS = 10.0
"""A broker that takes longer does not answer."""


class ClusterWatch:
    """Asks until closed."""

    def __init__(self, store: StatusStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._asked: dict[str, ClusterConfig] = {}
        self._sides: dict[str, tuple[str, ...]] = {}
        self._found: dict[str, ClusterStatus] = {}

    def follow(self, config: MirrorConfig) -> None:
        """From now on, ask the clusters of these flows."""
        flows = [flow for flow in config.flows.values() if flow.enabled]
        ends = {
            "source": {f.source for f in flows},
            "target": {f.target for f in flows},
        }
        with self._lock:
            before = self._asked
            self._sides = {
                alias: tuple(side for side, those in ends.items() if alias in those)
                for alias in sorted(ends["source"] | ends["target"])
            }
            self._asked = {alias: config.clusters[alias] for alias in self._sides}
            new = [each for a, each in self._asked.items() if before.get(a) != each]
            for alias in before.keys() - self._asked.keys():
                self._found.pop(alias, None)
            for alias in self._asked.keys() - {each.alias for each in new}:
                self._asked[alias] = before[alias]  # its thread goes on
            self._show()
        for each in new:
            threading.Thread(
                target=self._ask, args=(each,), name="answering", daemon=True
            ).start()

    def close(self) -> None:
        """Ask no more. It does not wait for a cluster that hangs."""
        self._closing.set()

    def _ask(self, config: ClusterConfig) -> None:
        seconds = min(config.request_timeout_seconds, _PATIENCE_SECONDS)
        quick = config.model_copy(update={"request_timeout_seconds": seconds})
        cluster = Cluster(quick, client_id="mirror.answering")
        while not self._closing.is_set() and self._asked.get(config.alias) is config:
            try:
                cluster.any_connection()  # connects if no broker is known
                cluster.refresh()
            except MirrorError as error:
                cluster.close()
                self._note(config, str(error))
            else:
                self._note(config, "", cluster_id=cluster.cluster_id)
            self._closing.wait(ASK_SECONDS)
        cluster.close()

    def _note(
        self, config: ClusterConfig, reason: str, *, cluster_id: str = ""
    ) -> None:
        alias = config.alias
        with self._lock:
            if self._asked.get(alias) is not config:
                return
            before = self._found.get(alias)
            changed = before is None or before.answers == bool(reason)
            self._found[alias] = ClusterStatus(
                alias=alias,
                sides=self._sides[alias],
                answers=not reason,
                since=time.time() if before is None or changed else before.since,
                reason=reason,
                cluster_id=cluster_id or (before.cluster_id if before else ""),
            )
            self._show()
        if changed and (reason or before is not None):
            self._store.trail.add(
                Event(
                    kind=EventKind.PROBLEM if reason else EventKind.PROBLEM_GONE,
                    cluster=alias,
                    subject="answers",
                    text=f"cluster {alias} does not answer: {reason}"
                    if reason
                    else f"cluster {alias} answers again",
                )
            )

    def _show(self) -> None:
        self._store.clusters = tuple(each for _, each in sorted(self._found.items()))


# ---- looks every few seconds at what the driver's JVM and the container use ----
#
# Main type: `ResourceWatch`. `host` reads what the system counts; the JVM itself says
# how full its heap is and how long it has collected garbage.


_LOOK_SECONDS = 5.0


class ResourceWatch:
    """Puts what it sees into the store."""

    def __init__(self, spark: SparkSession, store: StatusStore) -> None:
        self._store = store
        gateway: Any = spark.sparkContext._gateway
        beans = gateway.jvm.java.lang.management.ManagementFactory
        # Once: each call to the JVM, and each object of it to forget, wakes both sides.
        self._pid = int(beans.getRuntimeMXBean().getPid())
        self._memory = beans.getMemoryMXBean()
        self._collectors = list(beans.getGarbageCollectorMXBeans())
        self._looked_at = float("-inf")

    def look(self) -> None:
        """Look, unless the last time is only seconds ago."""
        now = time.monotonic()
        if now - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = now
        used, limit = memory_use() or (None, None)
        self._store.resources = ResourceStatus(
            jvm=self._jvm(), memory_bytes=used, memory_limit_bytes=limit
        )

    def _jvm(self) -> JvmStatus | None:
        try:
            heap = self._memory.getHeapMemoryUsage()
            used, limit = int(heap.getUsed()), int(heap.getMax())
            spent = sum(each.getCollectionTime() for each in self._collectors)
        except (Py4JError, OSError) as error:
            # `supervisor` ends the service if the JVM is gone.
            log.debug("the JVM does not say what it uses", error=str(error))
            return None
        if (use := process_use(self._pid)) is None:  # not Linux
            return None
        return JvmStatus(
            heap_bytes=used,
            heap_limit_bytes=limit,
            gc_seconds=spent / 1000,
            cpu_seconds=use.cpu_seconds,
            memory_bytes=use.memory_bytes,
            open_files=use.open_files,
            open_files_limit=use.open_files_limit,
        )


# ---- copies Spark's progress of the streaming queries into the status store ----
#
# Main type: `QueryListener`, one for all flows; Spark calls it independently of the
# leases. It decides nothing; a lease's own report has more detail about what was
# copied. pyspark asks the JVM for each field of an event, 0.15 s of CPU for one
# micro-batch: here an event comes as one JSON text.


class QueryListener(StreamingQueryListener):
    """Puts each query's last micro-batch into the status of its flow."""

    def __init__(self, store: StatusStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._flows: dict[str, str] = {}
        """Flow names by the run ids of their queries."""
        self._called: Any = None

    @property
    def _jlistener(self) -> Any:
        """What pyspark gives to the JVM."""
        if self._called is None:
            jvm: Any = SparkContext._jvm
            self._called = jvm.PythonStreamingQueryListenerWrapper(_Called(self))
        return self._called

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        if event.name:
            with self._lock:
                self._flows[str(event.runId)] = event.name

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        if not progress.name:
            return
        began = datetime.fromisoformat(progress.timestamp).timestamp()
        phases = sorted(progress.durationMs.items())
        self._store.update(
            progress.name,
            lambda flow: replace(
                flow,
                spark=replace(
                    flow.spark,
                    batches=flow.spark.batches + 1,
                    began_at=began,
                    phases=tuple((name, ms / 1000) for name, ms in phases),
                ),
            ),
        )

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Never happens: one micro-batch follows another, and waits by itself."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        with self._lock:
            flow = self._flows.pop(str(event.runId), "")
        if flow and event.exception:
            self._store.update(flow, _failed)


class _Called(JStreamingQueryListener):
    """What the JVM calls; other events than progress are rare."""

    def onQueryProgress(self, jevent: Any) -> None:
        event = QueryProgressEvent.fromJson(json.loads(jevent.json()))
        self.pylistener.onQueryProgress(event)


def _failed(flow: FlowStatus) -> FlowStatus:
    return replace(flow, spark=replace(flow.spark, failures=flow.spark.failures + 1))
