"""An answer of the offset map, found among the epochs of one partition.

Main functions: `last_of` and `first_of`, which differ in what wins where records were
copied more than once. No I/O: what memory does not hold comes back as an `Older`, whose
place `places` reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mirror.offsets.index import Found, Place, locate
from mirror.offsets.places import Wanted
from mirror.offsets.runs import DOWNSTREAM, UPSTREAM
from mirror.offsets.translation import Exactness, Translated

if TYPE_CHECKING:
    from mirror.offsets.index import Epoch
    from mirror.offsets.runs import RunArray

TopicPartition = tuple[str, int]


class Older(NamedTuple):
    """An answer that has to be read from the map."""

    wanted: Wanted
    following: int
    """What the epoch behind it begins with; -1 if it is the last one."""

    def among(self, part: RunArray, offset: int, column: int) -> Translated:
        answer = locate(part, offset, column) if len(part) else None
        if answer is None:
            after = self.wanted.place.after
            answer = Found(self.following if after is None else after)
        return _known(answer)


def last_of(
    epochs: list[Epoch], key: TopicPartition, offset: int, column: int
) -> Translated | Older:
    """An offset between the first and the end. Later epochs win: what was copied again
    is followed by all that came after it.
    """
    following = -1
    for epoch in reversed(epochs):
        if offset >= epoch.first(column):
            break
        following = epoch.first(1 - column)
    return _found(epoch, key, offset, column, following)


def first_of(
    epochs: list[Epoch], key: TopicPartition, offset: int
) -> Translated | Older:
    """The same where a copy lost its end: what was copied again may be lost, and only
    its first copy be there. So the first one wins, behind which all others stand.
    """
    ends = [offset < epoch.end(UPSTREAM) for epoch in epochs]
    number = ends.index(True)
    behind = epochs[number + 1 : number + 2]
    following = behind[0].first(DOWNSTREAM) if behind else -1
    return _found(epochs[number], key, offset, UPSTREAM, following)


def _found(
    epoch: Epoch, key: TopicPartition, offset: int, column: int, following: int
) -> Translated | Older:
    found = epoch.find(offset, column)
    if isinstance(found, Place):
        return Older(Wanted(key, epoch.topic_id, found), following)
    return _known(Found(following) if found is None else found)


def _known(found: Found) -> Translated:
    return copied(found.offset, found.sure)


def copied(offset: int, sure: bool, renewed: bool = False) -> Translated:
    return Translated(
        offset=offset,
        exactness=Exactness.EXACT if sure else Exactness.EARLIER,
        renewed=renewed and sure,
    )
