"""What a survey keeps of the offset map, and what explains records without copies."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
import uuid

import numpy as np
import pytest

from mirror.clusters.topics import Topic
from mirror.offsets.runs import Block
from mirror.pairs.losses import Cause, Loss
from mirror.proofs import survey
from mirror.proofs.ranges import RunFiles
from mirror.proofs.survey import Logs
from mirror.topics.topics import MirroredTopic

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.unit

NOW, DELETED, COPY = (uuid.UUID(int=n) for n in (1, 2, 3))
KEY = ("t", 0)


def test_runs_of_deleted_topics_are_kept_as_far_as_the_copy_reaches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Places that retention has taken, and those behind the end, take no memory; of a
    run that reaches into the log, the rest counts. This topic's runs are all kept.
    """
    deleted = [(0, 0, 10), (20, 11, 10), (40, 95, 10)]

    def gather(*_: Any, **__: Any) -> Iterator[tuple[int, Block, bool]]:
        for run in deleted:
            yield 0, _block(DELETED, run), False
        yield 0, _block(NOW, (0, 22, 70)), False

    monkeypatch.setattr(survey, "gather", gather)
    monkeypatch.setattr(survey, "settled_ends", lambda *_: ({}, set()))
    monkeypatch.setattr(
        survey, "TopicReader", lambda *_: SimpleNamespace(start=0, answers=list)
    )
    topic = MirroredTopic(topic="t", target_topic="A.t", partitions=1, topic_id=NOW.hex)
    copy = Topic(name="A.t", topic_id=COPY, leaders={}, error=0, replication_factor=1)
    logs = Logs.__new__(Logs)
    logs.copies = {"A.t": copy}
    logs._starts, logs._ends = {("A.t", 0): 15}, {("A.t", 0): 92}
    flow: Any = SimpleNamespace(source="A", separator=".", exactly_once=True)
    target: Any = SimpleNamespace(topic=lambda _: copy)

    with RunFiles() as files:
        known = survey._read_map(flow, target, [topic], logs, files)
        mine = [run for piece in files.runs_of(KEY) for run in piece.tolist()]

    assert known.older[KEY].tolist() == [[15, 15, 6]]
    assert mine == [[0, 22, 70]]


def _block(topic_id: uuid.UUID, run: tuple[int, int, int]) -> Block:
    return Block(
        topic="t", partition=0, target_topic="A.t", topic_id=topic_id, copy_id=COPY,
        runs=np.array([run], np.int64),
    )  # fmt: skip


def told(**changes: bytes | None) -> dict[bytes, bytes | None]:
    says: dict[str, bytes | None] = {
        "cluster": b"A", "topic": b"orders", "partition": b"3", "offset": b"88121",
    }  # fmt: skip
    says |= changes
    return {f"mirror.error.{name}".encode(): value for name, value in says.items()}


def test_it_says_where_the_record_stood() -> None:
    """Cluster, topic, partition and offset, of this source alone."""
    assert survey.origin(told(), "A") == (("orders", 3), 88121)
    assert survey.origin(told(), "B") is None


@pytest.mark.parametrize(
    "forged",
    [
        {"offset": b"9" * 5000}, {"offset": b"9" * 19}, {"offset": "²".encode()},
        {"offset": None}, {"offset": b"-1"}, {"partition": b"1" * 30},
        {"partition": b""}, {"cluster": b"\xff"},
    ],
)  # fmt: skip
def test_numbers_that_are_none_of_ours(forged: dict[str, bytes | None]) -> None:
    """They become no dead letters, and are no reason to give up."""
    assert survey.origin(told(**forged), "A") is None


@pytest.mark.parametrize(
    ("cause", "of_today"),
    [
        (Cause.DELETED, True), (Cause.SKIPPED, True), (Cause.RECREATED, True),
        (Cause.TRUNCATED, False),
    ],
)  # fmt: skip
def test_a_loss_of_another_topic_or_branch(cause: Cause, of_today: bool) -> None:
    """What a deleted topic lost, or an election cut off, does not explain why a record
    of today's topic at the same offset has no copy.
    """
    loss = Loss(
        at=0.0, flow="A->B", topic="t", partition=0, target_topic="A.t", cause=cause,
        first=3, last=5, topic_id="1" * 32,
    )  # fmt: skip
    assert loss.is_of("1" * 32) is of_today
    assert not loss.is_of("2" * 32)
    assert loss.is_of("0" * 32) is of_today, "brokers without ids"
