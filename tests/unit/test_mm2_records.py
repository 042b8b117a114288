"""Bytes that Java reads: Kafka's own classes decoded the vectors."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
import pytest

from mirror.errors import CorruptBatchError
from mirror.offsets.checkpoints import Checkpoint, checkpoints_topic
from mirror.offsets.heartbeats import Heartbeat
from mirror.offsets.offset_syncs import OffsetSync, offset_syncs_topic

pytestmark = pytest.mark.unit

HEARTBEAT = Heartbeat(source="primary", target="backup", timestamp=1700000000000)
CHECKPOINT = Checkpoint(
    group="orders-app",
    topic="primary.orders",
    partition=3,
    upstream=1234,
    downstream=1200,
)
OFFSET_SYNC = OffsetSync(topic="orders", partition=3, upstream=1234, downstream=1200)
_OFFSETS = st.integers(0, 2**63 - 1)


@pytest.mark.parametrize(
    ("record", "key", "value"),
    [
        (HEARTBEAT, "00077072696d61727900066261636b7570", "00000000018bcfe56800"),
        (
            CHECKPOINT,
            "000a6f72646572732d617070000e7072696d6172792e6f726465727300000003",
            "000000000000000004d200000000000004b00000",
        ),
        (OFFSET_SYNC, "00066f726465727300000003", "00000000000004d200000000000004b0"),
    ],
)
def test_bytes_are_those_of_mirrormaker(
    record: Heartbeat | Checkpoint | OffsetSync, key: str, value: str
) -> None:
    """We write what Java wrote for the same content, and read it back."""
    assert tuple(part.hex() for part in record.encode()) == (key, value)
    assert type(record).decode(bytes.fromhex(key), bytes.fromhex(value)) == record


@given(
    group=st.text(max_size=50),
    metadata=st.text(max_size=50),
    upstream=_OFFSETS,
    downstream=_OFFSETS,
)
def test_any_group_comes_back(
    group: str, metadata: str, upstream: int, downstream: int
) -> None:
    """Group names and commit metadata may have any characters."""
    made = Checkpoint(
        group=group,
        topic="A.t",
        partition=0,
        upstream=upstream,
        downstream=downstream,
        metadata=metadata,
    )
    assert Checkpoint.decode(*made.encode()) == made


@pytest.mark.parametrize("record", [HEARTBEAT, CHECKPOINT, OFFSET_SYNC])
@pytest.mark.parametrize("part", [0, 1])
def test_a_truncated_record_is_refused(
    record: Heartbeat | Checkpoint | OffsetSync, part: int
) -> None:
    """A record that is cut off says so, however short it is."""
    whole = record.encode()
    for length in range(len(whole[part])):
        cut = [*whole]
        cut[part] = whole[part][:length]
        with pytest.raises(CorruptBatchError):
            type(record).decode(*cut)


def test_more_bytes_are_passed_over() -> None:
    """Java reads what it knows and ignores the rest; so do we."""
    key, value = CHECKPOINT.encode()
    assert Checkpoint.decode(key, value + b"more") == CHECKPOINT


def test_metadata_is_never_too_long_for_java() -> None:
    """The length is a signed INT16: longer texts are cut at a whole character."""
    made = Checkpoint(
        group="g", topic="t", partition=0, upstream=1, downstream=1,
        metadata="ä" * 40_000,
    )  # fmt: skip
    assert Checkpoint.decode(*made.encode()).metadata == "ä" * (0x7FFF // 2)


def test_names_of_topics() -> None:
    """The offset syncs' topic is named after the cluster that it is not on."""
    assert checkpoints_topic("A") == "A.checkpoints.internal"
    assert checkpoints_topic("A", "_") == "A_checkpoints_internal"
    assert offset_syncs_topic("B") == "mm2-offset-syncs.B.internal"
