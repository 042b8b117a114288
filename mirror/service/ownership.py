"""Becoming the only writer of a flow: the driver's side of fencing.

Main functions: `take_ownership`, before the first lease of a run, and
`rewrite_progress`, to move positions on purpose. Both write a new generation to the
progress topic, then fence every transactional id that an earlier run may hold. After
that, a task of an earlier run is either fenced, or reads the new generation when it
takes over, and stops: there is no third case. Drivers write under an id of the flow,
which they take over before they read: of two drivers, only the later one can write.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
import time
from types import MappingProxyType
from typing import TYPE_CHECKING

from mirror.clusters import codes, hanging
from mirror.clusters.transactions import Producer
from mirror.config import own_topics
from mirror.copying.target import Endings, owner_id, transactional_ids
from mirror.copying.transaction import TransactionRecords
from mirror.errors import (
    ClusterChangedError,
    OutdatedRoleError,
    SupersededError,
    UnknownRoleError,
    UnreachableError,
)
from mirror.offsets import progress, runs, starting
from mirror.offsets.progress import Position
from mirror.pairs import losses, pauses
from mirror.pairs.roles import Epochs
from mirror.records import records
from mirror.records.writing import ensure_topics, write
from mirror.service.generation import Generation, new_id

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.clusters.wire.produce import EncodedBatch
    from mirror.config.schema import FlowConfig
    from mirror.offsets.progress import Progress
    from mirror.service.rewriting import Rewriting
    from mirror.service.rivalry import Instance


# ---- ends what earlier runs hold: transactional ids and transactions ----
#
# Main functions: `fence_slots`, which takes over every id that an earlier run may
# hold, and `complete_transactions`, which ends what these left open. `ownership`
# calls them, in the order that makes a run the only writer.


_PATIENCE_SECONDS = 10.0
_GONE = codes.UNKNOWN_TOPIC_OR_PARTITION
_PAUSE_SECONDS = 0.2


def fence_slots(
    flow: FlowConfig,
    target: Cluster,
    made: Generation,
    owner: Producer | None,
    copied: Iterable[TopicPartition],
) -> dict[int, str]:
    """Take over every id that a run of the flow may hold; without exactly-once there is
    no `owner`, and nothing to fence. `copied`: source partitions. Returns the producer
    ids, with their transactional ids.

    Raises:
        ClusterError: the target does not answer, or refuses.
    """
    if owner is None:
        return {}
    fenced = [
        take_over_id(flow, target, transactional_id)
        for slot in range(made.slots)
        for transactional_id in transactional_ids(flow.name, slot)
    ]
    # The owner writes to copies as well, for repairs.
    complete_transactions(flow, target, [owner, *fenced], copied)
    return {pid: str(each.transactional_id) for each in fenced for pid in each.ids}


def complete_transactions(
    flow: FlowConfig,
    target: Cluster,
    producers: Sequence[Producer],
    copied: Iterable[TopicPartition] = (),
) -> None:
    """End what earlier transactions left open, right after fencing: the cluster forgets
    how the last transaction of a fenced id ended. A copy that is not there is left out.

    Raises:
        UnreachableError: something may be open where the flow keeps its state.
    """
    name = flow.replication_policy.target_topic
    own = TransactionRecords.of(flow.source, flow.separator)
    others: set[TopicPartition] = set()
    if (dead := flow.dead_letter_topic) is not None:
        others |= {(dead, n) for n in target.topics([dead])[dead].leaders}
    control = pauses.topic_name(flow.source)  # there once something was paused
    others |= {(control, n) for n in target.topics([control])[control].leaders}
    copies = {(name(topic), n) for topic, n in copied}
    partitions = others | copies | set(own.partitions)
    search = own.search(target, others)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        topics = target.topics({topic for topic, _ in partitions})
        partitions = {each for each in partitions if topics[each[0]].error != _GONE}
        looked = hanging.complete(target, producers, topics, partitions, search=search)
        for each in looked.hanging:
            import structlog  # noqa: PLC0415  a switch need not wait for it

            log = structlog.get_logger()
            log.warning("transaction left open", flow=flow.name, what=each.text)
        # Leaders move as brokers come back; slots check what is left once more.
        partitions &= looked.unseen.keys()
        if not partitions:
            return
        if time.monotonic() > deadline:
            for key in partitions.intersection(own.partitions):
                raise UnreachableError(looked.unseen[key])
            return
        time.sleep(_PAUSE_SECONDS)


def take_over_id(flow: FlowConfig, target: Cluster, transactional_id: str) -> Producer:
    producer = Producer(
        target,
        transactional_id=transactional_id,
        transaction_timeout_ms=int(flow.transaction_timeout_seconds * 1000),
    )
    producer.take_over()
    return producer


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """A flow that a run owns."""

    run: str
    """Names the run, as `Lease.generation`."""
    slot_ids: Mapping[int, str]
    """As of `LeasePlan`."""


def take_ownership(  # noqa: PLR0913  all that a run begins with
    flow: FlowConfig, source: Cluster, target: Cluster, *, slots: int,
    partitions: Mapping[TopicPartition, str],
    begins: Mapping[TopicPartition, Position] | None = None,
    epoch: int | None = None, roles: Mapping[str, Epochs] = MappingProxyType({}),
    instance: Instance | None = None, appends: bool = True,
) -> Owned:  # fmt: skip
    """Begin a generation; from now on only this run writes for the flow. `instance`:
    the service's; None for a command.

    `partitions` maps source partitions to their topic ids in hex. If the flow does not
    `start` at the earliest offset, its very first run writes down here where they
    begin, before anything is copied. `begins`: where they were to begin, if that was
    settled earlier; others came later, and begin at their first record. `epoch`: if
    a pair feeds the target, the last role that this driver knows of. `roles`: what it
    knows of pairs of the flow's clusters, which is noted. Unless it `appends`, a
    partition whose copy has records begins later (`LeasePlan.appends`).

    Raises:
        FencedError: another run started meanwhile.
        OutdatedRoleError: the flow rests since a later role; nothing changed.
        UnknownRoleError: earlier runs knew more of a pair; nothing changed.
        ClusterError: positions were deleted; nothing changed.
        ClusterChangedError: earlier runs copied from another cluster; nothing changed.
        DividedError: another service copies the same; nothing changed.
    """
    make_topics(flow, target)
    made, owner, fenced = _fence(
        flow,
        target,
        slots=slots,
        begun=flow.start == "earliest",
        copies_from=source.cluster_id,
        epoch=epoch,
        roles=roles,
        instance=instance,
        partitions=partitions,
    )
    if made.begun:
        return Owned(run=made.text, slot_ids=fenced)

    # One transaction for the positions and the note that they are settled: a driver
    # that dies before its commit has settled nothing.
    known = _still_ours(flow, target, made)
    begun = replace(made, begun=True, id=new_id())
    batches = [begun.encoded()]
    # Partitions that have a position got it before the flow ever ran.
    new = {key: each for key, each in partitions.items() if key not in known.positions}
    found = (
        starting.begin(
            source,
            new,
            starting.start_point(flow.start),
            later=() if appends else _with_filled_copies(flow, target, new),
        )
        if begins is None
        else {
            key: begins[key]
            for key, topic_id in new.items()
            if key in begins and begins[key].topic_id.hex == topic_id
        }
    )
    if found:
        batches = [*progress.encode(found), *batches]
    _write(target, {progress.topic_name(flow.source): batches}, owner)
    return Owned(run=begun.text, slot_ids=fenced)


def _with_filled_copies(
    flow: FlowConfig, target: Cluster, partitions: Iterable[TopicPartition]
) -> set[TopicPartition]:
    name = flow.replication_policy.target_topic
    copies = {(name(topic), number): (topic, number) for topic, number in partitions}
    return {copies[each] for each in starting.filled(flow, target, copies)}


def rewrite_progress(
    flow: FlowConfig,
    target: Cluster,
    decide: Callable[[Mapping[TopicPartition, Position]], Rewriting],
    *,
    source_id: str = "",
) -> Rewriting:
    """Let `decide` choose new positions, given the current ones, and write them. With a
    `source_id`, the flow copies from the cluster with this id from now on. What was
    decided for a role (`epoch`) before is not written again.

    A running service is fenced first; its flow restarts by itself from the new
    positions. Without exactly-once there is no fencing, so the flow must not run
    meanwhile.

    Raises:
        FencedError: a run of the flow started meanwhile; nothing was written.
        ClusterError: the target refuses. Nothing was written, or everything.
    """
    make_topics(flow, target)
    made, owner, _ = _fence(flow, target, slots=1)
    known = _still_ours(flow, target, made)
    decided = decide(known.positions)
    if 0 < decided.epoch <= made.epoch:
        return replace(decided, positions={})
    positions, generation = _moved(flow, made, known, decided, source_id)
    generations = [] if generation is None else [generation.encoded()]
    batches: dict[str, list[EncodedBatch]] = {}
    if written := [*progress.encode(positions, known.running), *generations]:
        batches[progress.topic_name(flow.source)] = written
    if values := runs.encode(decided.blocks):
        batches[runs.topic_name(flow.source, flow.separator)] = [
            records.encode([(b"", value)]) for value in values
        ]
    if decided.losses:
        batches[losses.topic_name(flow.source)] = losses.encode(decided.losses)
    if decided.notes:
        batches[pauses.topic_name(flow.source)] = records.encode_all(decided.notes)
    if batches:
        _write(target, batches, owner)
    return decided


def _moved(
    flow: FlowConfig,
    made: Generation,
    known: Progress,
    decided: Rewriting,
    source_id: str,
) -> tuple[dict[TopicPartition, Position], Generation | None]:
    """The positions to write, and the generation, unless it stays."""
    positions = dict(decided.positions)
    before = made
    if decided.accepts_cut and known.start > made.start:
        made = replace(made, id=new_id(), start=known.start)
    if source_id and made.source_id not in {"", source_id}:
        of_old = known.positions.keys() | known.unsettled.keys()
        copied = of_old if decided.copied is None else set(decided.copied)
        if left := (of_old & copied) - positions.keys():
            raise ClusterChangedError(
                f"flow {flow.name}: {flow.source} leads to cluster {source_id} instead "
                f"of {made.source_id}, and {len(left)} partitions would keep their "
                "positions in the old one: reset all topics at once"
            )
        # On the new cluster, topics with the names of earlier ones are new topics.
        positions |= dict.fromkeys(of_old - positions.keys(), Position(offset=0))
        return positions, made.moved(source_id)
    if decided.epoch:
        begun = made.begun or decided.begun
        return positions, replace(made, epoch=decided.epoch, begun=begun, id=new_id())
    return positions, None if made is before else made


def take_over(
    flow: FlowConfig,
    target: Cluster,
    *,
    roles: Mapping[str, Epochs] = MappingProxyType({}),
) -> Producer:
    """Fence a running service, whose flow restarts by itself, and return the owner to
    write with, until a driver takes over. `roles` as for `take_ownership`.

    Raises:
        FencedError: a run of the flow started meanwhile, or earlier ones knew more.
        ClusterError: the target does not answer, or refuses.
    """
    make_topics(flow, target)
    made, owner, _ = _fence(flow, target, slots=1, roles=roles)
    assert owner is not None, "without exactly-once nothing is fenced"
    _still_ours(flow, target, made)
    return owner


def abort_own(flow: FlowConfig, target: Cluster) -> None:
    """Abort what an owner that was killed has left open, and end what brokers left open
    of its last transaction. It disturbs no running service unless that is about to
    begin a run, which then begins once more.

    Raises:
        ClusterError: the target does not answer, or refuses.
    """
    owner = take_over_id(flow, target, owner_id(flow.name))
    topic = progress.topic_name(flow.source)
    if target.topic(topic) is None:
        return
    complete_transactions(flow, target, [owner])
    copied = progress.read(target, topic).positions
    complete_transactions(flow, target, [owner], copied)


def commit(
    target: Cluster, owner: Producer, partitions: Collection[TopicPartition]
) -> None:
    """Commit what the owner has written to these partitions, and wait until it has
    ended in all of them.

    Raises:
        ClusterError: it may be written or not, or cannot be read yet: take over.
    """
    name, wrote = owner.transactional_id or "", owner.producer_id
    owner.commit()
    endings = Endings(target)
    topics = target.topics({topic for topic, _ in partitions})
    endings.expect(name, wrote, partitions, topics)
    endings.finish()


def make_topics(flow: FlowConfig, target: Cluster) -> None:
    """Create the topics in which a flow keeps its state, if missing."""
    kinds = own_topics.OFFSET_MAP, own_topics.LOSSES, own_topics.PROGRESS
    ensure_topics(target, [kind.of(flow) for kind in kinds])


def _fence(  # noqa: PLR0913  all that a run begins with
    flow: FlowConfig,
    target: Cluster,
    *,
    slots: int,
    begun: bool = False,
    copies_from: str = "",
    epoch: int | None = None,
    roles: Mapping[str, Epochs] = MappingProxyType({}),
    instance: Instance | None = None,
    partitions: Iterable[TopicPartition] = (),
) -> tuple[Generation, Producer | None, Mapping[int, str]]:
    """Write a new generation, then fence every run with an earlier one.

    Returns the generation, the owner to write with, and the producer ids of slots that
    are fenced, with their transactional ids; without exactly-once there is no owner,
    and nothing is fenced. `copies_from` is the source's cluster id, which must be the
    same as in earlier runs; of a later role than `epoch` there may be no note, nor of
    more than `roles` know. In the
    copies of these source `partitions` something may be open, even without progress.
    """
    owner, topic = None, progress.topic_name(flow.source)
    if instance is not None:  # before it disturbs who may be writing
        seen = progress.read(target, topic, committed=False).generation
        instance.require_room(flow, Generation.parse(seen), target)
    if flow.exactly_once:
        owner = take_over_id(flow, target, owner_id(flow.name))
        complete_transactions(flow, target, [owner])
    known = progress.read_proven(target, topic, committed=False)
    earlier = Generation.parse(known.generation)
    committed = _committed(target, topic)
    if copies_from and committed.source_id not in {"", copies_from}:
        raise ClusterChangedError(
            f"flow {flow.name}: {flow.source} leads to the cluster with id "
            f"{copies_from}, but earlier records came from the one with id "
            f"{committed.source_id}. Point bootstrap_servers there again; if "
            f"{copies_from} replaces it on purpose, set where to continue with `mirror "
            "flow reset`"
        )
    if instance is not None:  # a switch must not end here: the service tells of it
        replace(known, generation=committed.text).require_whole(flow.name)
    if epoch is not None and committed.epoch > epoch:
        raise OutdatedRoleError(
            f"flow {flow.name}: it rests since epoch {committed.epoch} of its pair, "
            f"which this service does not know of yet (epoch {epoch})",
            epoch=committed.epoch,
        )
    for pair, here in roles.items():
        noted = committed.roles.get(pair, Epochs())
        if here.lacks(noted):
            raise UnknownRoleError(
                f"flow {flow.name}: its progress knows more of {pair} than journals",
                pair=pair,
                role=noted.role,
                begun=noted.begun,
            )
    made = replace(
        committed,
        id=new_id(),
        # Never fewer than before: the earlier run may have died before it fenced.
        slots=max(slots, earlier.slots, committed.slots),
        source_id=copies_from or committed.source_id,
        begun=begun or committed.begun,
        by="" if instance is None else instance.by,
        group="" if instance is None else instance.group,
    ).knowing(roles)
    _write(target, {topic: [made.encoded()]}, owner)
    copied = {*known.positions, *(partitions if known.generation else ())}
    return made, owner, fence_slots(flow, target, made, owner, copied)


def _committed(target: Cluster, topic: str) -> Generation:
    """What an earlier run committed: whether it has begun, and which source it copies.

    Its slots are not fenced yet, and their open transactions may hide later records,
    but it committed this before any slot could start a transaction. The leader has
    proven a moment ago that it is the leader.
    """
    return Generation.parse(progress.read(target, topic, wait=False).generation)


def _still_ours(flow: FlowConfig, target: Cluster, made: Generation) -> Progress:
    known = progress.read_proven(target, progress.topic_name(flow.source))
    if known.generation != made.text:
        raise SupersededError(f"flow {flow.name}: a newer run of the flow is active")
    return known


def _write(
    target: Cluster,
    batches: Mapping[str, Sequence[EncodedBatch]],
    owner: Producer | None,
) -> None:
    """Write all or nothing, if there is an owner.

    Raises:
        ClusterError: it may be written or not, or cannot be read yet: take over.
    """
    write(target, batches, owner)
    if owner is not None:
        # Slots read this next, and the next transaction has the same id.
        commit(target, owner, [(topic, 0) for topic in batches])
