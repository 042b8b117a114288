"""This project, started as its users start it: `mirror run -c FILE`.

Main type: `Mirror`; `set_tasks` changes one that runs. Settings are the defaults but
for what the name of the peer says; nothing is tuned for the benchmark.
"""

from __future__ import annotations

from dataclasses import dataclass
import sys
from typing import TYPE_CHECKING

import yaml

from mirror.playground.ports import LOOPBACK, free_ports
from tests.benchmarks.processes import Service

if TYPE_CHECKING:
    from pathlib import Path

    from tests.benchmarks.peers.peer import Task

_WORKERS = "mirror.copying.daemon"
"""Stands in the command line of those of its processes that hold the data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    exactly_once: bool = True
    provenance: bool = True
    verify: str = "off"
    offsets: str = "translated"

    @property
    def about(self) -> str:
        how = "exactly once" if self.exactly_once else "at least once"
        stamp = "header stamped" if self.provenance else "byte for byte"
        proven = "" if self.verify == "off" else f", verify: {self.verify}"
        same = ", the source's offsets" if self.offsets == "same" else ""
        return f"mirror, {how}, {stamp}, tasks as it chooses{proven}{same}"

    def missing(self) -> str | None:
        return None

    def prepare(self) -> None:
        """Nothing: kernels are compiled by the first run and kept."""

    def start(self, task: Task) -> Service:
        config = _file(task)
        (port,) = free_ports(1)
        config.write_text(yaml.safe_dump(self._config(task, port)))
        return Service(
            [sys.executable, "-m", "mirror.cli.main", "run", "-c", config],
            log=task.folder / "mirror.log",
            workers=_WORKERS,
            status_url=f"http://{LOOPBACK}:{port}/status",
        )

    def _config(self, task: Task, port: int) -> dict[str, object]:
        security = task.security or {}
        registries = [
            {"schema_registry": {"url": url}} if url else {}
            for url in task.registries or ("", "")
        ]
        return {
            "clusters": {
                task.alias: {
                    "bootstrap_servers": task.source,
                    **security,
                    **registries[0],
                },
                "B": {"bootstrap_servers": task.target, **security, **registries[1]},
            },
            "flows": {
                f"{task.alias}->B": {
                    "topics": [task.topic],
                    "tasks": task.tasks,
                    "replication_factor": task.replicas,
                    "lease_seconds": task.lease_seconds,
                    "exactly_once": self.exactly_once,
                    "provenance": self.provenance,
                    "verify": self.verify,
                    "offsets": self.offsets,
                    "schemas": "require" if task.registries else "off",
                    "schemas_ids": "translate" if task.translates else "keep",
                    **({"emit_checkpoints_seconds": 1} if task.groups else {}),
                }
            },
            "service": {
                "http_port": port,
                "state_dir": str(task.folder / "state"),
                "log_level": "warning",
            },
        }


def set_tasks(task: Task, tasks: int) -> None:
    """Change the number of slots in the file of a service that runs."""
    file = _file(task)
    config = yaml.safe_load(file.read_text())
    for flow in config["flows"].values():
        flow["tasks"] = tasks
    new = file.with_suffix(".new")
    new.write_text(yaml.safe_dump(config))
    new.rename(file)  # a reader finds the one or the other


def _file(task: Task) -> Path:
    return task.folder / "mirror.yaml"
