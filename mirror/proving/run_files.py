"""Keeps the offset map's runs of many partitions in files, since there may be millions.

Main type: `RunFiles`. The driver reads the map once, in its order, and then takes the
runs of one partition at a time.
"""

from __future__ import annotations

from pathlib import Path
import tempfile
from typing import TYPE_CHECKING, Self

import numpy as np

from mirror.offsets import runs

if TYPE_CHECKING:
    from types import TracebackType

    from mirror.offsets.runs import RunArray

TopicPartition = tuple[str, int]

_RUNS_IN_MEMORY = 1_000_000


class RunFiles:
    """Runs of many partitions, in the order in which they were added.

    A context manager: the files are gone after it.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mirror-runs-")
        self._parts: dict[TopicPartition, list[RunArray]] = {}
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
        self._parts.setdefault(key, []).append(runs.joined(found))
        self._kept += len(found)
        if self._kept > _RUNS_IN_MEMORY:
            for each in list(self._parts):
                self._write(each)
            self._kept = 0

    def of(self, key: TopicPartition) -> RunArray:
        """All runs of one partition."""
        kept = self._parts.get(key, [])
        if key in self._names:
            written = np.fromfile(self._names[key], np.int64).reshape(-1, 3)
            kept = [written, *kept]
        return runs.joined(np.concatenate([np.empty((0, 3), np.int64), *kept]))

    def _write(self, key: TopicPartition) -> None:
        name = self._names.setdefault(
            key, Path(self._folder.name) / str(len(self._names))
        )
        with name.open("ab") as file:
            for part in self._parts.pop(key):
                part.tofile(file)
