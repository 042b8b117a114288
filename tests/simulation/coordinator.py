"""The states of transactional ids, as their coordinators keep them.

Main type: `Transactions`, of one cluster. States outlive their coordinator; `model`
decides which broker that is. Markers take their time, partition by partition. Source:
Kafka's `TransactionCoordinator` and `TransactionMetadata` (KIP-98, KIP-360, KIP-890).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.simulation.world import World

TopicPartition = tuple[str, int]

NONE, INVALID_EPOCH, INVALID_STATE, INVALID_MAPPING = 0, 47, 48, 49
CONCURRENT, FENCED = 51, 90
EMPTY, ONGOING = "Empty", "Ongoing"
PREPARE_COMMIT, PREPARE_ABORT = "PrepareCommit", "PrepareAbort"
COMPLETE_COMMIT, COMPLETE_ABORT = "CompleteCommit", "CompleteAbort"
_LAST_EPOCH = (1 << 15) - 2
_FIRST_PRODUCER = 1000


@dataclass(slots=True)
class Transaction:
    """One transactional id."""

    name: str
    producer: int
    epoch: int
    timeout: float
    state: str = EMPTY
    partitions: set[TopicPartition] = field(default_factory=set)
    began: float = 0.0
    number: int = 0
    """Increases with every transaction: a timer knows its own by it."""
    before: tuple[int, int] = (-1, -1)
    """Producer id and epoch before the last transaction raised them (KIP-890)."""


Result = tuple[int, int, int]
"""Error, producer id, epoch."""


class Transactions:
    """The transactional ids of one cluster."""

    def __init__(
        self,
        world: World,
        mark: Callable[[TopicPartition, int, int, bool], bool],
        *,
        v2: bool,
    ) -> None:
        """`mark` appends a marker, if the partition has a leader; returns whether."""
        self.v2 = v2
        self.skips_leaderless = False
        """Brokers 4.x forget the marker of a partition that has no leader."""
        self.states: dict[str, Transaction] = {}
        self.ended: list[tuple[int, int, bool]] = []
        """Producer id and epoch of each transaction, and whether it is committed."""
        self.calm()
        self._world = world
        self._mark = mark
        self._next = _FIRST_PRODUCER

    def calm(self) -> None:
        """Markers come soon, and nothing happens because of them."""
        self.delay: Callable[[], float] = lambda: 0.001
        self.ending: Callable[[], None] = lambda: None
        """Called when a transaction is about to get its markers."""
        self.skipped: Callable[[], None] = lambda: None
        """Called when a partition does not get its marker."""

    def new_producer(self) -> int:
        self._next += 1
        return self._next

    def init(self, name: str, timeout: float) -> Result:
        """InitProducerId."""
        known = self.states.get(name)
        if known is None:
            known = self.states[name] = Transaction(
                name, self.new_producer(), -1, timeout
            )
        if known.state in (PREPARE_COMMIT, PREPARE_ABORT):
            return CONCURRENT, -1, -1
        if known.state == ONGOING:
            known.epoch += 1  # its owner is fenced from here on
            self._prepare(known, commit=False)
            return CONCURRENT, -1, -1
        if known.epoch >= _LAST_EPOCH:
            known.producer, known.epoch = self.new_producer(), -1
        known.epoch += 1
        known.state, known.timeout, known.before = EMPTY, timeout, (-1, -1)
        return NONE, known.producer, known.epoch

    def _check(self, name: str, producer: int, epoch: int) -> int:
        known = self.states.get(name)
        if known is None or known.producer != producer:
            return INVALID_MAPPING
        return NONE if known.epoch == epoch else FENCED

    def add(
        self, name: str, producer: int, epoch: int, partitions: Iterable[TopicPartition]
    ) -> int:
        """AddPartitionsToTxn, or the first write to a partition in v2."""
        if error := self._check(name, producer, epoch):
            return error
        known = self.states[name]
        if known.state in (PREPARE_COMMIT, PREPARE_ABORT):
            return CONCURRENT
        if known.state != ONGOING:
            known.state, known.began = ONGOING, self._world.now
            known.number += 1
            known.partitions = set()
            self._expire_later(known)
        known.partitions.update(partitions)
        return NONE

    def has(self, name: str, producer: int, epoch: int, where: TopicPartition) -> int:
        """Whether a v1 transaction may write there (KIP-890, part 1)."""
        if error := self._check(name, producer, epoch):
            return INVALID_EPOCH if error == FENCED else error
        known = self.states[name]
        if known.state != ONGOING or where not in known.partitions:
            return INVALID_STATE
        return NONE

    def end(
        self, name: str, producer: int, epoch: int, *, commit: bool, v2: bool
    ) -> Result:
        """EndTxn."""
        known = self.states.get(name)
        if known is None:
            return INVALID_MAPPING, -1, -1
        raised = (
            v2
            and known.before == (producer, epoch)
            and known.state not in (EMPTY, ONGOING)
        )
        if not raised and (error := self._check(name, producer, epoch)):
            return error, -1, -1
        prepared, complete = (
            (PREPARE_COMMIT, COMPLETE_COMMIT)
            if commit
            else (PREPARE_ABORT, COMPLETE_ABORT)
        )
        if known.state == prepared and (raised or not v2):
            return CONCURRENT, -1, -1
        if known.state == complete and (raised or not v2):
            return NONE, known.producer, known.epoch
        if known.state in (PREPARE_COMMIT, PREPARE_ABORT) and not raised:
            return CONCURRENT, -1, -1
        # In v2 an abort needs no transaction: it raises the epoch all the same.
        if raised or (known.state != ONGOING and (commit or not v2)):
            return INVALID_STATE, -1, -1
        if v2:
            known.before = (known.producer, known.epoch)
            known.epoch += 1
        self._prepare(known, commit=commit)
        return NONE, known.producer, known.epoch

    def _prepare(self, known: Transaction, *, commit: bool) -> None:
        known.state = PREPARE_COMMIT if commit else PREPARE_ABORT
        self.ended.append((known.producer, known.epoch, commit))
        left = set(known.partitions)
        self.ending()
        for where in sorted(left):
            self._mark_later(known, where, left, commit=commit)
        if not left:
            self._complete(known, commit=commit)

    def _mark_later(
        self,
        known: Transaction,
        where: TopicPartition,
        left: set[TopicPartition],
        *,
        commit: bool,
    ) -> None:
        producer, epoch = known.producer, known.epoch

        def mark() -> None:
            marked = self._mark(where, producer, epoch, commit)
            if not marked and self.skips_leaderless:
                self.skipped()
            if marked or self.skips_leaderless:
                left.discard(where)
                if not left:
                    self._complete(known, commit=commit)
            else:
                self._world.after(0.05, mark)

        self._world.after(self.delay(), mark)

    def _complete(self, known: Transaction, *, commit: bool) -> None:
        known.state = COMPLETE_COMMIT if commit else COMPLETE_ABORT
        known.partitions = set()

    def _expire_later(self, known: Transaction) -> None:
        number = known.number

        def expire() -> None:
            if known.number == number and known.state == ONGOING:
                known.epoch += 1
                known.before = (-1, -1)
                self._world.note(f"the transaction of {known.name} expires")
                self._prepare(known, commit=False)

        self._world.after(known.timeout, expire)
