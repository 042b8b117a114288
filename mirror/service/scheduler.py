"""Runs a flow's background jobs at intervals.

Main types: `Job`, a name, an interval and a function, and `Jobs`, which gives each job
a thread and connections of its own, so that a slow one delays neither leases nor other
jobs. A failed run is shown, logged, and retried with growing pauses; it never ends the
flow. `ServiceProofs` is what a service needs of whatever proves its copies.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
import threading
import time
from typing import TYPE_CHECKING, Protocol

import structlog

from mirror import retry
from mirror.clusters.cluster import Cluster
from mirror.errors import MirrorError
from mirror.status.values import JobStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pyspark.sql import SparkSession

    from mirror.config.cluster_settings import ClusterConfig
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.status.store import StatusStore


log = structlog.get_logger()

_STOP_SECONDS = 5.0
_SWITCHING_SECONDS = 0.5
_MEANWHILE_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Work that repeats while a flow runs."""

    name: str
    seconds: float
    """From the start of one run to the start of the next."""
    work: Callable[[Cluster, Cluster], None]
    """One run, with the flow's source and target; raises `MirrorError` if it fails.
    Both are connected and belong to the job's own thread."""
    waits: bool = False
    """It does nothing while a switch is under way, which changes the same things, or
    once the flow may not copy any more."""
    meanwhile: Callable[[Cluster, Cluster], None] | None = None
    """Twice a second between two runs, with the same clusters. After a failure the next
    run comes first."""


class Jobs:
    """The jobs of one flow."""

    def __init__(
        self,
        flow: str,
        clusters: tuple[ClusterConfig, ClusterConfig],
        jobs: Iterable[Job],
        *,
        store: StatusStore,
        ids: Mapping[str, str],
        must_wait: Callable[[], bool] = lambda: False,
    ) -> None:
        """`ids` are those of the clusters that the flow runs with, by alias.
        `must_wait`: whether a switch changes, or has changed, who may write.
        """
        self._must_wait = must_wait
        self._flow = flow
        self._clusters = clusters
        self._ids = ids
        self._jobs = tuple(jobs)
        self._store = store
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._statuses = {job.name: JobStatus(name=job.name) for job in self._jobs}
        self._kicks = {job.name: threading.Event() for job in self._jobs}
        self._threads = [
            threading.Thread(
                target=self._repeat, args=(job,), name=f"mirror-{job.name}-{flow}"
            )
            for job in self._jobs
        ]

    def start(self) -> None:
        """Start with a first run of each."""
        for thread in self._threads:
            thread.start()

    def kick(self, name: str) -> None:
        """Have a job's next run start now, if the job exists."""
        if name in self._kicks:
            self._kicks[name].set()

    def close(self, *, wait: bool = True) -> None:
        """Start no more runs, and `wait` a while for running ones."""
        self._stopping.set()
        for kick in self._kicks.values():
            kick.set()
        if not wait:
            return
        deadline = time.monotonic() + _STOP_SECONDS
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
                if thread.is_alive():
                    log.warning("job does not end", flow=self._flow, thread=thread.name)

    def turn(self) -> None:
        """One run of each, in this thread: the last one of a run with an end."""
        for job in self._jobs:
            with self._connections() as (source, target):
                self._work(job, source, target)

    def _repeat(self, job: Job) -> None:
        pause = 0.0
        kick = self._kicks[job.name]
        with self._connections() as (source, target):
            while not self._stopping.is_set():
                began = time.monotonic()
                kick.clear()
                if job.waits and self._must_wait():
                    kick.wait(_SWITCHING_SECONDS)
                    continue
                if self._work(job, source, target):
                    pause = 0.0
                    rest = job.seconds - (time.monotonic() - began)
                    rest = self._meanwhile(job, rest, source, target)
                else:
                    rest = pause = retry.RUN.after(pause)
                if rest > 0:
                    kick.wait(rest)

    def _meanwhile(
        self, job: Job, rest: float, source: Cluster, target: Cluster
    ) -> float:
        """The seconds that are left until the next run, once there is nothing to do."""
        end = time.monotonic() + rest
        while job.meanwhile and end - time.monotonic() > _MEANWHILE_SECONDS:
            if self._kicks[job.name].wait(_MEANWHILE_SECONDS):
                return 0.0
            if job.waits and self._must_wait():
                continue
            began = time.monotonic()
            if error := self._error_of(job, job.meanwhile, source, target):
                self._note(job, error, time.monotonic() - began)
                break
        return end - time.monotonic()

    @contextlib.contextmanager
    def _connections(self) -> Iterator[tuple[Cluster, Cluster]]:
        source, target = (
            Cluster(
                config,
                client_id=f"mirror.{self._flow}",
                cluster_id=self._ids.get(config.alias, ""),
            )
            for config in self._clusters
        )
        try:
            yield source, target
        finally:
            source.close()
            target.close()

    def _work(self, job: Job, source: Cluster, target: Cluster) -> bool:
        """Whether the run succeeded."""
        began = time.monotonic()
        error = self._error_of(job, job.work, source, target)
        self._note(job, error, time.monotonic() - began)
        return not error

    def _error_of(
        self,
        job: Job,
        work: Callable[[Cluster, Cluster], None],
        source: Cluster,
        target: Cluster,
    ) -> str:
        try:
            for cluster in (source, target):
                if not cluster.cluster_id:
                    cluster.connect()
            work(source, target)
        except MirrorError as failure:
            return str(failure)
        except Exception as failure:
            log.exception("job failed unexpectedly", flow=self._flow, job=job.name)
            return f"{type(failure).__name__}: {failure}"[:300]
        return ""

    def _note(self, job: Job, error: str, seconds: float) -> None:
        with self._lock:
            last = self._statuses[job.name]
            self._statuses[job.name] = replace(
                last,
                seconds=seconds,
                succeeded_at=last.succeeded_at if error else time.time(),
                failures=last.failures + bool(error),
                error=error,
            )
            statuses = tuple(self._statuses.values())
            self._store.update(self._flow, lambda flow: replace(flow, jobs=statuses))


# ---- proofs, which stand above this room: the command line passes them in ----


class FlowProofs(Protocol):
    """Proves the copies of one flow, across its runs."""

    def adopt(self, flow: FlowConfig, config: MirrorConfig) -> None:
        """Use new settings from the next `job` on."""

    def job(self) -> Job | None:
        """The job of a run that begins; None: nothing is to be proven."""

    def stop(self) -> None:
        """End the running task, and begin no other, until the next `job`."""


class ServiceProofs(Protocol):
    """Proves copies while a service runs, one task at a time."""

    def of_flow(
        self, flow: FlowConfig, config: MirrorConfig, store: StatusStore
    ) -> FlowProofs:
        """For one flow; `config` has all of them."""

    def begin(
        self,
        spark: SparkSession,
        store: StatusStore,
        room: Callable[[], tuple[bool, str | None]],
    ) -> None:
        """Carry out tasks in this session. `room`: whether a core is free beside the
        slots, and where; None: anywhere.
        """
