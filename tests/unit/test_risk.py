"""What a failover would lose, from ends and progress; the standby topic's records."""

from __future__ import annotations

from dataclasses import replace
import json
from typing import TYPE_CHECKING
import uuid

from hypothesis import given
from hypothesis import strategies as st
import pytest

from mirror.errors import ClusterError
from mirror.offsets import standby
from mirror.offsets.progress import NO_ID, Position, Progress, RunningCount
from mirror.offsets.standby import StandbyEntry
from mirror.pairs import risk
from mirror.pairs.risk import UNHEARD, PartitionEnd, Sightings, TopicEnds
from mirror.status.values import Counts

if TYPE_CHECKING:
    from mirror.status.values import PartitionRisk, RiskStatus

pytestmark = pytest.mark.unit

ID, OTHER = uuid.UUID(int=7), uuid.UUID(int=8)
AT = 1_000.0


def end(number: int, **more: float) -> PartitionEnd:
    known = PartitionEnd(end=number, stable=number, start=0, epoch=3, at=AT)
    return replace(known, **more)


def topic(*partitions: PartitionEnd, topic_id: uuid.UUID = ID) -> dict[str, TopicEnds]:
    return {"t": TopicEnds(topic_id=topic_id.hex, partitions=partitions)}


def at_position(*offsets: int, topic_id: uuid.UUID = ID) -> Progress:
    return Progress(
        positions={
            ("t", number): Position(offset=offset, topic_id=topic_id)
            for number, offset in enumerate(offsets)
        }
    )


def only(found: RiskStatus) -> PartitionRisk:
    (one,) = found.partitions
    return one


@pytest.mark.parametrize(
    ("known", "position", "records", "undecided"),
    [
        (end(100), 40, 60, 0),
        (end(100), 100, 0, 0),
        (end(100), 140, 0, 0),  # copied after the look, or a log that lost its end
        (end(100, start=70), 40, 30, 0),  # retention took the rest: it cannot be lost
        (end(100, start=100), 40, 0, 0),
        (end(100, stable=60), 60, 40, 40),  # an open transaction holds it back
        (end(100, stable=90), 40, 60, 10),
        (end(100, start=-1), 40, 60, 0),
        (end(0), 0, 0, 0),
    ],
)
def test_records(
    known: PartitionEnd, position: int, records: int, undecided: int
) -> None:
    """What the source accepted and still has, and the target does not."""
    found = risk.assess(topic(known), at_position(position), at=AT)

    assert found.records == records
    assert found.unknown == 0
    assert [(each.records, each.open) for each in found.partitions] == (
        [(records, undecided)] if records else []
    )


@given(
    st.lists(
        st.tuples(*[st.integers(0, 100)] * 3), min_size=1, max_size=5
    )  # position, start, end
)
def test_sums_are_those_of_the_partitions(parts: list[tuple[int, int, int]]) -> None:
    """Nothing is negative, more than the log has, or lost on the way to the sum."""
    known = topic(*(end(max(a, b), start=min(a, b)) for _, a, b in parts))

    found = risk.assess(known, at_position(*(p for p, _, _ in parts)), at=AT)

    assert all(each.records > 0 for each in found.partitions)
    assert found.records == sum(each.records for each in found.partitions)
    assert found.records == found.topics[0].records
    assert found.records == sum(max(max(a, b) - max(p, min(a, b)), 0)
                                for p, a, b in parts)  # fmt: skip


def test_a_topic_that_is_another_one() -> None:
    """Positions in a deleted topic say nothing about the one with its name: all of that
    is at risk. Brokers without ids cannot tell, and are believed.
    """
    known = topic(end(30, start=2))

    assert risk.assess(known, at_position(25, topic_id=OTHER), at=AT).records == 28
    assert risk.assess(known, at_position(25, topic_id=NO_ID), at=AT).records == 5


