"""A machine's two clocks under a test's control: wall clock and monotonic."""

from __future__ import annotations

from pathlib import Path
import struct
import subprocess
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


def false_clock(file: Path) -> dict[str, str]:
    """Variables of processes whose wall clock is off by what `set_clock` writes to this
    file.
    """
    set_clock(file, 0)
    library = file.with_suffix(".so")
    source = Path(__file__).with_name("false_clock.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    return {"LD_PRELOAD": str(library), "FALSE_CLOCK": str(file)}


def set_clock(file: Path, seconds: int) -> None:
    with file.open("r+b" if file.exists() else "wb") as opened:
        opened.write(struct.pack("=q", seconds))
