"""Becoming the only writer of a flow: the driver's side of fencing.

Main functions: `take_ownership`, before the first lease of a run, and
`rewrite_progress`, to move positions on purpose. Both write a new `Generation` to the
progress topic, the record that names the run that may write, then fence every
transactional id that an earlier run may hold. After that, a task of an earlier run is
either fenced, or reads the new generation when it takes over, and stops: there is no
third case. Drivers write under an id of the flow, which they take over before they
read: of two drivers, only the later one can write.

`Instance` refuses to begin a run beside a service of another group that copies the
flow; `begin_removal` lets no run begin any more. Generations are also the second place
where the epoch of a pair's role stands: `lost_entries` finds journals that know less.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
import json
import time
from types import MappingProxyType
from typing import TYPE_CHECKING
import uuid

from mirror.clusters import codes, hanging
from mirror.clusters.admin import groups
from mirror.clusters.admin.groups import Group, GroupKind
from mirror.clusters.transactions import Producer
from mirror.config import own_topics
from mirror.copying.target import Endings, owner_id, transactional_ids
from mirror.copying.transaction import TransactionRecords
from mirror.errors import (
    MALFORMED,
    ClusterChangedError,
    ClusterError,
    DividedError,
    MirrorError,
    OutdatedRoleError,
    SupersededError,
    UnknownRoleError,
    UnreachableError,
)
from mirror.host import process_name
from mirror.offsets import progress, runs, starting
from mirror.offsets.progress import Position
from mirror.pairs import control, losses, roles
from mirror.pairs.journal import JournalReader, await_agreement
from mirror.pairs.roles import Epochs
from mirror.records import records
from mirror.records.writing import ensure_topics, write

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.clusters.wire.produce import EncodedBatch
    from mirror.config.pair_settings import PairConfig
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.offsets.progress import Progress
    from mirror.offsets.runs import Block
    from mirror.pairs.journal import Entry
    from mirror.pairs.losses import Loss


# ---- generations ----


def new_id() -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """The content of a generation's text, which is unique by its id."""

    id: str = field(default_factory=new_id)
    slots: int = 0
    """The largest number of slots whose ids this and earlier runs may hold."""
    source_id: str = ""
    """The source's cluster id; empty if its brokers have none."""
    begun: bool = False
    """Whether it is settled where the partitions of the very first start begin; those
    found later begin at their first record."""
    former: tuple[str, ...] = ()
    """Ids of clusters that were the source before, oldest first."""

    epoch: int = 0
    """If a pair feeds the target: the role for which the flow took over from the other
    one, or since which it rests; 0 if that was never decided."""
    by: str = ""
    """The instance whose run it is, host:process; empty if a command wrote it."""
    group: str = ""
    """The group of instances that it belongs to; empty if to none."""
    start: int = 0
    """The progress topic's first offset when `mirror flow reset` last said where to
    continue: what stood before it is no longer missed."""
    roles: Mapping[str, Epochs] = field(default_factory=dict)
    """By pair of the flow's clusters: what runs and commands knew of its journals. If
    these know less, they have lost entries."""
    removing: bool = False
    """Whether `mirror flow remove` has begun: no run may begin any more."""

    @property
    def source_ids(self) -> tuple[str, ...]:
        """Of all clusters that were the source, the present one last."""
        return (*self.former, self.source_id) if self.source_id else self.former

    @classmethod
    def parse(cls, text: str) -> Generation:
        """
        Raises:
            ClusterError: it is damaged, or its flow was copied in parts, each by a
                service of its own, which this release does not know.
        """
        if not text:
            return cls()
        try:
            fields = json.loads(text)
            if fields.get("parts"):
                raise ClusterError(
                    "an earlier build copied this flow in parts: stop its services, "
                    "and run `mirror flow unite` of that build"
                )
            return cls(
                id=fields.get("id") or new_id(),
                slots=fields["slots"],
                begun=fields["begun"],
                source_id=fields.get("source_id", ""),
                former=tuple(fields.get("former", ())),
                epoch=fields.get("epoch", 0),
                by=fields.get("by", ""),
                group=fields.get("group", ""),
                roles={
                    str(pair): Epochs(role=int(each["role"]), begun=int(each["begun"]))
                    for pair, each in fields.get("roles", {}).items()
                },
                start=fields.get("start", 0),
                removing=bool(fields.get("removing")),
            )
        except MALFORMED as error:
            raise progress.damaged(error) from error

    def knowing(self, roles: Mapping[str, Epochs]) -> Generation:
        """The same generation, with what is known of pairs besides."""
        known = {p: each | self.roles.get(p, Epochs()) for p, each in roles.items()}
        return replace(self, roles={**self.roles, **known})

    def moved(self, source_id: str) -> Generation:
        """The next one, with another cluster as the source."""
        former = (each for each in self.source_ids if each != source_id)
        return replace(
            self, id=new_id(), source_id=source_id, former=tuple(dict.fromkeys(former))
        )

    def encoded(self) -> EncodedBatch:
        return progress.encode_generation(self.text)

    @property
    def text(self) -> str:
        return json.dumps(asdict(self))


