"""Steps that block producers wait for nothing that only the last step needs."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from mirror.pairs.journal import Kind
from mirror.recovery import outcome
from mirror.recovery.stage import Stage
from tests.harness.configurations import configuration

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.unit


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Until it is set, what compares is not loaded."""
    done = threading.Event()

    def slowly(*_: object) -> outcome.LastRecords:
        assert done.wait(20)
        return outcome.LastRecords(text="equal in 1 of 1 partition")

    monkeypatch.setattr(outcome, "_load", slowly)
    monkeypatch.setattr(outcome, "_compare", slowly)
    monkeypatch.setattr(outcome.Reach, "__call__", lambda *_: None)
    yield done
    done.set()


def stage() -> Stage:
    config = configuration(
        {
            "clusters": {alias: {"bootstrap_servers": "x:1"} for alias in "AB"},
            "flows": {"A->B": {}, "B->A": {}},
            "recovery": {"A<->B": {"active": "A", "fence": "confirmed"}},
        }
    )
    return Stage(
        kind=Kind.SWITCH, config=config, pair=config.recovery["A<->B"],
        flow=config.flows["A->B"], reverse=config.flows["B->A"],
        source_or_none=None, target_or_none=None, notes={},
        note=lambda _: None, tell=lambda _: None, deadline=time.monotonic() + 20,
    )  # fmt: skip


def test_what_compares_is_loaded_beside_the_steps(loaded: threading.Event) -> None:
    """The comparison begins without waiting for it; the last step has the outcome."""
    here = stage()
    outcome.load_comparing()
    outcome.begin_comparing(here)
    (begun,) = here.beside.values()
    assert not begun.done()
    loaded.set()
    assert outcome.compare_last_records(here).text == "equal in 1 of 1 partition"
    assert begun.done()
