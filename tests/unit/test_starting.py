"""Where partitions begin that do not answer at a flow's first start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
import uuid

import pytest

from mirror.clusters.admin import topic_admin
from mirror.clusters.admin.topic_admin import EpochEnd
from mirror.clusters.topics import Leader, Topic
from mirror.copying import gaps
from mirror.offsets import progress, starting
from mirror.offsets.progress import UNSETTLED, Position
from mirror.offsets.starting import StartPoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

pytestmark = pytest.mark.unit

TOPIC = "orders"
TOPIC_ID = uuid.UUID(int=5)
LATEST = StartPoint(timestamp=topic_admin.LATEST)
MOMENT = 1_700_000_000_000
Key = tuple[str, int]


@dataclass
class Log:
    """A partition: who leads it in which epoch, and where epochs begin."""

    node: int = 1
    epoch: int = 0
    begins: dict[int, int] = field(default_factory=dict)
    end: int = 0
    younger: int = -1
    """The offset of the first record that is younger than the moment."""
    errors: int = 0
    """How many more times it answers with an error."""

    def elect(self, node: int) -> None:
        self.node, self.epoch = node, self.epoch + 1
        if node >= 0:
            self.begins[self.epoch] = self.end

    def listed(self, timestamp: int) -> int:
        return {topic_admin.EARLIEST: 0, topic_admin.LATEST: self.end}.get(
            timestamp, self.younger
        )

    def ends_in(self, epoch: int) -> int:
        later = [offset for each, offset in self.begins.items() if each > epoch]
        if later:
            return min(later)
        return self.end if epoch == self.epoch else -1


class Source:
    """Some partitions of one topic, as brokers show them."""

    def __init__(self, *logs: Log) -> None:
        self.logs = {(TOPIC, number): log for number, log in enumerate(logs)}
        self.ids = dict.fromkeys(self.logs, TOPIC_ID.hex)

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        leaders = {
            number: Leader(node=log.node, epoch=log.epoch)
            for (_, number), log in self.logs.items()
        }
        return {
            name: Topic(
                name=name,
                topic_id=TOPIC_ID,
                leaders=leaders,
                error=0,
                replication_factor=1,
            )
            for name in names
        }

    def answering(self, keys: Iterable[Key]) -> Iterator[tuple[Key, Log]]:
        for key in keys:
            log = self.logs[key]
            if log.node >= 0 and not log.errors:
                yield key, log
            log.errors = max(log.errors - 1, 0)


@pytest.fixture(autouse=True)
def _asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def list_offsets(
        source: Source, keys: Iterable[Key], *, timestamp: int
    ) -> dict[Key, int]:
        return {key: log.listed(timestamp) for key, log in source.answering(list(keys))}

    def ends(
        source: Source, epochs: Mapping[Key, int], _topics: object
    ) -> dict[Key, EpochEnd]:
        return {
            key: EpochEnd(epoch=epochs[key], offset=log.ends_in(epochs[key]))
            for key, log in source.answering(epochs)
        }

    monkeypatch.setattr(starting.topic_admin, "list_offsets", list_offsets)
    monkeypatch.setattr(starting.topic_admin, "epoch_ends", ends)


def begin(source: Any, place: StartPoint = LATEST) -> dict[Key, Position]:
    return starting.begin(source, source.ids, place)


def settle(
    source: Any, unsettled: Mapping[Key, Position], place: StartPoint = LATEST
) -> dict[Key, int]:
    found = starting.find_late(source, unsettled, place)
    return {key: position.offset for key, position in found.items()}


def test_a_partition_without_a_leader_begins_where_its_log_ended() -> None:
    """Its position is found once it has a leader again: what it accepted since then is
    copied, however often leaders changed meanwhile, and nothing from before.
    """
    log = Log(epoch=3, begins={3: 0}, end=100)
    source = Source(log, Log(end=7))
    log.elect(-1)
    begun = begin(source)
    assert begun[TOPIC, 1] == Position(offset=7, topic_id=TOPIC_ID)
    unsettled = {(TOPIC, 0): begun[TOPIC, 0]}
    assert begun[TOPIC, 0].offset == UNSETTLED
    assert settle(source, unsettled) == {}
    for node in (1, 2):
        log.elect(node)
        assert settle(source, unsettled) == {(TOPIC, 0): 100}
        log.end += 20
        assert settle(source, unsettled) == {(TOPIC, 0): 100}


def test_a_log_that_knows_no_later_epoch_is_at_its_end() -> None:
    """Old brokers note an epoch with its first record: without one, there are none."""
    log = Log(node=-1, epoch=4, begins={3: 0}, end=100)
    source = Source(log)
    begun = begin(source)
    log.node, log.epoch = 1, 5
    assert settle(source, begun) == {(TOPIC, 0): 100}
    log.begins[5], log.end = 100, 130
    assert settle(source, begun) == {(TOPIC, 0): 100}


def test_a_new_leader_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that answers with an error for a moment leaves nothing unsettled."""
    monkeypatch.setattr(starting, "_PAUSE_SECONDS", 0.0)
    begun = begin(Source(Log(end=9, errors=2)))
    assert begun == {(TOPIC, 0): Position(offset=9, topic_id=TOPIC_ID)}


