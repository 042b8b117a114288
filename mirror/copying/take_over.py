"""What a slot learns when it takes over, once it has fenced earlier owners.

Main type: `TakeOverSurvey`, which asks both clusters, ends transactions that brokers
left open (`clusters.hanging`), and rejects a slot of a superseded run. `Found` is what
the clusters say and `Resumption` what follows for each partition: frozen values that
the slot passes to its reader, intake and writer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirror.clusters import hanging
from mirror.clusters.admin import configs, topic_admin
from mirror.clusters.hanging import Hanging
from mirror.clusters.topics import TopicPartition
from mirror.clusters.wire import fetch, fetch_by_id
from mirror.copying.faults import obstacle
from mirror.copying.gaps import remade
from mirror.copying.target import KnownCopies
from mirror.errors import NewRunError, SupersededError, UnreachableError
from mirror.offsets import progress, starting

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    import uuid

    import structlog

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.hanging import OutcomeSearch
    from mirror.clusters.topics import Topic
    from mirror.copying.lease import Assignment, Lease, LeasePlan
    from mirror.copying.target import TargetWriter
    from mirror.copying.transaction import TransactionRecords
    from mirror.offsets.progress import Position, Progress
    from mirror.offsets.terms import CopyEnd

# ---- what other slots' ids have left open where a slot writes ----
#
# Main function: `left_by_others`. A slot ends what its own ids left open
# (`clusters.hanging`) but takes over no other id: two slots that did so for the
# same one would abort each other's ending, and with it records that were committed.
# Only a driver ends it, when a run begins; so the slot has one begin.


Open = dict[tuple[int, int], list[TopicPartition]]
"""Partitions with an open transaction, by its producer id and epoch."""


def left_by_others(
    target: Cluster,
    slot_ids: Mapping[int, str],
    others: Mapping[tuple[int, int], Sequence[TopicPartition]],
    search: OutcomeSearch,
    *,
    copies: set[TopicPartition],
    dead_letters: set[TopicPartition],
) -> list[Hanging]:
    """Transactions of slots that have ended but are open in these partitions, and that
    no run could end there. `others`: what producers other than this slot's have open.

    Raises:
        NewRunError: a run that begins can end one of them.
        ClusterError: the target does not answer, or the search cannot look.
    """
    by_epoch = target.feature("transaction.version") >= 2
    # All slots write dead letters. Without an epoch of its own, a transaction that has
    # just begun there would look like one that was left open.
    partitions = copies | dead_letters if by_epoch else copies
    found: Open = {
        of: kept
        for of, where in others.items()
        if of[0] in slot_ids
        and (kept := sorted(partitions.intersection(where)))
        and hanging.has_ended(target, slot_ids[of[0]], *of)
    }
    left = []
    for of, where in _still(target, found).items():  # else it ended just now
        name = slot_ids[of[0]]
        if by_epoch and search.was_committed(*of, where) is not None:
            topic, number = where[0]
            raise NewRunError(
                f"a transaction of {name} was left open in {topic}-{number}, "
                "where another slot writes now: a new run of the flow ends it"
            )
        left.append(
            Hanging(transactional_id=name, partitions=tuple(where), committed=None)
        )
    return left


def _still(target: Cluster, found: Open) -> Open:
    """Of these, what is open now."""
    if not found:
        return {}
    partitions = {each for where in found.values() for each in where}
    topics = target.topics({topic for topic, _ in partitions})
    now, _ = hanging.open_in(target, hanging.by_leader(topics, partitions))
    open_ = {
        of: [each for each in where if each in now.get(of, ())]
        for of, where in found.items()
    }
    return {of: where for of, where in open_.items() if where}


# ---- what the clusters say ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """What a take-over means for the partitions that the slot is to copy."""

    read: Mapping[TopicPartition, Position]
    """Partitions that can be copied, and where to continue reading each."""
    obstacles: Mapping[TopicPartition, str]
    """Why each of the others cannot be copied now."""
    first: Mapping[TopicPartition, Position]
    """Of those, partitions that must commit their position even without a record: a
    second lookup might not find it again, or it is not 0, which no position means, or
    the copy has records of others, or more than is noted."""
    doubtful: Mapping[TopicPartition, Position]
    """Of those, partitions for which the source shows a different topic, or an older
    leader, than what was copied."""
    unchecked: Mapping[TopicPartition, Position]
    """Of those, partitions with a newer leader that would not notice by itself that it
    lost what was copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the clusters say to a slot that takes over."""

    progress: Progress
    source_topics: Mapping[str, Topic]
    target_topics: Mapping[str, Topic]
    limits: Mapping[str, int]
    """The largest batch of each target topic in bytes."""
    closed: Mapping[TopicPartition, str]
    """Target partitions that must not be written to, and why."""
    silent: Collection[TopicPartition]
    """Those of them whose leader does not answer."""
    ends: Mapping[TopicPartition, CopyEnd] = field(default_factory=dict)
    """By source partition, where copies end that have the source's offsets."""
    compacted: Collection[str] = frozenset()
    """Target topics that take no null keys, where that matters."""
    filled: Collection[TopicPartition] = frozenset()
    """Target partitions with records, of source partitions without progress."""
    appends: bool = True
    """As of `LeasePlan`."""
    dead_letter_partitions: int
    leaders_check: bool
    """Whether the source's leaders compare each fetch with what was read before it
    (brokers from 3.1 on)."""

    @property
    def ids(self) -> dict[str, uuid.UUID]:
        """The ids of the source topics."""
        return {name: topic.topic_id for name, topic in self.source_topics.items()}

    def resumption(
        self,
        wanted: Mapping[TopicPartition, Assignment],
        positions: Mapping[TopicPartition, Position],
    ) -> Resumption:
        """What follows for the wanted partitions; some may have no position."""
        reasons = {
            key: self._obstacle(assignment, positions.get(key))
            for key, assignment in wanted.items()
        }
        read = {key: positions[key] for key, reason in reasons.items() if not reason}
        return Resumption(
            read=read,
            obstacles={key: reason for key, reason in reasons.items() if reason},
            first={
                key: position
                for key, position in read.items()
                if self._is_first(wanted[key], position)
            },
            doubtful={
                key: position
                for key, position in read.items()
                if self._is_doubtful(key, position)
            },
            unchecked={
                key: position
                for key, position in read.items()
                if not self.leaders_check
                and self._leader_epoch(key) > position.leader_epoch >= 0
                and not self._is_doubtful(key, position)
            },
        )

    def _obstacle(self, wanted: Assignment, position: Position | None) -> str:
        copy = (wanted.target_topic, wanted.partition)
        if copy in self.filled and not self.appends:
            return (
                f"{copy[0]}-{copy[1]} has records that this flow did not copy: if "
                "MirrorMaker 2 did, run mirror adopt; to append to them, set "
                "append_to_existing"
            )
        end = self.ends.get((wanted.topic, wanted.partition))
        if end is not None and end.reason:
            return end.reason
        return self.closed.get(copy) or obstacle(
            wanted,
            source=self.source_topics[wanted.topic],
            target=self.target_topics[wanted.target_topic],
            position=position,
        )

    def _is_first(self, wanted: Assignment, position: Position) -> bool:
        """Whether a partition must commit its position even without a record."""
        key = (wanted.topic, wanted.partition)
        known = self.progress.positions.get(key)
        if wanted.term is not None:
            return position.offset != (0 if known is None else known.offset)
        return known is None and (
            key in self.progress.unsettled
            or position.offset > 0
            or (wanted.target_topic, key[1]) in self.filled
        )

    def _is_doubtful(self, key: TopicPartition, position: Position) -> bool:
        oldest = max(position.leader_epoch, position.oldest_leader)
        older = self._leader_epoch(key) < oldest
        return older or remade(self.source_topics[key[0]].topic_id, position)

    def _leader_epoch(self, key: TopicPartition) -> int:
        return self.source_topics[key[0]].leaders[key[1]].epoch


