"""The checksums of the parts of a batch give the checksum of the batch."""

from __future__ import annotations

from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
import pytest

from mirror.clusters.wire.checksum import joined
from mirror.records import records

pytestmark = pytest.mark.unit


@given(st.binary(max_size=100), st.binary(max_size=3000))
def test_of_two_parts(first: bytes, second: bytes) -> None:
    """Any two parts, also empty ones, have the CRC-32C that the library computes of
    both at once.
    """
    assert joined(crc32c(first), crc32c(second), len(second)) == crc32c(first + second)


@pytest.mark.parametrize("size", [(1 << 20) - 1, 1 << 20, (16 << 20) + 61])
def test_of_large_bodies(size: int) -> None:
    """This holds for large bodies, too."""
    body = bytes(range(251)) * (size // 251 + 1)
    body = body[:size]
    assert joined(crc32c(b"header"), crc32c(body), size) == crc32c(b"header" + body)


def test_a_batch_has_the_same_sum_either_way() -> None:
    """A batch whose body already has a checksum is stamped like any other."""
    batches = [records.encode([(b"key", b"value" * 5000)]) for _ in range(2)]
    batches[1].header[:] = batches[0].header
    batches[1].body_sum = crc32c(batches[1].body)
    for batch in batches:
        batch.stamp(7, 3, 11, transactional=True)
    assert batches[0].header == batches[1].header
