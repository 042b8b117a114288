"""Progress records across releases, and which of them a reader decodes."""

from __future__ import annotations

from dataclasses import replace
import json
import struct
import uuid

import pytest

from mirror.errors import ClusterError
from mirror.offsets import progress
from mirror.offsets.progress import NO_ID, Position, RunningCount
from mirror.service.ownership import Generation
from mirror.status.values import Counts

pytestmark = pytest.mark.unit

_ID = uuid.UUID("0123456789abcdef0123456789abcdef")
_EARLIER_ID = uuid.UUID("fedcba9876543210fedcba9876543210")
_POSITION = Position(offset=12_345_678_901, leader_epoch=7, topic_id=_ID)
_RUNNING = RunningCount(
    service=uuid.UUID(int=5),
    begun=1_764_000_000_000,
    counts=Counts(records=9, looped=2),
)
_KEY = bytes.fromhex("00066f726465727300000003")
_FIRST_RELEASE = bytes.fromhex(
    "000000000002dfdc1c35000000070123456789abcdef0123456789abcdef"
)
"""What the first release wrote for this position."""


@pytest.fixture
def written(monkeypatch):
    """Writes a position and returns its key and value."""
    monkeypatch.setattr(progress.records, "encode_all", list)

    def write(position: Position, running: RunningCount | None) -> tuple[bytes, bytes]:
        where = ("orders", 3)
        ((key, value),) = progress.encode(
            {where: position}, {where: running.encoded()} if running else {}
        )
        return key, value

    return write


def read_by_first_release(key: bytes, value: bytes) -> tuple[str, int, Position]:
    """Its parser, word for word."""
    length = struct.unpack_from(">h", key)[0]
    name = key[2 : 2 + length].decode()
    _, offset, epoch, topic_id = struct.unpack_from(">hqi16s", value)
    partition = struct.unpack_from(">i", key, 2 + length)[0]
    position = Position(
        offset=offset, leader_epoch=epoch, topic_id=uuid.UUID(bytes=topic_id)
    )
    return name, partition, position


def earlier_id_before_counts(value: bytes) -> uuid.UUID:
    """How releases without counts read the id from before a topic was re-created."""
    left = value[30 : 30 + 16]
    return uuid.UUID(bytes=left) if len(left) == 16 else NO_ID


def count_before_oldest_leaders(value: bytes) -> RunningCount | None:
    """How releases without `oldest_leader` read the count."""
    return RunningCount.decode(value[46:])


@pytest.mark.parametrize("oldest", [-1, 0, 9])
@pytest.mark.parametrize("left_id", [NO_ID, _EARLIER_ID])
@pytest.mark.parametrize("running", [None, _RUNNING])
def test_earlier_releases_read_what_is_written_now(written, running, left_id, oldest):
    """Earlier releases read the same position, and the same running count if there is
    one; ours reads all of it.
    """
    position = Position(
        offset=_POSITION.offset,
        leader_epoch=7,
        topic_id=_ID,
        left_id=left_id,
        oldest_leader=oldest,
    )

    key, value = written(position, running)

    assert read_by_first_release(key, value) == ("orders", 3, _POSITION)
    assert earlier_id_before_counts(value) == left_id
    counted = count_before_oldest_leaders(value)
    assert (counted.counts if counted else Counts()) == (
        running.counts if running else Counts()
    )
    *found, count = progress.decode(key, value)
    assert found == [("orders", 3), position]
    assert RunningCount.decode(count) == running


def test_what_earlier_releases_wrote_is_read():
    """Records without a count are positions as before, with an empty count."""
    again = _FIRST_RELEASE + _EARLIER_ID.bytes
    left = Position(
        offset=_POSITION.offset, leader_epoch=7, topic_id=_ID, left_id=_EARLIER_ID
    )

    assert progress.decode(_KEY, _FIRST_RELEASE) == (("orders", 3), _POSITION, b"")
    assert progress.decode(_KEY, again) == (("orders", 3), left, b"")


def test_nothing_is_written_of_a_count_that_is_not_known(written):
    """Positions that no slot wrote are byte for byte what they were."""
    assert written(_POSITION, None) == (_KEY, _FIRST_RELEASE)


def test_counts_of_another_release():
    """Counters that a later release added are left out; those that an earlier one did
    not have are zero.
    """
    written = _RUNNING.encoded()
    head, each = written[:-34], written[-32:]

    fewer = RunningCount.decode(head + struct.pack(">hq", 1, 9))
    more = RunningCount.decode(
        head + struct.pack(">h", 20) + each + struct.pack(">16q", *range(16))
    )

    assert fewer
    assert more
    assert fewer.counts == Counts(records=9)
    assert (more.counts.records, more.counts.looped) == (9, 2)


