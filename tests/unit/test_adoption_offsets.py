"""MirrorMaker 2's positions, byte for byte."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
import pytest

from mirror.clusters.wire.produce import partition_of
from mirror.errors import MirrorError
from mirror.migration import mirrormaker

pytestmark = pytest.mark.unit

KEY = b'["MirrorSourceConnector",{"cluster":"A","partition":3,"topic":"orders"}]'


def test_key_as_mirrormaker_writes_it() -> None:
    """The key has the very bytes that Connect's JSON converter writes."""
    made = mirrormaker.encode_key("MirrorSourceConnector", "A", "orders", 3)

    assert made == KEY


def test_value_is_the_last_record_copied() -> None:
    """To continue at a record, the value has the offset before it."""
    assert mirrormaker.encode_value(1) == b'{"offset":0}'
    assert mirrormaker.parse_value(b'{"offset":41}') == 41


@pytest.mark.parametrize(
    "key",
    [
        b'["MirrorHeartbeatConnector",{"sourceClusterAlias":"A"}]',
        b'["MirrorSourceConnector",{"cluster":"C","partition":3,"topic":"orders"}]',
        b'["file-source",{"filename":"x"}]',
        b"no json",
        b"null",
        b"[]",
    ],
)
def test_other_keys_are_not_ours(key: bytes) -> None:
    """Positions of other connectors and of other sources are skipped."""
    assert (
        mirrormaker.parse_key(key, connector="MirrorSourceConnector", source_alias="A")
        is None
    )


def test_order_of_the_fields_does_not_matter() -> None:
    """Keys are read with their fields in any order."""
    key = b'["x", {"topic": "a.b", "partition": 0, "cluster": "A"}]'

    found = mirrormaker.parse_key(key, connector="x", source_alias="A")

    assert found == ("a.b", 0)


def test_a_value_that_is_no_position() -> None:
    """Any other value is refused, with what is expected."""
    with pytest.raises(MirrorError, match=r'\{"offset": N\}'):
        mirrormaker.parse_value(b'{"position":1}')


@given(st.text(min_size=1), st.text(min_size=1), st.integers(0, 10_000))
def test_keys_come_back(connector: str, alias: str, partition: int) -> None:
    """Whatever the connector and the alias are called, a written key is read back."""
    key = mirrormaker.encode_key(connector, alias, "t", partition)

    assert mirrormaker.parse_key(key, connector=connector, source_alias=alias) == (
        "t",
        partition,
    )


def test_partition_as_in_java() -> None:
    """Keys go to the partitions that Java's producers choose: the figures are from
    Kafka's own tests of murmur2.
    """
    known = {b"21": -973932308, b"foobar": -790332482, b"abc": 479470107}
    for key, hashed in known.items():
        assert partition_of(key, 25) == (hashed & 0x7FFFFFFF) % 25
