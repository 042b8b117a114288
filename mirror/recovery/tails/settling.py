"""Settles the tail of a flow: each record is replayed, exported or skipped, once.

Main function: `settle`, which carries out an `Order` for the records that a `Choice`
has `chosen`. It takes over the flow, surveys the tail while no one else can write, and
works in transactions of the flow's owner: the records, and what says that they are
settled (runs in the offset map, or entries of the loss ledger), are there together or
not at all. The last transaction of a partition also moves the flow's position to the
tail's end. Killed at any time and run again, it goes on behind the last transaction.

Clusters that the pair feeds may have records of a tail already (`clusters_fed`): before
a failover the flow out of the cluster that died may have been ahead of the flow to the
other one. A record that is replayed carries a header `mirror.via` for each cluster that
has it, so that the flow there leaves it out.

A record is replayed once the target's registry has its schema (`ReplayedSchemas`).
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from functools import partial
import re
import time
from typing import TYPE_CHECKING, Self

import numpy as np

from mirror.clusters.admin import topic_admin
from mirror.clusters.cluster import Cluster
from mirror.clusters.wire.produce import HEADER_SIZE
from mirror.clusters.wire.write import Write
from mirror.copying import dead_letters, provenance
from mirror.copying.schemas import KnownIds
from mirror.errors import FencedError, MirrorError
from mirror.offsets import progress, runs
from mirror.offsets.progress import Position
from mirror.offsets.runs import DOWNSTREAM, Block
from mirror.pairs import losses, risk
from mirror.pairs.losses import Cause, Loss
from mirror.proofs.explaining import NO_STAMP
from mirror.proofs.function_results import Results
from mirror.proofs.log_stream import LogStream, OffsetRange
from mirror.proofs.repair_appending import in_batches
from mirror.records import alignment, codecs, merge_loop, records, to_columns
from mirror.records.listing import listed
from mirror.recovery.schemas import open_copied
from mirror.recovery.tails import exporting
from mirror.recovery.tails.packing import Packer, ahead
from mirror.recovery.tails.survey import survey
from mirror.recovery.tails.tail import Choice, Offsets, Order, Tail, TailPartition, Way
from mirror.schemas.ids import IdSettler, SettledId
from mirror.schemas.registry.registry import Registry, RequestPace
from mirror.service import ownership
from mirror.service.ownership import Generation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    import uuid

    import numpy.typing as npt

    from mirror.clusters.topics import Topic, TopicPartition
    from mirror.clusters.transactions import Producer
    from mirror.clusters.wire.produce import EncodedBatch
    from mirror.clusters.wire.write import Placed
    from mirror.config.cluster_settings import ClusterConfig
    from mirror.config.pair_settings import PairConfig
    from mirror.config.schema import FlowConfig
    from mirror.copying.provenance import Bytes
    from mirror.offsets.progress import Progress
    from mirror.proofs.log_stream import Lister
    from mirror.proofs.sides import ProofTerms
    from mirror.records.batch import Buffer, Rows
    from mirror.recovery.tails.exporting import TailFile
    from mirror.recovery.tails.tail import Offsets, Tail, TailPartition


_PIECE_BYTES = 32 << 20
_PIECE_RECORDS = 1 << 18
_NOTHING = np.empty(0, np.uint8)
_LETTER = np.frombuffer(bytearray(f"{dead_letters.PREFIX}offset".encode()), np.uint8)


# ---- which records of a tail a command is about ----


def chosen(part: TailPartition, choice: Choice) -> npt.NDArray[np.bool_]:
    """Which of the partition's records are chosen."""
    if not re.fullmatch(choice.topic, part.topic) or choice.partition not in (
        None,
        part.partition,
    ):
        return np.zeros(part.records, np.bool_)
    taken = np.ones(part.records, np.bool_)
    if choice.key is not None:
        taken &= part.keys == key_mark(choice.key)
    if choice.since_ms is not None:
        taken &= part.times >= choice.since_ms
    if choice.until_ms is not None:
        taken &= part.times < choice.until_ms
    return taken


