"""From reports of leases to what is shown."""

from __future__ import annotations

import pytest

from mirror.observe.status import SlotStatus
from mirror.relay.report import PartitionReport, from_row, to_arrow
from mirror.scoreboard import Scoreboard, slot_loads

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
    return PartitionReport(**values)


class Row(dict):
    asDict = dict.copy  # noqa: N815  as Spark's rows have it


def test_reports_survive_the_way_through_spark():
    """What a task reports is what the driver reads, field for field."""
    sent = [report(records=3, slot_busy=0.25, slot_seconds=1.5), report(partition=1)]

    rows = [Row(row) for row in to_arrow(sent).to_pylist()]

    assert [from_row(row) for row in rows] == sent


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


def test_counters_add_up_over_leases():
    """A partition's counters grow from lease to lease; one that is no longer mirrored
    is no longer shown.
    """
    scores = Scoreboard()
    scores.add([report(records=3, bytes=30), report(partition=1)])

    (found,) = scores.add([report(records=4, bytes=40, position=9, end_offset=11)])

    assert (found.records, found.bytes, found.lag) == (7, 70, 2)
