"""One flow, and one record of its source: what both clusters show of the two.

Main type: `Hop`; `meet` makes one. `copied` says which copies there are, and whether
they are right; why there is none is for `hops`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mirror.batches import alignment
from mirror.errors import ClusterError
from mirror.offsets import progress
from mirror.offsets.progress import NO_ID
from mirror.proving import explaining, findings
from mirror.proving.comparing import compare
from mirror.proving.copied_partition import CopiedPartition
from mirror.proving.explaining import NO_EXCUSES
from mirror.proving.of_flow import terms_of
from mirror.proving.packed_runs import PackedRuns
from mirror.proving.ranges import Range
from mirror.proving.runner import InProcess
from mirror.proving.scope import Scope
from mirror.proving.settling import Settling
from mirror.proving.traces.at_offset import Held, OffsetHolds
from mirror.proving.traces.tracing import How, RecordPlace, Row, Sameness

if TYPE_CHECKING:
    import uuid

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.reach import Reach
    from mirror.clusters.topics import Topic
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.offsets.progress import Position
    from mirror.proving.comparing import Compared
    from mirror.proving.sides import ProofTerms


_NO_OFFSETS = (1, 1)
"""Of a record without a copy: nothing is read there."""
_AT_PLACE = {
    OffsetHolds.EXPIRED: How.EXPIRED,
    OffsetHolds.CLEANED: How.COMPACTED,
    OffsetHolds.OPEN: How.BEHIND,
    OffsetHolds.DAMAGED: How.UNKNOWN,
}
"""What the copy is if no record is there any more; else it is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """A record and a flow that copies its topic."""

    flow: FlowConfig
    place: RecordPlace
    held: Held | None
    """What is at the place; None if its cluster does not say."""
    source: Cluster | None
    """None: it does not answer."""
    target: Cluster
    terms: ProofTerms | None
    """How to compare; None if the source does not answer."""
    copy: Topic | None
    """None: there is no such topic on the target."""
    topic_id: uuid.UUID
    """The source topic's; NO_ID if it is not known."""
    position: Position | None
    """How far the partition is copied; None: not begun."""
    row: Row
    """To be completed: cluster, topic, partition and flow."""

    @property
    def readable(self) -> bool:
        """Whether there is a record on the source, for everybody to read."""
        return self.held is not None and self.held.what is OffsetHolds.RECORD

    @property
    def reason(self) -> str:
        """Why there is no such record."""
        return "it does not answer" if self.held is None else self.held.detail

    def verdict(self, target: int | None) -> RecordVerdict:
        """On the record and its copy at this offset; None: on the record alone."""
        if self.source is None or self.terms is None:
            return RecordVerdict(How.EXACT)
        first, end = _NO_OFFSETS if target is None else (target, target + 1)
        of = CopiedPartition(
            topic=self.place.topic, partition=self.place.partition,
            target_topic=self.row.topic, topic_id=self.topic_id,
            copy_id=NO_ID if self.copy is None else self.copy.topic_id,
            source_first=self.place.offset, source_end=self.place.offset + 1,
            target_first=first, target_end=end,
        )  # fmt: skip
        return judge(self.terms, of, self.source, self.target)

    def copied(self, target: int, there: Held) -> Row:
        """The row of a copy that the offset map names; `there` is what is at its place.

        Raises:
            ClusterError: a cluster does not answer.
        """
        row = replace(self.row, offset=target, how=How.EXACT, time=there.time)
        if there.what is OffsetHolds.RECORD and not self.readable:
            return replace(row, detail=f"not compared with the source: {self.reason}")
        # Only the source's record has the key that a later one may have replaced.
        if there.what is OffsetHolds.RECORD or (
            self.readable and there.what in (OffsetHolds.CLEANED, OffsetHolds.NOTHING)
        ):
            how, sameness, detail = self.verdict(target)
            return replace(row, how=how, sameness=sameness, detail=detail)
        how = _AT_PLACE.get(there.what, How.MISSING)
        return replace(row, how=how, detail=there.detail)


