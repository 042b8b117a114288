"""How many offsets applications used on a passive cluster, from ends and a cut."""

from __future__ import annotations

import pytest

from mirror.pairs import risk, roles
from mirror.pairs.journal import Entry, Kind, StepState
from mirror.pairs.risk import PartitionEnd, TopicEnds
from mirror.pairs.roles import Run
from tests.harness.configurations import config

pytestmark = pytest.mark.unit


def run(**details: object) -> Run:
    """One whose fence noted these."""
    entry = Entry(
        pair="A<->B", run="r", number=0, kind=Kind.SWITCH, epoch=2, source="A",
        target="B", step="fence", state=StepState.DONE, at=1.0, by="me",
        details=details,
    )  # fmt: skip
    return Run(entries=(entry,))


@pytest.mark.parametrize(("policy", "expected"), [("default", ["t"]), ("identity", [])])
def test_topics_that_only_applications_write(policy: str, expected: list[str]) -> None:
    """Neither heartbeats count, which mirror writes to every cluster, nor topics to
    which the other cluster is copied.
    """
    made = config({"A->B": {}, "B->A": {}}, "AB", defaults={"policy": policy})
    topics = ["t", "B.t", "heartbeats", "B.heartbeats"]
    back = made.flows["B->A"]
    assert risk.of_applications(topics, back) == expected


def test_the_cut_of_a_switch() -> None:
    """By partition; a failover has none."""
    found = roles.cut(run(cut={"t": [5, 0]}).details("fence"))
    assert found == {("t", 0): 5, ("t", 1): 0}
    assert roles.cut(run().details("fence")) is None


def test_partitions_that_do_not_answer_are_left_out() -> None:
    """An end that is not known is no end of zero."""
    known, silent = (PartitionEnd(end=end, stable=end, at=1.0) for end in (7, -1))
    found = {"t": TopicEnds(topic_id="", partitions=(known, silent))}
    assert risk.ends_of(found) == {("t", 0): 7}


def test_what_was_written() -> None:
    """What stands behind the start counts, all of a topic that was made again, and
    nothing of a partition whose start is not known yet.
    """
    starts = {("t", 0): 5, ("t", 1): 5, ("u", 0): 90}
    ends = {("t", 0): 5, ("t", 1): 8, ("u", 0): 4, ("v", 0): 9}
    assert risk.written_since(starts, ends) == 3 + 4
