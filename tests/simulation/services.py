"""A whole service in the model: everything of it that is not Spark, nor a port.

Main types: `SimulatedService`, which runs the real `Service` in a process of its own,
and starts it again where it dies; and `Spark`, which stands for a session: its
micro-batches call the real query's leases, and each slot is a process that dies alone.
"""

from __future__ import annotations

import contextlib
from functools import partial
import itertools
import json
from typing import TYPE_CHECKING, Any, ClassVar, Self
from unittest import mock

from mirror.copying.slot import Slot
from mirror.copying.task import TERM, Copier, _lease_from
from mirror.errors import MirrorError
from mirror.recovery import pending
from mirror.recovery.drilling import runner as drilling
from mirror.recovery.tails.survey import Unsettled
from mirror.service import flow as flows
from mirror.service import leadership, leases, query, reload, service, supervisor
from mirror.service.reload import Watch
from mirror.service.service import Service
from tests.harness.configurations import configuration
from tests.simulation import network
from tests.simulation.world import Killed, Process, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mirror.config.schema import MirrorConfig
    from mirror.copying.lease import Lease, LeasePlan, PartitionReport
    from mirror.copying.task import RelayTask

_BATCH_SECONDS = (0.01, 0.1, 0.1, 1.0)
"""What Spark needs from one micro-batch to the next."""
_CORES = 4


class TaskFailedError(Exception):
    """What Spark raises for a job of which a task failed, or that was cancelled."""


class _Wakeup:
    """In place of `service.wakeup.Wakeup`: what a slot polls is in its own world."""

    def __init__(self, _host: str, *, bind: str | None = None) -> None:
        self.address, self.token = ("wakeup", len(_wakeups)), b""
        self.sent = False
        _wakeups.append(self)

    @property
    def readable(self) -> bool:
        return self.sent

    def send(self) -> None:
        self.sent = True

    def mute(self) -> None:
        self.sent = False

    def close(self) -> None:
        self.send()


_wakeups: list[_Wakeup] = []


class _Connection:
    """A task's to the driver's wakeup: readable once that is sent, or shut down."""

    def __init__(self, wakeup: _Wakeup, driver: Process) -> None:
        self._wakeup = wakeup
        self._driver = driver
        self._shut = False
        self._descriptor = network.new_descriptor(self)

    @property
    def readable(self) -> bool:
        return self._shut or self._wakeup.sent or not self._driver.alive

    def fileno(self) -> int:
        return self._descriptor

    def shutdown(self, _how: int) -> None:
        self._shut = True

    def close(self) -> None:
        network.close_descriptor(self._descriptor)


class Worker:
    """A Python process of Spark with one slot, as `copying.task` makes them."""

    def __init__(self, world: World, name: str, driver: Process) -> None:
        self.process = Process(name, site=driver.site)
        self.reports: list[PartitionReport] | None = None
        self.error: BaseException | None = None
        self._world = world
        self._driver = driver
        self._plan: LeasePlan | None = None
        self._copier: Copier | None = None

    def run(self, task: RelayTask, lease: Lease) -> None:
        """Carry out a lease, as a task."""
        self.reports = self.error = None

        def body() -> None:
            try:
                if self._plan != task.plan:
                    if self._copier is not None:
                        self._copier.close()
                    self._copier = Copier(partial(Slot, task.plan, lease.slot))
                    self._plan = task.plan
                assert self._copier is not None
                wakeup: Any = _Connection(_wakeups[task.wakeup[1]], self._driver)
                self.reports = self._copier.run(lease, wakeup)
            except MirrorError as error:
                self.error = error

        self._world.start(self.process, body)

    @property
    def done(self) -> bool:
        return (
            self.reports is not None or self.error is not None or not self.process.alive
        )


