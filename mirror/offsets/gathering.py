"""Takes runs out of many records of the offset map at once.

Main function: `gather`. A flow of small transactions writes some runs per partition and
record, and to take each record by itself costs more than all else that a reader does.
What stands together gets one place in the map, the first: a place begins there, and
ends where the next one begins. So whatever could begin another epoch (`track.Track`)
is taken record by record: ids that change, runs that fall.
"""

from __future__ import annotations

from dataclasses import replace
import itertools
from operator import itemgetter
from typing import TYPE_CHECKING

from mirror.errors import CorruptBatchError
from mirror.offsets import runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mirror.offsets.runs import Block, MapEntry
    from mirror.records.reading import Record

_AT_ONCE = 256
_MOST_RUNS = 4096
"""Batches of the map, and their runs without the last batch's. A question about an old
offset reads as many at least."""

_Parts = dict[str, list[tuple[int, "MapEntry"]]]
"""By topic on the source, with the places in the map."""


def gather(
    answers: Iterable[Iterable[Record]], *, only: Callable[[str], bool] | None = None
) -> Iterator[tuple[int, Block, bool]]:
    """The blocks of these records of the map, with their places, and whether they are
    of late records. Those of a partition are in order. `only` as for `runs.decode`.

    Raises:
        CorruptBatchError: as `runs.decode`; it says where. What follows may be
            skipped: begin again.
    """
    # A reader that breaks off goes on behind the last answer: so none waits here.
    for answer in answers:
        yield from _of_answer(answer, only)


def _of_answer(
    found: Iterable[Record], only: Callable[[str], bool] | None
) -> Iterator[tuple[int, Block, bool]]:
    parts: _Parts = {}
    batches = count = 0
    values = _Values()
    for at, batch in itertools.groupby(found, key=itemgetter(0)):
        some = list(batch)
        try:
            entries = [
                each
                for _, _, value in some
                for each in values.entries(value)
                if only is None or only(each.topic)
            ]
        except CorruptBatchError as error:
            raise _damaged(error, at) from error
        topics = {each.topic: each.identity for each in entries}
        alone = len(topics) < len(entries) or any(key for _, key, _ in some)
        if batches and (
            alone
            or batches == _AT_ONCE
            or count >= _MOST_RUNS
            or any(
                topic in parts and parts[topic][0][1].identity != identity
                for topic, identity in topics.items()
            )
        ):
            yield from _together(parts)
            parts, batches, count = {}, 0, 0
        if alone:
            yield from _one_by_one(at, some, only)
            continue
        batches += 1
        for each in entries:
            count += each.row_count
            parts.setdefault(each.topic, []).append((at, each))
    yield from _together(parts)


class _Values:
    """Takes values apart. One that differs from the value before in its rows alone, as
    from one small transaction to the next, is not looked through again.
    """

    def __init__(self) -> None:
        self._before: tuple[MapEntry, bytes] | None = None

    def entries(self, value: bytes) -> list[MapEntry]:
        """As `runs.entries`."""
        if self._before is not None:
            entry, before = self._before
            if (following := entry.following(before, value)) is not None:
                return [following]
        found = list(runs.entries(value))
        self._before = (found[0], value) if len(found) == 1 else None
        return found


def _one_by_one(
    at: int, some: Iterable[Record], only: Callable[[str], bool] | None
) -> Iterator[tuple[int, Block, bool]]:
    try:
        for _, key, value in some:
            for block in runs.decode(value, only=only):
                yield at, block, False
            for block in runs.decode(key, only=only) if key else ():
                yield at, block, True
    except CorruptBatchError as error:
        raise _damaged(error, at) from error


def _damaged(error: CorruptBatchError, at: int) -> CorruptBatchError:
    return CorruptBatchError(f"{error} (offset {at})")


def _together(parts: _Parts) -> Iterator[tuple[int, Block, bool]]:
    for each in parts.values():
        blocks = list(runs.blocks(runs.together([entry for _, entry in each])))
        if len({block.partition for block in blocks}) == len(blocks):
            for block in blocks:
                yield each[0][0], replace(block, runs=runs.joined(block.runs)), False
            continue
        for at, entry in each:
            for block in runs.blocks(entry):
                yield at, block, False
