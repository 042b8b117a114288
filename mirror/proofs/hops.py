"""What flows and clusters know about one record: answers for `tracing`.

Main type: `Hops`. Each flow's offset map says what it copied, in both directions; the
record's header confirms where it came from. A cluster that does not answer becomes a
row that says so. It changes nothing. `find_by_key` finds a record to begin with.
"""

from __future__ import annotations

from collections.abc import Callable
import contextlib
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from mirror.clusters.admin import configs, topic_admin
from mirror.clusters.wire import fetch
from mirror.copying.provenance import HEADER
from mirror.errors import ClusterError, CorruptBatchError, NoLeaderError
from mirror.offsets import progress, runs
from mirror.offsets.progress import NO_ID
from mirror.pairs import losses
from mirror.pairs.control import PausesReader
from mirror.policy.selection import select_topics
from mirror.proofs import explaining, survey
from mirror.proofs.account import CopiedPartition, Scope
from mirror.proofs.comparing import compare
from mirror.proofs.explaining import ALL_COPIED, Settling
from mirror.proofs.log_stream import LogStream, OffsetRange
from mirror.proofs.ranges import whole_range
from mirror.proofs.runners import InProcess
from mirror.proofs.tracing import How, Origins, RecordPlace, Row, Sameness
from mirror.proofs.verification import terms_of
from mirror.records import alignment, codecs, fillers, scan, to_columns
from mirror.records.batch import CONTROL
from mirror.records.listing import are_fillers, headers_of, listed
from mirror.records.reading import TopicReader
from mirror.status.wording import count, moment

if TYPE_CHECKING:
    from collections.abc import Iterator
    import uuid

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.reach import Reach
    from mirror.clusters.topics import Topic
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.offsets.progress import Position
    from mirror.offsets.runs import Pair, Pairs
    from mirror.proofs.comparing import Compared
    from mirror.proofs.sides import ProofTerms
    from mirror.records.batch import Rows
    from mirror.records.listing import Listed


_LATE = "appended by mirror repair, behind records that follow it"
_NO_OFFSETS = (1, 1)
"""Of a record without a copy: nothing is read there."""
_AND_YET = "the flow would not copy the record, and yet here is a copy"
_FETCH_BYTES = 64 << 10
Fault = Callable[[str, str, int], str]
"""Says why a flow has set aside a partition of a topic; empty if it has not, or that is
not known."""


# ---- what one offset of a log holds: a record, or why there is none ----


class OffsetKind(Enum):
    """What is at an offset."""

    RECORD = auto()
    """A record that everybody can read."""
    EXPIRED = auto()
    """The log begins after it."""
    END = auto()
    """The log ends before it."""
    OPEN = auto()
    """A transaction is open there, or was opened before and is still open."""
    ABORTED = auto()
    """A record of a transaction that was aborted."""
    MARKER = auto()
    """The end of a transaction."""
    CLEANED = auto()
    """Nothing: the log cleaner removed what was there."""
    NOTHING = auto()
    """Nothing, for no reason that shows."""
    DAMAGED = auto()
    """It cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetContent:
    """What an offset holds."""

    what: OffsetKind
    time: int = -1
    """The record's, epoch ms."""
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    detail: str = ""
    """Why there is no record, in words; empty if there is one."""

    def values(self, header: str) -> tuple[str, ...]:
        """The values of a header, in order."""
        name = header.encode()
        return tuple(
            (value or b"").decode(errors="replace")
            for key, value in self.headers
            if key == name
        )


