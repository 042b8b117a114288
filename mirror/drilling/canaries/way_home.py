"""Copies the canary's records home, where no service does: the flow home rests.

Main type: `WayHome`, a context manager. It takes the flow over as a driver does, with
the canary's topic alone, and has one slot copy it in this process. Should the pair be
switched meanwhile, the service that takes the flow over fences it.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Self

from mirror.driver.generation import has_begun
from mirror.driver.ownership import take_over, take_ownership
from mirror.errors import MirrorError
from mirror.metadata import topics
from mirror.offsets import progress
from mirror.policy.naming import CANARY
from mirror.relay.lease import Assignment, Lease, LeasePlan
from mirror.relay.slot import Slot

if TYPE_CHECKING:
    from mirror.switching.stage import Stage

_LEASE_SECONDS = 30.0


class WayHome:
    """Copies until the block ends."""

    def __init__(self, stage: Stage) -> None:
        """`stage`: of the switch home."""
        self._stage = stage
        self.error = ""
        """Why it copies no more."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mirror-canary-home")

    def __enter__(self) -> Self:
        """
        Raises:
            MirrorError: the flow cannot be taken over.
        """
        stage = self._stage
        source, target = stage.source, stage.target
        found = topics.sync(source, target, stage.flow)
        if found.problems:
            raise MirrorError("; ".join(found.problems))
        self._assignments = tuple(
            Assignment(
                topic=each.topic,
                partition=number,
                target_topic=each.target_topic,
                topic_id=each.topic_id,
            )
            for each in found.topics
            for number in range(each.partitions)
        )
        for each in found.topics:
            target.wait_for_topic(each.target_topic)
        owned = take_ownership(
            *(stage.flow, source, target),
            slots=1,
            partitions={(a.topic, a.partition): a.topic_id for a in self._assignments},
        )
        self._generation = owned.run
        clusters = stage.config.clusters
        self._plan = LeasePlan(
            flow=stage.flow,
            source=clusters[stage.flow.source],
            target=clusters[stage.flow.target],
            source_id=source.cluster_id,
            target_id=target.cluster_id,
            slot_ids=owned.slot_ids,
        )
        self._wakeup, self._waker = os.pipe()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        os.write(self._waker, b"!")
        self._thread.join()
        os.close(self._waker)
        os.close(self._wakeup)

    def _run(self) -> None:
        slot = Slot(self._plan, 0)
        number = 0
        try:
            while not self._over.is_set():
                number += 1
                lease = Lease(
                    slot=0,
                    number=number,
                    generation=self._generation,
                    seconds=_LEASE_SECONDS,
                    assignments=self._assignments,
                )
                slot.run(lease, wakeup=self._wakeup)
        except MirrorError as error:
            self.error = str(error)
        finally:
            slot.close()


def end_earlier(stage: Stage) -> None:
    """End the transaction that a canary which was killed on its way home may have left
    open: readers of the flow's progress would wait for it.

    Raises:
        MirrorError: the flow cannot be taken over.
    """
    name = progress.topic_name(stage.reverse.source)
    if stage.reverse.exactly_once and stage.source.topic(name) is not None:
        take_over(stage.reverse, stage.source)


def require_begun(stage: Stage) -> None:
    """A canary must not decide where the flow home begins for applications.

    Raises:
        MirrorError: it would.
    """
    flow, name = stage.reverse, progress.topic_name(stage.reverse.source)
    if flow.start == "earliest":
        return
    there = stage.source.topic(name)
    if there is None or not has_begun(
        progress.read(stage.source, name, wait=False).generation
    ):
        raise MirrorError(
            f"flow {flow.name} has never run and has `start: {flow.start}`: its first "
            f"run decides where it begins, and that must not be one with {CANARY} "
            "alone. Use `start: earliest`, or make a canary after the first switch"
        )
