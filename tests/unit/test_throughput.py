"""How fast a flow copies and when it has caught up, from its leases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirror.copying.lease import PartitionReport
from mirror.service.autoscale import Sample, Throughput, measured, recent, sample
from tests.harness.statuses import counted

pytestmark = pytest.mark.unit


def lease(**changes) -> Sample:
    return replace(
        Sample(
            seconds=10.0, busy=0.5, records=0, bytes=0, lag=0, located=4, behind=False
        ),
        **changes,
    )


def backlog(*lags: int, **changes) -> list[Sample]:
    """Samples with these lags, each with 1000 records per second."""
    return [lease(lag=lag, records=10_000, bytes=10**7, **changes) for lag in lags]


def test_nothing_is_known_at_first():
    """Without a lease there is no throughput, and no remaining time."""
    assert measured([]) == Throughput()
    assert measured(backlog(900_000)).catching_up
    assert measured(backlog(900_000, seconds=1.0)).remaining_seconds == -1.0


def test_remaining_time_is_how_fast_the_lag_shrinks():
    """New records count: 1000 a second are copied, 500 are produced."""
    found = measured(backlog(100_000, 95_000, 90_000, 85_000))

    assert found == Throughput(
        records_per_second=1000,
        bytes_per_second=10**6,
        catching_up=True,
        remaining_seconds=170,
    )


def test_remaining_time_falls_with_the_backlog():
    """At a steady rate, each lease shortens the remaining time by its own length."""
    lags = list(range(500_000, 100_000, -10_000))
    times = [
        measured(backlog(*lags[:end])).remaining_seconds for end in range(2, len(lags))
    ]

    assert times == [lag / 1000 for lag in lags[1:-1]]


def test_a_lag_that_does_not_shrink_never_ends():
    """The flow is catching up, and has no remaining time."""
    found = measured(backlog(100_000, 100_000, 120_000))

    assert found.catching_up
    assert found.remaining_seconds == -1.0


@pytest.mark.parametrize(
    ("changes", "catching_up"),
    [
        ({"lag": 0}, False),
        ({"lag": 900}, False),  # few, and nothing says that it is behind
        ({"lag": 900, "behind": True, "records": 100}, True),  # few, but large
        ({"lag": 1500}, True),
        ({"lag": 1500, "records": 100_000}, False),  # done in no time
        ({"lag": 30_000, "records": 100_000}, True),
    ],
)
def test_who_is_catching_up(changes, catching_up):
    """More than two seconds of work, and more than a few records or large ones."""
    found = measured([lease(**changes)] * 3)

    assert found.catching_up is catching_up


def test_a_partition_just_found_is_no_trend():
    """A lag that grows because more partitions are known says nothing."""
    found = [*backlog(10_000, 9000, located=1), *backlog(90_000, 80_000, 70_000)]

    assert measured(found).remaining_seconds == 70
    assert measured(found[:3]).remaining_seconds == -1.0


def test_the_last_half_minute_counts():
    """Older samples do not matter."""
    slow = backlog(*[500_000] * 60)

    assert (
        measured([*slow, *backlog(490_000, 480_000, 470_000)]).remaining_seconds == 470
    )
    assert len(recent(slow, 30)) == 3
    assert len(recent(slow[:2], 30)) == 2


def report(**changes) -> PartitionReport:
    values = {
        "slot": 0,
        "topic": "t",
        "partition": 0,
        "target_topic": "A.t",
        "state": "RUNNING",
        "slot_busy": 0.8,
        **changes,
    }
    return PartitionReport(**counted(values))


def test_a_sample_adds_up_a_lease():
    """CPU is averaged over all slots, those without partitions included; partitions
    that are set aside or not located yet have no lag.
    """
    found = sample(
        [
            report(position=5, end_offset=9, records=3, bytes=30),
            report(position=0, end_offset=6, records=1, bytes=10, state="CATCHING_UP"),
            report(position=0, end_offset=-1),
            report(position=0, end_offset=999, state="FAULTED", slot=1, slot_busy=0.4),
        ],
        seconds=2.0,
        slots=3,
    )

    assert found == Sample(
        seconds=2.0,
        busy=pytest.approx(0.4),
        records=4,
        bytes=40,
        lag=10,
        located=2,
        behind=True,
    )
