"""Why a flow has no copy of a record, for a record that its offset map does not know.

Main function: `absent`. The record's own headers say it, or progress, pauses, the
running service, the loss ledger, the dead-letter topic, the flow's function; if none of
them does, the record is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from mirror.proving import excuses
from mirror.proving.traces.at_offset import OffsetHolds
from mirror.proving.traces.tracing import How
from mirror.recovery import losses
from mirror.recovery.pauses import PausesReader
from mirror.relay.provenance import HEADER
from mirror.status.wording import count, moment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.offsets.record_places import Pairs
    from mirror.proving.traces.hop import Hop
    from mirror.proving.traces.tracing import Row

Fault = Callable[[str, str, int], str]
"""Says why a flow has set aside a partition of a topic; empty if it has not, or that is
not known."""
_NO_RECORDS = frozenset(
    {OffsetHolds.MARKER, OffsetHolds.CLEANED, OffsetHolds.NOTHING, OffsetHolds.END}
)


def absent(hop: Hop, known: Pairs, fault: Fault) -> Iterator[Row]:
    """One row with the reason, or none if there is no record to be copied.

    `known`: what the map says. `fault`: asked if it is not copied yet.

    Raises:
        ClusterError: a cluster does not answer, or does not let us read.
    """
    flow, offset, held = hop.flow, hop.place.offset, hop.held
    if held is not None and (
        held.what in _NO_RECORDS
        or (
            held.what is OffsetHolds.ABORTED
            and flow.isolation_level == "read_committed"
        )
    ):
        return
    row = replace(hop.row, how=How.UNKNOWN)
    if (via := _looped(hop)) is not None:
        yield replace(row, how=How.FILTERED, detail=f"its {HEADER} names {via}")
    elif hop.position is None or offset >= hop.position.offset:
        yield _behind(hop, fault)
    elif (why := _in_ledger(hop)) is not None:
        yield replace(row, how=How.LOST, detail=why)
    elif (letter := _dead_letter(hop)) is not None:
        yield letter
    elif known.floor is not None:
        detail = f"MirrorMaker 2 copied it, to offset {known.floor.target} or after it"
        yield replace(row, how=How.EARLIER, detail=detail)
    elif known.deleted or 0 <= known.first <= offset or known.whole:
        yield _unexplained(hop, known)
    else:
        yield replace(row, detail="the offset map does not go back so far any more")


def _unexplained(hop: Hop, known: Pairs) -> Row:
    """The flow passed the record, and nothing is noted about it."""
    flow = hop.flow
    if known.deleted:
        detail = "it was in a copy that was deleted, or that has another name now"
        if hop.readable:
            return replace(hop.row, how=How.MISSING, detail=detail)
        detail += f"; on the source: {hop.reason}"
        return replace(hop.row, how=How.UNKNOWN, detail=detail)
    began_later = known.first < 0 or hop.place.offset < known.first
    if flow.start != "earliest" and began_later:
        detail = f"the flow began later (start: {flow.start})"
        return replace(hop.row, how=How.BEFORE, detail=detail)
    if hop.held is not None and hop.held.what is OffsetHolds.EXPIRED and began_later:
        detail = f"older than all that the flow copied; on the source {hop.reason}"
        return replace(hop.row, how=How.BEFORE, detail=detail)
    if not hop.readable:
        detail = f"no copy is known, and the source cannot say why: {hop.reason}"
        return replace(hop.row, how=How.UNKNOWN, detail=detail)
    if flow.transform is not None or flow.homes:
        how, _, detail = hop.verdict(None)
        return replace(hop.row, how=how, detail=detail)
    detail = "no ledger entry, dead letter or compaction explains it"
    if hop.copy is None:
        detail = f"there is no topic {hop.row.topic}"
    return replace(hop.row, how=How.MISSING, detail=detail)


def _looped(hop: Hop) -> str | None:
    """The id in the record's headers for which the flow leaves it out."""
    if hop.held is None or not hop.flow.provenance:
        return None
    target = f"/{hop.target.cluster_id}"
    named = (via for via in hop.held.values(HEADER) if via.endswith(target))
    return next(named, None)


def _behind(hop: Hop, fault: Fault) -> Row:
    """Not copied yet."""
    place, position = hop.place, hop.position
    far = "nothing of the partition is copied yet"
    if position is not None:
        left = place.offset - position.offset
        behind = f", {count(left)} offsets before it" if left else ": it is the next"
        far = f"copied up to offset {position.offset}{behind}"
    if hop.held is not None and hop.held.what is OffsetHolds.OPEN:
        far += f"; on the source {hop.held.detail}"
    row = replace(hop.row, how=How.BEHIND, detail=far)
    since = PausesReader(hop.target, hop.flow).read().since(place.topic)
    if since:
        detail = f"since {moment(since)}; {far}"
        return replace(row, how=How.PAUSED, detail=detail)
    if reason := fault(hop.flow.name, place.topic, place.partition):
        return replace(row, how=How.FAULTED, detail=f"{reason}; {far}")
    return row


def _in_ledger(hop: Hop) -> str | None:
    """What the loss ledger says about the record."""
    place = hop.place
    for loss in losses.read(hop.target, hop.flow.source):
        if (
            (loss.flow, loss.topic, loss.partition)
            == (hop.flow.name, place.topic, place.partition)
            and loss.first <= place.offset
            and (loss.last is None or place.offset <= loss.last)
            and loss.is_of(hop.topic_id.hex)
        ):
            return f"{loss.cause}, found {moment(loss.at)}: {loss.span}"
    return None


def _dead_letter(hop: Hop) -> Row | None:
    """The row of the record in the dead-letter topic."""
    flow, place = hop.flow, hop.place
    if flow.transform is None or flow.dead_letter_topic is None:
        return None
    topic = flow.dead_letter_topic
    for each in excuses.dead_letters(hop.target, topic, flow.source):
        if (each.key, each.offset) == ((place.topic, place.partition), place.offset):
            return replace(
                hop.row, topic=topic, partition=each.partition, offset=each.at,
                time=-1 if hop.held is None else hop.held.time, how=How.DEAD_LETTER,
                detail="the flow's function failed on it",
            )  # fmt: skip
    return None
