"""By the edges of both logs: which copies may be the beginning of the source."""

from __future__ import annotations

import uuid

import pytest

from mirror.clusters.topics import Leader, Topic
from mirror.topics.same_offsets import Edges, why_no_prefix
from mirror.topics.topics import MirroredTopic

pytestmark = pytest.mark.unit

_ID = uuid.UUID(int=1)


def _verdict(
    source: tuple[int, int] | None,
    copy: tuple[int, int] | None,
    *,
    kept: int | None = None,
    there: bool = True,
) -> tuple[str, bool]:
    """Each log's first offset and end; None: its leader is away. `there`: whether the
    copy has the partition.
    """
    topic = MirroredTopic(
        topic="t", target_topic="c", topic_id=_ID.hex, partitions=1,
    )  # fmt: skip
    leaders = {0: Leader(node=1, epoch=0)} if there else {}
    shown = Topic(
        name="c", topic_id=_ID, leaders=leaders, error=0, replication_factor=1
    )
    return why_no_prefix(
        topic,
        _edges("t", source),
        _edges("c", copy),
        shown,
        {} if kept is None else {("t", 0): kept},
    )


def _edges(name: str, log: tuple[int, int] | None) -> Edges:
    if log is None:
        return Edges(first={}, end={})
    return Edges(first={(name, 0): log[0]}, end={(name, 0): log[1]})


@pytest.mark.parametrize(
    ("source", "copy", "kept"),
    [
        pytest.param((0, 9), (0, 5), None, id="from the start"),
        pytest.param((0, 9), (0, 9), None, id="all of it"),
        pytest.param((4, 9), (0, 5), None, id="the copy begins earlier"),
        pytest.param((5, 9), (0, 5), None, id="the source begins where the copy ends"),
        pytest.param((5, 5), (5, 5), None, id="both are empty"),
        pytest.param((2, 9), (4, 6), 4, id="what it lacks is too old for it"),
    ],
)
def test_may_be_the_beginning(
    source: tuple[int, int], copy: tuple[int, int], kept: int | None
) -> None:
    """A copy that has all that the source has before its end, but for what it would
    delete, may be the beginning.
    """
    assert _verdict(source, copy, kept=kept) == ("", True)


@pytest.mark.parametrize(
    ("source", "copy", "kept", "reason"),
    [
        pytest.param((0, 9), (0, 10), None, "ends at offset 10", id="too long"),
        pytest.param((6, 9), (0, 5), None, "ends at offset 5", id="a gap between them"),
        pytest.param(
            (2, 9), (4, 6), None, "begins at offset 4", id="a head is missing"
        ),
        pytest.param((2, 9), (4, 6), 3, "begins at offset 4", id="kept, and missing"),
        pytest.param((0, 9), (3, 3), None, "begins at offset 3", id="all is missing"),
    ],
)
def test_cannot_be_the_beginning(
    source: tuple[int, int], copy: tuple[int, int], kept: int | None, reason: str
) -> None:
    """A copy without a record that it should have, or with more, cannot: the reason
    names partition and offset.
    """
    told, is_known = _verdict(source, copy, kept=kept)
    assert (told.startswith(f"partition 0 of it {reason}"), is_known) == (True, True)


def test_without_leaders_nothing_is_known() -> None:
    """Where a leader does not answer, nothing is decided; a partition that the copy
    does not have yet may begin if the source's begins at 0.
    """
    assert not _verdict(None, (0, 5))[1]
    assert not _verdict((0, 5), None)[1]
    assert _verdict((0, 5), None, there=False) == ("", True)
    assert _verdict((1, 5), None, there=False)[1]
    assert _verdict((1, 5), None, there=False)[0]
