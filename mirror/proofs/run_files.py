"""Keeps the offset map's runs of many partitions in files, since there may be millions.

Main type: `RunFiles`. The driver reads the map once, in its order, and then
passes over the runs of one partition at a time, in pieces.
"""

from __future__ import annotations

from pathlib import Path
import tempfile
from typing import TYPE_CHECKING, Self

import numpy as np

from mirror.offsets import runs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from mirror.clusters.topics import TopicPartition
    from mirror.offsets.runs import RunArray


_RUNS_IN_MEMORY = 500_000
_RUNS_IN_PIECE = 50_000
_RUN_BYTES = 24


class RunFiles:
    """Runs of many partitions, in the order in which they were added.

    A context manager: the files are gone after it.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mirror-runs-")
        self._parts: dict[TopicPartition, bytearray] = {}
        self._kept = 0
        self._names: dict[TopicPartition, Path] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._folder.cleanup()

    def add(self, key: TopicPartition, found: RunArray) -> None:
        # As bytes: many transactions name one run, for which an array takes 200.
        part = runs.joined(found)
        self._parts.setdefault(key, bytearray()).extend(part.tobytes())
        self._kept += len(part)
        if self._kept > _RUNS_IN_MEMORY:
            for each in list(self._parts):
                self._write(each)

    def of(self, key: TopicPartition) -> Pieces:
        """All runs of one partition, up to now."""
        if key in self._parts:
            self._write(key)
        return Pieces(self._names.get(key))

    def _write(self, key: TopicPartition) -> None:
        name = self._names.setdefault(
            key, Path(self._folder.name) / str(len(self._names))
        )
        part = self._parts.pop(key)
        self._kept -= len(part) // _RUN_BYTES
        with name.open("ab") as file:
            file.write(part)


class Pieces:
    """The runs of a file, in arrays of some megabytes; it can be passed over again."""

    def __init__(self, name: Path | None) -> None:
        self._name = name

    def __iter__(self) -> Iterator[RunArray]:
        if self._name is None:
            return
        last = np.empty((0, 3), np.int64)
        with self._name.open("rb") as file:
            while len(read := np.fromfile(file, np.int64, 3 * _RUNS_IN_PIECE)):
                found = runs.joined(np.concatenate([last, read.reshape(-1, 3)]))
                yield found[:-1]
                last = found[-1:].copy()
        yield last
