"""Runs that wait in the driver and travel to tasks, packed.

Main type: `PackedRuns`. Where compaction left a hole after each record, a range has as
many runs as records: 24 bytes each in an array, 3 as steps from one to the next, and
less where steps repeat. They ascend on the source, so what is cut out of them unpacks
only the pieces at its ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self
import zlib

import numpy as np

from mirror.offsets.runs import COUNT, UPSTREAM, between

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.offsets.runs import RunArray

_RUNS_IN_PIECE = 50_000
_QUICK = 1
"""A level of zlib; a better one takes more time than small steps are worth."""
_NO_RUNS = np.empty((0, 3), np.int64)


@dataclass(frozen=True, slots=True)
class _PackedPiece:
    """Some runs."""

    begins: int
    """The first source offset."""
    ends: int
    """After the last one."""
    count: int
    first: RunArray
    """The first run, as an array of one."""
    kind: np.dtype[Any]
    """Of the steps."""
    steps: bytes = field(repr=False)

    @classmethod
    def of(cls, runs: RunArray) -> Self:
        steps = np.diff(runs.T, prepend=runs[:1].T)  # by column: zlib likes it
        most = max(int(steps.max()), -int(steps.min()))
        steps = steps.astype(np.min_scalar_type(-most - 1))
        return cls(
            begins=int(runs[0, UPSTREAM]),
            ends=int(runs[-1, UPSTREAM] + runs[-1, COUNT]),
            count=len(runs),
            first=runs[:1].copy(),
            kind=steps.dtype,
            steps=zlib.compress(steps.tobytes(), _QUICK),
        )

    def unpacked(self) -> RunArray:
        steps = np.frombuffer(zlib.decompress(self.steps), self.kind).reshape(3, -1)
        runs = np.empty((self.count, 3), np.int64)
        np.cumsum(steps.T, axis=0, out=runs)
        runs += self.first
        return runs


class PackedRuns:
    """Runs that ascend on the source, in order."""

    def __init__(self, pieces: Iterable[_PackedPiece] = ()) -> None:
        self._pieces = list(pieces)
        self._open: tuple[_PackedPiece, RunArray] | None = None
        """The piece that was unpacked last: short ranges share one."""

    @classmethod
    def of(cls, runs: RunArray) -> Self:
        packed = cls()
        packed.add(runs)
        return packed

    def __len__(self) -> int:
        return sum(piece.count for piece in self._pieces)

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedRuns, (self._pieces,)

    @property
    def unpacked(self) -> RunArray:
        """All of them."""
        return np.concatenate([_NO_RUNS, *(each.unpacked() for each in self._pieces)])

    def add(self, runs: RunArray) -> None:
        """Append runs that follow."""
        for first in range(0, len(runs), _RUNS_IN_PIECE):
            self._pieces.append(_PackedPiece.of(runs[first : first + _RUNS_IN_PIECE]))

    def drop(self, offset: int) -> None:
        """Forget pieces before a source offset, but not the last run before it."""
        while len(self._pieces) > 1 and self._pieces[1].begins <= offset:
            del self._pieces[0]

    def around(self, offset: int) -> RunArray:
        """Some of them, with the last one that begins at a source offset or before it,
        if there is one.
        """
        last = None
        for piece in self._pieces:
            if piece.begins > offset:
                break
            last = piece
        return _NO_RUNS if last is None else self._unpack(last)

    def between(self, first: int, end: int) -> PackedRuns:
        """Those, and parts of those, from `first` up to `end` on the source."""
        found = PackedRuns()
        for piece in self._pieces:
            if first < piece.begins and piece.ends < end:
                found._pieces.append(piece)
            elif piece.begins < end and piece.ends > first:
                found.add(between(self._unpack(piece), first, end, UPSTREAM))
        return found

    def _unpack(self, piece: _PackedPiece) -> RunArray:
        if self._open is None or self._open[0] is not piece:
            self._open = piece, piece.unpacked()
        return self._open[1]
