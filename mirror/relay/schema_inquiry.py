"""Asks the registries about ids of schemas while the slot keeps copying.

Main type: `SchemaInquiry`. It has connections of its own and a thread that settles all
ids that came up since it last asked (`metadata.schema_need`), so that a slow registry
holds up no other partition. `schemas` interprets the answers. It writes to the target's
registry only for the run that the target names as the one that may write: a switch that
has fenced it may have opened that registry to applications.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from typing import TYPE_CHECKING
import uuid

from mirror.clusters.cluster import Cluster
from mirror.clusters.registry.pace import RequestPace
from mirror.clusters.registry.registry import Registry
from mirror.errors import MirrorError
from mirror.metadata import schema_claims, schema_need
from mirror.metadata.schema_need import SettledId
from mirror.offsets.progress import ProgressReader, topic_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.metadata.schema_need import Sides
    from mirror.relay.lease import LeasePlan


class SchemaInquiry:
    """Settles the ids that the records of one slot have."""

    def __init__(self, plan: LeasePlan, client: str) -> None:
        self._plan = plan
        self._target = Cluster(plan.target, client_id=client, cluster_id=plan.target_id)
        self._waiting: dict[int, bytes] = {}
        self._asked: set[int] = set()
        self._answers: queue.SimpleQueue[tuple[int, SettledId] | Exception] = (
            queue.SimpleQueue()
        )
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._generation = ""
        rate = plan.flow.schemas_requests_per_second
        self._paces = (RequestPace(rate), RequestPace(rate))
        """Of the source's registry and the target's."""
        self._copied: Mapping[int, int] | None = None

    def begin(self, generation: str) -> None:
        """The slot has taken over, in the run of this generation."""
        self._generation = generation

    def open(self, number: int, guid: bytes) -> None:
        """Queue an id, or a GUID; nothing happens if it is being asked about."""
        if number not in self._asked:
            self._waiting[number] = guid

    def findings(self) -> dict[int, SettledId]:
        """What is known by now, without waiting; starts the next round if any are
        queued.
        """
        found: dict[int, SettledId] = {}
        while not self._answers.empty():
            answer = self._answers.get()
            if isinstance(answer, Exception):
                self._asked.clear()
                raise answer
            found[answer[0]] = answer[1]
            self._asked.discard(answer[0])
        if self._waiting and (self._thread is None or not self._thread.is_alive()):
            waiting, self._waiting = self._waiting, {}
            self._asked = set(waiting)
            # A daemon: an unresponsive registry must not keep a worker from exiting.
            self._thread = threading.Thread(
                target=self._ask, args=(waiting,), name="schemas", daemon=True
            )
            self._thread.start()
        return found

    def close(self) -> None:
        """Close the connections, at once or when the last round ends."""
        self._waiting.clear()
        self._closing.set()
        if self._thread is None or not self._thread.is_alive():
            self._target.close()

    def _ask(self, waiting: dict[int, bytes]) -> None:
        flow = self._plan.flow
        self._copied = None
        known = ProgressReader(self._target, topic_name(flow.source))
        of_source, of_target = self._paces
        try:
            with (
                Registry(self._plan.source, pace=of_source) as source,
                Registry(self._plan.target, pace=of_target) as target,
            ):
                sides = schema_need.Sides(
                    flow=flow, source=source, target=target, cluster=self._connected,
                    going_on=lambda: self._may_write(known),
                )  # fmt: skip
                for number, guid in waiting.items():
                    if self._closing.is_set():
                        return
                    found = _settled(sides, number, guid)
                    if found.unanswered and number in (noted := self._noted()):
                        found = SettledId(target_id=noted[number])
                    self._answers.put((number, found))
        except Exception as error:  # noqa: BLE001  `findings` raises it in the slot
            self._answers.put(error)
        finally:
            if self._closing.is_set():
                self._target.close()

    def _may_write(self, known: ProgressReader) -> bool:
        if self._closing.is_set():
            return False
        self._connected()
        return known.read(wait=False).run_of(self._plan.flow.part) == self._generation

    def _noted(self) -> Mapping[int, int]:
        """The ids that the flow has noted as copied, with the ones to translate them
        to, while registries do not answer.
        """
        if self._copied is None:
            flow, self._copied = self._plan.flow, {}
            with contextlib.suppress(MirrorError):  # then they wait for the registries
                notes = self._connected(), flow.source, flow.schemas_context
                self._copied = (
                    schema_claims.translations(*notes, below=True)
                    if flow.translates_ids
                    else dict.fromkeys(schema_claims.copied_ids(*notes), -1)
                )
        return self._copied

    def _connected(self) -> Cluster:
        if not self._target.cluster_id:
            self._target.connect()
        return self._target


def _settled(sides: Sides, number: int, guid: bytes) -> SettledId:
    if guid:
        return schema_need.settle_guid(sides, str(uuid.UUID(bytes=guid)))
    return schema_need.settle_id(sides, number)
