"""Slots in separate processes, which stop or die at a chosen point of their work.

`SlotProcess` runs leases of one slot without Spark, until it is asked to end or finds
itself fenced. `Point`s name the steps of a take-over and of a transaction; at its
n-th pass of one the process sends itself a signal. So a test covers every window in
which a zombie could do harm, instead of relying on luck.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
import multiprocessing
import os
import signal
from typing import TYPE_CHECKING, Any
import uuid

import psutil

from mirror.clusters.cluster import Cluster
from mirror.clusters.transactions import Producer
from mirror.config.schema import MirrorConfig
from mirror.driver import ownership
from mirror.driver.ownership import take_ownership
from mirror.errors import FencedError, SupersededError
from mirror.offsets import progress, starting
from mirror.relay.lease import Assignment, Lease, LeasePlan
from mirror.relay.slot import Slot
from mirror.relay.target import TargetWriter
from tests.harness.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_spawning = multiprocessing.get_context("spawn")


class Point(StrEnum):
    """A step of a slot; the signal comes right before it, or right after."""

    BEFORE_TAKE_OVER = "before TargetWriter.take_over"
    BEFORE_EACH_ID = "before Producer.take_over"
    AFTER_TAKE_OVER = "after TargetWriter.take_over"
    AFTER_PROGRESS = "after progress.read_proven"
    BEFORE_WRITE = "before TargetWriter.write"
    AFTER_WRITE = "before Producer.begin_commit"
    AFTER_COMMIT_REQUEST = "after Producer.begin_commit"
    AFTER_COMMIT = "after Producer.committed"


class StartPoint(StrEnum):
    """A step of a driver that becomes the owner of a flow."""

    BEFORE_EACH_ID = "before Producer.take_over"
    AFTER_EACH_READING = "after ProgressReader.read"
    BEFORE_WRITE = "before ownership.write"
    AFTER_WRITE = "after ownership.write"
    BEFORE_ASKING = "before starting.begin"
    AFTER_ASKING = "after starting.begin"
    AFTER_COMMIT_REQUEST = "after Producer.begin_commit"
    AFTER_COMMIT = "after Producer.committed"


_OWNERS: dict[str, Any] = {
    "TargetWriter": TargetWriter,
    "Producer": Producer,
    "progress": progress,
    "ProgressReader": progress.ProgressReader,
    "ownership": ownership,
    "starting": starting,
}


@dataclass(frozen=True, kw_only=True)
class Ambush:
    """Send ourselves a signal at the n-th pass of a point, and `again` at all later."""

    point: Point | StartPoint
    number: signal.Signals
    passes: int = 1
    again: bool = False

    def lie(self) -> None:
        when, _, where = self.point.value.partition(" ")
        owner_name, _, name = where.partition(".")
        owner = _OWNERS[owner_name]
        original = getattr(owner, name)
        left = self.passes

        def ambushed(*args: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            now = left == 0 or (self.again and left < 0)
            if when == "before" and now:
                os.kill(os.getpid(), self.number)
            answer = original(*args, **options)
            if when == "after" and now:
                os.kill(os.getpid(), self.number)
            return answer

        setattr(owner, name, ambushed)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A flow Z->B of one topic, as driver runs see it; other tests own A->B."""

    source: str
    target: str
    topic: str
    partitions: int
    timeout: float = 30.0
    """For one request, in seconds."""
    alias: str = "Z"
    """Of the source; another one where that is another cluster."""

    @property
    def flow(self) -> str:
        return f"{self.alias}->B"

    @property
    def copy(self) -> str:
        return f"{self.alias}.{self.topic}"

    def config(self) -> MirrorConfig:
        return MirrorConfig.model_validate(
            {
                "clusters": {
                    alias: {
                        "bootstrap_servers": servers,
                        "request_timeout_seconds": self.timeout,
                    }
                    for alias, servers in (
                        (self.alias, self.source),
                        ("B", self.target),
                    )
                },
                "flows": {self.flow: {"topics": [self.topic]}},
            }
        )

    def take_ownership(self, *, slots: int) -> str:
        """What a new driver run does first; returns its generation."""
        config = self.config()
        source = Cluster(config.clusters[self.alias]).connect()
        target = Cluster(config.clusters["B"]).connect()
        try:
            return take_ownership(
                config.flows[self.flow], source, target, slots=slots, partitions={}
            )
        finally:
            source.close()
            target.close()


