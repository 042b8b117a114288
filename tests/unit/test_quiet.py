"""Whether logs stand still, from one look to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mirror.recovery import quiet
from mirror.recovery.quiet import ActivityReason, LogEnds

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY = ("orders", 0)


class Log:
    """A log that is asked, and a clock that moves while one sleeps or asks."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *ends: int | ActivityReason
    ) -> None:
        self.now = 100.0
        self._ends = iter(ends)
        monkeypatch.setattr(quiet, "_read_ends", self._read_ends)
        monkeypatch.setattr("time.monotonic", lambda: self.now)
        monkeypatch.setattr("time.sleep", self._sleep)

    def look(self, **given: Any) -> quiet.QuiesceCheck:
        cluster: Any = None
        return quiet.look(cluster, [KEY[0]], pause=1.0, **given)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def _read_ends(self, *_: object) -> LogEnds:
        end, at = next(self._ends), self.now
        self.now += 0.25  # the other questions
        active: Mapping[tuple[str, int], ActivityReason] = {}
        if isinstance(end, ActivityReason):
            active, ends = {KEY: end}, {}
        else:
            ends = {KEY: end}
        return LogEnds(at=at, ends=ends, active=active, open=())


def test_a_second_counts_from_the_last_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that goes on behind one that saw a write needs no more than a second since
    then, and asks once.
    """
    log = Log(monkeypatch, 10, 11, 11)
    first = log.look()

    assert first.active == {KEY: ActivityReason.WRITES}
    assert log.now == pytest.approx(101.25)
    assert log.look(after=first).cuts == {KEY: 11}
    assert log.now == pytest.approx(102.25)


def test_what_was_not_quiet_is_no_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a glance that met an open transaction a look begins again."""
    log = Log(monkeypatch, 10, ActivityReason.TRANSACTION, 12, 12)
    first = log.look()

    assert log.look(after=first).cuts == {KEY: 12}
    assert log.now == pytest.approx(102.5)
