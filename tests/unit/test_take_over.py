"""What a take-over means for each partition: read on, wait with a reason, or ask."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
import uuid

import pytest

from mirror.clusters.topics import Leader, Topic
from mirror.copying.lease import Assignment
from mirror.copying.take_over import Found
from mirror.offsets.progress import UNSETTLED, Position, Progress

if TYPE_CHECKING:
    from mirror.copying.take_over import Resumption

pytestmark = pytest.mark.unit

_ID, _EARLIER_ID = uuid.UUID(int=1), uuid.UUID(int=2)
_KEY, _COPY = ("t", 0), ("A.t", 0)
_WANTED = {
    _KEY: Assignment(topic="t", partition=0, target_topic="A.t", topic_id=_ID.hex)
}
_AT = Position(offset=7, leader_epoch=4, topic_id=_ID)


def _topic(name: str, *, node: int = 1, partitions: int = 1, error: int = 0) -> Topic:
    return Topic(
        name=name,
        topic_id=_ID,
        leaders={n: Leader(node=node, epoch=4) for n in range(partitions)},
        error=error,
        replication_factor=1,
    )


_FOUND = Found(
    progress=Progress(positions={_KEY: _AT}),
    source_topics={"t": _topic("t")},
    target_topics={"A.t": _topic("A.t")},
    limits={},
    closed={},
    silent=(),
    dead_letter_partitions=0,
    leaders_check=True,
)


def _standing(position: Position | None = _AT, **changes: Any) -> Resumption:
    positions = {} if position is None else {_KEY: position}
    return replace(_FOUND, **changes).resumption(_WANTED, positions)


def test_a_partition_that_can_be_copied_is_read() -> None:
    """It continues at its position, and nothing else needs to be done."""
    standing = _standing()

    assert standing.read == {_KEY: _AT}
    assert standing.obstacles == standing.first == standing.doubtful == {}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"closed": {_COPY: "left open"}}, "left open"),
        ({"source_topics": {"t": _topic("t", error=3)}}, "source topic t: "),
        ({"source_topics": {"t": _topic("t", node=-1)}}, "source partition t-0 has no"),
        ({"position": None}, "no start offset for t-0"),
        ({"target_topics": {"A.t": _topic("A.t", error=3)}}, "target topic A.t: "),
        ({"target_topics": {"A.t": _topic("A.t", partitions=0)}}, "only 0 partitions"),
        ({"target_topics": {"A.t": _topic("A.t", node=-1)}}, "target partition A.t-0"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_obstacle_is_named(changes: dict[str, Any], reason: str) -> None:
    """A partition that cannot be read or written is not read, and says why."""
    standing = _standing(**changes)

    assert standing.read == standing.first == standing.doubtful == {}
    assert reason in standing.obstacles[_KEY]


@pytest.mark.parametrize(
    ("offset", "known", "commits"),
    [
        (0, Progress(), False),
        (7, Progress(), True),
        (0, Progress(unsettled={_KEY: replace(_AT, offset=UNSETTLED)}), True),
        (7, Progress(unsettled={_KEY: replace(_AT, offset=UNSETTLED)}), True),
        (7, Progress(positions={_KEY: _AT}), False),
    ],
    ids=["0", "above 0", "unsettled at 0", "unsettled", "committed"],
)
def test_a_first_position_is_committed(
    offset: int, known: Progress, commits: bool
) -> None:
    """Also if nothing is there to read: without a position the partition counts as
    copied up to 0, and where it was unsettled another lookup might not find it again.
    """
    position = replace(_AT, offset=offset)
    standing = _standing(position, progress=known)

    assert standing.first == ({_KEY: position} if commits else {})


@pytest.mark.parametrize(
    ("position", "doubtful"),
    [
        (replace(_AT, leader_epoch=5), True),
        (replace(_AT, leader_epoch=-1), False),
        (replace(_AT, oldest_leader=5), True),
        (replace(_AT, oldest_leader=4), False),
        (replace(_AT, topic_id=_EARLIER_ID), True),
    ],
    ids=[
        "an older leader",
        "an unknown epoch",
        "one from before a loss",
        "one since a loss",
        "another topic",
    ],
)
def test_a_source_that_fits_no_longer_is_doubted(
    position: Position,
    doubtful: bool,
) -> None:
    """The source shows an older leader, or another topic, than what was copied."""
    standing = _standing(position)

    assert standing.read == {_KEY: position}
    assert standing.doubtful == ({_KEY: position} if doubtful else {})


@pytest.mark.parametrize(
    ("position", "unchecked"),
    [
        (replace(_AT, leader_epoch=3), True),
        (_AT, False),
        (replace(_AT, leader_epoch=-1), False),
        (replace(_AT, leader_epoch=5), False),
    ],
    ids=["a newer leader", "the same leader", "an unknown epoch", "an older leader"],
)
def test_old_brokers_are_asked_about_a_newer_leader(
    position: Position,
    unchecked: bool,
) -> None:
    """A leader that does not compare fetches with what was read before may lack it, and
    have other records there; brokers from 3.1 on say so themselves.
    """
    standing = _standing(position, leaders_check=False)

    assert standing.unchecked == ({_KEY: position} if unchecked else {})
    assert _standing(position).unchecked == {}