class OwnerProcess:
    """A driver in a process of its own that becomes the owner, and does no more."""

    def __init__(self, own: Callable[[], object], *, ambush: Ambush) -> None:
        """`own` travels pickled; so does nothing that it returns."""
        self._result: Any = _spawning.SimpleQueue()
        self._process = _spawning.Process(
            target=_own, args=(own, ambush, self._result), daemon=True
        )
        self._process.start()

    @property
    def suspended(self) -> bool:
        assert self._process.pid is not None
        return psutil.Process(self._process.pid).status() == psutil.STATUS_STOPPED

    def resume(self) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def how_it_ended(self, timeout: float = PATIENCE_SECONDS) -> str:
        """`owner`, `fenced`, or empty if it was killed."""
        self._process.join(timeout)
        assert self._process.exitcode in {0, -signal.SIGKILL}
        return "" if self._result.empty() else self._result.get()

    def kill(self) -> None:
        self._process.kill()
        self._process.join(10)
        self._process.close()


def _own(own: Callable[[], object], ambush: Ambush, result: Any) -> None:
    ambush.lie()
    try:
        own()
        result.put("owner")
    except FencedError:
        result.put("fenced")


class SlotProcess:
    """One slot in one process, lease after lease under one generation."""

    def __init__(
        self,
        setting: Setting,
        *,
        generation: str,
        slot: int,
        partitions: Sequence[int],
        lease_seconds: float = 2.0,
        ambush: Ambush | Sequence[Ambush] = (),
    ) -> None:
        self._end = _spawning.Event()
        self._result: Any = _spawning.SimpleQueue()
        task = _Task(
            setting=setting,
            generation=generation,
            slot=slot,
            partitions=tuple(partitions),
            lease_seconds=lease_seconds,
            ambushes=(ambush,) if isinstance(ambush, Ambush) else tuple(ambush),
        )
        self._process = _spawning.Process(
            target=_run, args=(task, self._end, self._result), daemon=True
        )
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def suspended(self) -> bool:
        return psutil.Process(self.pid).status() == psutil.STATUS_STOPPED

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def suspend(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def awake(self) -> bool:
        """Resume it if it is suspended; always true."""
        if self.suspended:
            self.resume()
        return True

    def how_it_ended(self, timeout: float = PATIENCE_SECONDS) -> str:
        """`superseded`, `fenced` or `told to`; empty if it died or goes on."""
        self._process.join(timeout)
        return "" if self._result.empty() else self._result.get()

    def end(self, timeout: float = PATIENCE_SECONDS) -> str:
        """Tell it to end after its lease."""
        self._end.set()
        return self.how_it_ended(timeout)

    def kill(self) -> None:
        """SIGKILL, unless it has ended."""
        self._process.kill()
        self._process.join(10)


@dataclass(frozen=True, kw_only=True)
class _Task:
    setting: Setting
    generation: str
    slot: int
    partitions: tuple[int, ...]
    lease_seconds: float
    ambushes: tuple[Ambush, ...]


def _run(task: _Task, end: Any, result: Any) -> None:
    setting, number = task.setting, task.slot
    config = setting.config()
    clusters = config.clusters
    source = Cluster(clusters[setting.alias]).connect()
    target = Cluster(clusters["B"]).connect()
    topic_id = source.topics([setting.topic])[setting.topic].topic_id
    assert topic_id != uuid.UUID(int=0)
    plan = LeasePlan(
        flow=config.flows[setting.flow],
        source=clusters[setting.alias],
        target=clusters["B"],
        source_id=source.cluster_id,
        target_id=target.cluster_id,
    )
    assignments = tuple(
        Assignment(
            topic=setting.topic,
            partition=partition,
            target_topic=setting.copy,
            topic_id=topic_id.hex,
        )
        for partition in task.partitions
    )
    source.close()
    target.close()
    slot = Slot(plan, number)
    for ambush in task.ambushes:
        ambush.lie()
    lease = 0
    try:
        while not end.is_set():
            lease += 1
            slot.run(
                Lease(
                    slot=number,
                    number=lease,
                    generation=task.generation,
                    seconds=task.lease_seconds,
                    assignments=assignments,
                )
            )
        result.put("told to")
    except SupersededError:
        result.put("superseded")
    except FencedError:
        result.put("fenced")
    finally:
        slot.close()