class TakeOverSurvey:
    """Asks both clusters at each take-over of one slot."""

    def __init__(
        self,
        plan: LeasePlan,
        source: Cluster,
        target: Cluster,
        writer: TargetWriter,
        records: TransactionRecords,
        *,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        self._plan = plan
        self._flow = plan.flow
        self._source = source
        self._target = target
        self._writer = writer
        self._records = records
        self._log = log
        self._closed: dict[TopicPartition, str] = {}

    def find(self, lease: Lease, wanted: Collection[Assignment]) -> Found:
        """The state of these partitions of the lease. Call it after fencing.

        Raises:
            SupersededError: a newer run of the flow is active.
            NewRunError: a new run has to begin.
            MirrorError: a cluster does not answer, or refuses, or a transaction is open
                where the flow keeps its state.
        """
        names = {each.target_topic for each in wanted}
        copies = {(each.target_topic, each.partition) for each in wanted}
        if (dead := self._flow.dead_letter_topic) is not None:
            names.add(dead)
        target_topics = self._target.topics({*names, *self._records.topics})
        dead_letters = set()
        if dead is not None:
            dead_letters = {(dead, number) for number in target_topics[dead].leaders}
        told = set(self._closed.values())
        search = self._records.search(self._target, dead_letters)
        looked = self._writer.complete(
            target_topics, {*copies, *self._records.partitions, *dead_letters}, search
        )
        self._closed = dict(looked.unseen)
        self._close(looked.hanging, told)
        for key in self._records.partitions:
            if reason := self._closed.get(key):
                raise UnreachableError(reason)
        known = progress.read_proven(self._target, self._records.progress[0])
        if known.generation != lease.generation:
            raise SupersededError(
                f"flow {self._flow.name}: a newer run of the flow is active"
            )
        known.require_whole(self._flow.name)
        left = left_by_others(
            *(self._target, self._plan.slot_ids, looked.others, search),
            copies=copies,
            dead_letters=dead_letters,
        )
        self._close(left, told)
        source_topics = self._source.topics({each.topic for each in wanted})
        return Found(
            progress=known,
            ends=self._writer.find_ends(
                KnownCopies(
                    source=self._source,
                    wanted=wanted,
                    positions=known.positions,
                    running=known.running,
                    source_topics=source_topics,
                    target_topics=target_topics,
                )
            ),
            filled=self._filled(wanted, known),
            appends=self._plan.appends,
            target_topics=target_topics,
            limits=topic_admin.max_message_bytes(self._target, names),
            compacted=configs.compacted(self._target, names)
            if self._flow.fill == "visible" else frozenset(),
            source_topics=source_topics,
            closed=self._closed,
            silent=looked.unseen.keys(),
            dead_letter_partitions=len(dead_letters),
            leaders_check=self._source.speaks(fetch.API_KEY, fetch_by_id.VERSION),
        )  # fmt: skip

    def _filled(
        self, wanted: Collection[Assignment], known: Progress
    ) -> frozenset[TopicPartition]:
        if self._plan.appends and not self._flow.append_to_existing:
            return frozenset()
        begun = known.positions
        new = [
            (each.target_topic, each.partition)
            for each in wanted
            if (each.topic, each.partition) not in begun and each.term is None
        ]
        return starting.filled(self._flow, self._target, new)

    def _close(self, hanging: Iterable[Hanging], told: Collection[str]) -> None:
        """Write nothing where a transaction stays open: the next commit or abort would
        also end that one. `told`: what the log says already.
        """
        for each in hanging:
            if each.text not in told:
                self._log.warning("transaction left open", what=each.text)
            if not each.ended:
                self._closed |= dict.fromkeys(each.partitions, each.text)
