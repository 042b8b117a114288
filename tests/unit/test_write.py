"""`Write` divides batches among connections, and hands over each answer once."""

from __future__ import annotations

from typing import Any

import pytest

from mirror.clusters.topics import NO_ID, Leader, Topic
from mirror.clusters.wire import write
from mirror.clusters.wire.produce import Produced
from mirror.clusters.wire.write import Write
from mirror.records import records

pytestmark = pytest.mark.unit


class _Answer:
    throttle_seconds = 0.0

    def __init__(self, batches: dict[Any, Any], offset: int) -> None:
        self.answered = False
        self._offsets = dict.fromkeys(batches, offset)

    def result(self) -> Produced:
        return Produced(offsets=self._offsets, again=frozenset())


class _Producer:
    transactional_id = None
    v2 = False

    def stamp(self, _key: Any, batch: Any) -> None:
        pass


class _Connection(str):  # noqa: SLOT000
    """Named by its purpose."""

    may_send_on: Any = None


class _Cluster:
    alias = "B"

    def connection(self, _node: int, purpose: str) -> _Connection:
        return _Connection(purpose)


def test_each_answer_is_taken_once_whichever_channel_is_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two partitions on two connections: what the first one writes after the second
    one's answer was taken is taken, too, and nothing twice.
    """
    sent: dict[str, list[_Answer]] = {}

    def send(connection: str, batches: dict[Any, Any], **_: Any) -> _Answer:
        queue = sent.setdefault(connection, [])
        queue.append(_Answer(batches, len(queue)))
        return queue[-1]

    monkeypatch.setattr(write.produce, "send", send)
    monkeypatch.setattr(write.produce, "check", lambda answer: answer)
    one, two = ("t", 0), ("t", 1)
    leaders = {number: Leader(node=1, epoch=0) for number in (0, 1)}
    topic = Topic(
        name="t", topic_id=NO_ID, leaders=leaders, error=0, replication_factor=1
    )
    cluster: Any = _Cluster()
    batches = {key: [records.encode([(b"k", b"v")])] * 2 for key in (one, two)}
    writing = Write(cluster, _Producer(), batches, {"t": topic}, {one: 0, two: 1})
    writing.advance()
    first, second = (sent[purpose] for purpose in write.PURPOSES)

    def taken(*answers: _Answer) -> list[tuple[Any, int]]:
        for each in answers:
            each.answered = True
        writing.advance()
        return [(each.where, each.offset) for each in writing.take_placed()]

    assert taken(first[0], second[0]) == [(one, 0), (two, 0)]
    assert taken(first[1]) == [(one, 1)]
    assert taken(second[1]) == [(two, 1)]
    assert taken() == []
