"""What a reader of the progress topic makes of its records, in whichever portions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st
import pytest

from mirror.errors import ClusterError
from mirror.offsets import progress
from mirror.offsets.progress import UNSETTLED, Position, ProgressReader

pytestmark = pytest.mark.unit

_OFFSETS = st.sampled_from([UNSETTLED, 0, 7, 1 << 40])
_WRITTEN = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 1), _OFFSETS))


class Portions:
    """Stands where a reader of the topic is: each read finds the next portion, and may
    break off before its end. What was given out before that is not given again.
    """

    start = 0

    def __init__(self, *portions):
        self._portions = list(portions)

    def read(self, **_):
        for record in self._portions.pop(0):
            if record is None:
                raise ClusterError("the leader went away")
            yield record


def reader_of(*portions):
    reader = ProgressReader(None, "mirror-progress.A.internal")
    reader._reader = Portions(*portions)
    return reader


def record(offset, topic, partition, position):
    key = progress._key(topic, partition)
    return offset, key, progress._value(Position(offset=position), b"")


@given(written=_WRITTEN, cut=st.integers(0, 50), broken=st.booleans())
def test_the_newest_of_each_partition_counts(written, cut, broken):
    """The last position of each partition is found, and an UNSETTLED one only where no
    position follows it; also if the first reading broke off in the middle.
    """
    positions, unsettled = {}, {}
    for topic, partition, offset in written:
        where = topic, partition
        if offset == UNSETTLED:
            unsettled[where] = offset
        else:
            positions[where] = offset
            unsettled.pop(where, None)
    records = [record(n, *each) for n, each in enumerate(written)]
    reader = reader_of([*records[:cut], *([None] if broken else [])], records[cut:])

    if broken:
        with pytest.raises(ClusterError, match="went away"):
            reader.read()
    else:
        reader.read()
    found = reader.read()

    assert {w: p.offset for w, p in found.positions.items()} == positions
    assert {w: p.offset for w, p in found.unsettled.items()} == unsettled


def test_a_thread_reads_each_topic_once():
    """Within `reading_once` all who ask for one topic get one reader, which only reads
    on; other topics, uncommitted records, other threads and later blocks get another.
    """
    with progress.reading_once(), ThreadPoolExecutor() as other_thread:
        one = progress.reader(None, "a")
        assert progress.reader(None, "a") is one
        others = [
            progress.reader(None, "b"),
            progress.reader(None, "a", committed=False),
            other_thread.submit(progress.reader, None, "a").result(),
        ]
    with progress.reading_once():
        others.append(progress.reader(None, "a"))
    others.append(progress.reader(None, "a"))

    assert one not in others
    assert progress.reader(None, "a") not in others