def key_mark(key: bytes) -> int:
    """The mark of a key, as `TailPartition.keys` has it."""
    place = np.zeros((1, to_columns.PLACE_COLUMNS), np.int64)
    place[0, to_columns.KEY_SIZE] = place[0, to_columns.END] = len(key)
    marks, keys = np.empty((2, 1), np.int64)
    buffer = np.frombuffer(bytearray(key), np.uint8)
    alignment.describe(buffer, place, NO_STAMP, 0, marks, keys)
    return int(keys[0])


def consecutive(offsets: Offsets) -> list[tuple[int, int]]:
    """Ascending offsets as ranges, each from its first to its last one."""
    cuts = np.flatnonzero(np.diff(offsets) != 1) + 1
    return [
        (int(part[0]), int(part[-1])) for part in np.split(offsets, cuts) if len(part)
    ]


# ---- each record is settled once ----


@dataclass(frozen=True, slots=True, kw_only=True)
class TailSettling:
    """What one command works with."""

    flow: FlowConfig
    terms: ProofTerms
    source: Cluster
    target: Cluster
    order: Order
    fed: Sequence[Fed] = ()
    """Clusters that may have records of the tail already."""
    file: TailFile | None = None
    """Where to export to; else the order's topic."""
    seen: Tail | None = None
    """What a survey has just found: only what is behind that is read."""
    pair: PairConfig | None = None
    clusters: Mapping[str, ClusterConfig] = field(default_factory=dict)
    """By alias. Both are for a replay by a flow that copies schemas."""

    @property
    def way(self) -> Way:
        return self.order.way


def settle(
    settling: TailSettling,
    *,
    show: Callable[[int], None] = lambda _: None,
    warn: Callable[[str], None] = lambda _: None,
) -> dict[TopicPartition, int]:
    """Settle the chosen records; returns how many, by partition. Where nothing is left
    of a partition, the position moves, whatever was chosen. `show` is called with how
    many were settled so far, `warn` with what is left to do for schemas.

    Raises:
        FencedError: another command or a run of the flow began meanwhile; what was
            settled before stays so, and the same command goes on.
        MirrorError: a record cannot be settled that way, or a cluster does not answer.
    """
    flow, source, target = settling.flow, settling.source, settling.target
    owner = ownership.take_over(flow, target)
    known = progress.read(target, progress.topic_name(flow.source))
    done: dict[TopicPartition, int] = {}
    found = survey(flow, source, target, seen=settling.seen).partitions
    with contextlib.ExitStack() as stack:
        schemas: ReplayedSchemas | None = None
        if settling.way is Way.REPLAY:
            _require_translated(settling, known, found)
            if flow.schemas != "off":
                schemas = ReplayedSchemas(settling, known.generation, warn)
                stack.enter_context(schemas)
        for part in found:
            for count in _settled(settling, owner, part, known, schemas):
                done[part.key] = done.get(part.key, 0) + count
                show(sum(done.values()))
    return done


def _settled(
    settling: TailSettling,
    owner: Producer,
    part: TailPartition,
    known: Progress,
    schemas: ReplayedSchemas | None,
) -> Iterator[int]:
    """Settle the chosen records of one partition; how many, after each transaction."""
    flow, target = settling.flow, settling.target
    behind = _behind(flow, part, known)
    if part.unmoved:
        _commit(target, owner, behind)
    taken = chosen(part, settling.order.choice)
    if not taken.any():
        return
    offsets = part.offsets[taken]
    cuts = cuts_of(settling.fed, part, offsets)
    pieces = list(_pieces(offsets, part.sizes[taken], cuts))
    copied_to = part.replayed_to
    with contextlib.closing(
        ahead(_packed(settling, part, offsets, pieces, schemas))
    ) as packed:
        for number, (piece, batches) in enumerate(packed):
            moved = behind if taken.all() and number == len(pieces) - 1 else {}
            _one(settling, owner, part, piece, moved, batches, copied_to=copied_to)
            copied_to = max(copied_to, int(piece[-1]) + 1)
            yield len(piece)


