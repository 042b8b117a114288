"""Which gaps in a source's log are believed, and where the position moves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
import uuid

import pytest

from mirror.clusters.admin.topic_admin import EpochEnd
from mirror.clusters.topics import NO_ID, Leader, Leaders, Topic, Views
from mirror.copying import gaps
from mirror.copying.gaps import Gap, Suspect
from mirror.offsets.progress import Position
from mirror.pairs.losses import Cause

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.clusters.cluster import Cluster

pytestmark = pytest.mark.unit

_OLD, _NEW = uuid.UUID(int=1), uuid.UUID(int=2)
_AT = Position(offset=1000, leader_epoch=5, topic_id=_OLD)


def _gap(cause: Cause, first: int, last: int, *, to: int, last_epoch: int = -1) -> Gap:
    position = Position(offset=to, leader_epoch=last_epoch, topic_id=_OLD)
    return Gap(cause=cause, first=first, last=last, to=position)


@pytest.mark.parametrize(
    ("first", "end", "common", "expected"),
    [
        pytest.param(0, 1000, (5, 1000), None, id="all is there"),
        pytest.param(0, 990, (5, 1000), None, id="the high watermark lags"),
        pytest.param(0, 2000, (5, 1500), None, id="inside the log"),
        pytest.param(
            1200,
            2000,
            (5, 1500),
            _gap(Cause.DELETED, 1000, 1199, to=1200),
            id="deleted",
        ),
        pytest.param(
            0,
            1400,
            (5, 900),
            _gap(Cause.TRUNCATED, 900, 999, to=900, last_epoch=5),
            id="truncated, and grown beyond the position",
        ),
        pytest.param(
            0,
            900,
            (4, 900),
            _gap(Cause.TRUNCATED, 900, 999, to=900, last_epoch=4),
            id="truncated by a leader that has nothing of the epoch",
        ),
        pytest.param(
            0,
            1400,
            (4, 1200),
            _gap(Cause.TRUNCATED, 999, 999, to=1000),
            id="another record stands before the position",
        ),
        pytest.param(
            950,
            1400,
            (5, 900),
            _gap(Cause.TRUNCATED, 950, 999, to=950),
            id="truncated, and the beginning deleted",
        ),
        pytest.param(0, 1000, (-1, -1), None, id="no epochs are known, all is there"),
        pytest.param(
            0,
            900,
            None,
            _gap(Cause.TRUNCATED, 900, 999, to=900),
            id="no epochs are known, the log is shorter",
        ),
    ],
)
def test_what_is_gone_follows_from_the_leaders_log(
    first: int, end: int, common: tuple[int, int] | None, expected: Gap | None
) -> None:
    """Only what the newest leader does not have is lost, and copying continues at the
    first offset that may differ: never further back. After a truncation the epoch of
    the record before it comes along, so that one more loss right there is noticed.
    """
    found = gaps.judge(
        _AT,
        topic_id=_OLD,
        first=first,
        end=end,
        common=EpochEnd(epoch=common[0], offset=common[1]) if common else None,
    )

    assert expected == found


def test_another_topic_of_the_name_begins_at_its_first_record() -> None:
    """Its predecessor's id is remembered: it never comes back."""
    found = gaps.judge(_AT, topic_id=_NEW, first=3, end=9, common=None)

    expected = Position(offset=3, topic_id=_NEW, left_id=_OLD)
    assert found == Gap(cause=Cause.RECREATED, first=1000, last=None, to=expected)


def _topic(topic_id: uuid.UUID, *leaders: tuple[int, int]) -> Topic:
    return Topic(
        name="t",
        topic_id=topic_id,
        leaders={
            partition: Leader(node=node, epoch=epoch)
            for partition, (node, epoch) in enumerate(leaders)
        },
        error=0,
        replication_factor=3,
    )


class _Source:
    """A source whose brokers each have a view of topic `t`."""

    def __init__(self, views: Iterable[Topic], *, brokers: int = 3) -> None:
        self._views = Views(
            brokers=brokers,
            answers={node: {"t": view} for node, view in enumerate(views, start=1)},
        )

    def views(self, names: Iterable[str]) -> Views:
        assert set(names) == {"t"}
        return self._views


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, Topic]]:
    """The leaders whose offsets were requested; every log has the offsets 0 to 1999."""
    leaders: list[Mapping[str, Topic]] = []

    def list_offsets(
        _source: Cluster,
        partitions: Iterable[tuple[str, int]],
        *,
        timestamp: int,
        topics: Mapping[str, Topic],
        committed: bool = True,
    ) -> dict[tuple[str, int], int]:
        leaders.append(topics)
        return dict.fromkeys(partitions, 0 if timestamp == -2 else 2000)

    def epoch_ends(
        _source: Cluster, epochs: Mapping[tuple[str, int], int], _topics: object
    ) -> dict[tuple[str, int], EpochEnd]:
        return {key: EpochEnd(epoch=each, offset=2000) for key, each in epochs.items()}

    monkeypatch.setattr(gaps.topic_admin, "list_offsets", list_offsets)
    monkeypatch.setattr(gaps.topic_admin, "epoch_ends", epoch_ends)
    return leaders


