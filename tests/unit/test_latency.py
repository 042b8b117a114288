"""Latencies as counts per bucket."""

from __future__ import annotations

import pytest

from mirror.copying.tally import Latencies, latency_bounds

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("sla", [0.5, 45.0, 60.0, 7200.0])
def test_a_bucket_ends_at_the_sla(sla: float) -> None:
    """So the share of records within it is exact."""
    ends = latency_bounds(sla)

    assert sla in ends
    assert list(ends) == sorted(set(ends))


def test_a_record_at_a_bound_is_within_it():
    """This is Prometheus' meaning of `le`; one more bucket takes all above the last
    bound.
    """
    found = Latencies((1.0, 60.0))
    found.add(1.0, 2)
    found.add(1.001, 3)
    found.add(60.0, 5)
    found.add(60.1, 7)
    found.add(-0.5, 11)

    assert found.counts == [13, 8, 7]
    assert found.sum_seconds == pytest.approx(2 + 3.003 + 300 + 420.7)