# ---- what is decided about positions ----


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionUpdate:
    """Positions to write, and what to record with them."""

    positions: Mapping[TopicPartition, Position]
    losses: Sequence[Loss] = ()
    blocks: Sequence[Block] = ()
    """Entries to add to the offset map."""
    notes: Sequence[tuple[bytes, bytes]] = ()
    """Keys and values for the topic of the pauses."""
    epoch: int = 0
    """The role of the pair that feeds the target for which this was decided."""
    begun: bool = False
    """Whether partitions without a position begin at their first record from now on,
    whatever `start` says."""
    copied: Collection[TopicPartition] | None = None
    """All partitions that the flow copies; None: those with a position."""
    accepts_cut: bool = False
    """Whether these positions stand for those that were deleted from the topic."""


# ---- becoming the only writer ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """A flow that a run owns."""

    run: str
    """Names the run, as `Lease.generation`."""
    slot_ids: Mapping[int, str]
    """As of `LeasePlan`."""
    owner: Producer | None = None
    """What the driver writes with; None without exactly-once."""


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
        return Owned(run=made.text, slot_ids=fenced, owner=owner)

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
    write_as_owner(target, {progress.topic_name(flow.source): batches}, owner)
    return Owned(run=begun.text, slot_ids=fenced, owner=owner)


def _with_filled_copies(
    flow: FlowConfig, target: Cluster, partitions: Iterable[TopicPartition]
) -> set[TopicPartition]:
    name = flow.replication_policy.target_topic
    copies = {(name(topic), number): (topic, number) for topic, number in partitions}
    return {copies[each] for each in starting.filled(flow, target, copies)}


def rewrite_progress(
    flow: FlowConfig,
    target: Cluster,
    decide: Callable[[Mapping[TopicPartition, Position]], PositionUpdate],
    *,
    source_id: str = "",
) -> PositionUpdate:
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
        batches[control.topic_name(flow.source)] = records.encode_all(decided.notes)
    if batches:
        write_as_owner(target, batches, owner)
    return decided


