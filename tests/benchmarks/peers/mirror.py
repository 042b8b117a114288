"""This project, started as its users start it: `mirror run -c FILE`.

Main type: `Mirror`. Settings are the defaults but for what the name of the peer
says; nothing is tuned for the benchmark.
"""

from __future__ import annotations

from dataclasses import dataclass
import os
import sys
from typing import TYPE_CHECKING

import yaml

from tests.benchmarks.processes import Service
from tests.benchmarks.scenarios import PARTITIONS

if TYPE_CHECKING:
    from tests.benchmarks.peers.peer import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    exactly_once: bool = True
    provenance: bool = True
    tasks: int = min(PARTITIONS, os.cpu_count() or 1)

    @property
    def about(self) -> str:
        how = "exactly once" if self.exactly_once else "at least once"
        stamp = "header stamped" if self.provenance else "byte for byte"
        return f"mirror, {how}, {stamp}, {self.tasks} tasks"

    def missing(self) -> str | None:
        return None

    def prepare(self) -> None:
        """Nothing: kernels are compiled by the first run and kept."""

    def start(self, task: Task) -> Service:
        config = task.folder / "mirror.yaml"
        config.write_text(yaml.safe_dump(self._config(task)))
        return Service(
            [sys.executable, "-m", "mirror.cli.main", "run", "-c", config],
            log=task.folder / "mirror.log",
        )

    def _config(self, task: Task) -> dict[str, object]:
        return {
            "clusters": {
                task.alias: {"bootstrap_servers": task.source},
                "B": {"bootstrap_servers": task.target},
            },
            "flows": {
                f"{task.alias}->B": {
                    "topics": [task.topic],
                    "tasks": self.tasks,
                    "exactly_once": self.exactly_once,
                    "provenance": self.provenance,
                }
            },
            "service": {
                "http_port": 0,
                "state_dir": str(task.folder / "state"),
                "log_level": "warning",
            },
        }
