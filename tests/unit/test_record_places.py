"""All places of one record in an offset map, against maps that are fully known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
import uuid

import numpy as np
import pytest

from mirror.clusters.topics import Topic
from mirror.offsets import runs
from mirror.offsets.progress import NO_ID
from mirror.offsets.runs import Block
from tests.harness.configurations import configuration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mirror.offsets.runs import Pairs

pytestmark = pytest.mark.unit

FIRST_ID, SECOND_ID, COPY_ID, OLD_COPY_ID = (uuid.UUID(int=n) for n in range(1, 5))
COPY = Topic(name="A.t", topic_id=COPY_ID, leaders={}, error=0, replication_factor=1)

Run = tuple[int, int, int]


def block(
    *found: Run, topic: str = "t", partition: int = 0, topic_id: uuid.UUID = FIRST_ID,
    copy_id: uuid.UUID = COPY_ID,
) -> Block:  # fmt: skip
    return Block(
        topic=topic, partition=partition, target_topic="A.t", topic_id=topic_id,
        copy_id=copy_id, runs=np.array(found, np.int64).reshape(-1, 3),
    )  # fmt: skip


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Pairs]:
    """What a map of these blocks, one in each record, says about an offset."""

    def known(
        *blocks: Block, offset: int, exactly_once: bool = True, start: int = 0,
        late: Sequence[Block] = (), copy: Topic | None = COPY, **about: Any,
    ) -> Pairs:  # fmt: skip
        class Reader:
            def __init__(self, *_: Any) -> None:
                self.start = start

            def read(self) -> Iterator[tuple[int, bytes, bytes]]:
                for at, each in enumerate(blocks):
                    for value in runs.encode([each]):
                        yield at, b"", value
                for appended, value in runs.encode_late(late):
                    yield len(blocks), appended, value

            def answers(self) -> Iterator[Iterator[tuple[int, bytes, bytes]]]:
                yield self.read()

        class Target:
            def topic(self, _name: str) -> Topic:
                return COPY

        ends = {alias: {"bootstrap_servers": "h:1"} for alias in "AB"}
        flows = {"A->B": {"exactly_once": exactly_once}}
        config = configuration({"clusters": ends, "flows": flows})
        monkeypatch.setattr(runs, "TopicReader", Reader)
        target: Any = Target()
        return runs.find_pairs(config.flows["A->B"], target, copy, 0, offset, **about)

    return known


def both(found: Pairs) -> list[tuple[int, int]]:
    return [(each.source, each.target) for each in found.pairs]


def test_only_runs_that_have_the_offset_count(read: Callable[..., Pairs]) -> None:
    """Beside a run, in a hole, after the end, in another partition or topic is none; a
    group's offset would be translated to the next copy there.
    """
    blocks = (
        block((10, 5, 10)), block((30, 16, 5)), block((20, 100, 9), partition=1),
        block((20, 200, 9), topic="other"),
    )  # fmt: skip

    found = {
        n: both(read(*blocks, offset=n, topic="t")) for n in (9, 10, 19, 20, 34, 35)
    }

    assert found == {
        9: [],
        10: [(10, 5)],
        19: [(19, 14)],
        20: [],
        34: [(34, 20)],
        35: [],
    }
    assert read(*blocks, offset=9, topic="t").first == 10


def test_backwards_the_map_names_the_topic(read: Callable[..., Pairs]) -> None:
    """In a copy with several sources' topics, the run that holds the offset says whose
    record it is; the marker after it is nobody's.
    """
    blocks = (block((10, 5, 10)), block((0, 16, 5), topic="other"))

    assert [(each.topic, each.source) for each in read(*blocks, offset=17).pairs] == [
        ("other", 1)
    ]
    assert read(*blocks, offset=15).pairs == ()


@pytest.mark.parametrize("exactly_once", [True, False])
def test_copied_again_both_copies_count(
    read: Callable[..., Pairs], exactly_once: bool
) -> None:
    """After a reset, or an interruption with at-least-once, a record stands twice."""
    blocks = (block((0, 0, 10)), block((5, 20, 10)))

    known = read(*blocks, offset=7, topic="t", exactly_once=exactly_once)

    assert both(known) == [(7, 7), (7, 22)]


def test_a_copy_that_lost_its_end(read: Callable[..., Pairs]) -> None:
    """Where writers are fenced, a target offset that goes back says that what was there
    is gone, whichever partition of whichever source it came from; where they are not,
    a record of the map may come late, and says nothing.
    """
    blocks = (block((0, 0, 10)), block((10, 5, 3)))

    assert both(read(*blocks, offset=7, topic="t")) == []
    assert both(read(*blocks, offset=4, topic="t")) == [(4, 4)]
    assert both(read(*blocks, offset=7, topic="t", exactly_once=False)) == [(7, 7)]


def test_deleted_topics_do_not_count(read: Callable[..., Pairs]) -> None:
    """Neither runs of a copy that was deleted, nor of the source topic before it was;
    on the way back the pair says which one it was. Brokers without ids match any.
    """
    blocks = (
        block((0, 0, 10), copy_id=OLD_COPY_ID), block((0, 0, 5)),
        block((0, 6, 5), topic_id=SECOND_ID),
    )  # fmt: skip

    assert both(read(*blocks, offset=3, topic="t", topic_id=SECOND_ID)) == [(3, 9)]
    assert both(read(*blocks, offset=3, topic="t", topic_id=NO_ID)) == [(3, 3), (3, 9)]
    assert both(read(*blocks, offset=7, topic="t", topic_id=FIRST_ID)) == []
    assert [each.topic_id for each in read(*blocks, offset=2).pairs] == [FIRST_ID]


def test_a_deleted_copy_says_where_the_flow_began(read: Callable[..., Pairs]) -> None:
    """With `start: latest` the flow began with the deleted copy, not with the new one;
    what only the deleted one had is known to have been copied, and stands nowhere.
    Asked for an offset of the new one, the deleted one says nothing.
    """
    blocks = (
        block((100, 0, 4900), copy_id=OLD_COPY_ID), block((5000, 0, 10)),
        block((0, 0, 5), topic_id=SECOND_ID, copy_id=OLD_COPY_ID),
    )  # fmt: skip

    def asked(offset: int) -> tuple[list[tuple[int, int]], int, bool]:
        found = read(*blocks, offset=offset, topic="t", topic_id=FIRST_ID)
        return both(found), found.first, found.deleted

    assert asked(3000) == ([], 100, True)
    assert asked(50) == ([], 100, False)
    assert asked(5003) == ([(5003, 3)], 100, False)
    gone = read(*blocks, offset=5003, topic="t", topic_id=FIRST_ID, copy=None)
    assert (both(gone), gone.first, gone.deleted) == ([], 100, True)
    backwards = read(*blocks, offset=3)
    assert (both(backwards), backwards.deleted) == ([(5003, 3)], False)


def test_what_mirrormaker_copied_is_a_floor(read: Callable[..., Pairs]) -> None:
    """Between a floor and the next run, the map knows only where copies begin."""
    blocks = (block((100, 40, 0)), block((200, 90, 50)))

    floor = read(*blocks, offset=150, topic="t").floor
    assert floor is not None
    assert (floor.source, floor.target) == (100, 40)
    assert read(*blocks, offset=220, topic="t").floor is None
    assert read(*blocks, offset=50, topic="t").floor is None
    assert not read(*blocks, offset=50, topic="t", start=3).whole


def test_what_a_repair_appended(read: Callable[..., Pairs]) -> None:
    """A late record stands behind others, and changes nothing for those."""
    blocks = (block((0, 0, 10)), block((12, 10, 8)))
    late = [block((10, 18, 2))]

    (pair,) = read(*blocks, late=late, offset=11, topic="t").pairs
    assert (pair.source, pair.target, pair.late) == (11, 19, True)
    assert both(read(*blocks, late=late, offset=19)) == [(11, 19)]
    found = read(*blocks, late=late, offset=13, topic="t")
    assert (both(found), found.first) == ([(13, 11)], 0)
    assert read(*blocks, offset=11, topic="t").pairs == ()
