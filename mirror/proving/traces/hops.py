"""What flows and clusters know about one record: answers for `tracing`.

Main type: `Hops`. Each flow's offset map says what it copied, in both directions; the
record's header confirms where it came from. A cluster that does not answer becomes a
row that says so. It changes nothing.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from mirror.batches import codecs
from mirror.errors import ClusterError
from mirror.offsets import record_places
from mirror.offsets.progress import NO_ID
from mirror.policy.selection import select_topics
from mirror.proving import excuses
from mirror.proving.traces import at_offset
from mirror.proving.traces.absence import absent
from mirror.proving.traces.at_offset import Held, OffsetHolds
from mirror.proving.traces.hop import meet
from mirror.proving.traces.tracing import How, Origins, RecordPlace, Row
from mirror.relay.provenance import HEADER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirror.clusters.reach import Reach
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.offsets.record_places import Pair
    from mirror.proving.traces.absence import Fault

_WRITTEN = {
    OffsetHolds.RECORD: How.ORIGIN,
    OffsetHolds.OPEN: How.ORIGIN,
    OffsetHolds.EXPIRED: How.EXPIRED,
    OffsetHolds.CLEANED: How.COMPACTED,
    OffsetHolds.DAMAGED: How.UNKNOWN,
}
"""What an offset to which no flow copied is; all others are no records."""

_LATE = "appended by mirror repair, behind records that follow it"


class Hops:
    """The clusters of a configuration, as far as they answer."""

    def __init__(
        self,
        config: MirrorConfig,
        reach: Reach,
        *,
        fault: Fault,
        tell: Callable[[str], None],
    ) -> None:
        """`tell` is called with what takes a while."""
        self._config = config
        self._reach = reach
        self._fault = fault
        self._tell = tell
        self._seen: dict[RecordPlace, Held | ClusterError] = {}

    def held(self, place: RecordPlace) -> Held:
        """What is at a place; looked at once.

        Raises:
            ClusterError: the cluster does not answer, or does not let us read it.
        """
        if place not in self._seen:
            flows = self._config.flows.values()
            most = max(
                [codecs.MOST_UNPACKED, *(flow.max_unpacked_bytes for flow in flows)]
            )
            try:
                self._seen[place] = at_offset.look(
                    self._reach(place.cluster), *place[1:], most_unpacked=most
                )
            except ClusterError as error:
                self._seen[place] = error
        found = self._seen[place]
        if isinstance(found, ClusterError):
            raise found
        return found

    def written(self, place: RecordPlace) -> Row:
        """See `TraceKnowledge`."""
        row = Row(**place._asdict(), how=How.UNKNOWN)
        try:
            held = self.held(place)
        except ClusterError as error:
            return replace(row, detail=str(error))
        how = _WRITTEN.get(held.what, How.NO_RECORD)
        if held.what is OffsetHolds.RECORD and held.values(HEADER):
            how = How.COPIED
        return replace(row, how=how, time=held.time, detail=held.detail)

    def origins(self, place: RecordPlace) -> Origins:
        """See `TraceKnowledge`."""
        try:
            held = self.held(place)
        except ClusterError:
            return Origins(())  # so says the row about it
        found: dict[RecordPlace, FlowConfig] = {}
        unknown: list[Row] = []
        for flow in self._config.flows.values():
            if flow.target != place.cluster:
                continue
            blank = Row(
                cluster=flow.source, topic="", partition=-1, flow=flow.name,
                how=How.UNKNOWN,
            )  # fmt: skip
            try:
                for each in self._origins(flow, place, held, blank):
                    if (origin := each.place) is None:
                        unknown.append(each)
                    else:
                        found[origin] = flow
            except ClusterError as error:
                unknown.append(replace(blank, detail=str(error)))
        via = held.values(HEADER)
        if len(found) > 1 and via:  # the header knows better than a map
            alias = via[-1].partition("/")[0]
            found = {p: f for p, f in found.items() if f.source == alias} or found
        if via and not found and not unknown:
            unknown.append(self._from_elsewhere(place, via[-1]))
        return Origins(list(found), unknown)

    def copies(self, place: RecordPlace) -> Iterator[Row]:
        """See `TraceKnowledge`."""
        for flow in self._config.flows.values():
            if flow.source != place.cluster:
                continue
            selected = select_topics(
                [place.topic], flow.topic_filter, flow.replication_policy, flow.target
            )
            row = Row(
                cluster=flow.target, topic="", partition=place.partition,
                flow=flow.name, how=How.MISSING,
            )  # fmt: skip
            for each in selected.rejected:
                yield replace(row, how=How.REFUSED, detail=each.reason)
            for mapping in selected.mappings:
                row = replace(row, topic=mapping.target_topic)
                try:
                    yield from self._made(flow, place, row)
                except ClusterError as error:
                    if flow.enabled:
                        yield replace(row, how=How.UNKNOWN, detail=str(error))

    def _origins(
        self, flow: FlowConfig, place: RecordPlace, held: Held, blank: Row
    ) -> Iterator[Row]:
        """Rows with the places of a record that a flow may have copied, or without."""
        if place.topic == flow.dead_letter_topic:
            stood = excuses.origin(dict(held.headers), flow.source)
            if stood is not None:
                (topic, partition), offset = stood
                yield replace(blank, topic=topic, partition=partition, offset=offset)
            return
        if not _may_write(flow, place.topic):
            return
        target = self._reach(flow.target)
        copy = target.topic(place.topic)
        if copy is None:
            return
        self._tell(f"reading the offset map of {flow.name}")
        known = record_places.read(flow, target, copy, place.partition, place.offset)
        for pair in known.pairs:
            row = replace(blank, topic=pair.topic, partition=place.partition)
            if self._is_gone(flow, pair):
                detail = f"at offset {pair.source} of a topic that was deleted since"
                yield replace(row, how=How.EXPIRED, detail=detail)
            else:
                yield replace(row, offset=pair.source)
        if not known.pairs and known.floor is not None and not held.values(HEADER):
            yield replace(
                blank, topic=known.floor.topic, partition=place.partition,
                how=How.EARLIER,
                detail="MirrorMaker 2 copied it: from where, the offset map does not "
                "know",
            )  # fmt: skip

    def _is_gone(self, flow: FlowConfig, pair: Pair) -> bool:
        """Whether the pair's source topic is deleted, as far as the source answers."""
        try:
            topic = self._reach(flow.source).topic(pair.topic)
        except ClusterError:
            return False
        return topic is None or (
            pair.topic_id not in (NO_ID, topic.topic_id) and topic.topic_id != NO_ID
        )

    def _from_elsewhere(self, place: RecordPlace, via: str) -> Row:
        """No map knows a copy that has our header."""
        alias = via.partition("/")[0]
        flow = self._config.flows.get(f"{alias}->{place.cluster}")
        detail = f"its {HEADER} names {via}"
        row = Row(cluster=alias, topic="", partition=-1, how=How.ELSEWHERE)
        if flow is None or not _may_write(flow, place.topic):
            detail = f"{detail}: no flow copies from there to this topic"
            return replace(row, detail=detail)
        return replace(
            row, how=How.UNKNOWN, flow=flow.name,
            detail=f"{detail}, but the offset map does not know this copy",
        )  # fmt: skip

    def _made(self, flow: FlowConfig, place: RecordPlace, row: Row) -> Iterator[Row]:
        """What a flow made of a record."""
        held: Held | None = None
        with contextlib.suppress(ClusterError):  # so says the row about the place
            held = self.held(place)
        hop = meet(self._config, self._reach, flow, row, place=place, held=held)
        self._tell(f"reading the offset map of {flow.name}")
        known = record_places.read(
            flow, hop.target, hop.copy, place.partition, place.offset,
            topic=place.topic, topic_id=hop.topic_id,
        )  # fmt: skip
        exact = False
        for number, pair in enumerate(known.pairs):
            there = RecordPlace(flow.target, row.topic, place.partition, pair.target)
            made = hop.copied(pair.target, self.held(there))
            if made.how is How.MISSING and any(
                later.late for later in known.pairs[number + 1 :]
            ):
                continue  # that is what the repair was for
            if made.how is How.EXACT:
                made = replace(made, how=How.REPEAT) if exact else made
                exact = True
            yield replace(made, detail=made.detail or _LATE) if pair.late else made
        if not known.pairs and flow.enabled:
            yield from absent(hop, known, self._fault)


def _may_write(flow: FlowConfig, topic: str) -> bool:
    """Whether a topic's name may be that of one of the flow's copies."""
    upstream = flow.replication_policy.upstream_topic(topic)
    return (
        upstream is not None and flow.replication_policy.target_topic(upstream) == topic
    )