def test_nothing_copied_yet() -> None:
    """A partition without a position begins at its first record."""
    assert risk.assess(topic(end(30, start=2)), Progress(), at=AT).records == 28


def test_what_is_not_known_is_not_zero() -> None:
    """A partition that never said where it ends, or of which no one can say where the
    copy begins, is counted as unknown, with the reason.
    """
    unsettled = Progress(unsettled={("t", 0): Position(offset=-1)})
    for known, progress in ((UNHEARD, at_position(5)), (end(30), unsettled)):
        found = risk.assess(topic(known), progress, at=AT)
        assert (found.records, found.unknown, found.topics[0].unknown) == (0, 1, 1)
        assert only(found).records == -1
        assert only(found).reason


def test_as_of_the_partition_that_was_silent_for_longest() -> None:
    """A partition that does not answer may have accepted records since: though all that
    it had is copied, the sums are as of its last answer, and it is shown. One that
    never answered is unknown, and says nothing about the others.
    """
    known = {
        "t": topic(end(9), end(9, at=AT - 60), UNHEARD)["t"],
        "u": topic(end(0))["t"],
        "v": topic(UNHEARD)["t"],
    }

    found = risk.assess(known, at_position(9, 9, 9), at=AT)

    assert (found.records, found.unknown, found.at) == (0, 2, AT - 60)
    assert [each.at for each in found.topics] == [AT - 60, AT, 0]
    shown = [(each.topic, each.partition) for each in found.partitions]
    assert shown == [("t", 1), ("t", 2), ("v", 0)]
    assert risk.assess(topic(UNHEARD), Progress(), at=AT).at == AT


def test_seconds_are_the_longest() -> None:
    """The age of the oldest; if it is not known for one partition, it is not known."""
    known = topic(end(9, since=AT - 3), end(9, since=AT - 8), end(9, since=AT - 99))

    assert risk.assess(known, at_position(1, 1, 9), at=AT).seconds == 8
    one_more = topic(*known["t"].partitions, end(9))
    assert risk.assess(one_more, at_position(1, 1, 9, 1), at=AT).seconds == -1


def test_bytes_follow_from_what_was_copied() -> None:
    """By the partition's own records, else by the topic's; without any, not known."""

    def count(records: int, size: int) -> bytes:
        counts = Counts(records=records, bytes=size)
        return RunningCount(service=ID, begun=1, counts=counts).encoded()

    known = topic(end(10), end(10), end(10))
    copied = {("t", 0): count(100, 1_000), ("t", 1): count(100, 3_000)}
    progress = replace(at_position(0, 5, 5), running=copied)

    found = risk.assess(known, progress, at=AT)
    assert [each.bytes for each in found.partitions] == [100, 150, 100]
    assert found.bytes == found.topics[0].bytes == 350
    assert risk.assess(known, at_position(0, 5, 5), at=AT).bytes == -1
    assert risk.assess(known, at_position(10, 10, 10), at=AT).bytes == 0


KEY = ("t", 0)


def test_sightings_say_since_when() -> None:
    """All accepted before the last end that is copied now is copied, too."""
    seen = Sightings()
    assert seen.since(KEY, 0, 50, 100.0) is None
    assert seen.since(KEY, 40, 90, 105.0) is None  # not even the first end
    assert seen.since(KEY, 50, 95, 110.0) == 100.0
    assert seen.since(KEY, 94, 99, 115.0) == 105.0
    assert seen.since(KEY, 99, 99, 120.0) == 120.0
    assert seen.since(KEY, 99, 99, 900.0) == 900.0  # quiet, and complete all the time
    assert seen.since(KEY, 99, 100, 905.0) == 900.0