def test_a_damaged_count_is_an_error():
    """A count that ends too early is refused."""
    with pytest.raises(ClusterError, match="damaged"):
        RunningCount.decode(_RUNNING.encoded()[:-1])


@pytest.fixture
def topic(monkeypatch):
    """What the progress topic has that was not read yet, as key and value."""
    added: list[tuple[bytes, bytes]] = []

    class Reader:
        start = 0

        def __init__(self, *_args, **_options):
            self._next = 0

        def read(self, **_options):
            for key, value in added[self._next :]:
                self._next += 1
                yield self._next, key, value

    monkeypatch.setattr(progress, "TopicReader", Reader)
    return added


def test_only_the_newest_record_of_a_partition_is_decoded(topic, written, monkeypatch):
    """However long the topic is, each read decodes one record for each partition of
    which it has something new, and the generation.
    """
    decoded: list[bytes] = []
    decode = progress.decode
    monkeypatch.setattr(
        progress, "decode", lambda *each: decoded.append(each[0]) or decode(*each)
    )
    generations = bytes.fromhex("0000ffffffff")
    for offset in range(100):
        topic.append(written(replace(_POSITION, offset=offset), _RUNNING))
        topic.append((generations, b"\0\0" + str(offset).encode()))
    reader = progress.ProgressReader(None, "progress")

    first = reader.read()
    topic += [written(replace(_POSITION, offset=n), None) for n in (100, 101)]
    second = reader.read()

    assert decoded == [_KEY, generations, _KEY]
    assert (first.generation, second.generation) == ("99", "99")
    assert first.positions["orders", 3].offset == 99
    assert first.running["orders", 3] == _RUNNING.encoded()
    assert second.positions["orders", 3].offset == 101
    assert not second.running["orders", 3]


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(
    ("offsets", "position", "unsettled"),
    [
        ([-1], None, True),
        ([-1, 5], 5, False),
        ([5, -1], 5, True),
        ([5, -1, 6], 6, False),
        ([5, -1, 6, -1], 6, True),
    ],
)
def test_a_position_settles_what_was_unsettled(
    topic, written, offsets, position, unsettled, at_once
):
    """A partition is unsettled if no position follows the mark, and keeps the position
    from before it; whether one read finds both makes no difference.
    """
    reader = progress.ProgressReader(None, "progress")
    for offset in offsets:
        topic.append(written(replace(_POSITION, offset=offset), None))
        if not at_once:
            reader.read()

    found = reader.read()

    assert set(found.unsettled) == ({("orders", 3)} if unsettled else set())
    known = found.positions.get(("orders", 3))
    assert (known.offset if known else None) == position


def test_damage_counts_until_a_newer_record_replaces_it(topic, written):
    """A damaged record fails each read, not only the one that came upon it, until a
    newer one of its partition follows.
    """
    reader = progress.ProgressReader(None, "progress")
    topic += [written(_POSITION, None), (_KEY, _FIRST_RELEASE[:-1])]
    for _ in range(2):
        with pytest.raises(ClusterError, match=r"offset 2: .*damaged"):
            reader.read()

    topic.append(written(replace(_POSITION, offset=7), None))

    assert reader.read().positions["orders", 3].offset == 7


def test_a_generation_of_an_earlier_release() -> None:
    """It says nothing about whose run it is, and has no parts."""
    text = json.dumps({"id": "i", "slots": 2, "begun": True, "parts": []})
    read = Generation.parse(text)
    assert (read.id, read.by, read.slots, read.begun) == ("i", "", 2, True)


def test_a_generation_with_parts_is_refused() -> None:
    """A build that copied a flow in parts must end them first: this one would not fence
    the slots of its parts.
    """
    written = {"slots": 1, "begun": True, "parts": [{"name": "one", "id": "i"}]}
    with pytest.raises(ClusterError, match="in parts: stop its services, and run"):
        Generation.parse(json.dumps(written))


@pytest.mark.parametrize("text", ["{", "[]", '{"parts": []}', '{"slots": 1}'])
def test_a_damaged_generation(text: str) -> None:
    """It is an error of the cluster with a message, wherever it is read."""
    with pytest.raises(ClusterError, match="damaged"):
        Generation.parse(text)
