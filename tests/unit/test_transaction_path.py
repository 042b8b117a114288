"""The path of a transaction: what it sends when, and which event reports its commit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock
import uuid

import pytest

from mirror.config.schema import FlowConfig
from mirror.copying import target
from mirror.copying.target import PathStage, TargetWriter
from mirror.copying.transaction import PendingTransaction, TransactionRecords
from mirror.errors import UnreachableError
from mirror.offsets import progress
from mirror.offsets.progress import Position, RunningCount
from mirror.status.values import Counts

pytestmark = pytest.mark.unit

COPY = ("A.t", 0)
RECORDS = TransactionRecords.for_source("A", ".")
NO_WORDS: Any = {}


class Write:
    """Is sent, and then acknowledged, when the test says so."""

    made: list[Write]

    def __init__(self, *arguments: Any) -> None:
        self.partitions = set(arguments[2])
        self.placed: list[Any] = []
        self.sent = self.acknowledged = self.begun = False
        self.failing = False
        self.outstanding: list[Any] = []
        self.again_in = None
        self.throttled_seconds = 0.0
        Write.made.append(self)

    def advance(self) -> bool:
        if self.failing:
            raise UnreachableError("gone")
        self.begun = True
        return self.acknowledged

    def acknowledge(self) -> None:
        self.sent = self.acknowledged = True


class Producer:
    """Answers a commit when the test says so: committed, or ask again."""

    def __init__(self, *_: Any, transactional_id: str | None, **__: Any) -> None:
        self.transactional_id = transactional_id
        self.producer_id = 1
        self.v2 = True
        self.answers: list[Any] = []
        self.added: list[Any] = []

    def add_partitions(self, partitions: Any) -> None:
        self.added += partitions

    def begin_commit(self) -> Any:
        answer = SimpleNamespace(answered=False, said=None, connection=Mock())
        answer.result = lambda: answer.said
        self.answers.append(answer)
        return answer

    def committed(self, said: bool) -> bool:
        return said

    def answer(self, *, committed: bool) -> None:
        self.answers[-1].said = committed
        self.answers[-1].answered = True


class Copies:
    """Records which data it sees, in which order."""

    def __init__(self, *_: Any) -> None:
        self.seen: list[Any] = []

    def check(self, placed: Any, _: Any) -> None:
        self.seen.append(placed)


class Endings:
    """Transactions that may still be open in some partition."""

    def __init__(self, *_: Any) -> None:
        self.open: set[str] = set()

    def expect(self, name: str, *_: Any) -> None:
        self.open.add(name)

    def awaits(self, name: str | None) -> bool:
        return name in self.open

    def connections(self) -> list[Any]:
        return []

    def again_in(self, _: str | None) -> None:
        pass

    def advance(self, _: str | None) -> None:
        pass


class Writing:
    """A writer of transactions of one batch each."""

    def __init__(self, *, exactly_once: bool = True) -> None:
        cluster: Any = SimpleNamespace(alias="B", high_latency=False)
        flow = FlowConfig(source="A", target="B", exactly_once=exactly_once)
        self.writer = TargetWriter(cluster, RECORDS, flow, slot=0)
        self.producers: list[Any] = self.writer._producers
        self.endings: Any = self.writer._endings

    def begin(self) -> tuple[PendingTransaction, Write]:
        """A transaction, and the write of its data."""
        rewriter: Any = None
        batch: Any = SimpleNamespace(size=10)
        transaction = PendingTransaction(rewriter=rewriter, batches={COPY: [batch]})
        self.writer.write(transaction, NO_WORDS)
        return transaction, Write.made[-1]

    @property
    def stages(self) -> list[PathStage]:
        return [path.stage for path in self.writer._under_way]

    def committed(self) -> list[PendingTransaction]:
        return [event.transaction for event in self.writer.take_events()]


@pytest.fixture(autouse=True)
def _no_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    Write.made = []
    monkeypatch.setattr(target, "Write", Write)
    monkeypatch.setattr(target, "Producer", Producer)
    monkeypatch.setattr(target, "Copies", Copies)
    monkeypatch.setattr(target, "Endings", Endings)


def test_data_then_records_then_the_commit() -> None:
    """With exactly-once the positions go with the data and the map after it; the event
    comes with the commit.
    """
    writing = Writing()
    transaction, data = writing.begin()
    assert data.partitions == {COPY, RECORDS.progress}
    assert writing.stages == [PathStage.WRITING]
    data.acknowledge()
    writing.writer.advance()
    assert writing.stages == [PathStage.RECORDING]
    Write.made[-1].acknowledge()
    writing.writer.advance()
    assert writing.stages == [PathStage.COMMITTING]
    assert writing.committed() == []
    writing.producers[0].answer(committed=True)
    writing.writer.advance()
    assert writing.stages == []
    assert writing.committed() == [transaction]
    assert writing.committed() == []


def test_a_broker_that_wants_time_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A commit that the broker does not accept yet is requested again in a moment."""
    writing = Writing()
    _, data = writing.begin()
    data.acknowledge()
    writing.writer.advance()
    Write.made[-1].acknowledge()
    writing.writer.advance()
    monkeypatch.setattr(target, "_ASK_AGAIN_SECONDS", 60.0)
    writing.producers[0].answer(committed=False)
    writing.writer.advance()
    assert writing.stages == [PathStage.RECORDED]
    assert 50 < (writing.writer.again_in or 0) <= 60
    writing.writer._under_way[0]._commit_at = 0.0
    writing.writer.advance()
    assert writing.stages == [PathStage.COMMITTING]
    assert len(writing.producers[0].answers) == 2


