"""The barrier before the target: no record is copied before its schema is there.

Main type: `SchemaBarrier`, of one slot. It keeps the ids that the target has and those
that no registry knows, cuts what a rewriter is about to copy before the first record
with another id, and holds its partition until `SchemaInquiry` has settled the id: then
there is a `Verdict`, as for suspicions. So it has the target's id for every record that
goes on, and puts it there where the flow translates ids. Kernels look at the records.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
import time
from typing import TYPE_CHECKING, NamedTuple
import uuid

import numpy as np

from mirror.clusters.cluster import Cluster
from mirror.copying.background import BackgroundQuery
from mirror.copying.gaps import Verdict
from mirror.offsets.progress import ProgressReader, topic_name
from mirror.records import merge_loop, schema_ids
from mirror.schemas.ids import IdSettler, SettledId
from mirror.schemas.registry.registry import Registry, RequestPace
from mirror.schemas.registry.values import HIGHEST_ID
from mirror.status.values import WAITS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig
    from mirror.copying.lease import LeasePlan
    from mirror.copying.provenance import Provenance
    from mirror.offsets.progress import Position
    from mirror.records.batch import Buffer, Rows
    from mirror.records.schema_id_translation import IdMap


_AT_ONCE = 64
"""How many unknown ids are looked for at a time."""
STRANGE_SECONDS = 10.0
"""How long an id that no registry knows is remembered: the source may issue it."""
_MOST_STRANGE = 100_000
_PATIENCE_SECONDS = 5.0
"""How long a partition waits for an answer before it is shown as set aside."""


class Unknown(NamedTuple):
    """What a record has that may be the id of a schema."""

    number: int
    """As the kernel knows it."""
    guid: bytes
    """Empty: the number is the id."""

    @property
    def shown(self) -> str:
        """As people read it."""
        return str(uuid.UUID(bytes=self.guid)) if self.guid else str(self.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """What of some batches may be copied now."""

    part: Rows
    strange: int
    """How many of its records have an id that no registry knows."""
    offset: int = -1
    """That of the first record that must wait; -1: none."""
    unknown: tuple[Unknown, ...] = ()
    """What it waits for, and what later ones will."""
    damaged: int = -1
    """The offset of the batch behind it that is damaged; -1: none."""


@dataclass(slots=True, kw_only=True)
class _Held:
    position: Position
    unknown: dict[int, Unknown]
    """By number."""
    since: float


class KnownIds:
    """The ids of schemas that the target is known to have, and those that no registry
    knows.
    """

    def __init__(self) -> None:
        self._known = schema_ids.Numbers()
        self._strange = schema_ids.Numbers()
        self._strange_since = 0.0
        self._unknown = np.empty((_AT_ONCE, 2), np.int64)
        self._result = np.zeros(schema_ids.RESULTS, np.int64)

    def cut(
        self, source: Buffer, part: Rows, position: int, left_out: Provenance
    ) -> Cut:
        """Of these batches (rows as `merge_loop.merge` takes them), what precedes the
        first record from `position` on whose id is unknown, or the first batch whose
        records do not fit. What the flow leaves out by `left_out` needs no schema.
        """
        unknown, result = self._unknown, self._result
        schema_ids.find_ids(
            source,
            part,
            position,
            *(self._known.table, self._strange.table),
            *(schema_ids.KEY_HEADER, schema_ids.VALUE_HEADER),
            *(left_out.key, left_out.target_suffix, left_out.feeders, left_out.homes),
            *(unknown, result),
        )
        strange = int(result[schema_ids.STRANGE])
        broken = int(result[schema_ids.BROKEN]) - 1
        if not (count := int(result[schema_ids.UNKNOWN])):
            if broken < 0:
                return Cut(part=part, strange=strange)
            whole = self.cut(source, part[:broken], position, left_out)
            at = int(part[broken, merge_loop.FIRST_OFFSET])
            return replace(whole, damaged=at)
        row, before = int(result[schema_ids.IN_ROW]), int(result[schema_ids.BEFORE])
        delta = int(result[schema_ids.DELTA])
        offset = int(part[row, merge_loop.FIRST_OFFSET]) + delta
        kept = part[: row + (before > 0)].copy()
        if before:
            kept[row, merge_loop.RECORDS] = before
            kept[row, merge_loop.SOURCE_END] = result[schema_ids.STARTS_AT]
            kept[row, merge_loop.LAST_DELTA] = delta - 1
        found = unknown[:count]
        return Cut(
            part=kept,
            strange=strange,
            offset=offset,
            unknown=tuple(
                Unknown(number % (1 << 64), _guid(source, at))
                for number, at in found.tolist()
            ),
        )

    def settled(self, findings: Mapping[int, SettledId]) -> dict[int, int]:
        """What was found out, by number; what has a reason stays unknown. Returns the
        target's ids of those that it has.
        """
        now = time.monotonic()
        old = now - self._strange_since > STRANGE_SECONDS
        if len(self._strange) and (old or len(self._strange) > _MOST_STRANGE):
            self._strange = schema_ids.Numbers()
        settled = {n: found for n, found in findings.items() if not found.reason}
        if strange := [n for n, found in settled.items() if found.strange]:
            if not len(self._strange):
                self._strange_since = now
            self._strange.add(strange)
        if known := settled.keys() - set(strange):
            self._known.add(known)
        return {n: settled[n].target_id for n in known if n <= HIGHEST_ID}


class SchemaBarrier(KnownIds):
    """Which records of one slot may go on."""

    def __init__(self, flow: FlowConfig, inquiry: SchemaInquiry) -> None:
        """Takes over `inquiry`."""
        super().__init__()
        self._flow = flow
        self._inquiry = inquiry
        self._held: dict[TopicPartition, _Held] = {}
        self._looks: dict[str, bool] = {}
        self._ids = _no_ids() if flow.translates_ids else None

    @property
    def translates(self) -> bool:
        """Whether any record may get another id."""
        return self._ids is not None

    def looks_at(self, topic: str) -> bool:
        """Whether records of a topic may have to wait, or get another id."""
        if (found := self._looks.get(topic)) is None:
            found = self._looks[topic] = looks_at(self._flow, topic)
        return found

    def translate(self, topic: str, records: Buffer, *, count: int) -> int:
        """Give `count` records that were laid out for the target, and no others, the
        ids that it has; how many records have another id now.
        """
        if self._ids is None or not self.looks_at(topic):
            return 0
        return self._ids.replace(records, count)

    def hold(
        self, key: TopicPartition, position: Position, unknown: tuple[Unknown, ...]
    ) -> None:
        """The partition is not read until these are settled."""
        for each in unknown:
            self._inquiry.open(*each)
        self._held[key] = _Held(
            position=position,
            unknown={each.number: each for each in unknown},
            since=time.monotonic(),
        )

    def begin(self, generation: str) -> None:
        """The slot has taken over, in the run of this generation: forget what is held.
        What is being asked about is not asked twice.
        """
        self._held.clear()
        self._inquiry.begin(generation)

    @property
    def pending(self) -> bool:
        """Whether any partition waits for an answer."""
        return bool(self._held)

    def verdicts(self) -> list[Verdict]:
        """What has been found out since the last call; never waits."""
        now = time.monotonic()
        findings = self._inquiry.findings()
        ids = self.settled(findings)
        if self._ids is not None and ids:
            self._ids = self._ids.with_more(ids)
        made = []
        for key, held in list(self._held.items()):
            answered = held.unknown.keys() & findings.keys()
            reason = next(filter(None, (findings[n].reason for n in answered)), "")
            for number in answered:
                del held.unknown[number]
            left = held.unknown
            if not reason and left and now - held.since > _PATIENCE_SECONDS:
                reason = (
                    f"{WAITS}{left[min(left)].shown} may not be on "
                    f"{self._flow.target}: no answer about it for "
                    f"{_PATIENCE_SECONDS:g} s"
                )
            if reason or not left:
                del self._held[key]
                made.append(
                    Verdict(
                        key=key, reason=reason, stays=None if reason else held.position
                    )
                )
        return made

    def close(self) -> None:
        self._inquiry.close()


def barrier_of(plan: LeasePlan, client: str) -> SchemaBarrier:
    """The barrier of a slot. `client`: how it calls itself to the target."""
    return SchemaBarrier(plan.flow, SchemaInquiry(plan, client))


def looks_at(flow: FlowConfig, topic: str) -> bool:
    """Whether a flow looks for ids of schemas in the records of a topic."""
    # Heartbeats begin with a zero, and are not a registry's.
    return not flow.is_heartbeats(topic) and flow.needs_schemas(topic)


def _no_ids() -> IdMap:
    # Other flows need not wait for two more compiled loops.
    from mirror.records.schema_id_translation import IdMap  # noqa: PLC0415

    return IdMap.of({})


def _guid(source: Buffer, at: int) -> bytes:
    return b"" if at < 0 else source[at : at + schema_ids.GUID_SIZE].tobytes()


# ---- asks the registries about ids of schemas while the slot keeps copying ----
#
# Main type: `SchemaInquiry`. It settles all ids that came up since it last asked
# (`schemas.ids`). It writes to the target's registry only for the run that the target
# names as the one that may write: a switch that has fenced it may have opened that
# registry to applications.


class SchemaInquiry:
    """Settles the ids that the records of one slot have."""

    def __init__(self, plan: LeasePlan, client: str) -> None:
        self._plan = plan
        self._target = Cluster(plan.target, client_id=client, cluster_id=plan.target_id)
        self._waiting: dict[int, bytes] = {}
        self._asked: set[int] = set()
        self._background = BackgroundQuery("schemas", self._ask, self._target.close)
        self._generation = ""
        rate = plan.flow.schemas_requests_per_second
        self._paces = (RequestPace(rate), RequestPace(rate))
        """Of the source's registry and the target's."""

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
            found = dict(self._background.answers())
        except Exception:
            self._asked.clear()
            raise
        self._asked -= found.keys()
        if self._waiting and not self._background.asks:
            waiting, self._waiting = self._waiting, {}
            self._asked = set(waiting)
            self._background.start(waiting)
        return found

    def close(self) -> None:
        """Close the connections, at once or when the last round ends."""
        self._waiting.clear()
        self._background.close()

    def _ask(self, waiting: dict[int, bytes]) -> Iterator[tuple[int, SettledId]]:
        flow = self._plan.flow
        known = ProgressReader(self._target, topic_name(flow.source))
        of_source, of_target = self._paces
        with (
            Registry(self._plan.source, pace=of_source) as source,
            Registry(self._plan.target, pace=of_target) as target,
        ):
            settler = IdSettler(
                flow=flow, source=source, target=target, cluster=self._connected,
                going_on=lambda: self._may_write(known),
            )  # fmt: skip
            for number, guid in waiting.items():
                if self._background.closing:
                    return
                yield number, settler.settle(number, guid)

    def _may_write(self, known: ProgressReader) -> bool:
        if self._background.closing:
            return False
        self._connected()
        return known.read(wait=False).generation == self._generation

    def _connected(self) -> Cluster:
        if not self._target.cluster_id:
            self._target.connect()
        return self._target