def read_offset(
    cluster: Cluster,
    topic: str,
    partition: int,
    offset: int,
    *,
    most_unpacked: int = codecs.MOST_UNPACKED,
) -> OffsetContent:
    """What is at an offset now.

    Raises:
        ClusterError: the cluster does not answer, or does not let us read it.
    """
    start, stable, end = _edges(cluster, topic, partition)
    if offset >= end:
        return OffsetContent(
            what=OffsetKind.END, detail=f"the log ends at offset {end}"
        )
    if offset < start:
        return OffsetContent(
            what=OffsetKind.EXPIRED, detail=f"the log begins at offset {start}"
        )
    if offset >= stable:
        return OffsetContent(
            what=OffsetKind.OPEN,
            detail=f"a transaction is open from offset {stable} on",
        )
    try:
        found, _ = _read(cluster, topic, partition, offset, most_unpacked)
        if found is not None:
            return found
        hidden, marker = _read(
            cluster, topic, partition, offset, most_unpacked, committed=False
        )
    except CorruptBatchError as error:
        return OffsetContent(what=OffsetKind.DAMAGED, detail=str(error))
    if hidden is not None:
        return OffsetContent(
            what=OffsetKind.ABORTED, detail="its transaction was aborted"
        )
    if marker:
        return OffsetContent(
            what=OffsetKind.MARKER, detail="the marker that ends a transaction"
        )
    described = configs.describe(cluster, [topic])[topic].configs
    if configs.is_compacted(described):
        return OffsetContent(
            what=OffsetKind.CLEANED, detail="the log cleaner removed what was there"
        )
    return OffsetContent(what=OffsetKind.NOTHING, detail="no record has this offset")


def _edges(cluster: Cluster, topic: str, partition: int) -> tuple[int, int, int]:
    """Where a log begins and ends now; in between the last stable offset, from which on
    transactions may be open.

    Raises:
        ClusterError: its leader does not answer.
    """
    key = (topic, partition)
    # The end first: it only grows.
    end, stable, start = (
        topic_admin.list_offsets(
            cluster, [key], timestamp=timestamp, committed=committed
        ).get(key)
        for timestamp, committed in (
            (topic_admin.LATEST, False),
            (topic_admin.LATEST, True),
            (topic_admin.EARLIEST, True),
        )
    )
    if end is None or stable is None or start is None:
        raise NoLeaderError(
            f"cluster {cluster.alias}: {topic}-{partition} has no leader that answers"
        )
    return start, stable, end


def _read(
    cluster: Cluster,
    topic: str,
    partition: int,
    offset: int,
    most_unpacked: int,
    *,
    committed: bool = True,
) -> tuple[OffsetContent | None, bool]:
    """The record at an offset, and whether a transaction's marker is there."""
    reader = TopicReader(
        cluster, topic, partition=partition, position=offset, committed=committed,
        fetch_bytes=_FETCH_BYTES,
    )  # fmt: skip
    marker = False
    end = offset + 1
    for buffer, found in reader.seen(end):
        rows = found.rows[found.rows[:, scan.BASE] < end]
        for part in listed(buffer, rows, offset, end, most_unpacked=most_unpacked):
            fills = are_fillers(part.buffer, part.places, fillers.NAMED)
            for place in part.places[~fills]:
                time = int(place[to_columns.TIME])
                headers = tuple(headers_of(part.buffer, place))
                return OffsetContent(
                    what=OffsetKind.RECORD, time=time, headers=headers
                ), False
        if found.seen is not None:
            covers = (found.seen[:, scan.BASE] <= offset) & (
                found.seen[:, scan.LAST] >= offset
            )
            control = (found.seen[:, scan.ATTRIBUTES] & CONTROL) != 0
            marker |= bool((covers & control).any())
    return None, marker


# ---- the answers ----


