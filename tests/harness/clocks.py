"""A machine's two clocks under a test's control: wall clock and monotonic."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
import struct
import subprocess
from typing import TYPE_CHECKING, Any, Self

import pytest

from tests.harness.service import RunningMirror

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from mirror.playground.cluster import Node, PlaygroundCluster

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


class MirrorWithClock(RunningMirror):
    """`mirror run` with these variables of a `false_clock`, as often as it starts."""

    def __init__(
        self, config: Mapping[str, Any], folder: Path, variables: Mapping[str, str]
    ) -> None:
        super().__init__(config, folder)
        self._variables = variables

    def launch(self) -> Self:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self._variables.items():
                patch.setenv(name, value)
            return super().launch()


class _NodeWithClock:
    """A broker that goes by a clock of its own from its next start on."""

    def __init__(self, node: Node, clock: Path) -> None:
        self._node = node
        self._variables = false_clock(clock)

    def spawn(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self._variables.items():
                patch.setenv(name, value)
            self._node.spawn()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)


def broker_clock(folder: Path, cluster: PlaygroundCluster, node: int) -> Path:
    """The file of a broker's clock, where `with_clocks` has put it."""
    return folder / f"clock-{cluster.name}-{node}"


def with_clocks(cluster: PlaygroundCluster, folder: Path) -> PlaygroundCluster:
    """The same cluster, each broker of which has a clock from its next start on."""
    nodes = {
        number: _NodeWithClock(node, broker_clock(folder, cluster, number))
        for number, node in cluster.node_by_number.items()
    }
    return replace(cluster, node_by_number=nodes)
