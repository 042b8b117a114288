"""Reading only the newest record of each key."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from mirror.records import batch, records
from tests.harness.hostile_batches import record, stored

pytestmark = pytest.mark.unit

_MARK = (2, b"\xff\xff")
_KEYS = st.sampled_from([None, b"", b"a", b"b", b"ab", b"a" * 300])
_VALUES = st.sampled_from(
    [None, b"", b"12", b"12\xff", b"12\xff\xff", b"12\xff\xff3", b"1\xff\xff", b"12345"]
)
_LOG = st.lists(st.lists(st.tuples(_KEYS, _VALUES), min_size=1), min_size=1)


def decoded(log, newest=None):
    base, parts = 0, []
    for each in log:
        section = b"".join(
            record(key, value, delta=delta) for delta, (key, value) in enumerate(each)
        )
        parts.append(stored(section, count=len(each), base=base))
        base += len(each)
    buffer = np.frombuffer(bytearray(b"".join(parts)), np.uint8)
    found = batch.read(
        buffer, 0, len(buffer), position=0, aborted=(), scratch=batch.scratch()
    )
    return list(records.decode(buffer, found.rows, newest=newest))


@given(log=_LOG)
def test_a_record_is_left_out_only_for_a_later_one_of_its_kind(log):
    """What is read is the last record of each key, once among those whose value has the
    mark and once among the others, in the order of the log; records with a null key or
    value replace nothing.
    """
    last = {}
    for place, (offset, key, value) in enumerate(decoded(log)):
        last[key, value[2:4] == _MARK[1]] = place, (offset, key, value)

    assert decoded(log, _MARK) == [each for _, each in sorted(last.values())]


@pytest.mark.parametrize(("keys", "most"), [(3, 30), (5000, 10_000)])
def test_of_many_records_few_are_read(keys, most):
    """Where there are more records than are looked at together, none is lost, and of
    few keys few are left.
    """
    log = [
        [(b"key %d" % (n % keys), b"%d" % n) for n in range(first, first + 100)]
        for first in range(0, 10_000, 100)
    ]
    found = decoded(log, _MARK)

    assert {key: value for _, key, value in found} == {
        b"key %d" % (n % keys): b"%d" % n for n in range(10_000)
    }
    assert len(found) <= most
