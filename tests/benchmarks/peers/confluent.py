"""A consume-produce loop with confluent-kafka: what a Python user would write.

Main type: `Confluent`; the loop itself is `confluent_loop.py`, a script like theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
import sys
from typing import TYPE_CHECKING

from tests.benchmarks.processes import PeerError, Service

if TYPE_CHECKING:
    from tests.benchmarks.peers.peer import Task

_SCRIPT = Path(__file__).with_name("confluent_loop.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Confluent:
    @property
    def about(self) -> str:
        return "consume-produce loop in Python with confluent-kafka, exactly once"

    def missing(self) -> str | None:
        return None

    def prepare(self) -> None:
        """Nothing: it is a script."""

    def start(self, task: Task) -> Service:
        if task.security:
            raise PeerError("this loop speaks plaintext only")
        return Service(
            [
                *(sys.executable, _SCRIPT),
                *(task.source, task.target, task.alias, task.topic, task.compression),
            ],
            log=task.folder / "confluent.log",
        )
