"""Setting the machine's clock does not disturb what is measured.

Each test has a clock that people set beside one that only runs, in the module that it
is about (see also `test_faults`).
"""

from __future__ import annotations

from typing import Any

import pytest

from mirror.clusters.auth import tokens
from mirror.clusters.auth.tokens import Token
from mirror.errors import AuthenticationError
from mirror.status import events as events_module
from mirror.status import store as store_module
from mirror.status.events import Event, EventKind, Trail
from mirror.status.states import FlowState
from mirror.status.store import StatusStore
from tests.harness.clocks import HOUR, clocks_of
from tests.harness.statuses import show

pytestmark = pytest.mark.unit

_CHANGES = pytest.mark.parametrize("change", [-HOUR, HOUR])


@_CHANGES
def test_no_lease_becomes_overdue(
    monkeypatch: pytest.MonkeyPatch, change: float
) -> None:
    """A service that gets its reports is alive, and its flows are not late; one that
    gets none is, whichever way its clock was set meanwhile.
    """
    clocks = clocks_of(store_module, monkeypatch)
    store = StatusStore(("A->B",))
    now = clocks.time()
    show(store, "A->B", state=FlowState.RUNNING, reported_at=now, report_due=now + 20)
    clocks.of_day += change
    assert store.standstill() == ""
    assert store.read().flows[0].overdue == 0
    clocks.run(100)
    assert "overdue by 80 s" in store.standstill()
    assert store.read().flows[0].overdue == 100


@_CHANGES
def test_what_repeats_is_logged_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, change: float
) -> None:
    """Neither more nor less often."""
    clocks = clocks_of(events_module, monkeypatch)
    logged: list[Any] = []
    monkeypatch.setattr(events_module, "_log", logged.append)
    trail = Trail()
    event = Event(
        kind=EventKind.TOPIC_CREATED, flow="A->B", subject="t", text="as before"
    )
    trail.add(event)
    clocks.of_day += change
    trail.add(event)
    assert len(logged) == 1
    clocks.run(61)
    trail.add(event)
    assert len(logged) == 2


@_CHANGES
def test_a_token_is_asked_for_again_in_time(
    monkeypatch: pytest.MonkeyPatch, change: float
) -> None:
    """One failure counts for a second, and not for another hour."""
    clocks = clocks_of(tokens, monkeypatch)
    failing = True
    asked = 0

    def fetch() -> Token:
        nonlocal asked
        asked += 1
        if failing:
            raise AuthenticationError("no endpoint")
        now = clocks.time()
        return Token(text="good", made_at=now, ends_at=now + 300)

    kept = tokens.KeptToken(fetch, alias="A")
    with pytest.raises(AuthenticationError):
        kept.get()
    clocks.of_day += change
    with pytest.raises(AuthenticationError):
        kept.get()
    assert asked == 1
    failing = False
    clocks.run(1.1)
    assert kept.get() == "good"
