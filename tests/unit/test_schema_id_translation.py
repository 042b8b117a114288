"""The ids that records get from a map, against records made with the others."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

from mirror.records import listing
from mirror.records.schema_id_translation import IdMap, _replace
from mirror.records.schema_ids import KEY_HEADER, VALUE_HEADER
from tests.harness import hostile_batches
from tests.unit.test_schema_ids import GUID, is_damaged, one_batch, records, wire

pytestmark = pytest.mark.unit

BEYOND = b"\0\0\0\0\1\0\0\0\1"
"""What stands behind the records, and has ids of the map."""


def swap(content: bytes, count: int, ids: dict[int, int]) -> tuple[int, bytes]:
    """What the loop returns, and the bytes afterwards."""
    buffer = np.frombuffer(bytearray(BEYOND + content + BEYOND), np.uint8)
    known = IdMap.of(ids)
    changed = _replace(
        buffer[len(BEYOND) : -len(BEYOND)], count, known.sources, known.targets,
        KEY_HEADER, VALUE_HEADER,
    )  # fmt: skip
    return changed, buffer.tobytes()


def made(one: int, two: int, three: int, last: int) -> list[bytes]:
    return records(
        (None, None, []),
        (b"", b"\0\0\0\1", [(b"other", wire(1))]),
        (wire(one), wire(two), []),
        (wire(one), None, [(b"__key_schema_id", None)]),
        (None, wire(two), [(b"__value_schema_id", b"\0\0\0\1")]),
        (b"k", b"v", [(b"__key_schema_id", wire(three, b"")), (b"other", wire(1))]),
        (b"k", b"v", [(b"__value_schema_id", b"\1" + GUID)]),
        (b"k", wire(99), []),
        (b"k", b"\1" + wire(1), [(b"__value_schema", wire(1))]),
        (b"k", wire(last), []),
    )


IDS = {1: 2, 2: 3, 3: 1, 2**31 - 1: 2**31}


def test_replaced() -> None:
    """Keys, values and header ids get the other id, each once although ids of one side
    are ids of the other; GUIDs, unknown ids, tombstones, null keys, short values and
    other headers stay, and nothing before or behind the records changes.
    """
    source, wanted = made(1, 2, 3, 2**31 - 1), made(2, 3, 1, 2**31)
    assert swap(b"".join(source), 10, IDS) == (
        5, BEYOND + b"".join(wanted) + BEYOND,
    )  # fmt: skip
    assert swap(b"".join(source), 10, {})[1] == BEYOND + b"".join(source) + BEYOND


def test_replaced_in_a_copy() -> None:
    """Records that were listed get the same ids, in a copy: what was read stays as it
    is, and may be listed again. Records that were left out are in neither.
    """
    source, wanted = made(1, 2, 3, 2**31 - 1), made(2, 3, 1, 2**31)
    (buffer, rows), there = one_batch(source), one_batch(wanted)
    before = buffer.tobytes()
    (ours,) = listing.listed(buffer, rows, 1, 9)
    (theirs,) = listing.listed(*there, 1, 9)
    found = IdMap.of(IDS).replaced(ours)
    assert buffer.tobytes() == before

    def texts(part: listing.Listed) -> list[bytes]:
        return [
            part.buffer[at:end].tobytes()
            for at, end in part.places[:, [2, 9]].tolist()  # from the key to the end
        ]

    assert texts(found) == texts(theirs) != texts(ours)
    nothing = ours._replace(places=ours.places[:0])
    assert IdMap.of(IDS).replaced(nothing) is nothing


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), max_size=40),
    st.dictionaries(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), max_size=40),
)
def test_more_ids(first: dict[int, int], later: dict[int, int]) -> None:
    """A map that learns more has both, and of two answers the later one."""
    grown = IdMap.of(first).with_more(later)
    pairs = zip(grown.sources.tolist(), grown.targets.tolist(), strict=True)
    assert list(pairs) == sorted((first | later).items())


def test_memory() -> None:
    """With what the barrier knows, 100,000 ids take at most 2 MB (see
    `test_schema_ids`, which has half of them).
    """
    known = IdMap.of({number: number + 7 for number in range(100_000)})
    assert known.sources.nbytes + known.targets.nbytes <= 900_000


@settings(max_examples=300, deadline=None)
@given(sizes=hostile_batches.WRONG_SIZES, cut=st.integers(0, 60))
def test_hostile_bytes(sizes: dict[str, int], cut: int) -> None:
    """Whatever the lengths in a record say, nothing before or behind the records is
    written, and what does not fit is reported.
    """
    good = hostile_batches.record(wire(1), b"v")
    headers = [(b"__value_schema_id", wire(3))]
    bad = hostile_batches.record(b"k", b"v", headers, delta=1, **sizes)
    bad = bad[: len(bad) - min(cut, len(bad) - 1)]
    changed, after = swap(good + bad, 2, IDS)
    assert after.startswith(BEYOND + hostile_batches.record(wire(2), b"v"))
    assert after.endswith(BEYOND)
    assert is_damaged([good, bad]) or changed > 0