def test_a_moment_is_asked_for_as_a_moment() -> None:
    """With `start` at a moment, a partition that answers late still begins at that
    moment, or with its next record if it has none that new.
    """
    place = StartPoint(timestamp=MOMENT)
    source = Source(Log(node=-1, end=50, younger=20), Log(node=-1, end=60))
    begun = begin(source, place)
    for log in source.logs.values():
        log.elect(1)
    assert settle(source, begun, place) == {(TOPIC, 0): 20, (TOPIC, 1): 60}


def test_only_partitions_of_the_same_topic_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Partitions that wait for their position begin there; a topic that was re-created
    meanwhile, and a partition found later, begin at their first record.
    """
    source: Any = Source(*(Log(epoch=1, begins={1: 80}, end=90) for _ in range(3)))
    monkeypatch.setattr(
        gaps.topic_admin, "list_offsets", starting.topic_admin.list_offsets
    )
    known = progress.Progress(
        unsettled={
            (TOPIC, 0): Position(offset=UNSETTLED, leader_epoch=0, topic_id=TOPIC_ID),
            (TOPIC, 1): Position(
                offset=UNSETTLED, leader_epoch=0, topic_id=uuid.UUID(int=6)
            ),
        }
    )
    found = gaps.first_positions(
        source, list(source.logs), known, source.topics([TOPIC]), place=LATEST
    )
    assert {key[1]: each.offset for key, each in found.items()} == {0: 80, 1: 0, 2: 0}


def test_progress_tells_unsettled_partitions_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An unsettled partition has no position until one is written after it."""
    waits = Position(offset=UNSETTLED, leader_epoch=3, topic_id=TOPIC_ID)
    copied = Position(offset=12, leader_epoch=4, topic_id=TOPIC_ID)
    written = [{(TOPIC, 0): waits, (TOPIC, 1): waits}, {(TOPIC, 0): copied}]

    class Log:
        start = 0

        def __init__(self, *_: object, **__: object) -> None:
            pass

        def read(self, **_: object) -> Iterator[tuple[int, bytes, bytes]]:
            for (topic, partition), each in written.pop(0).items():
                value = progress._VALUE.pack(
                    0, each.offset, each.leader_epoch, each.topic_id.bytes
                )
                yield 0, progress._key(topic, partition), value

    monkeypatch.setattr(progress, "TopicReader", Log)
    target: Any = None
    reader = progress.ProgressReader(target, "progress")
    first, second = reader.read(), reader.read()

    assert (first.positions, second.positions) == ({}, {(TOPIC, 0): copied})
    assert first.unsettled == {(TOPIC, 0): waits, (TOPIC, 1): waits}
    assert second.unsettled == {(TOPIC, 1): waits}
