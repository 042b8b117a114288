"""The benchmark's scenarios as declared; running them needs brokers and Java."""

from __future__ import annotations

import re
import struct

import pytest

from mirror.records import records
from tests.benchmarks import logs, ready_made
from tests.benchmarks.peers.known import PEERS
from tests.benchmarks.scenarios import SCENARIOS, adjusted
from tests.benchmarks.scenarios.copying import Copying
from tests.benchmarks.scenarios.gap import _pauses

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=lambda each: each.name)
def test_scenario_is_well_formed(scenario):
    """Its name fits into a topic's and a command line, its peers are known, and what
    it puts on the source has a size.
    """
    assert re.fullmatch(r"[a-z0-9-]+", scenario.name)
    assert scenario.title
    assert set(scenario.peers) <= PEERS.keys()
    assert 0 <= scenario.source_bytes < 10 << 30


def test_adjusting_changes_only_what_a_scenario_has():
    """`--records` means something to some scenarios and nothing to the others."""
    small = adjusted(SCENARIOS["100b"], records=7, complete=True)

    assert isinstance(small, Copying)
    assert (small.records, small.complete) == (7, True)
    assert adjusted(SCENARIOS["gap"], records=7) == SCENARIOS["gap"]


def test_tiny_requests_hold_one_to_three_records_per_partition(tmp_path):
    """What is sent for a partition is one batch, as small as the scenario says."""
    assert isinstance(SCENARIOS["tiny"], Copying)
    batches = [
        ready_made.partition_entry(0, [b"x" * 100] * size, compression="none")[8:]
        for size in SCENARIOS["tiny"].batch_records
    ]
    folder = tmp_path / "topic-0"
    folder.mkdir()
    # The last one counts as cut short.
    (folder / f"{0:020}.log").write_bytes(b"".join([*batches, batches[0]]))

    shape = logs.batch_shape(tmp_path, "topic")

    assert shape.records == 2
    assert shape.bytes == sum(map(len, batches)) / 3


def test_only_committed_records_count(tmp_path):
    """As for a reader of committed data: nothing of transactions that were aborted or
    are still open, and no markers; several segments are one log.
    """
    folder = tmp_path / "topic-0"
    folder.mkdir()
    segments = [
        [_data(1, 5), _data(2, 7), _marker(1, commit=True), _data(-1, 11)],
        [_marker(2, commit=False), _data(2, 13), _marker(2, commit=True), _data(1, 17)],
    ]
    for number, batches in enumerate(segments):
        (folder / f"{number:020}.log").write_bytes(b"".join(batches))

    assert logs.committed_records(tmp_path, "topic", partitions=1) == 5 + 11 + 13


def _data(producer, count):
    batch = records.encode([(b"", b"value")] * count)
    batch.stamp(producer, 0, 0, transactional=producer >= 0)
    return bytes(batch.header) + batch.body


def _marker(producer, *, commit):
    key = struct.pack(">hh", 0, int(commit))
    batch = records.encode([(key, b"\0\0\0\0\0\0")])
    batch.header[22] |= 0x20
    batch.stamp(producer, 0, -1, transactional=True)
    return bytes(batch.header) + batch.body


def test_pauses_are_seen_around_a_lease_s_end_and_in_its_middle():
    """A pause counts where it lies, by a lease's end or far from any; in both places
    if it reaches from one to the other.
    """
    arrivals = [0.0, 0.3, 0.7, 0.9, 1.1, 2.2, 2.4, 2.45, 4.0, 4.1]

    around, between = _pauses(arrivals, ends=[0.5, 1.5, 2.5, 3.5])

    assert around == pytest.approx([0.4, 1.1, 1.55])
    assert between == pytest.approx([1.1, 1.1, 1.55])