def _require_translated(
    settling: TailSettling, known: Progress, found: Sequence[TailPartition]
) -> None:
    """Refuse to replay into copies with the source's offsets: the marker that ends a
    transaction has an offset as well, and the other cluster could not give it to
    nothing.

    Raises:
        MirrorError: a chosen record belongs into one.
    """
    for part in found:
        note = known.terms.get(part.topic)
        if note is None or not chosen(part, settling.order.choice).any():
            continue
        if note.copy_id == _copy_of(settling.target, part).topic_id.hex:
            raise MirrorError(
                f"{settling.flow.name}: nothing of {part.topic} can be replayed: "
                "both clusters have the same offsets (offsets: same), and a replay "
                "would leave markers of transactions between records; `mirror tail "
                "export` it, and let applications write it again, or `mirror tail skip`"
            )


def _behind(
    flow: FlowConfig, part: TailPartition, known: Progress
) -> dict[str, list[EncodedBatch]]:
    """By topic, what moves the position behind the tail. What retention has removed
    before anyone settled it is a loss, as if the flow had met it.
    """
    # Up to the end all transactions have ended, also if a later one is open.
    position = Position(offset=part.end, topic_id=part.topic_id)
    found = {
        progress.topic_name(flow.source): progress.encode(
            {part.key: position}, known.running
        )
    }
    last = risk.next_to_copy(known, part.key, part.topic_id.hex)
    if last is not None and risk.NOT_BEGUN < last < part.position:
        gone = _loss(flow, part, last, part.position - 1, cause=Cause.DELETED)
        found[losses.topic_name(flow.source)] = losses.encode([gone])
    return found


def _pieces(offsets: Offsets, sizes: Offsets, cuts: Sequence[int]) -> Iterator[Offsets]:
    """What one transaction takes; the records before and after a cut differ."""
    filled = np.maximum(
        np.cumsum(sizes) // _PIECE_BYTES, np.arange(len(sizes)) // _PIECE_RECORDS
    )
    full = np.flatnonzero(np.diff(filled)) + 1
    yield from np.split(offsets, np.union1d(full, np.array(cuts, np.int64)))


def _one(  # noqa: PLR0917  one transaction's parts
    settling: TailSettling,
    owner: Producer,
    part: TailPartition,
    piece: Offsets,
    moved: Mapping[str, Sequence[EncodedBatch]],
    batches: Sequence[EncodedBatch],
    *,
    copied_to: int,
) -> None:
    """Settle some records of one partition in one transaction. `batches`: what a replay
    writes of them.
    """
    flow, target = settling.flow, settling.target
    own: dict[str, Sequence[EncodedBatch]] = {}
    where: list[TopicPartition] = []
    if settling.way is Way.REPLAY:
        copy = _copy_of(target, part)
        placed = _write(target, owner, (copy.name, part.partition), batches)
        where.append((copy.name, part.partition))
        values = _of_the_map(part, placed, copy.topic_id, copied_to=copied_to)
        own[runs.topic_name(flow.source, flow.separator)] = records.encode_all(values)
    else:
        if settling.way is Way.EXPORT:
            where += _export(settling, owner, part, piece)
        own[losses.topic_name(flow.source)] = losses.encode(
            _loss(flow, part, first, last) for first, last in consecutive(piece)
        )
    for name, queue in moved.items():
        own[name] = [*own.get(name, []), *queue]
    _commit(target, owner, own, where)


def _commit(
    target: Cluster,
    owner: Producer,
    own: Mapping[str, Sequence[EncodedBatch]],
    where: Sequence[TopicPartition] = (),
) -> None:
    """Write to the flow's own topics; commit that with what was written to copies."""
    for name, queue in own.items():
        _write(target, owner, (name, 0), queue)
    ownership.commit(target, owner, [*where, *((name, 0) for name in own)])