_WRITTEN = {
    OffsetKind.RECORD: How.ORIGIN,
    OffsetKind.OPEN: How.ORIGIN,
    OffsetKind.EXPIRED: How.EXPIRED,
    OffsetKind.CLEANED: How.COMPACTED,
    OffsetKind.DAMAGED: How.UNKNOWN,
}
"""What an offset to which no flow copied is; all others are no records."""


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
        self._seen: dict[RecordPlace, OffsetContent | ClusterError] = {}

    def content(self, place: RecordPlace) -> OffsetContent:
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
                self._seen[place] = read_offset(
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
            content = self.content(place)
        except ClusterError as error:
            return row.says(How.UNKNOWN, str(error))
        how = _WRITTEN.get(content.what, How.NO_RECORD)
        if content.what is OffsetKind.RECORD and content.values(HEADER):
            how = How.COPIED
        return replace(row, how=how, time=content.time, detail=content.detail)

    def origins(self, place: RecordPlace) -> Origins:
        """See `TraceKnowledge`."""
        try:
            content = self.content(place)
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
                for each in self._origins(flow, place, content, blank):
                    if (origin := each.place) is None:
                        unknown.append(each)
                    else:
                        found[origin] = flow
            except ClusterError as error:
                unknown.append(blank.says(How.UNKNOWN, str(error)))
        via = content.values(HEADER)
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
                yield row.says(How.REFUSED, each.reason)
            for mapping in selected.mappings:
                row = replace(row, topic=mapping.target_topic)
                try:
                    yield from self._made(flow, place, row)
                except ClusterError as error:
                    if flow.enabled:
                        yield row.says(How.UNKNOWN, str(error))

    def _origins(
        self, flow: FlowConfig, place: RecordPlace, content: OffsetContent, blank: Row
    ) -> Iterator[Row]:
        """Rows with the places of a record that a flow may have copied, or without."""
        if place.topic == flow.dead_letter_topic:
            stood = survey.origin(dict(content.headers), flow.source)
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
        known = runs.find_pairs(flow, target, copy, place.partition, place.offset)
        for pair in known.pairs:
            row = replace(blank, topic=pair.topic, partition=place.partition)
            if self._is_gone(flow, pair):
                detail = f"at offset {pair.source} of a topic that was deleted since"
                yield row.says(How.EXPIRED, detail)
            else:
                yield replace(row, offset=pair.source)
        if not known.pairs and known.floor is not None and not content.values(HEADER):
            row = replace(blank, topic=known.floor.topic, partition=place.partition)
            detail = "MirrorMaker 2 copied it: from where, the offset map does not know"
            yield row.says(How.EARLIER, detail)

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
            detail += ": no flow copies from there to this topic"
            return row.says(How.ELSEWHERE, detail)
        detail += ", but the offset map does not know this copy"
        return replace(row, flow=flow.name).says(How.UNKNOWN, detail)

    def _made(self, flow: FlowConfig, place: RecordPlace, row: Row) -> Iterator[Row]:
        """What a flow made of a record."""
        content: OffsetContent | None = None
        with contextlib.suppress(ClusterError):  # so says the row about the place
            content = self.content(place)
        hop = hop_of(self._config, self._reach, flow, row, place=place, content=content)
        self._tell(f"reading the offset map of {flow.name}")
        known = runs.find_pairs(
            flow, hop.target, hop.copy, place.partition, place.offset,
            topic=place.topic, topic_id=hop.topic_id,
        )  # fmt: skip
        exact = False
        for number, pair in enumerate(known.pairs):
            there = RecordPlace(flow.target, row.topic, place.partition, pair.target)
            made = hop.copied(pair.target, self.content(there))
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


# ---- why a flow has no copy of a record ----
#
# The record's own headers say it, or progress, pauses, the running service, the loss
# ledger, the dead-letter topic, the flow's function; if none of them does, the record
# is missing.


_NO_RECORDS = frozenset(
    {OffsetKind.MARKER, OffsetKind.CLEANED, OffsetKind.NOTHING, OffsetKind.END}
)


def absent(hop: Hop, known: Pairs, fault: Fault) -> Iterator[Row]:
    """One row with the reason, or none if there is no record to be copied.

    `known`: what the map says. `fault`: asked if it is not copied yet.

    Raises:
        ClusterError: a cluster does not answer, or does not let us read.
    """
    flow, offset, content = hop.flow, hop.place.offset, hop.content
    if content is not None and (
        content.what in _NO_RECORDS
        or (
            content.what is OffsetKind.ABORTED
            and flow.isolation_level == "read_committed"
        )
    ):
        return
    row = hop.row
    if (via := _looped(hop)) is not None:
        yield row.says(How.FILTERED, f"its {HEADER} names {via}")
    elif hop.position is None or offset >= hop.position.offset:
        yield _behind(hop, fault)
    elif (why := _in_ledger(hop)) is not None:
        yield row.says(How.LOST, why)
    elif (letter := _dead_letter(hop)) is not None:
        yield letter
    elif known.floor is not None:
        detail = f"MirrorMaker 2 copied it, to offset {known.floor.target} or after it"
        yield row.says(How.EARLIER, detail)
    elif known.deleted or 0 <= known.first <= offset or known.whole:
        yield _unexplained(hop, known)
    else:
        detail = "the offset map does not go back so far any more"
        yield row.says(How.UNKNOWN, detail)


def _unexplained(hop: Hop, known: Pairs) -> Row:
    """The flow passed the record, and nothing is noted about it."""
    flow = hop.flow
    if known.deleted:
        detail = "it was in a copy that was deleted, or that has another name now"
        if hop.readable:
            return hop.row.says(How.MISSING, detail)
        return hop.row.says(How.UNKNOWN, f"{detail}; on the source: {hop.reason}")
    began_later = known.first < 0 or hop.place.offset < known.first
    if flow.start != "earliest" and began_later:
        return hop.row.says(How.BEFORE, f"the flow began later (start: {flow.start})")
    if (
        hop.content is not None
        and hop.content.what is OffsetKind.EXPIRED
        and began_later
    ):
        detail = f"older than all that the flow copied; on the source {hop.reason}"
        return hop.row.says(How.BEFORE, detail)
    if not hop.readable:
        detail = f"no copy is known, and the source cannot say why: {hop.reason}"
        return hop.row.says(How.UNKNOWN, detail)
    if flow.transform is not None or flow.homes:
        return hop.judged(hop.row)
    detail = "no ledger entry, dead letter or compaction explains it"
    if hop.copy is None:
        detail = f"there is no topic {hop.row.topic}"
    return hop.row.says(How.MISSING, detail)


def _looped(hop: Hop) -> str | None:
    """The id in the record's headers for which the flow leaves it out."""
    if hop.content is None or not hop.flow.provenance:
        return None
    target = f"/{hop.target.cluster_id}"
    named = (via for via in hop.content.values(HEADER) if via.endswith(target))
    return next(named, None)


def _behind(hop: Hop, fault: Fault) -> Row:
    """Not copied yet."""
    place, position = hop.place, hop.position
    far = "nothing of the partition is copied yet"
    if position is not None:
        left = place.offset - position.offset
        behind = f", {count(left)} offsets before it" if left else ": it is the next"
        far = f"copied up to offset {position.offset}{behind}"
    if hop.content is not None and hop.content.what is OffsetKind.OPEN:
        far += f"; on the source {hop.content.detail}"
    since = PausesReader(hop.target, hop.flow).read().since(place.topic)
    if since:
        return hop.row.says(How.PAUSED, f"since {moment(since)}; {far}")
    if reason := fault(hop.flow.name, place.topic, place.partition):
        return hop.row.says(How.FAULTED, f"{reason}; {far}")
    return hop.row.says(How.BEHIND, far)


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
    for each in survey.dead_letters(hop.target, topic, flow.source):
        if (each.key, each.offset) == ((place.topic, place.partition), place.offset):
            return replace(
                hop.row, topic=topic, partition=each.partition, offset=each.at,
                time=-1 if hop.content is None else hop.content.time,
                how=How.DEAD_LETTER, detail="the flow's function failed on it",
            )  # fmt: skip
    return None


# ---- one flow, and one record of its source: what both clusters show of the two ----


_AT_PLACE = {
    OffsetKind.EXPIRED: How.EXPIRED,
    OffsetKind.CLEANED: How.COMPACTED,
    OffsetKind.OPEN: How.BEHIND,
    OffsetKind.DAMAGED: How.UNKNOWN,
}
"""What the copy is if no record is there any more; else it is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """A record and a flow that copies its topic."""

    flow: FlowConfig
    place: RecordPlace
    content: OffsetContent | None
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
        return self.content is not None and self.content.what is OffsetKind.RECORD

    @property
    def reason(self) -> str:
        """Why there is no such record."""
        return "it does not answer" if self.content is None else self.content.detail

    def judged(self, row: Row) -> Row:
        """The row, by the record and its copy at the row's offset, if that has one."""
        if self.source is None or self.terms is None:
            return row.says(How.EXACT)
        first, end = _NO_OFFSETS if row.offset < 0 else (row.offset, row.offset + 1)
        of = CopiedPartition(
            topic=self.place.topic, partition=self.place.partition,
            target_topic=self.row.topic, topic_id=self.topic_id,
            copy_id=NO_ID if self.copy is None else self.copy.topic_id,
            source_first=self.place.offset, source_end=self.place.offset + 1,
            target_first=first, target_end=end,
        )  # fmt: skip
        return judge(row, self.terms, of, self.source, self.target)

    def copied(self, target: int, there: OffsetContent) -> Row:
        """The row of a copy that the offset map names; `there` is what is at its place.

        Raises:
            ClusterError: a cluster does not answer.
        """
        row = replace(self.row, offset=target, time=there.time)
        if there.what is OffsetKind.RECORD and not self.readable:
            detail = f"not compared with the source: {self.reason}"
            return row.says(How.EXACT, detail)
        # Only the source's record has the key that a later one may have replaced.
        if there.what is OffsetKind.RECORD or (
            self.readable and there.what in (OffsetKind.CLEANED, OffsetKind.NOTHING)
        ):
            return self.judged(row)
        return row.says(_AT_PLACE.get(there.what, How.MISSING), there.detail)


def hop_of(
    config: MirrorConfig, reach: Reach, flow: FlowConfig, row: Row, *,
    place: RecordPlace, content: OffsetContent | None,
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
        flow=flow, place=place, content=content, source=source, target=target,
        terms=terms, copy=copy, topic_id=topic_id, position=position, row=row,
    )  # fmt: skip


# ---- one record and its copy, by the rules for whole logs ----
#
# They are compared as in a task of `mirror verify`, and what is open is settled in the
# same way.


def judge(
    row: Row, terms: ProofTerms, of: CopiedPartition, source: Cluster, target: Cluster
) -> Row:
    """Say in the row what is to be said of the record at `of.source_first` and its copy
    at `of.target_first`; if `of` has no offsets on the target, of the record alone,
    which has no copy.

    Raises:
        ClusterError: a cluster does not answer.
    """
    copied = of.target_end > of.target_first
    pair = [[of.source_first, of.target_first, 1]] if copied else []
    work = whole_range(of, np.array(pair, np.int64).reshape(-1, 3))
    compared = compare(terms, work)
    account = compared.account
    transform = terms.flow.transform
    same = Sameness.SAME if transform is None else Sameness.TRANSFORMED
    if account.equal:
        if transform is not None:  # the record itself?
            flow = terms.flow.model_copy(update={"transform": None})
            plain = compare(replace(terms, flow=flow), work)
            same = Sameness.SAME if plain.account.equal else same
        return row.says(How.EXACT, sameness=same)
    if compared.failure:
        return row.says(How.UNKNOWN, compared.failure)
    if copied and (account.removed or account.filtered):
        return row.says(How.EXACT, _AND_YET, Sameness.DIFFERENT)
    if account.removed:
        return row.says(How.REMOVED, "the flow's function leaves it out")
    if account.filtered:
        detail = "its key has its home elsewhere, and the flow leaves such records out"
        return row.says(How.FILTERED, detail)
    settling = partial(Settling, terms, source, target, InProcess(), [of])
    return _of_unequal(row, compared, same, settling)


def _of_unequal(
    row: Row, compared: Compared, same: Sameness, settling: Callable[[], Settling]
) -> Row:
    of = compared.range.of
    sorted_out = explaining.sorted_out(compared, ALL_COPIED)
    if sorted_out.account.expired:
        detail = f"the log begins at offset {compared.target_start}"
        return row.says(How.EXPIRED, detail)
    if sorted_out.findings:  # damage
        return row.says(How.UNKNOWN, sorted_out.findings[0].detail)
    odd = sorted_out.open
    if (odd[:, alignment.WHAT] == alignment.ONLY_SOURCE).any():
        settled = settling().explain(of, odd, timed=compared.own_times, stamped_from=0)
        if settled.account.compacted:
            detail = "the copy has a later record of the key, or the key was deleted"
            return row.says(How.COMPACTED, detail)
        return row.says(How.MISSING, settled.findings[0].detail)
    unequal = odd[odd[:, alignment.WHAT] == alignment.UNEQUAL]
    if not len(unequal):  # the source lost it meanwhile
        return row.says(How.EXACT)
    if explaining.without_stamp(unequal).all():  # as what was adopted
        return row.says(How.EXACT, "without mirror.via", same)
    # Whether it is another record's copy, only the whole log could tell.
    (found,) = explaining.findings(of, unequal, lambda _: {})
    return row.says(How.EXACT, found.detail, Sameness.DIFFERENT)


# ---- a record by its key and time ----


def find_by_key(
    cluster: Cluster, topic: Topic, key: bytes, time: int, tell: Callable[[str], None]
) -> RecordPlace | None:
    """The first committed record with this key at `time` (epoch ms,
    `topic_admin.EARLIEST` for any) or after it; None if there is none.

    `tell` is called with what is being read.

    Raises:
        ClusterError: a partition cannot be read.
    """
    name = topic.name
    keys = [(name, partition) for partition in topic.leaders]
    firsts = topic_admin.list_offsets(cluster, keys, timestamp=time)
    ends = topic_admin.list_offsets(cluster, keys, timestamp=topic_admin.LATEST)
    best: tuple[int, RecordPlace] | None = None
    for where in keys:
        if where not in firsts or where not in ends:
            raise NoLeaderError(
                f"{cluster.alias}: no leader answers for {name}-{where[1]}, which may "
                "have the key"
            )
        first, end = firsts[where], ends[where]
        if first < 0:
            continue  # no record is so new
        if best is not None:  # later records cannot be first
            until = topic_admin.list_offsets(cluster, [where], timestamp=best[0])
            end = min(end, until[where]) if until.get(where, -1) >= 0 else end
        tell(f"reading {name}-{where[1]} from offset {first} on")
        wanted = OffsetRange(
            topic=name, partition=where[1], topic_id=topic.topic_id,
            first=first, end=end,
        )  # fmt: skip
        stream = LogStream(cluster, wanted, isolation=fetch.READ_COMMITTED)
        for part in stream.listed():
            rows = _with(part, key, time)
            if len(rows):
                at, offset = rows[0, [to_columns.TIME, to_columns.OFFSET]].tolist()
                if best is None or at < best[0]:
                    best = at, RecordPlace(cluster.alias, name, where[1], offset)
                break
    return None if best is None else best[1]


def _with(part: Listed, key: bytes, time: int) -> Rows:
    """The records with this key, from `time` on."""
    places = part.places
    rows = places[
        (places[:, to_columns.KEY_SIZE] == len(key))
        & (places[:, to_columns.TIME] >= time)
    ]
    at = rows[:, to_columns.KEY_AT, None] + np.arange(len(key))
    found: Rows = rows[(part.buffer[at] == np.frombuffer(key, np.uint8)).all(axis=1)]
    return found