def _look(source: _Source, position: Position = _AT) -> gaps.GapFinding:
    suspect = Suspect(topic="t", partition=0, position=position)
    (found,) = gaps.look(source, [suspect])
    assert suspect == found.suspect
    return found


def test_the_newest_leader_is_asked_not_the_one_that_was(
    asked: list[Mapping[str, Topic]],
) -> None:
    """A broker that is cut off names itself; a newer epoch wins, from any broker."""
    views = [_topic(_OLD, (1, 4)), _topic(_OLD, (2, 5)), _topic(_OLD, (1, 4))]
    found = _look(_Source(views))

    assert found.gap is None
    assert found.leader == Leader(node=2, epoch=5)
    assert {topics["t"].leaders[0].node for topics in asked} == {2}


@pytest.mark.parametrize(
    ("views", "position", "reason"),
    [
        ([_topic(_OLD, (1, 4))], _AT, "1 of 3 brokers answer"),
        ([_topic(_OLD, (1, 4))] * 2, _AT, "records of epoch 5 were copied"),
        (
            [_topic(_OLD, (1, 5))] * 2,
            replace(_AT, oldest_leader=6),
            "a leader of epoch 6 no longer had some",
        ),
        (
            [_topic(_NEW, (1, 0)), _topic(_OLD, (1, 5))],
            _AT,
            "more than half of all must agree on its id",
        ),
        ([_topic(_OLD, (-1, 6))] * 3, _AT, "has no leader"),
        (
            [_topic(_NEW, (1, 0)), _topic(_OLD, (1, 5)), _topic(_OLD, (1, 5))],
            _AT,
            "brokers disagree on its id",
        ),
        (
            [_topic(_OLD, (1, 5))] * 3,
            Position(offset=7, topic_id=_NEW, left_id=_OLD),
            "its id from before",
        ),
    ],
    ids=[
        "too few",
        "too old",
        "from before a loss",
        "no majority",
        "no leader",
        "the leader has another",
        "an id that was left",
    ],
)
def test_who_may_be_cut_off_is_not_believed(
    views: list[Topic],
    position: Position,
    reason: str,
    asked: list[Mapping[str, Topic]],
) -> None:
    """A minority of brokers, an older leader, or a topic id from before a re-creation
    cause no loss: the partition waits with a reason.
    """
    found = _look(_Source(views), position)

    assert found.gap is None
    assert reason in found.reason
    assert not asked


def test_most_brokers_name_a_new_topic(asked: list[Mapping[str, Topic]]) -> None:
    """More than half of the brokers are enough; one still shows the deleted topic."""
    views = [_topic(_OLD, (1, 9)), _topic(_NEW, (2, 0)), _topic(_NEW, (2, 0))]
    found = _look(_Source(views))

    assert found.gap is not None
    assert found.gap.cause is Cause.RECREATED
    assert asked[0]["t"].topic_id == _NEW


@pytest.mark.parametrize("epoch", [9, 5, 0])
def test_without_ids_nothing_is_guessed(
    epoch: int, asked: list[Mapping[str, Topic]]
) -> None:
    """A log that ends before the position, or is led under an older epoch, is that of a
    topic created again, or lost its end. Without topic ids the partition waits, with
    them it is known.
    """
    position = Position(offset=3000, leader_epoch=5)
    found = _look(_Source([_topic(NO_ID, (1, epoch))] * 3), position)
    assert found.gap is None
    assert "no topic ids before Kafka 2.8" in found.reason

    known = Position(offset=3000, leader_epoch=5, topic_id=_OLD)
    found = _look(_Source([_topic(_OLD, (1, max(epoch, 5)))] * 3), known)
    assert found.gap is not None
    assert found.gap.cause is Cause.TRUNCATED
    assert found.gap.to.oldest_leader == max(epoch, 5)


def test_leaders_only_get_newer() -> None:
    """An older view changes nothing, a newer one or another topic does; partitions that
    an old view is missing stay.
    """
    leaders = Leaders()
    leaders.newest(_topic(_OLD, (1, 4), (2, 4)))
    assert leaders.newest(_topic(_OLD, (3, 3))).leaders == {
        0: Leader(node=1, epoch=4),
        1: Leader(node=2, epoch=4),
    }
    leaders.learn(_OLD, 1, Leader(node=3, epoch=7))
    leaders.learn(_OLD, 1, Leader(node=2, epoch=6))
    assert leaders.newest(_topic(_OLD, (2, 5), (2, 6))).leaders == {
        0: Leader(node=2, epoch=5),
        1: Leader(node=3, epoch=7),
    }
    assert leaders.newest(_topic(_NEW, (1, 0))).leaders == {0: Leader(node=1, epoch=0)}
    assert leaders.newest(_topic(NO_ID, (1, 0))).leaders == {0: Leader(node=1, epoch=0)}
