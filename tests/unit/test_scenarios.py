"""The benchmark's scenarios as declared; running them needs brokers and Java."""

from __future__ import annotations

import re

import pytest

from tests.benchmarks import logs, tiny
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
    batches = [tiny.partition_entry(0, [b"x" * 100] * size)[8:] for size in (1, 2, 3)]
    folder = tmp_path / "topic-0"
    folder.mkdir()
    # The last one counts as cut short.
    (folder / f"{0:020}.log").write_bytes(b"".join([*batches, batches[0]]))

    shape = logs.batch_shape(tmp_path, "topic")

    assert shape.records == 2
    assert shape.bytes == sum(map(len, batches)) / 3


def test_pause_belongs_to_the_lease_around_which_it_lies():
    """Of the arrivals between two leases' middles the longest pause counts."""
    arrivals = [0.0, 0.9, 1.1, 2.0, 2.6, 2.7, 4.0, 4.1]

    assert _pauses(arrivals, ends=[0.5, 1.5, 2.5, 3.5]) == pytest.approx([0.9, 1.3])