class Spark:
    """A session, as far as the real code asks it."""

    def __init__(self, of: SimulatedService) -> None:
        self.of = of
        self.world = of.world
        self.sparkContext = self
        self.readStream = self.writeStream = self.conf = self.streams = self
        self.master = "local[*]"
        self.workers: dict[tuple[str, int], Worker] = {}
        self.terms: dict[int, str] = {}
        """The job's property by flow's query."""

    # ---- what the driver calls ----

    def get(self, _name: str, default: str = "") -> str:
        return default

    def addListener(self, _listener: object) -> None:  # noqa: N802  Spark's
        pass

    def format(self, _name: str) -> Spark:
        return self

    def option(self, _name: str, _value: object) -> Spark:
        return self

    def load(self) -> Any:
        return self

    def queryName(self, name: str) -> _Query:  # noqa: N802  Spark's
        return _Query(self, name)

    def setLocalProperty(self, name: str, value: str) -> None:  # noqa: N802  Spark's
        assert name == TERM
        self.terms[self._turn()] = value

    def cancelJobGroup(self, number: str) -> None:  # noqa: N802  Spark's
        _Query.by_id[int(number)].cancelled = True

    def _turn(self) -> int:
        return id(self.world.turn)

    # ---- leases ----

    def frames(
        self,
        flow: str,
        texts: Mapping[int, str],
        _places: object,
        *,
        work: RelayTask,
        schema: object,
    ) -> _Frame:
        """In place of `slot_frames`."""
        return _Frame(self, flow, texts, work)

    def worker(self, flow: str, slot: int) -> Worker:
        found = self.workers.get((flow, slot))
        elsewhere = self.world.random.random() < 0.02
        if found is None or not found.process.alive or elsewhere:
            name = f"{self.of.name} {flow}/{slot}.{next(self.of.serial)}"
            found = self.workers[flow, slot] = Worker(self.world, name, self.of.process)
            self.of.everyone.append(found.process)
            self.of.workers.append(found)
        return found


class _Frame:
    """The slots of one lease."""

    def __init__(
        self, spark: Spark, flow: str, texts: Mapping[int, str], work: RelayTask
    ) -> None:
        self._spark = spark
        self._flow = flow
        self._texts = texts
        self._work = work

    def collect(self) -> list[PartitionReport]:
        spark = self._spark
        term = spark.terms[spark._turn()]
        running = []
        for slot, text in self._texts.items():
            worker = spark.worker(self._flow, slot)
            worker.run(self._work, _lease_from(text, term))
            running.append(worker)
        at = _Query.by_flow[spark.of.name, self._flow]
        spark.world.wait(
            lambda: at.cancelled or all(each.done for each in running), 1e9
        )
        at.cancelled, was = False, at.cancelled
        if was:
            raise TaskFailedError("cancelled")
        for each in running:
            if each.error is not None:
                raise TaskFailedError(str(each.error))
            if each.reports is None:
                raise TaskFailedError("a worker has died")
        return [report for each in running for report in each.reports or ()]


class _Query:
    """A streaming query, whose micro-batches call one function."""

    by_id: ClassVar[dict[int, _Query]] = {}
    by_flow: ClassVar[dict[tuple[str, str], _Query]] = {}

    def __init__(self, spark: Spark, flow: str) -> None:
        self._spark = spark
        self.runId = next(spark.of.serial)
        self.cancelled = False
        self._failure: Exception | None = None
        self._stopping = False
        self._function: Callable[[None, int], None] = lambda *_: None
        self.by_id[self.runId] = self
        self.by_flow[spark.of.name, flow] = self

    def foreachBatch(self, function: Callable[[None, int], None]) -> _Query:  # noqa: N802  Spark's
        self._function = function
        return self

    def option(self, _name: str, _value: object) -> _Query:
        return self

    def start(self) -> _Query:
        world = self._spark.world
        self._task = world.start(self._spark.of.process, self._run)
        return self

    def _run(self) -> None:
        world = self._spark.world
        for number in itertools.count():
            if self._stopping:
                return
            try:
                self._function(None, number)
            except Exception as error:  # noqa: BLE001  as Spark
                self._failure = error
                return
            world.sleep(world.random.choice(_BATCH_SECONDS))

    @property
    def isActive(self) -> bool:  # noqa: N802  Spark's
        return not self._task.ended and not self._stopping

    def exception(self) -> Exception | None:
        return self._failure

    def stop(self) -> None:
        self._stopping = self.cancelled = True
        self._spark.world.wait(lambda: self._task.ended, 10.0)


class _Callback:
    """In place of `driver.callback.Callback`."""

    def __init__(self, _spark: object, function: Callable[..., None]) -> None:
        self._function = function

    def __call__(self, frame: object, number: int) -> None:
        self._function(frame, number)

    def close(self) -> None:
        pass


class _Executors:
    """In place of `PreferredExecutors`."""

    alone = False

    def __init__(self, spark: Spark) -> None:
        self.spark = spark

    def places_of(self, _flow: str, slots: int) -> list[None]:
        return [None] * slots

    def turns(self) -> int:
        return 1

    def start_processes(self, _flow: str, _slots: int) -> None:
        pass

    await_processes = start_processes

    def forget(self, _flow: str) -> None:
        pass

    def free_core(self) -> tuple[bool, None]:
        return False, None