def _packed(
    settling: TailSettling,
    part: TailPartition,
    offsets: Offsets,
    pieces: Sequence[Offsets],
    schemas: ReplayedSchemas | None,
) -> Iterator[tuple[Offsets, Sequence[EncodedBatch]]]:
    """Each piece, with what a replay writes of it."""
    if settling.way is not Way.REPLAY:
        for piece in pieces:
            yield piece, ()
        return
    _copy_of(settling.target, part)
    flow = settling.flow
    if flow.is_heartbeats(part.topic) or not flow.may_have_schemas(part.topic):
        schemas = None
    replay = Replay(settling, part, offsets, schemas)
    for piece in pieces:
        marked = headers_for(settling.fed, part, int(piece[0]))
        batches = replay.batches(piece, marked)
        _require_all(part, piece, sum(each.count for each in batches))
        yield piece, batches


def _export(
    settling: TailSettling, owner: Producer, part: TailPartition, piece: Offsets
) -> list[TopicPartition]:
    """Write to the file, or to a topic in the owner's transaction; returns where."""
    flow, target, order = settling.flow, settling.target, settling.order
    found = exporting.read(flow, settling.source, part, piece)
    _require_all(part, piece, len(found))
    if settling.file is not None:
        settling.file.add(part, found)
        return []
    topic = target.topics([order.topic])[order.topic]
    if not topic.partitions:
        raise MirrorError(
            f"cluster {target.alias}: there is no topic {order.topic}: create it first"
        )
    key = (topic.name, part.partition % topic.partitions)
    limit = topic_admin.max_message_bytes(target, [topic.name])[topic.name]
    pieces = [exporting.missing_record(part, each) for each in found]
    batches = in_batches(pieces, codec=codecs.NONE, max_bytes=limit)
    _write(target, owner, key, list(batches))
    return [key]


def _write(
    target: Cluster,
    owner: Producer,
    key: TopicPartition,
    batches: Sequence[EncodedBatch],
) -> list[Placed]:
    if not owner.v2:
        owner.add_partitions([key])
    writing = Write(target, owner, {key: batches}, target.topics([key[0]]))
    writing.finish()
    return writing.placed


def _of_the_map(
    part: TailPartition,
    placed: Sequence[Placed],
    copy_id: uuid.UUID,
    *,
    copied_to: int,
) -> list[tuple[bytes, bytes]]:
    """The records of the map about what was replayed. What precedes a record that is
    on the target already is late: in the map a run that goes back replaces others.
    """
    rows = []
    for each in placed:
        assert each.batch.runs is not None
        row = each.batch.runs.copy()
        row[:, DOWNSTREAM] += each.offset
        rows.append(row)
    whole = runs.joined(np.concatenate(rows))
    late = whole[:, runs.UPSTREAM] < copied_to

    def blocks(which: runs.RunArray) -> list[Block]:
        if not len(which):
            return []
        return [
            Block(
                topic=part.topic, partition=part.partition,
                target_topic=part.target_topic, topic_id=part.topic_id,
                copy_id=copy_id, runs=which,
            )
        ]  # fmt: skip

    ordered = [(b"", value) for value in runs.encode(blocks(whole[~late]))]
    return [*ordered, *runs.encode_late(blocks(whole[late]))]


def _copy_of(target: Cluster, part: TailPartition) -> Topic:
    """
    Raises:
        MirrorError: there is no copy to write to.
    """
    copy = target.topics([part.target_topic])[part.target_topic]
    if copy.partitions <= part.partition:
        raise MirrorError(
            f"cluster {target.alias}: {part.target_topic} has {copy.partitions} "
            f"partitions, so {part.topic}-{part.partition} cannot be replayed: create "
            "or grow the copy, or export"
        )
    return copy


def _require_all(part: TailPartition, piece: Offsets, found: int) -> None:
    if found != len(piece):
        raise MirrorError(
            f"{part.topic}-{part.partition}: {len(piece) - found} of {len(piece)} "
            "records are gone since they were counted: run the command again"
        )


def _loss(
    flow: FlowConfig,
    part: TailPartition,
    first: int,
    last: int,
    *,
    cause: Cause = Cause.FAILOVER,
) -> Loss:
    return Loss(
        at=time.time(),
        flow=flow.name,
        topic=part.topic,
        partition=part.partition,
        target_topic=part.target_topic,
        cause=cause,
        first=first,
        last=last,
        topic_id=part.topic_id.hex,
    )


