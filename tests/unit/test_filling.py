"""When a transaction that is being filled is written, without brokers."""

from __future__ import annotations

import math
import time
from types import SimpleNamespace
from typing import Any

import pytest

from mirror.config.schema import FlowConfig
from mirror.copying import slot
from mirror.copying.slot import Filling
from mirror.copying.source import LINGER_BYTES
from mirror.copying.transaction import PendingTransaction

pytestmark = pytest.mark.unit


class Filled:
    """A filling with a small transaction, begun 4 ms after the last one was taken."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(slot, "rewriters_for", lambda *_: [SimpleNamespace()])
        self.now = 100.0
        self.asked: list[bool] = []
        self.reader = SimpleNamespace(
            lingers=True, ask=lambda *, together: self.asked.append(together)
        )
        self.writer = SimpleNamespace(ready=True)
        plan: Any = SimpleNamespace(flow=FlowConfig(source="A", target="B"))
        given: list[Any] = [self.reader, None, self.writer, None]
        self.filling = Filling(plan, *given)
        self.filling.take()
        self.now += 0.004
        rewriter: Any = None
        self.transaction = PendingTransaction(rewriter=rewriter, fetched_bytes=100)
        self.filling.transaction = self.transaction


def test_a_small_transaction_waits_for_leaders_that_linger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One transaction takes what all of them have, but does not wait for longer than
    they do; what was read last is asked for again when it is written.
    """
    made = Filled(monkeypatch)
    assert made.filling.again_in == pytest.approx(0.003)
    made.filling.ask()
    made.now += 0.003
    assert made.filling.again_in == pytest.approx(0.0)
    made.reader.lingers = False
    made.now -= 0.003
    assert made.filling.again_in == 0
    made.filling.ask()
    assert made.asked == [True, False]


def test_what_fills_a_transaction_does_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Waiting costs throughput where it saves nothing."""
    made = Filled(monkeypatch)
    made.transaction.fetched_bytes = LINGER_BYTES
    assert made.filling.again_in == 0


def test_nothing_is_due_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot would turn in circles until its writer is ready."""
    made = Filled(monkeypatch)
    made.reader.lingers = False
    made.writer.ready = False
    assert made.filling.again_in == math.inf
    made.filling.ask()
    made.filling.take()
    made.writer.ready = True
    assert made.filling.again_in == math.inf
    made.filling.ask()
    assert made.asked == [False, False]
