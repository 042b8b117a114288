"""Work that rests, so that others have the core."""

from __future__ import annotations

import importlib
import math
import sys
import threading
import time

import pytest

from mirror import patience
from mirror.clusters import cpu_share

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def rests(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each rest would be. The thread's clock stands still but for `_work`."""
    made: list[float] = []
    monkeypatch.setattr(cpu_share.time, "sleep", made.append)
    monkeypatch.setattr(
        cpu_share.time, "thread_time", lambda: getattr(_clock, "now", 0.0)
    )
    return made


_clock = threading.local()


def _work(seconds: float) -> None:
    _clock.now = getattr(_clock, "now", 0.0) + seconds


def test_a_rest_is_in_proportion_to_the_work(rests: list[float]) -> None:
    """Work that may take a quarter of a core rests three times as long as it worked
    since its last rest; what is hardly any work counts with the next.
    """
    with cpu_share.gently(0.25):
        _work(0.02)
        cpu_share.rest()
        cpu_share.rest()
        _work(0.0004)
        cpu_share.rest()
        _work(0.0006)
        cpu_share.rest()
    assert rests == pytest.approx([0.06, 0.003])


def test_nothing_else_rests(rests: list[float]) -> None:
    """Before and after gentle work, and in other threads, nothing rests."""

    def work() -> None:
        _work(1.0)
        cpu_share.rest()

    work()
    with cpu_share.gently():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    work()
    assert rests == []


def test_a_share_within_a_share(rests: list[float]) -> None:
    """The smaller share counts, and the outer one holds again after the inner one."""
    work = lambda: (_work(0.01), cpu_share.rest())  # noqa: E731
    with cpu_share.gently(0.5):
        cpu_share.gently(0.1)(work)()
        cpu_share.gently(0.9)(work)()
        work()
    assert rests == pytest.approx([0.09, 0.01, 0.01])


def test_a_process_that_has_to_end(
    rests: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the process has to end nothing rests any more."""
    monkeypatch.setattr(patience, "_end", math.inf)
    patience.end_at(time.monotonic() + 10)
    with cpu_share.gently():
        _work(1.0)
        cpu_share.rest()
    assert rests == []


def test_it_rests_between_modules(
    rests: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is gentle throughout rests before each module that it loads, and
    finds them as ever.
    """
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    finders = [*sys.meta_path]
    with cpu_share.throughout():
        _work(0.01)
        importlib.import_module("colorsys")
    assert rests == pytest.approx([0.01 * (1 / cpu_share.SHARE - 1)])
    assert sys.meta_path == finders