def meet(
    config: MirrorConfig, reach: Reach, flow: FlowConfig, row: Row, *,
    place: RecordPlace, held: Held | None,
) -> Hop:  # fmt: skip
    """Look at what a flow has of the record at a place.

    Raises:
        ClusterError: the target does not answer, or does not let us read.
    """
    target = reach(flow.target)
    copy = target.topic(row.topic)
    # As in a survey: the copy, then progress; then the map has all that both name.
    name = progress.topic_name(flow.source)
    position = None
    if target.topic(name) is not None:
        found = progress.read(target, name).positions
        position = found.get((place.topic, place.partition))
    source, terms, topic_id = None, None, NO_ID
    try:
        source = reach(flow.source)
        terms = terms_of(config, flow, source, target, Scope())
        if (topic := source.topic(place.topic)) is not None:
            topic_id = topic.topic_id
    except ClusterError:
        source = terms = None  # so says the row of the record at its source
    if position is not None:
        topic_id = position.topic_id if topic_id == NO_ID else topic_id
        if position.topic_id not in (NO_ID, topic_id):
            position = None  # of a deleted topic with this name
    return Hop(
        flow=flow, place=place, held=held, source=source, target=target, terms=terms,
        copy=copy, topic_id=topic_id, position=position, row=row,
    )  # fmt: skip


# ---- judges one record and its copy, by the rules for whole logs ----
#
# Main function: `judge`. It compares as a task of `mirror verify` does, and settles
# what is open in the same way; main type: `RecordVerdict`.


_AND_YET = "the flow would not copy the record, and yet here is a copy"


class RecordVerdict(NamedTuple):
    """What is to be said about one record and its copy."""

    how: How
    sameness: Sameness = Sameness.UNSEEN
    detail: str = ""


def judge(
    terms: ProofTerms, of: CopiedPartition, source: Cluster, target: Cluster
) -> RecordVerdict:
    """Judge the record at `of.source_first` and its copy at `of.target_first`; if `of`
    has no offsets on the target, the record alone, which has no copy.

    Raises:
        ClusterError: a cluster does not answer.
    """
    copied = of.target_end > of.target_first
    pair = [[of.source_first, of.target_first, 1]] if copied else []
    work = Range(
        of=of, source_first=of.source_first, source_end=of.source_end,
        target_first=of.target_first, target_end=of.target_end,
        packed=PackedRuns.of(np.array(pair, np.int64).reshape(-1, 3)),
    )  # fmt: skip
    compared = compare(terms, work)
    if compared.equal:
        return RecordVerdict(How.EXACT, _sameness(terms, work))
    if compared.failure:
        return RecordVerdict(How.UNKNOWN, detail=compared.failure)
    if copied and (compared.removed or compared.looped):
        return RecordVerdict(How.EXACT, Sameness.DIFFERENT, _AND_YET)
    if compared.removed:
        return RecordVerdict(How.REMOVED, detail="the flow's function leaves it out")
    if compared.looped:
        detail = "its key has its home elsewhere, and the flow leaves such records out"
        return RecordVerdict(How.FILTERED, detail=detail)
    return _unequal(terms, compared, source, target)


def _sameness(terms: ProofTerms, work: Range) -> Sameness:
    """Whether a right copy is the record itself, or what a function made of it."""
    if terms.transform is not None:
        plain = compare(replace(terms, transform=None), work)
        return Sameness.SAME if plain.equal else Sameness.TRANSFORMED
    return Sameness.SAME


def _unequal(
    terms: ProofTerms, compared: Compared, source: Cluster, target: Cluster
) -> RecordVerdict:
    of = compared.range.of
    sorted_out = explaining.sorted_out(compared, NO_EXCUSES)
    if sorted_out.account.expired:
        detail = f"the log begins at offset {compared.target_start}"
        return RecordVerdict(How.EXPIRED, detail=detail)
    rows = sorted_out.open
    if sorted_out.findings:  # damage
        return RecordVerdict(How.UNKNOWN, detail=sorted_out.findings[0].detail)
    if (rows[:, alignment.WHAT] == alignment.ONLY_SOURCE).any():
        settling = Settling(terms, source, target, InProcess(), [of])
        settled = settling.explain(of, rows, timed=compared.own_times, stamped_from=0)
        if settled.account.compacted:
            detail = "the copy has a later record of the key, or the key was deleted"
            return RecordVerdict(How.COMPACTED, detail=detail)
        return RecordVerdict(How.MISSING, detail=settled.findings[0].detail)
    unequal = rows[rows[:, alignment.WHAT] == alignment.UNEQUAL]
    if not len(unequal):  # the source lost it meanwhile
        return RecordVerdict(How.EXACT)
    if explaining.without_stamp(unequal).all():  # as what was adopted
        same = terms.transform is None
        sameness = Sameness.SAME if same else Sameness.TRANSFORMED
        return RecordVerdict(How.EXACT, sameness, "without mirror.via")
    # Whether it is another record's copy, only the whole log could tell.
    (found,) = findings.findings(of, unequal, findings.paired(unequal), {})
    return RecordVerdict(How.EXACT, Sameness.DIFFERENT, found.detail)
