"""What a scenario works with: two clusters, a folder, and tasks for peers.

Main type: `Bench`. A scenario implements the protocols here (`Scenario`, `Result`); the
runner knows no particular scenario.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
import itertools
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from tests.benchmarks import load
from tests.benchmarks.peers.peer import Task

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tests.benchmarks.clusters import BenchCluster
    from tests.benchmarks.columns import Column
    from tests.benchmarks.processes import Service

PARTITIONS = 4
"""Partitions of a topic, unless a scenario says otherwise."""


class Result(Protocol):
    """Figures of one run; a dataclass."""

    COLUMNS: ClassVar[tuple[Column, ...]]

    def flaw(self) -> str | None:
        """Why it does not count; None if it does."""


Start = Callable[[Task], "Service"]
"""Starts a peer; the caller also stops the service."""
Measure = Callable[[Start], Any]
"""One run: starts a peer, watches it, stops it, and gives a `Result`."""


class Scenario(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def peers(self) -> tuple[str, ...]:
        """The default peers."""

    @property
    def source_bytes(self) -> int:
        """Roughly the bytes on the source, and so on the target once copied."""

    def ready(self, bench: Bench) -> AbstractContextManager[Measure]:
        """Load the data that all runs share onto the source; delete it afterwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    source: BenchCluster
    target: BenchCluster
    folder: Path
    numbers: Iterator[int]
    """Tell the runs apart."""

    @contextmanager
    def topic(self, name: str, *, partitions: int = PARTITIONS) -> Iterator[str]:
        """A topic on the source, for a while."""
        with self.topics([name], partitions=partitions):
            yield name

    @contextmanager
    def topics(self, names: list[str], *, partitions: int) -> Iterator[None]:
        load.create_topics(self.source.near, names, partitions=partitions)
        try:
            yield
        finally:
            self.source.delete_topics(names)

    @contextmanager
    def task(self, topic: str, **more: Any) -> Iterator[Task]:
        """Copy it with a peer that starts for the first time.

        Everything that the peer leaves on the target is deleted afterwards.
        """
        # A new alias makes new names of topics, groups and transactions.
        alias = f"A{next(self.numbers)}"
        folder = self.folder / alias
        folder.mkdir()
        where = {"source": self.source.near, "target": self.target.near}
        settings = {"compression": "none", **where, **more}
        try:
            yield Task(alias=alias, topic=topic, folder=folder, **settings)
        finally:
            names = load.topic_names(self.target.near)
            self.target.delete_topics(
                [name for name in names if name.startswith(f"{alias}.")]
            )


def bench_of(source: BenchCluster, target: BenchCluster, folder: Path) -> Bench:
    return Bench(
        source=source, target=target, folder=folder, numbers=itertools.count(1)
    )
