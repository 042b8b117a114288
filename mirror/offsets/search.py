"""Finds an answer of the offset map among the epochs of one partition.

Main functions: `last_of` and `lowest_of`, which differ in which copy wins where records
were copied more than once, and `of_another`, where nothing is known of the copy. No
I/O: what is not in memory comes back as an `Older`, whose place `places` reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mirror.offsets.index import FoundOffset, MapPlace, locate
from mirror.offsets.places import PlaceQuery
from mirror.offsets.runs import DOWNSTREAM, UPSTREAM
from mirror.offsets.translation import Exactness, Translated

if TYPE_CHECKING:
    from mirror.clusters.topics import TopicPartition
    from mirror.offsets.index import Epoch
    from mirror.offsets.logs import Log
    from mirror.offsets.progress import Position
    from mirror.offsets.runs import RunArray
    from mirror.offsets.track import Track


class Older(NamedTuple):
    """An answer that must be read from the map."""

    wanted: PlaceQuery
    following: int
    """The start of the next epoch; -1 if it is the last one."""

    def among(self, part: RunArray, offset: int, column: int) -> Translated:
        answer = locate(part, offset, column) if len(part) else None
        if answer is None:
            after = self.wanted.place.after
            answer = FoundOffset(self.following if after is None else after)
        return _known(answer)


def last_of(
    epochs: list[Epoch], key: TopicPartition, offset: int, column: int
) -> Translated | Older:
    """An offset between the first and the end. Later epochs win: records that were
    copied again are followed by everything that came after them.
    """
    following = -1
    for epoch in reversed(epochs):
        if offset >= epoch.first(column):
            break
        following = epoch.first(1 - column)
    return _found(epoch, key, offset, column, following)


def lowest_of(
    epochs: list[Epoch], key: TopicPartition, offset: int, column: int
) -> Translated | Older:
    """The same where a copy lost its end, or may have: the later copy of a record may
    be lost, and only an earlier one remain. So the first copy wins, among all `epochs`,
    which reach beyond the offset. If only the map can tell which one that is, the
    answer is the first place where it may be.
    """
    found = [_candidate(epoch, key, offset, column) for epoch in epochs]
    least = min(each.least for each in found)
    best = min(found, key=lambda each: each.most)
    if all(best.most <= each.least for each in found if each is not best):
        return best.answer
    return Translated(offset=least, exactness=Exactness.BEFORE)


class _Candidate(NamedTuple):
    """What one epoch answers, and between which offsets that lies."""

    least: int
    most: int
    answer: Translated | Older


def _candidate(
    epoch: Epoch, key: TopicPartition, offset: int, column: int
) -> _Candidate:
    end = epoch.end(1 - column)
    if offset < epoch.first(column):
        found: FoundOffset | MapPlace = FoundOffset(epoch.first(1 - column))
    else:
        found = epoch.find(offset, column) or FoundOffset(end)
    if isinstance(found, FoundOffset):
        return _Candidate(found.offset, found.offset, _known(found))
    older = Older(PlaceQuery(key, epoch.topic_id, found), end)
    most = end if found.after is None else found.after
    return _Candidate(found.first[1 - column], most, older)


def _found(
    epoch: Epoch, key: TopicPartition, offset: int, column: int, following: int
) -> Translated | Older:
    found = epoch.find(offset, column)
    if isinstance(found, MapPlace):
        return Older(PlaceQuery(key, epoch.topic_id, found), following)
    return _known(FoundOffset(following) if found is None else found)


def _known(found: FoundOffset) -> Translated:
    return copied(found.offset, found.sure)


def copied(offset: int, sure: bool, renewed: bool = False) -> Translated:
    return Translated(
        offset=offset,
        exactness=Exactness.EXACT if sure else Exactness.EARLIER,
        renewed=renewed and sure,
    )


def there(answer: Translated, log: Log, *, renewed: bool) -> Translated:
    """The target's offset as far as the copy reaches now."""
    within, exactness = log.within(answer.offset), answer.exactness
    if within > answer.offset and exactness is not Exactness.BEHIND:
        exactness = Exactness.BEFORE
    elif within < answer.offset and exactness is not Exactness.BEHIND:
        exactness = Exactness.TIP
    # An end that looks too low for a moment is no reason to go back.
    renewed &= within >= answer.offset and exactness is not Exactness.EARLIER
    return Translated(offset=within, exactness=exactness, renewed=renewed)


def of_newest_topic(epochs: list[Epoch]) -> list[Epoch]:
    return [epoch for epoch in epochs if epoch.topic_id == epochs[-1].topic_id]


def before_any(offset: int, position: Position) -> Translated:
    """Nothing is copied, because there was nothing to copy yet."""
    return Translated(offset=0, exactness=at_the_end(offset, position))


def at_the_end(offset: int, position: Position | None) -> Exactness:
    behind = position is not None and offset > position.offset
    return Exactness.BEHIND if behind else Exactness.TIP


def of_another(
    track: Track, position: Position | None, log: Log, offset: int, column: int
) -> Translated:
    """The copy is gone, and nothing is known about its replacement: everything that
    will be copied is still to be read. What is in it already, a slot has written that
    took it for the copy before, or somebody else.
    """
    newest, filled = track.epochs[-1], log.end or log.start
    end = newest.end(UPSTREAM)
    if column == DOWNSTREAM and offset < filled:
        first = newest.first(UPSTREAM)
        return Translated(offset=first, exactness=Exactness.BEFORE)
    if column == DOWNSTREAM:
        following = end if position is None else position.offset
        return Translated(offset=following, exactness=Exactness.TIP)
    exactness = at_the_end(offset, position)
    if offset < end or log.start < filled:
        exactness = Exactness.BEFORE
    known = log.topic_id is not None
    return Translated(offset=log.start, exactness=exactness, renewed=known)
