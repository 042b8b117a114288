"""Where groups are on both sides, and what follows from it: rules without a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
import pytest

from mirror.clusters.admin.group_offsets import CommittedOffset
from mirror.config.schema import FlowConfig
from mirror.offsets.checkpoints import Checkpoint, due
from mirror.offsets.group_offset_sync import forward
from mirror.offsets.groups import Copy, GroupPosition, missing, translated
from mirror.offsets.offset_syncs import OffsetSync, last_copied
from mirror.offsets.translation import UNKNOWN, Exactness, Translated
from mirror.policy.selection import GroupFilter
from mirror.topics.merging import Merging

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

pytestmark = pytest.mark.unit

COPIES = {"orders": Copy(topic="A.orders", partitions=3)}


@dataclass
class FakeMap:
    """A copy that starts at 1000 and has every second offset, up to a position."""

    positions: dict[tuple[str, int], int] = field(default_factory=dict)

    def position(self, topic: str, partition: int) -> int:
        return self.positions.get((topic, partition), -1)

    def translate(self, topic: str, partition: int, offset: int) -> Translated:
        position = self.position(topic, partition)
        if position < 0:
            return UNKNOWN
        end = 1000 + (position + 1) // 2
        if offset > position:
            return Translated(offset=end, exactness=Exactness.BEHIND)
        if 1000 + (offset + 1) // 2 >= end:
            return Translated(offset=end, exactness=Exactness.TIP)
        return Translated(offset=1000 + (offset + 1) // 2, exactness=Exactness.EXACT)

    def translate_all(
        self, questions: Mapping[tuple[str, int], AbstractSet[int]]
    ) -> dict[tuple[str, int], dict[int, Translated]]:
        return {
            key: {offset: self.translate(*key, offset) for offset in offsets}
            for key, offsets in questions.items()
        }

    def reverse(self, topic: str, partition: int, offset: int) -> Translated:
        if offset < 1000:
            return Translated(offset=0, exactness=Exactness.BEFORE)
        return Translated(offset=(offset - 1000) * 2, exactness=Exactness.EXACT)


def checkpoint(upstream: int, downstream: int) -> Checkpoint:
    return Checkpoint(
        group="g",
        topic="A.orders",
        partition=0,
        upstream=upstream,
        downstream=downstream,
    )


@pytest.mark.parametrize(
    ("previous", "now", "written"),
    [
        (None, (5, 5), True),
        ((5, 5), (5, 5), False),
        ((5, 5), (7, 6), True),
        ((5, 5), (6, 5), True),  # what it has read since was filtered
        ((5, 5), (4, 4), True),  # rewound on the source
        ((5, 5), (4, 9), True),
        ((5, 5), (5, 4), False),
        ((5, 5), (9, 4), False),
        ((5, 5), (5, 6), True),  # it was behind the copy, which went on
    ],
)
def test_a_checkpoint_is_due_when_the_group_moved(
    previous: tuple[int, int] | None, now: tuple[int, int], written: bool
) -> None:
    """MirrorMaker's rule: first, forward, or rewound on the source."""
    before = None if previous is None else checkpoint(*previous)
    assert due(before, checkpoint(*now)) is written


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50))))
def test_checkpoints_only_go_back_with_the_group(
    rounds: list[tuple[int, int]],
) -> None:
    """Whatever a map answers, a checkpoint goes back only if the group did on the
    source.
    """
    written: Checkpoint | None = None
    for upstream, downstream in rounds:
        now = checkpoint(upstream, downstream)
        if not due(written, now):
            continue
        if written is not None and now.downstream < written.downstream:
            assert now.upstream < written.upstream
        written = now


@given(
    st.dictionaries(st.integers(0, 3), st.integers(0, 9)),
    st.dictionaries(st.integers(0, 3), st.integers(0, 9)),
)
def test_groups_on_the_target_only_go_forward(
    checkpoints: dict[int, int], present: dict[int, int]
) -> None:
    """No offset is set below the present one, and none is missing afterwards."""
    wanted = {("A.orders", p): checkpoint(0, at) for p, at in checkpoints.items()}
    there = {("A.orders", p): CommittedOffset(at) for p, at in present.items()}
    steps = forward(wanted, there)
    for key, step in steps.items():
        assert step.offset > there.get(key, CommittedOffset(-1)).offset
    after = {**there, **steps}
    assert all(after[key].offset >= c.downstream for key, c in wanted.items())


def placed(
    offsets: dict[tuple[str, int], CommittedOffset],
    copies: dict[str, Copy],
    knowing: FakeMap,
    edges: dict[tuple[str, int], tuple[int, int]],
) -> list[GroupPosition]:
    """Where a single group is."""
    return translated({"g": offsets}, copies, knowing, edges)["g"]


