"""Holds the offset map against the truth: every offset, both ways.

Main function: `check`. The truth is where each record and its copy stand. An answer is
right if the next record that a reader finds there is the copy of the next record that
was copied.
"""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING

from mirror.offsets.translation import Exactness
from tests.simulation.judge import WrongError
from tests.simulation.partition import committed

if TYPE_CHECKING:
    from collections.abc import Collection

    from mirror.offsets.translation import OffsetMap
    from tests.simulation.judge import Judge
    from tests.simulation.model import ModelCluster

TopicPartition = tuple[str, int]
_LOW = {Exactness.BEFORE, Exactness.EARLIER}
"""Answers that say that they lie before the right one."""


def check(
    offset_map: OffsetMap,
    judge: Judge,
    source: ModelCluster,
    prefix: str,
    *,
    waiting: Collection[TopicPartition],
) -> int:
    """Ask about every offset, but for those of partitions that are `waiting` for a
    person: what was copied last there may not be noted. Returns how many answers were
    held against the truth.

    Raises:
        WrongError: an answer is wrong.
    """
    offset_map.refresh()
    count = 0
    for name, topic in tuple(source.topics.items()):
        for number, partition in enumerate(topic.partitions):
            where = (name, number)
            if where in waiting or judge.is_truncated(where):
                continue  # the latter: the same offsets were copied more than once
            copy = judge.target.partition((prefix + name, number))
            if copy is None or not judge.has_begun(where):
                continue  # nothing, or what the map knows is of a topic before it
            visible = [
                offset
                for offset, key, _ in committed(copy.log, 0)
                if not (judge.fills and key is None)
            ]
            first, end = partition.log.start, partition.log.end
            pairs = [each for each in judge.pairs(where) if each[0] >= first]
            for offset in range(first, end + 1):
                count += 1
                _forth(offset_map, where, offset, pairs, visible)
            for at, (offset, placed) in enumerate([*pairs, (end, copy.log.end)]):
                count += 1
                before = pairs[at - 1][0] if at else -1
                answer = offset_map.reverse(name, number, placed)
                if answer.exactness in _LOW:
                    before = -1
                if not before < answer.offset <= offset:
                    raise WrongError(
                        f"{where}: {placed} in the copy is {offset} on the source, "
                        f"the map says {answer}"
                    )
    return count


def _forth(
    offset_map: OffsetMap,
    where: TopicPartition,
    offset: int,
    pairs: list[tuple[int, int]],
    visible: list[int],
) -> None:
    answer = offset_map.translate(*where, offset)
    at = bisect.bisect_left(pairs, (offset, -1))
    following = pairs[at][1] if at < len(pairs) else None
    index = bisect.bisect_left(visible, answer.offset)
    found = visible[index] if index < len(visible) else None
    if found == following:
        return
    behind = following is None or (found is not None and found < following)
    if behind and answer.exactness in _LOW:
        return
    raise WrongError(
        f"{where}: offset {offset} leads to the copy at {following}, the map says "
        f"{answer}: {found}"
    )