def test_at_least_once_writes_positions_last() -> None:
    """Without transactions there is no commit: the map follows the data, and the
    positions follow the map.
    """
    writing = Writing(exactly_once=False)
    transaction, data = writing.begin()
    assert data.partitions == {COPY}
    data.acknowledge()
    writing.writer.advance()
    assert Write.made[-1].partitions == set()  # no runs, so nothing for the map
    Write.made[-1].acknowledge()
    writing.writer.advance()
    assert Write.made[-1].partitions == {RECORDS.progress}
    assert writing.committed() == []
    Write.made[-1].acknowledge()
    writing.writer.advance()
    assert writing.committed() == [transaction]


def test_in_v1_all_partitions_are_added_once_before_the_data() -> None:
    """Older clusters must know which partitions a transaction writes to, also those of
    its records.
    """
    writing = Writing()
    writing.producers[0].v2 = False
    _, data = writing.begin()
    writing.writer.advance()

    assert data.begun
    added = writing.producers[0].added
    assert added == [COPY, RECORDS.progress, RECORDS.offset_map]


def test_the_next_one_keeps_behind() -> None:
    """A transaction sends nothing before the one ahead has sent all its data, no
    records before that one's records are sent, and requests no commit before that one
    is committed; logs are checked in order.
    """
    writing = Writing()
    first, first_data = writing.begin()
    second, second_data = writing.begin()
    assert not second_data.begun
    assert not writing.writer.ready
    first_data.sent = True
    writing.writer.advance()
    assert second_data.begun

    second_data.acknowledge()  # by another broker than the first one waits for
    writing.writer.advance()
    assert writing.stages == [PathStage.WRITING, PathStage.WRITTEN]
    copies: Any = writing.writer._copies
    assert copies.seen == []
    first_data.acknowledge()
    writing.writer.advance()
    assert writing.stages == [PathStage.RECORDING, PathStage.WRITTEN]
    assert copies.seen == [first_data.placed]
    first_records = Write.made[-1]
    first_records.sent = True
    writing.writer.advance()
    assert writing.stages == [PathStage.RECORDING, PathStage.RECORDING]

    Write.made[-1].acknowledge()
    writing.writer.advance()
    assert writing.stages == [PathStage.RECORDING, PathStage.RECORDED]
    first_records.acknowledge()
    writing.writer.advance()
    assert writing.stages == [PathStage.COMMITTING, PathStage.RECORDED]
    writing.producers[0].answer(committed=True)
    writing.writer.advance()
    assert writing.stages == [PathStage.COMMITTING]
    assert writing.committed() == [first]
    writing.producers[1].answer(committed=True)
    writing.writer.advance()
    assert writing.committed() == [second]


def test_an_id_is_used_again_when_its_transaction_has_ended_everywhere() -> None:
    """After all ids had their turn, the first one waits for its earlier transaction,
    and the others go on meanwhile.
    """
    writing = Writing()
    for producer in writing.producers:
        assert writing.writer.ready
        _, data = writing.begin()
        data.acknowledge()
        writing.writer.advance()
        Write.made[-1].acknowledge()
        writing.writer.advance()
        producer.answer(committed=True)
        writing.writer.advance()
    assert writing.stages == []
    assert not writing.writer.ready
    writing.endings.open.remove(writing.producers[0].transactional_id)
    assert writing.writer.ready


def test_a_failure_takes_all_but_the_one_that_commits() -> None:
    """A transaction that fails is dropped, and all after it; one that has requested its
    commit may still be committed.
    """
    writing = Writing()
    first, data = writing.begin()
    data.acknowledge()
    writing.writer.advance()
    Write.made[-1].acknowledge()
    writing.writer.advance()
    _, failing = writing.begin()
    failing.sent = True
    writing.begin()
    failing.failing = True
    with pytest.raises(UnreachableError):
        writing.writer.advance()
    assert writing.stages == [PathStage.COMMITTING]
    writing.producers[0].answer(committed=True)
    writing.writer.finish()
    assert writing.committed() == [first]


def test_a_commit_counts_when_the_next_transaction_fails_beside_it() -> None:
    """If a commit and a failure are found in the same pass, the commit is still
    reported.
    """
    writing = Writing()
    first, data = writing.begin()
    data.acknowledge()
    writing.writer.advance()
    Write.made[-1].acknowledge()
    writing.writer.advance()
    _, failing = writing.begin()
    failing.failing = True
    writing.producers[0].answer(committed=True)
    with pytest.raises(UnreachableError):
        writing.writer.advance()
    assert writing.stages == []
    assert writing.committed() == [first]


def test_positions_are_written_with_their_running_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A partition that a transaction moves gets its position and its count in one
    record.
    """
    monkeypatch.setattr(progress.records, "encode_all", list)
    key, position = ("t", 0), Position(offset=5, topic_id=uuid.uuid4())
    count = RunningCount(service=uuid.uuid4(), begun=1, counts=Counts(records=5))
    rewriter: Any = None
    transaction = PendingTransaction(
        rewriter=rewriter, moved={key: position}, running={key: count}
    )

    (record,) = RECORDS.positions(transaction)[RECORDS.progress]
    written: Any = record
    assert progress.decode(*written) == (key, position, count.encoded())
