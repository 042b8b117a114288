"""From the reports of leases to the status."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from mirror.copying.lease import PartitionReport, from_row, to_arrow
from mirror.service.flow_status import LeaseTotals, common_reason, slot_loads
from mirror.status.values import Counts, SlotStatus, TransactionStatus
from tests.harness.statuses import counted

pytestmark = pytest.mark.unit


def report(**changes) -> PartitionReport:
    values = {
        "slot": 0,
        "topic": "t",
        "partition": 0,
        "target_topic": "A.t",
        "state": "RUNNING",
        **changes,
    }
    return PartitionReport(**counted(values))


def test_reports_survive_the_way_through_spark():
    """The driver reads what a task reported, field for field."""
    sent = [
        report(slot_busy=0.25, latency_counts=(1, 2, 3), looped=4, total_since=5),
        report(failed=(("TRANSFORM", 2),), slot_errors=(("A Fetch X", 3),)),
        report(partition=1, position=np.int64(9), lost=np.int64(2)),
    ]

    rows = [tuple(row.values()) for row in to_arrow(sent).to_pylist()]

    assert [from_row(row) for row in rows] == sent


def test_a_report_loads_no_pandas():
    """A slot's process reports without pandas, which takes 50 MB of each."""
    code = (
        "import sys; from mirror.copying.lease import PartitionReport, to_arrow\n"
        "to_arrow([PartitionReport(slot=0, topic='t', partition=0, target_topic='t',"
        " state='RUNNING')]); print(*sys.modules)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    loaded = ended.stdout.split()
    assert "pyarrow" in loaded
    assert "pandas" not in loaded


def test_each_slot_has_a_load():
    """Rates are over the time that the slot worked; an idle slot is shown as such."""
    reports = [
        report(slot=1, records=30, bytes=300, slot_busy=0.5, slot_seconds=2.0),
        report(slot=1, partition=1, records=10, slot_busy=0.5, slot_seconds=2.0),
    ]

    empty, busy = slot_loads(reports, 2)

    assert empty == SlotStatus(
        number=0, partitions=0, busy=0.0, records_per_second=0.0, bytes_per_second=0.0
    )
    assert busy == SlotStatus(
        number=1, partitions=2, busy=0.5, records_per_second=20.0, bytes_per_second=150
    )


def test_a_reason_is_the_flows_if_it_is_everybodys():
    """A reason that all active partitions have becomes the flow's."""
    faulted = {"state": "FAULTED", "reason": "no password"}
    paused = report(partition=9, state="PAUSED")
    both = [report(**faulted), report(partition=1, **faulted)]

    assert common_reason([*both, paused]) == "no password"
    assert common_reason([*both, report(partition=2)]) == ""
    other = report(partition=2, state="FAULTED", reason="too large")
    assert common_reason([*both, other]) == ""
    assert common_reason([paused]) == common_reason([]) == ""


def test_counters_add_up_over_leases():
    """A partition's counters grow from lease to lease; one that is no longer mirrored
    is no longer shown.
    """
    scores = LeaseTotals()
    scores.add([report(records=3, bytes=30), report(partition=1)], 1.0)

    (found,) = scores.add([report(records=4, bytes=40, position=9, end_offset=11)], 2.0)

    assert (found.counts.records, found.counts.bytes, found.lag) == (7, 70, 2)


def test_failed_records_add_up_by_reason():
    """Each lease reports the records that failed in it."""
    scores = LeaseTotals()
    scores.add([report(failed=(("TRANSFORM", 1), ("CORRUPT_BATCH", 1)))], 1.0)

    (found,) = scores.add([report(failed=(("TRANSFORM", 2),))], 2.0)

    assert found.failed == {"TRANSFORM": 3, "CORRUPT_BATCH": 1}


def test_what_a_killed_lease_committed_is_counted():
    """A killed lease reports nothing: the next report has what it committed, and what
    was counted before counts once.
    """
    totals = LeaseTotals()
    first = {"total_since": 5, "total": Counts(records=3)}
    totals.add([report(records=3, **first)], 1.0)
    later = {"total_since": 5, "total": Counts(records=10)}

    (found,) = totals.add([report(records=2, **later)], 2.0)
    (again,) = totals.add([report(**later)], 3.0)
    (unknown,) = totals.add([report()], 4.0)
    (stale,) = totals.add([report(**first)], 5.0)
    (after,) = totals.add([report(**later)], 6.0)

    shown = (found, again, unknown, stale, after)
    assert [each.counts.records for each in shown] == [10] * 5


def test_what_another_service_copied_is_counted_there():
    """After another instance led the flow, totals start at zero again, and what this
    instance counted before stays.
    """
    totals = LeaseTotals()
    totals.add([report(total_since=5, total=Counts(records=100))], 1.0)

    (less,) = totals.add([report(total_since=6, total=Counts(records=7))], 2.0)
    (more,) = totals.add([report(total_since=7, total=Counts(records=200))], 3.0)

    assert (less.counts.records, more.counts.records) == (107, 307)


def test_a_lag_that_a_new_slot_does_not_know_goes_on():
    """A slot in a new process does not know the lag yet: the last known one grows
    meanwhile.
    """
    scores = LeaseTotals()
    scores.add([report(lag_seconds=7.0)], 100.0)

    (unknown,) = scores.add([report()], 110.0)
    (known,) = scores.add([report(lag_seconds=0.0)], 120.0)

    assert (unknown.lag_seconds, known.lag_seconds) == (17.0, 0.0)


def test_times_are_of_topics_and_transactions_of_slots():
    """Buckets add up over partitions and leases; a slot's own counters, which all of
    its reports have, count once.
    """
    scores = LeaseTotals()
    scores.forget_times(2)
    reports = [
        report(
            partition=p,
            slot=slot,
            latency_counts=(1, 2),
            latency_sum_seconds=0.5,
            slot_transactions=10,
            slot_aborted=1,
            slot_transaction_seconds=3.0,
            slot_takeovers=1,
            slot_handovers=1,
        )
        for p, slot in ((0, 0), (1, 0), (2, 1))
    ]
    scores.add(reports, 1.0)
    scores.add(reports, 2.0)

    (topic,) = scores.times
    assert (topic.topic, topic.target_topic) == ("t", "A.t")
    assert (topic.latency.counts, topic.latency.sum_seconds) == ((6, 12), 3.0)
    assert topic.age.counts == (0, 0)
    assert scores.transactions == TransactionStatus(
        committed=40, seconds=12.0, aborted=4, takeovers=4, handovers=4
    )

    scores.add([report(topic="u")], 3.0)
    assert [times.topic for times in scores.times] == ["u"]


def test_a_partition_that_comes_back_goes_on_from_its_count():
    """What is known of a partition ends with it, so topics that come and go leave
    nothing behind; its count goes on from what its progress says.
    """
    totals = LeaseTotals()
    mine = report(total=Counts(records=30), total_since=5)
    totals.add([mine], now=1.0)
    totals.add([], now=2.0)
    assert not totals._known

    (back,) = totals.add([mine], now=3.0)

    assert back.counts.records == 30