# ---- records of a tail, read from the source and packed for the copy ----
#
# Main type: `Replay`, one pass over the chosen records of a partition. With a
# `transform` they are what the flow's function makes of them.


class Replay:
    """Goes once over one partition, from the first to the last of some offsets."""

    def __init__(
        self,
        settling: TailSettling,
        part: TailPartition,
        offsets: Offsets,
        schemas: ReplayedSchemas | None = None,
    ) -> None:
        """`schemas`: None if the records need none."""
        terms, where = settling.terms, f"{part.topic}-{part.partition}"
        lister: Lister = partial(listed, most_unpacked=terms.flow.max_unpacked_bytes)
        if terms.flow.transform is not None:
            lister = Results(terms.flow, part.key, terms.seen).listed
        self._stream = LogStream(
            settling.source,
            OffsetRange(
                topic=part.topic, partition=part.partition, topic_id=part.topic_id,
                first=int(offsets[0]), end=int(offsets[-1]) + 1,
            ),
            isolation=terms.isolation,
            lister=lister,
        ).listed()  # fmt: skip
        self._packer = Packer(
            settling.flow, settling.target, part.target_topic,
            stamp=terms.seen.stamp,
            unwanted=_NOTHING if terms.flow.transform is None else _LETTER,
            admit=None if schemas is None else partial(schemas.admit, where),
        )  # fmt: skip
        self._where = where
        self._buffer: Buffer = _NOTHING
        self._rest: Rows = np.empty((0, to_columns.PLACE_COLUMNS), np.int64)

    def batches(
        self, piece: Offsets, marked: Sequence[Bytes] = ()
    ) -> list[EncodedBatch]:
        """The records at the next offsets, ascending, as far as they are still there.
        `marked`: headers that they get before the flow's own.

        Raises:
            MirrorError: the flow's function fails on one, or the source cannot be read.
        """
        found: list[EncodedBatch] = []
        last = int(piece[-1])
        while True:
            offsets = self._rest[:, to_columns.OFFSET]
            count = int(np.searchsorted(offsets, last, "right"))
            now, self._rest = self._rest[:count], self._rest[count:]
            offsets = offsets[:count]
            wanted = piece[np.searchsorted(piece, offsets)] == offsets
            places = np.ascontiguousarray(now[wanted])
            found += self._packer.pack(
                self._buffer, places, marked=marked, where=self._where
            )
            if len(self._rest) or (count and offsets[-1] == last):
                return found
            some = next(self._stream, None)
            if some is None:
                return found
            self._buffer, self._rest = some.buffer, some.places


# ---- schemas of what is replayed ----