def test_offsets_are_translated_with_what_they_are_worth() -> None:
    """Each partition says where the group continues, and how far the copy is behind."""
    places = placed(
        {
            ("orders", 0): CommittedOffset(10, "m"),
            ("orders", 1): CommittedOffset(100),
            ("orders", 2): CommittedOffset(120),
        },
        COPIES,
        FakeMap({("orders", p): 100 for p in range(3)}),
        {},
    )
    assert [(p.downstream, p.translated.exactness, p.behind) for p in places] == [
        (1005, Exactness.EXACT, 0),
        (1050, Exactness.TIP, 0),
        (1050, Exactness.BEHIND, 20),
    ]
    assert places[0].metadata == "m"
    assert places[0].target_topic == "A.orders"


def test_an_empty_partition_counts_as_read() -> None:
    """A group that reads a topic is at the end of its empty partitions, although it
    committed nothing there; if there are records, only the group knows.
    """
    places = placed(
        {("orders", 0): CommittedOffset(10)},
        COPIES,
        FakeMap({("orders", 0): 100}),
        {("orders", 1): (0, 0), ("orders", 2): (0, 5)},
    )
    assert [(p.partition, p.upstream, p.downstream) for p in places] == [
        (0, 10, 1005),
        (1, 0, 0),
    ]


@pytest.mark.parametrize(
    ("offset", "first", "downstream"), [(0, 0, 0), (7, 7, 0), (8, 7, -1)]
)
def test_what_is_still_to_be_copied_begins_at_the_copys_first_record(
    offset: int, first: int, downstream: int
) -> None:
    """If nothing of a partition is copied, a group that has read none of it continues
    at 0; one that has read some of it has no answer yet.
    """
    places = placed(
        {("orders", 0): CommittedOffset(offset)},
        {"orders": Copy(topic="A.orders", partitions=1)},
        FakeMap(),
        {("orders", 0): (first, first + 100)},
    )
    assert [p.downstream for p in places] == [downstream]


def test_missing_partitions_are_those_of_topics_that_the_group_reads() -> None:
    """Topics in which a group has no offset at all do not count."""
    copies = {**COPIES, "other": Copy(topic="A.other", partitions=2)}
    assert missing({("orders", 1)}, copies) == {("orders", 0), ("orders", 2)}


def test_group_filter() -> None:
    """Whole names, any characters, and exclude wins."""
    chosen = GroupFilter(include=("app .*", "x"), exclude=("app secret.*",))
    assert chosen.matches("app #1")
    assert chosen.matches("x")
    assert not chosen.matches("xy")
    assert not chosen.matches("app secret 2")
    assert not GroupFilter(include=()).matches("x")


def test_an_offset_sync_is_a_record() -> None:
    """MirrorMaker adds one to it: an end, or a record that was left out, would skip
    one.
    """
    made = last_copied(FakeMap({("orders", 0): 100}), "orders", 0)
    assert made == OffsetSync(topic="orders", partition=0, upstream=98, downstream=1049)
    assert last_copied(FakeMap({("orders", 0): 0}), "orders", 0) is None
    assert last_copied(FakeMap(), "orders", 0) is None


@pytest.mark.parametrize(
    ("flows", "alone"),
    [
        (("A->B",), True),
        (("A->B", "B->A"), False),  # comes back
        (("A->B", "C->B"), False),  # merged
        (("A->B", "B->C", "C->A"), False),
        (("A->B", "B->C"), True),
    ],
)
def test_offsets_are_set_only_where_one_flow_writes(
    flows: tuple[str, ...], alone: bool
) -> None:
    """In a copy that several flows write, each knows another offset; the largest one
    would skip what the others wrote.
    """
    made = [
        FlowConfig(source=name[0], target=name[-1], policy="identity") for name in flows
    ]
    assert Merging(made).is_alone(made[0], "orders") is alone
    prefixed = [FlowConfig(source=name[0], target=name[-1]) for name in flows]
    assert Merging(prefixed).is_alone(prefixed[0], "orders")


@pytest.mark.parametrize(
    ("flows", "back", "beside"),
    [
        (("A->B",), "", ()),
        (("A->B", "B->A"), "B->A", ()),
        (("A->C", "B->C"), "", ("B->C",)),
        (("A->C", "B->C", "D->C", "C->E"), "", ("B->C", "D->C")),
        (("A->B", "B->A", "B->C", "A->C"), "B->A", ()),
        (("A->B", "B->A", "C->B"), "", ()),  # records of C reach A through B
        (("A->B", "B->A", "C->A"), "", ()),
        (("A->B", "B->C", "C->A"), "", ()),
        (("A->C", "C->A", "B->C", "C->B"), "", ()),
    ],
)
def test_whose_maps_are_needed(
    flows: tuple[str, ...], back: str, beside: tuple[str, ...]
) -> None:
    """Two maps, or those of several sources, answer for a copy only if they say where
    each of its records is from; where more flows are tied together, none do.
    """
    made = [
        FlowConfig(source=name[0], target=name[-1], policy="identity") for name in flows
    ]
    merging = Merging(made)
    found = merging.back(made[0], "orders")
    assert (found.name if found else "") == back
    others = merging.beside(made[0], "orders")
    assert tuple(each.flow.name for each in others) == beside
    for change in ({"exactly_once": False}, {"provenance": False}):
        last = made[-1].model_copy(update=change)
        merging = Merging([*made[:-1], last])
        if back == last.name:
            assert merging.back(made[0], "orders") is None