def _moved(
    flow: FlowConfig,
    made: Generation,
    known: Progress,
    decided: PositionUpdate,
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


def begin_removal(flow: FlowConfig, target: Cluster) -> Callable[[], None]:
    """Fence every run of a flow that has progress, and let none begin any more. Returns
    what lets them begin again.

    Raises:
        FencedError: a run of the flow started meanwhile; nothing changed.
        ClusterError: the target does not answer, or refuses.
    """
    made, owner, _ = _fence(flow, target, slots=1, removes=True)
    _still_ours(flow, target, made)

    def withdraw() -> None:
        kept = replace(made, id=new_id(), removing=False)
        topic = progress.topic_name(flow.source)
        write_as_owner(target, {topic: [kept.encoded()]}, owner)

    return withdraw


def require_kept(flow: FlowConfig, target: Cluster) -> None:
    """Check that nothing is taking the flow away: a run must create nothing then.

    Raises:
        ClusterError: `mirror flow remove` has begun, or the target does not answer.
    """
    known = progress.read_existing(target, progress.topic_name(flow.source))
    _require_kept(flow, Generation.parse(known.generation))


def _require_kept(flow: FlowConfig, known: Generation) -> None:
    if known.removing:
        raise ClusterError(
            f"flow {flow.name}: `mirror flow remove` has begun to take it away: run "
            f"`mirror flow remove {flow.source}/{flow.target}` again until it has "
            "ended; then the flow can start as if for the first time"
        )


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
    removes: bool = False,
) -> tuple[Generation, Producer | None, Mapping[int, str]]:
    """Write a new generation, then fence every run with an earlier one.

    Returns the generation, the owner to write with, and the producer ids of slots that
    are fenced, with their transactional ids; without exactly-once there is no owner,
    and nothing is fenced. `copies_from` is the source's cluster id, which must be the
    same as in earlier runs; of a later role than `epoch` there may be no note, nor of
    more than `roles` know. In the
    copies of these source `partitions` something may be open, even without progress.
    `removes`: the flow is to be taken away, and no other run may begin.
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
    if not removes:
        _require_kept(flow, committed)
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
        # A removal that goes on asks that group again.
        group=committed.group if removes else instance.group if instance else "",
        removing=removes,
    ).knowing(roles)
    write_as_owner(target, {topic: [made.encoded()]}, owner)
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


def write_as_owner(
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


# ---- ends what earlier runs hold: transactional ids and transactions ----
#
# Main functions: `fence_slots`, which takes over every id that an earlier run may
# hold, and `complete_transactions`, which ends what these left open.


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
    own = TransactionRecords.for_source(flow.source, flow.separator)
    others: set[TopicPartition] = set()
    if (dead := flow.dead_letter_topic) is not None:
        others |= {(dead, n) for n in target.topics([dead])[dead].leaders}
    paused = control.topic_name(flow.source)  # there once something was paused
    others |= {(paused, n) for n in target.topics([paused])[paused].leaders}
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


# ---- another service of the same flow ----


_TOO_OFTEN = 2
"""So many runs of one other instance, outside our group: so it is not gone. During a
rolling restart there is one."""
_REMEDY = (
    "A flow has one service: stop one of the two, and add its topics to `topics` of "
    "the other; if they are instances of one service, give them one service.group"
)
_CLIENT = "mirror."
"""How the client ids of instances begin; their name follows."""


class Instance:
    """This process, as it begins runs of one flow."""

    def __init__(self, config: MirrorConfig, *, once: bool) -> None:
        """`once`: it joins no group."""
        self.by = process_name()
        self.group = "" if once else config.service.group or ""
        self._met: dict[str, set[str]] = {}
        """By instance that took over, the runs of it that were found."""

    def require_room(
        self, flow: FlowConfig, known: Generation, target: Cluster
    ) -> None:
        """Check that no other service copies the flow, whose last run is `known`.

        Raises:
            DividedError: one does.
        """
        by, group = known.by, known.group
        if by in {"", self.by} or group == self.group != "":
            return
        if _leads(by, group, target, flow.name):
            raise DividedError(
                f"flow {flow.name}: another service copies it, the process {by} of the "
                f"group {group}. {_REMEDY}"
            )
        met = self._met.setdefault(by, set())
        met.add(known.id)
        if len(met) >= _TOO_OFTEN:
            met.clear()
            raise DividedError(
                f"flow {flow.name}: another service, the process {by}, has taken it "
                f"over again and again. {_REMEDY}"
            )


def leaders(flow: str, group: str, target: Cluster) -> frozenset[str]:
    """The instances that lead a flow in a group, host:process: one that is gone is a
    member for some seconds more.

    Raises:
        ClusterError: the target does not answer, or does not let us see the group.
    """
    if not group:
        return frozenset()
    asked = [Group(group=group, kind=GroupKind.CLASSIC, state="")]
    members = groups.members(target, asked).get(group, ())
    return frozenset(
        each.client_id.removeprefix(_CLIENT)
        for each in members
        if each.client_id.startswith(_CLIENT) and flow in _given(each.assignment)
    )


def _given(assignment: bytes) -> Collection[str]:
    """The flows in an assignment; none if it is not ours."""
    try:
        return [*json.loads(assignment)["yours"]] if assignment else []
    except MALFORMED:
        return []


def _leads(name: str, group: str, target: Cluster, flow: str) -> bool:
    """Whether an instance leads a flow in its group, as far as the target lets us
    see.
    """
    try:
        return name in leaders(flow, group, target)
    except ClusterError as error:
        import structlog  # noqa: PLC0415  a switch need not wait for it

        log = structlog.get_logger()
        log.debug("members are not known", group=group, error=str(error))
        return False


# ---- what generations note of the roles of pairs ----


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleNote:
    """What flows of a pair have noted."""

    epochs: Epochs = field(default_factory=Epochs)
    flow: str = ""
    """The last one that knew more than others; empty: none has noted anything."""

    def __or__(self, other: RoleNote) -> RoleNote:
        """What both have noted together."""
        flow = other.flow if self.epochs.lacks(other.epochs) else self.flow
        return RoleNote(epochs=self.epochs | other.epochs, flow=flow)


def read_role_notes(pair: PairConfig, clusters: Iterable[Cluster]) -> RoleNote:
    """What is noted on these clusters of the pair.

    Raises:
        ClusterError: one does not answer, or a record of its progress is damaged.
    """
    found = RoleNote()
    for cluster in clusters:
        source = pair.other_than(cluster.alias)
        name = progress.topic_name(source)
        if cluster.topic(name) is None:
            continue
        text = progress.reader(cluster, name).read(wait=False).generation
        noted = Generation.parse(text).roles.get(pair.name, Epochs())
        found |= RoleNote(epochs=noted, flow=f"{source}->{cluster.alias}")
    return found


def lost_entries(pair: PairConfig, entries: Sequence[Entry], noted: RoleNote) -> str:
    """What is wrong with the journals, which have these entries of the pair; empty if
    nothing is.
    """
    known = roles.epochs(entries)
    if not known.lacks(noted.epochs):
        return ""
    what, here, there = "role", known.role, noted.epochs.role
    if here >= there:
        what, here, there = "run", known.begun, noted.epochs.begun
    named = f"/{pair.scope}" if pair.scope else ""
    ways = " or ".join(
        f"`mirror failover '{pair.other_than(each)}->{each}{named}' --role-only` if "
        f"that is {each}"
        for each in pair.members
    )
    return (
        f"the journals of pair {pair.name} have lost entries: their newest {what} has "
        f"epoch {here}, and the progress of {noted.flow} knows one of epoch {there}. "
        "So it is not known which cluster is active, and nothing of the pair is "
        "copied. If a cluster that may know more does not answer, wait for it. Else "
        f"say which one is active: {ways}"
    )


def require_whole_journals(
    pair: PairConfig, entries: Sequence[Entry], clusters: Iterable[Cluster]
) -> None:
    """`entries`: what the journals on these clusters said.

    Raises:
        MirrorError: the journals have lost entries, or a cluster does not answer.
    """
    clusters = [*clusters]
    if text := surely_lost(pair, entries, read_role_notes(pair, clusters), clusters):
        raise MirrorError(text)


def surely_lost(
    pair: PairConfig,
    entries: Sequence[Entry],
    noted: RoleNote,
    clusters: Sequence[Cluster],
) -> str:
    """As `lost_entries`, if it still is so once the journals on these clusters are read
    again, and no broker has one that another one does not know.

    Raises:
        ClusterError: a cluster does not answer.
    """
    if lost_entries(pair, entries, noted):
        await_agreement(clusters)
        # A run may have begun since they were read: notes come behind entries.
        journals = (JournalReader(each).read(wait=False) for each in clusters)
        entries = roles.merged(entries, *journals, pair=pair.name)
    return lost_entries(pair, entries, noted)