class ReplayedSchemas:
    """Sees to it that the target has the schema of each record that is replayed: the
    flow, which rests, copies none any more.

    The target is active, so applications register there: a subject that gets a version
    of the source's takes none of theirs until the replay ends, and that version must
    not be another one there. Pairs keep ids (schemas_ids).
    """

    def __init__(
        self, settling: TailSettling, generation: str, warn: Callable[[str], None]
    ) -> None:
        """`generation`: the replay's; `warn` is called with what is left to do by
        hand.
        """
        flow = self._flow = settling.flow
        assert settling.pair is not None
        self._pair, self._generation, self._warn = settling.pair, generation, warn
        rate = flow.schemas_requests_per_second
        self._source, self._registry = (
            Registry(settling.clusters[alias], pace=RequestPace(rate))
            for alias in (flow.source, flow.target)
        )
        # Of its own: schemas are copied while the last piece is written.
        self._target = Cluster(
            settling.clusters[flow.target],
            client_id="mirror.tail",
            cluster_id=settling.target.cluster_id,
        )
        self._known = progress.ProgressReader(
            self._target, progress.topic_name(flow.source)
        )
        self._ids = KnownIds()
        self._settler = IdSettler(
            flow=flow, source=self._source, target=self._registry,
            cluster=self._connected, going_on=self._may_write,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        alias, pair, flow = self._flow.target, self._pair, self._flow
        remedy = f"run `mirror schema open {alias}`"
        try:
            target, registry = self._connected(), self._registry
            refused = open_copied(pair, flow, target, registry, hold=self._hold)
        except MirrorError as error:
            self._warn(f"the registry of {alias} may not be open: {error}; {remedy}")
        else:
            for each in refused:
                self._warn(f"the registry of {alias} is not open: {each}; {remedy}")
        finally:
            self._source.close()
            self._registry.close()
            self._target.close()

    def admit(self, where: str, records: Buffer, end: int, places: Rows) -> None:
        """As `Packer` calls it. `where`: what they are of, for people.

        Raises:
            MirrorError: the target may not have the schema of one, and the flow
                requires it.
        """
        row = np.zeros((1, merge_loop.MERGE_COLUMNS), np.int64)
        row[0, merge_loop.SOURCE_AT] = HEADER_SIZE
        row[0, merge_loop.SOURCE_END] = end
        row[0, merge_loop.RECORDS] = len(places)
        row[0, merge_loop.LAST_DELTA] = len(places) - 1
        while (found := self._ids.cut(records, row, 0, provenance.none())).unknown:
            number, guid = found.unknown[0]
            settled = self._settler.settle(number, guid)
            if settled.reason:
                offset = places[found.offset, to_columns.OFFSET]
                record = f"{where}: the record at offset {offset}"
                if self._flow.requires_schemas:
                    raise MirrorError(
                        f"{record} is not replayed: {settled.reason}; export or skip it"
                    )
                self._warn(f"{record} is replayed, and {settled.reason}")
                settled = SettledId()
            self._ids.settled({number: settled})

    def _connected(self) -> Cluster:
        if not self._target.cluster_id:
            self._target.connect()
        return self._target

    def _may_write(self) -> bool:
        """Whether the replay still owns the flow: a registry fences no one."""
        self._connected()
        return self._known.read(wait=False).generation == self._generation

    def _hold(self) -> None:
        if not self._may_write():
            raise FencedError("another command or a run of the flow began meanwhile")


# ---- clusters that a pair feeds ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Fed:
    """A cluster that the pair feeds."""

    stamp: Bytes
    """The header by which flows to it leave records out."""
    read: Mapping[TopicPartition, Position]
    """How far it has the logs of the tail."""

    def end(self, part: TailPartition) -> int:
        """The offset below which it has all records of a partition; 0: it has none."""
        position = self.read.get(part.key)
        if position is None or position.topic_id != part.topic_id:
            return 0
        return position.offset


def clusters_fed(
    pair: PairConfig, flow: FlowConfig, epoch: int, reach: Callable[[str], Cluster]
) -> tuple[Fed, ...]:
    """The clusters that the pair feeds; `flow` has the tail, `epoch` is of the role
    that made its target active.

    Raises:
        MirrorError: one does not answer, or its flow may still write.
    """
    found = []
    for alias in pair.feeds:
        target = reach(alias)
        name = progress.topic_name(flow.source)
        if target.topic(name) is None:
            continue
        known = progress.read(target, name)
        if Generation.parse(known.generation).epoch < epoch:
            raise MirrorError(
                f"{flow.target}->{alias} has not gone on for {flow.source}->{alias} "
                f"yet, so it is not known which records {alias} has: let the service "
                "run, and try again"
            )
        made = provenance.via(
            source_alias=alias, source_id=target.cluster_id, target_id=""
        )
        found.append(Fed(stamp=made.stamp, read=known.positions))
    return tuple(found)


def cuts_of(
    fed: Sequence[Fed], part: TailPartition, offsets: Offsets
) -> tuple[int, ...]:
    """Where, in ascending offsets, the clusters that have the records change."""
    ends = {int(np.searchsorted(offsets, each.end(part))) for each in fed}
    return tuple(sorted(ends - {0, len(offsets)}))


def headers_for(
    fed: Sequence[Fed], part: TailPartition, offset: int
) -> tuple[Bytes, ...]:
    """What a record gets in front of the flow's own header."""
    return tuple(each.stamp for each in fed if offset < each.end(part))
