"""Asks the registries about ids of schemas while the slot keeps copying.

Main type: `SchemaInquiry`. It settles all ids that came up since it last asked
(`metadata.schema_need`). `schemas` interprets the answers. It writes to the target's
registry only for the run that the target names as the one that may write: a switch that
has fenced it may have opened that registry to applications.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING
import uuid

from mirror.clusters.cluster import Cluster
from mirror.clusters.registry.pace import RequestPace
from mirror.clusters.registry.registry import Registry
from mirror.errors import MirrorError
from mirror.metadata import schema_claims, schema_need
from mirror.metadata.schema_need import SettledId
from mirror.offsets.progress import ProgressReader, topic_name
from mirror.relay.beside import Beside

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirror.metadata.schema_need import Sides
    from mirror.relay.lease import LeasePlan


class SchemaInquiry:
    """Settles the ids that the records of one slot have."""

    def __init__(self, plan: LeasePlan, client: str) -> None:
        self._plan = plan
        self._target = Cluster(plan.target, client_id=client, cluster_id=plan.target_id)
        self._waiting: dict[int, bytes] = {}
        self._asked: set[int] = set()
        self._beside = Beside("schemas", self._ask, self._target.close)
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
        try:
            found = dict(self._beside.answers())
        except Exception:
            self._asked.clear()
            raise
        self._asked -= found.keys()
        if self._waiting and not self._beside.asks:
            waiting, self._waiting = self._waiting, {}
            self._asked = set(waiting)
            self._beside.start(waiting)
        return found

    def close(self) -> None:
        """Close the connections, at once or when the last round ends."""
        self._waiting.clear()
        self._beside.close()

    def _ask(self, waiting: dict[int, bytes]) -> Iterator[tuple[int, SettledId]]:
        flow = self._plan.flow
        self._copied = None
        known = ProgressReader(self._target, topic_name(flow.source))
        of_source, of_target = self._paces
        with (
            Registry(self._plan.source, pace=of_source) as source,
            Registry(self._plan.target, pace=of_target) as target,
        ):
            sides = schema_need.Sides(
                flow=flow, source=source, target=target, cluster=self._connected,
                going_on=lambda: self._may_write(known),
            )  # fmt: skip
            for number, guid in waiting.items():
                if self._beside.closing:
                    return
                found = _settled(sides, number, guid)
                if found.unanswered and number in (noted := self._noted()):
                    found = SettledId(target_id=noted[number])
                yield number, found

    def _may_write(self, known: ProgressReader) -> bool:
        if self._beside.closing:
            return False
        self._connected()
        return known.read(wait=False).generation == self._generation

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
