"""Progress records across releases: what one wrote, the other one reads."""

from __future__ import annotations

import struct
import uuid

import pytest

from mirror.errors import ClusterError
from mirror.offsets import progress
from mirror.offsets.progress import NO_ID, Position, RunningCount
from mirror.status.counts import Counts

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