def test_sightings_forget_another_log() -> None:
    """An end that goes back is of another log: what was seen before says nothing."""
    seen = Sightings()
    seen.since(KEY, 50, 50, 100.0)
    assert seen.since(KEY, 0, 20, 105.0) is None


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 60)), min_size=1, max_size=300
    )
)
def test_sightings_are_never_too_late(steps: list[tuple[int, int]]) -> None:
    """However far behind, the oldest record that is missing was accepted after what
    they say, and memory stays bounded.
    """
    seen, accepted, position = Sightings(), [0.0], 0
    for number, (more, copied) in enumerate(steps):
        now = float(number)
        accepted += [now - 0.5] * more  # offset: when it was accepted
        since = seen.since(KEY, position, len(accepted), now)
        if since is not None and position < len(accepted):
            assert accepted[position] > since or position == 0
        position = min(position + copied, len(accepted))
    assert len(seen._seen[KEY]) <= 33


def test_a_topic_s_record_comes_back() -> None:
    """What is written is read again, silent partitions with their own time."""
    written = TopicEnds(
        topic_id=ID.hex,
        partitions=(
            end(100, stable=90, since=990.125),
            end(5, at=AT - 60, start=-1),
            UNHEARD,
        ),
    )
    key, value = standby.encode(
        "ends", "t", StandbyEntry(at=AT, fields=written.fields(AT))
    )
    entry = standby.decode("s", key, value)

    assert key == b"ends/t"
    assert entry.at == AT
    assert risk.decode_ends("s", "t", entry, AT) == written
    assert json.loads(value) == {
        "version": 1, "at": "1970-01-01T00:16:40.000Z", "topic_id": ID.hex,
        "ends": [100, 5, -1], "stable": [90, 5, -1], "starts": [0, -1, -1],
        "epochs": [3, 3, -1], "since": [990125, -1, -1],
        "silent": {"1": 940000, "2": 0},
    }  # fmt: skip


def test_the_record_of_a_quiet_topic_stays_the_same() -> None:
    """A later look that finds nothing new gives the same fields, and nothing is
    written.
    """
    before = TopicEnds(topic_id=ID.hex, partitions=(end(100), end(5)))
    later = TopicEnds(
        topic_id=ID.hex, partitions=(end(100, at=AT + 60), end(5, at=AT + 60))
    )

    assert before.fields(AT) == later.fields(AT + 60)


@pytest.mark.parametrize(
    "value",
    [
        b"", b"\xff\xfe", b"[]", b"null", b"7", b"{}", b'{"version":1}',
        b'{"version":1,"at":7}', b'{"version":1,"at":"tomorrow"}',
        b'{"at":"2026-01-01T00:00:00Z"}', b"[" * 100_000,
    ],
)  # fmt: skip
def test_bad_bytes_are_named(value: bytes) -> None:
    """Whatever the bytes, one sentence with topic and key, and what to do."""
    with pytest.raises(ClusterError, match=r"s: the record ends/t is damaged .*delete"):
        standby.decode("s", b"ends/t", value)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"topic_id": "x", "ends": 7, "silent": {}},
        {"ends": [1], "stable": [], "starts": [1], "epochs": [1], "since": [1]},
        {"ends": ["?"], "stable": [1], "starts": [1], "epochs": [1], "since": [1]},
        {"ends": [1], "stable": [1], "starts": [1], "epochs": [1], "since": [None]},
        {"ends": [1e999], "stable": [1], "starts": [1], "epochs": [1], "since": [1]},
    ],
)
def test_bad_fields_are_named(fields: standby.Fields) -> None:
    """JSON that is no record of ends."""
    whole = {"topic_id": ID.hex, "silent": {}, **fields}
    with pytest.raises(ClusterError, match="the record ends/t is damaged"):
        risk.decode_ends("s", "t", StandbyEntry(at=AT, fields=whole), AT)


def test_a_newer_version_is_named() -> None:
    """It is not damaged: a newer mirror wrote it."""
    value = b'{"version":2,"at":"in another form"}'
    with pytest.raises(ClusterError, match="has version 2; this mirror reads 1"):
        standby.decode("s", b"ends/t", value)
