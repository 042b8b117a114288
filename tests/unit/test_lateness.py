"""The lag of a partition in seconds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
import pytest

from mirror.copying.tally import Lateness, Now

pytestmark = pytest.mark.unit

NOW = 1_000_000.0
"""The time of day, which records have."""
RUN = 200_000.0
"""The same moment by the monotonic clock."""


def _at(seconds: float) -> Now:
    return Now(of_day=NOW + seconds, running=RUN + seconds)


def test_nothing_is_said_before_the_source_has_answered():
    """An unknown lag is not shown as none."""
    assert Lateness().seconds(5, answered=RUN, now=_at(0)) is None


def test_a_partition_whose_records_are_copied_has_none():
    """However old its newest record is: an idle partition is not late."""
    late = Lateness()
    late.told(10, RUN - 3600)
    late.committed(10, NOW - 86400, NOW - 3600)

    assert late.seconds(10, answered=RUN - 0.4, now=_at(0)) == 0.0


def test_a_silent_leader_makes_the_copy_late():
    """What the leader received meanwhile is unknown: the lag grows from its last
    answer.
    """
    late = Lateness()
    late.told(10, RUN - 100)

    assert late.seconds(10, answered=RUN - 40, now=_at(0)) == 40.0
    # Another process has taken over and got no answer at all since.
    assert late.seconds(10, answered=0.0, now=_at(5)) == 45.0


def test_what_was_fetched_and_is_refused_tells_its_age():
    """A copy is as late as the oldest missing record, although the source has newer
    ones, and although the partition was quiet for an hour before.
    """
    late = Lateness()
    late.told(10, RUN - 3600)
    late.committed(10, NOW - 3600, NOW - 3600)
    assert late.seconds(10, answered=RUN - 80, now=_at(-80)) == 0.0
    late.told(11, RUN - 70)
    late.fetched(NOW - 71)
    late.told(12, RUN - 1)
    late.fetched(NOW - 2)

    assert late.seconds(10, answered=RUN, now=_at(0)) == 71.0


def test_a_backlog_is_as_late_as_what_was_copied_last():
    """While a week's backlog is copied, the lag is the last copied record's age."""
    late = Lateness()
    late.told(1000, RUN)
    late.fetched(NOW - 7 * 86400)
    late.committed(500, NOW - 86400, NOW)

    assert late.seconds(500, answered=RUN, now=_at(0)) == 86400.0


def test_old_records_that_are_sent_now_are_not_late():
    """Last year's records are loaded into the source: the copy is missing what came
    since it was last complete, and nothing older.
    """
    late = Lateness()
    late.told(10, RUN - 4)
    late.committed(10, NOW - 4, NOW - 4)
    late.told(5000, RUN - 1)
    late.fetched(NOW - 365 * 86400)
    late.committed(2000, NOW - 364 * 86400, NOW)

    assert late.seconds(2000, answered=RUN, now=_at(0)) == 4.0


def test_a_record_of_the_future_proves_nothing():
    """Producers choose times: a copied record counts as written now at the latest."""
    late = Lateness()
    late.told(20, RUN)
    late.committed(10, NOW + 86400, NOW)

    assert late.seconds(10, answered=RUN, now=_at(9)) == 9.0


def test_a_record_of_the_future_that_waits_hides_no_lag():
    """Refused for its time, it waits since the last complete copy, as far as known."""
    late = Lateness()
    late.told(10, RUN - 60)
    late.committed(10, NOW - 90, NOW - 60)
    late.told(20, RUN)
    late.fetched(NOW * 1000)

    assert late.seconds(10, answered=RUN, now=_at(0)) == 60.0


@given(
    told=st.integers(-1, 20),
    position=st.integers(-1, 20),
    newest=st.floats(-1, 2 * NOW),
    answered=st.floats(0, RUN),
)
def test_it_is_never_negative(
    told: int, position: int, newest: float, answered: float
) -> None:
    """Whatever clocks and producers say, there is no lag below zero."""
    late = Lateness()
    late.told(told, RUN - 1)
    late.fetched(newest)
    late.committed(min(position, 3), newest, NOW)
    found = late.seconds(position, answered=answered, now=_at(0))

    assert found is None or found >= 0


def test_a_partition_that_is_not_read_is_as_late_as_what_is_known():
    """A partition is paused since the process started, and complete: its end was looked
    up a moment ago, its leader was never read.
    """
    late = Lateness()
    late.told(10, RUN - 1)

    assert late.seconds(10, answered=0.0, now=_at(0)) == 0.0


@pytest.mark.parametrize("change", [-3600.0, 3600.0])
def test_a_clock_that_is_set_hides_no_lag_and_makes_none(change: float):
    """If the clock is set by an hour, a complete copy stays complete, a silent leader
    stays silent, and a backlog keeps its age.
    """
    late = Lateness()
    late.told(10, RUN - 60)
    late.committed(10, -1, NOW - 60)
    now = Now(of_day=NOW + change, running=RUN)

    assert late.seconds(10, answered=RUN, now=now) == 0.0
    now = Now(of_day=NOW + change + 40, running=RUN + 40)
    assert late.seconds(10, answered=RUN, now=now) == 40.0
    late.told(20, RUN + 40)
    assert late.seconds(10, answered=RUN + 40, now=now) == 40.0
