"""How many slots a flow without `tasks` gets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirror.service.autoscale import Sample, Sizing, share, slots_for, wanted_slots

pytestmark = pytest.mark.unit

LEASE = Sample(
    seconds=10.0, busy=0.5, records=10_000, bytes=10**7, lag=0, located=9, behind=False
)


def leases(count: int, **changes) -> list[Sample]:
    return [replace(LEASE, **changes)] * count


def wanted(samples: list[Sample], **changes) -> int:
    return wanted_slots(
        samples, **{"slots": 2, "partitions": 100, "most": 8, **changes}
    )


@pytest.mark.parametrize(
    ("cores", "tasks", "each"),
    [
        (8, [None], 8),
        (8, [None, None, None], 2),
        (8, [4, None, None], 2),
        (2, [4, None], 1),
        (0, [None], 1),
        (8, [2], 6),
    ],
)
def test_flows_share_the_cores(cores, tasks, each):
    """Cores that no `tasks` setting takes are divided; every flow gets one."""
    assert share(cores, tasks) == each


@pytest.mark.parametrize(
    ("partitions", "tasks", "most", "slots"),
    [
        (0, None, 8, 1),
        (1, None, 8, 1),
        (4, None, 8, 1),
        (5, None, 8, 2),
        (1000, None, 64, 4),
        (1000, None, 2, 2),
        (1, 6, 2, 6),
    ],
)
def test_slots_to_begin_with(partitions, tasks, most, slots):
    """A small flow starts with one slot, a large one with few; `tasks` is obeyed."""
    assert slots_for(partitions, tasks, most) == slots


def test_busy_slots_become_more():
    """Half a minute near the limit of the CPU doubles the slots."""
    busy = leases(3, busy=0.9)

    assert wanted(busy) == 4
    assert wanted(busy[:2]) == 2
    assert wanted(leases(60, busy=0.7)) == 2
    assert wanted([*leases(60, busy=0.1), *busy]) == 4


def test_a_short_peak_changes_nothing():
    """A single busy lease, or a busy warm-up, is not enough."""
    warm_up = leases(5, seconds=0.5, busy=1.8)

    assert wanted([*warm_up, *leases(3)]) == 2
    assert wanted([*leases(5), *leases(1, busy=1.0)]) == 2


@pytest.mark.parametrize(
    ("changes", "slots"),
    [
        ({"most": 3}, 3),
        ({"partitions": 3}, 3),
        ({"most": 2}, 2),
        ({"partitions": 1}, 2),
        ({"most": 1}, 2),
    ],
)
def test_never_more_than_cores_and_partitions(changes, slots):
    """A slot without a core or a partition gains nothing; growing never takes slots
    away.
    """
    assert wanted(leases(3, busy=1.0), **changes) == slots


def test_a_lag_that_grows_asks_for_slots():
    """Slots that only wait for far brokers become more as well, if the flow falls
    behind.
    """
    stuck = leases(6, lag=900_000, busy=0.2)
    growing = [replace(LEASE, lag=900_000 + n, busy=0.2) for n in range(6)]
    shrinking = [replace(LEASE, lag=900_000 - n * 1000, busy=0.2) for n in range(6)]

    assert wanted(stuck) == 4
    assert wanted(growing) == 4
    assert wanted(growing[:5]) == 2
    assert wanted(shrinking) == 2


def test_idle_slots_become_fewer_late():
    """Ten idle minutes halve the slots, nine or a busy lease among them do not."""
    idle = leases(60, busy=0.02, records=0)

    assert wanted(idle) == 1
    assert wanted(idle, slots=5) == 3
    assert wanted(idle, slots=1) == 1
    assert wanted(idle[:54]) == 2
    assert wanted([*idle[:30], *leases(1), *idle[:29]]) == 2
    assert wanted(leases(60, busy=0.02, lag=10**6, records=0), slots=1) == 2


@pytest.mark.parametrize("work", [0.1, 0.5, 0.9, 1.6, 3.0, 6.0, 20.0])
def test_the_count_settles(work):
    """Under steady load the number changes a few times, then no more: a flow that
    shrank does not grow again.
    """
    slots, samples, counts = 1, [], []
    for _ in range(1000):
        busy = min(work / slots, 1.0)
        samples.append(replace(LEASE, busy=busy, records=1))
        found = wanted(samples, slots=slots)
        if found != slots:
            slots, samples = found, []
        counts.append(slots)

    assert len(set(counts[100:])) == 1
    assert counts == sorted(counts)


def test_sizing_survives_runs():
    """A run starts with the slots that the previous run asked for."""
    sizing = Sizing(None)
    assert sizing.begin(8, 4) == 2
    assert not sizing.outdated(leases(2, busy=1.0))
    assert sizing.outdated(leases(3, busy=1.0))

    assert sizing.begin(8, 4) == 4
    assert sizing.outdated(leases(60, busy=0.0, records=0))
    assert sizing.begin(8, 4) == 2


def test_new_partitions_may_ask_for_slots():
    """A flow that started small grows with its topics; one that shrank does not grow
    for the partitions that it had before.
    """
    sizing = Sizing(None)
    assert sizing.begin(4, 4) == 1
    assert not sizing.outgrown(4, 4)
    assert sizing.outgrown(5, 4)
    assert sizing.begin(5, 4) == 2

    assert sizing.outdated(leases(60, busy=0.0, records=0))
    assert sizing.begin(5, 4) == 1
    assert not sizing.outgrown(5, 4)
    assert sizing.outgrown(9, 4)


def test_fewer_cores_mean_fewer_slots():
    """A run that starts while executors are gone has no more slots than cores."""
    sizing = Sizing(None)
    assert sizing.begin(100, 8) == 4
    assert sizing.begin(100, 2) == 2
    assert sizing.begin(100, 8) == 4


def test_tasks_are_obeyed():
    """With `tasks` set nothing is chosen."""
    sizing = Sizing(3)

    assert sizing.begin(100, 1) == 3
    assert not sizing.outgrown(1000, 1)
    assert not sizing.outdated(leases(60, busy=1.0))
    assert not sizing.outdated(leases(60, busy=0.0, records=0))
    assert sizing.begin(100, 1) == 3