class _Lifelines:
    """In place of `service.leadership.Lifelines`: a dead process is seen at once."""

    everyone: ClassVar[list[Process]] = []

    def __init__(self) -> None:
        self.address: tuple[str, int] | None = None
        self._held: Mapping[str, tuple[str, int]] = {}

    def listen(self, process: Process) -> None:
        self.address = ("simulated", len(self.everyone))
        self.everyone.append(process)

    def hold(self, addresses: Mapping[str, tuple[str, int]]) -> None:
        self._held = addresses

    def dead(self) -> frozenset[str]:
        return frozenset(
            member
            for member, (_, number) in self._held.items()
            if not self.everyone[number].alive
        )

    def close(self) -> None:
        pass


class _Server:
    """In place of the port."""

    url = "http://simulated"

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class SimulatedService:
    """One service, which is started again where it ended."""

    def __init__(
        self, world: World, name: str, document: dict[str, Any], *, into: str = ""
    ) -> None:
        """`into`: it runs the flows into this cluster only; empty: all."""
        self.world = world
        self.name = name
        self.document = document
        """Its file."""
        self.into = into
        self.everyone: list[Process] = []
        """All processes that there have been."""
        self.workers: list[Worker] = []
        self.serial = itertools.count()
        self.service: Service | None = None
        self.starts = 0
        self.spark: Spark | None = None

    process: Process

    def begin(self) -> None:
        self.starts += 1
        self.process = process = Process(f"{self.name} {self.starts}", site=self.into)
        self.everyone.append(process)
        self.world.start(process, self._run)
        self._watch(process)

    def _watch(self, process: Process) -> None:
        def look() -> None:
            if process.alive:
                self.world.after(1.0, look)
                return
            self.world.note(f"{process.name} is started again")
            for worker in self.workers:  # as Spark's daemon ends with its JVM
                self.world.kill(worker.process)
            self.begin()

        self.world.after(1.0, look)

    def __str__(self) -> str:
        """Its file, as events name it."""
        return f"{self.name}.yaml"

    def _read(self) -> tuple[MirrorConfig, tuple[str, ...]]:
        config = configuration(self.document)
        return config.select([self.into]) if self.into else config, ()

    def _run(self) -> None:
        try:
            self.spark = Spark(self)
            file: Any = self  # `_content` reads it
            self.service = Service(
                self._read()[0],
                watch=Watch(file, self._read),
                settle_fence=pending.settle_fence,
                rehearse=drilling.rehearse,
                new_count=Unsettled,
            )
            self.service.run()
            self.world.note(f"{self.name} ended")
        except MirrorError as error:
            self.world.note(f"{self.name} ended: {error}")
        self.world.kill(self.world.process)
        raise Killed


@contextlib.contextmanager
def without_spark(services: Sequence[SimulatedService]) -> Iterator[None]:
    """Sessions and ports of real services are the model's while the block runs."""
    _wakeups.clear()
    _Lifelines.everyone.clear()
    _Query.by_id.clear()
    _Query.by_flow.clear()

    world = services[0].world

    def own(*_: object, **__: object) -> Any:
        process = world.process
        return next(each.spark for each in services if each.process is process)

    with contextlib.ExitStack() as stack:
        for target, name, value in (
            (service, "session", own),
            (service, "StatusServer", _Server),
            (service, "on_signals", lambda *_: None),
            (service, "QueryListener", lambda _: None),
            (service, "wait_for_cores", lambda *_: _CORES),
            (service, "cores", lambda _: _CORES),
            (service, "usable_cores", lambda: _CORES),
            (service, "end", lambda *_: None),
            (service, "is_alive", lambda _: True),
            (service, "ResourceWatch", _NoWatch),
            (service.audit, "keeping", lambda *_, **__: contextlib.nullcontext()),
            (supervisor, "PreferredExecutors", _Executors),
            (supervisor, "warm_up", lambda *_: None),
            (supervisor, "is_alive", lambda _: True),
            (
                leases,
                "slot_frames",
                _frames,
            ),
            (leases, "from_row", lambda row: row),
            (reload, "_content", lambda file: json.dumps(file.document).encode()),
            (leadership, "Lifelines", _Lifelines),
            (leadership, "_listen", lambda lines, _: lines.listen(world.process)),
            (leases, "Wakeup", _Wakeup),
            (query, "Callback", _Callback),
            (query, "own", lambda *_: contextlib.nullcontext("")),
            (flows, "state_folder", lambda _: None),
        ):
            stack.enter_context(mock.patch.object(target, name, value))
        yield


def _frames(spark: Spark, *arguments: Any, **named: Any) -> _Frame:
    return spark.frames(*arguments, **named)


class _NoWatch:
    def __init__(self, *_: object) -> None:
        pass

    def look(self) -> None:
        pass
