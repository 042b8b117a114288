"""A machine's two clocks under a test's control: wall clock and monotonic."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    import pytest

NOON = 1_800_000_000.0
HOUR = 3600.0


class Clocks:
    """Replaces the module `time`."""

    def __init__(self) -> None:
        self.of_day = NOON
        self.running = 50.0

    def time(self) -> float:
        return self.of_day

    def monotonic(self) -> float:
        return self.running

    def run(self, seconds: float) -> None:
        self.of_day += seconds
        self.running += seconds


def clocks_of(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Clocks:
    """Clocks that the module reads instead of the machine's."""
    made = Clocks()
    monkeypatch.setattr(module, "time", made)
    return made
