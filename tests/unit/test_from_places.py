"""The kernel that packs listed records, read back by the one that lists them."""

from __future__ import annotations

import numpy as np
import pytest

from mirror.clusters.wire.produce import HEADER_SIZE
from mirror.copying import provenance
from mirror.records import batch, from_places, home_stamps, listing, merge_loop
from tests.harness import hostile_batches

pytestmark = pytest.mark.unit

_STAMP = provenance.via(source_alias="A", source_id="a-id", target_id="b-id").stamp
_NOTHING = np.empty(0, np.uint8)
_LOG = {
    10: (b"k", b"v", ()),
    11: (None, b"", ((b"h", None),)),
    13: (b"", None, ((b"h", b"1"), (b"h", b"2"))),
    14: (b"key" * 100, b"value" * 100, ()),
}
Row = tuple[bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]


def listed_of(section, *, count, first=0, last_delta):
    raw = hostile_batches.stored(
        section, count=count, base=first, last_delta=last_delta
    )
    buffer = np.frombuffer(bytearray(raw), np.uint8)
    found = batch.read(
        buffer, 0, len(raw), position=0, aborted=(), scratch=batch.scratch()
    )
    ((source, places, *_),) = listing.listed(buffer, found.rows)
    return source, np.ascontiguousarray(places)


def _of_the_log():
    section = b"".join(
        hostile_batches.record(*each, delta=offset - 10, time=offset)
        for offset, each in _LOG.items()
    )
    return listed_of(section, count=len(_LOG), first=10, last_delta=4)


def _put(
    source,
    places,
    *,
    plain=_NOTHING,
    unwanted=_NOTHING,
    limit=1 << 20,
    begin=0,
    stamps=1,
):
    state = np.array([begin], np.int64)
    out, runs = np.zeros(1 << 16, np.uint8), np.zeros((10, 3), np.int64)
    result = np.zeros(from_places.RESULTS, np.int64)
    from_places.put(
        source, places, np.tile(_STAMP, stamps), stamps, plain, unwanted, state, out,
        limit, runs, result,
    )  # fmt: skip
    return state, out, runs[: result[merge_loop.RUNS]], result


def _row(buffer, place) -> Row:
    parts = [
        None if place[size] < 0 else buffer[place[at] : place[at] + place[size]]
        for at, size in ((2, 3), (4, 5))
    ]
    key, value = (None if each is None else each.tobytes() for each in parts)
    return key, value, listing.headers_of(buffer, place)


def test_records_stay_as_they_are() -> None:
    """Keys, values, nulls, headers and times are those of the source, with the stamp
    behind; the runs name the gap.
    """
    source, places = _of_the_log()
    state, out, runs, result = _put(source, places)
    assert int(state[0]) == int(result[merge_loop.COPIED]) == len(_LOG)
    assert runs.tolist() == [[10, 0, 2], [13, 2, 2]]
    section = out[HEADER_SIZE : result[merge_loop.END]].tobytes()
    made, found = listed_of(section, count=len(_LOG), last_delta=3)
    stamp = (b"mirror.via", b"A/a-id")
    for (key, value, headers), place in zip(_LOG.values(), found, strict=True):
        assert _row(made, place) == (key, value, [*headers, stamp])
    assert np.diff(found[:, 1]).tolist() == [1, 2, 1]
    assert int(result[merge_loop.OLDEST]) == places[0, 1]
    assert int(result[merge_loop.NEWEST]) == places[-1, 1]


@pytest.mark.parametrize("stamps", [0, 2])
def test_each_record_gets_all_headers(stamps: int) -> None:
    """A stamp may be several headers, or none."""
    source, places = _of_the_log()
    _, out, _, result = _put(source, places, stamps=stamps)
    section = out[HEADER_SIZE : result[merge_loop.END]].tobytes()
    made, found = listed_of(section, count=len(_LOG), last_delta=3)
    stamp = (b"mirror.via", b"A/a-id")
    for (*_, headers), place in zip(_LOG.values(), found, strict=True):
        assert _row(made, place)[2] == [*headers, *[stamp] * stamps]


def test_goes_on_where_a_batch_was_full() -> None:
    """A batch takes no more than its limit but for a single record, and the next one
    begins with the next record.
    """
    source, places = _of_the_log()
    state, _, runs, _ = _put(source, places, limit=HEADER_SIZE + 60)
    assert runs.tolist() == [[10, 0, 2]]
    state, _, runs, _ = _put(source, places, limit=HEADER_SIZE, begin=int(state[0]))
    assert runs.tolist() == [[13, 0, 1]]
    state, _, runs, _ = _put(source, places, limit=HEADER_SIZE, begin=int(state[0]))
    assert runs.tolist() == [[14, 0, 1]]
    assert int(state[0]) == len(_LOG)


def test_stops_at_an_unwanted_header() -> None:
    """The first record with that header is named."""
    source, places = _of_the_log()
    unwanted = np.frombuffer(bytearray(b"h"), np.uint8)
    *_, result = _put(source, places, unwanted=unwanted)
    assert int(result[from_places.REFUSED]) == 2


def test_plain_records_get_no_stamp() -> None:
    """Records that are said to be plain stay as they are, among others that get the
    stamp.
    """
    source, places = _of_the_log()
    plain = np.array([0, 1, 0, 1], np.uint8)
    _, out, _, result = _put(source, places, plain=plain)
    section = out[HEADER_SIZE : int(result[merge_loop.END])].tobytes()
    buffer, found = listed_of(section, count=4, last_delta=3)
    rows = [_row(buffer, place) for place in found]
    assert [len(headers) for _, _, headers in rows] == [1, 1, 3, 0]
    assert [(key, value) for key, value, _ in rows] == [
        (key, value) for key, value, _ in _LOG.values()
    ]


def test_stamps_are_taken_off() -> None:
    """Only a last header that names the cluster is taken off; one before others is
    told of, and another cluster's stays.
    """
    via, ours, other = b"mirror.via", b"A/a-id", b"A/b-id"
    log = [
        ((b"h", b"1"), (via, ours)),
        ((via, other),),
        ((via, ours), (via, other)),
        (),
        ((via, None),),
    ]
    section = b"".join(
        hostile_batches.record(b"k", b"v", headers, delta=n, time=n)
        for n, headers in enumerate(log)
    )
    source, places = listed_of(section, count=len(log), last_delta=len(log) - 1)
    home = np.zeros(len(log), np.uint8)
    seen = provenance.via(source_alias="B", source_id="b-id", target_id="a-id")
    elsewhere = home_stamps.take(source, places, seen.key, seen.target_suffix, home)
    assert (home.tolist(), elsewhere) == ([1, 0, 0, 0, 0], 3)
    left = [_row(source, place)[2] for place in places]
    assert left == [[(b"h", b"1")], *([*headers] for headers in log[1:])]
