"""Each partition's report names what keeps it from being copied now."""

from __future__ import annotations

import uuid

import pytest

from mirror.relay.faults import Faults
from mirror.relay.lease import Assignment
from mirror.relay.tally import Tally

pytestmark = pytest.mark.unit

_PARTITIONS = {
    ("t", number): Assignment(
        topic="t", partition=number, target_topic="t", topic_id=uuid.uuid4().hex
    )
    for number in range(2)
}


def _reasons(tally: Tally, faults: Faults) -> list[str]:
    reports = tally.reports(_PARTITIONS, {}, faults, answered=lambda _: 0.0)
    return [report.reason for report in reports]


def test_what_stops_a_slot_stops_its_partitions():
    """A partition was set aside because its leader was moving, and then the source
    refuses: both partitions name the refusal, so that the flow does, too. Once the
    slot works again, the partition that is still set aside has its own reason back.
    """
    tally = Tally(slot=0, bounds=(1.0,), service=uuid.uuid4())
    faults = Faults()
    faults.set_aside(("t", 0), "not the leader")
    assert _reasons(tally, faults) == ["not the leader", ""]
    tally.slot_failed("certificate expired")
    assert _reasons(tally, faults) == ["certificate expired"] * 2
    tally.slot_works({}, _PARTITIONS)
    assert _reasons(tally, faults) == ["not the leader", ""]
