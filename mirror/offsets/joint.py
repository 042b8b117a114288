"""One offset in a log with records from several clusters, from several maps.

Pure. Main functions: `both_ways`, for two clusters whose flows copy one topic to each
other, and `merged`, for several sources with one copy. A group goes on at the first
record that it has not read, copied or not. Where the logs have their records in the
same order it reads none again; one offset cannot split two interleavings, so otherwise
it reads some again, and `again` says how many. It skips none: what the maps no longer
know, or not yet, counts as unread.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mirror.offsets.runs import COUNT, DOWNSTREAM, UPSTREAM
from mirror.offsets.translation import UNKNOWN, Exactness, Translated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.offsets.reverse_start import Start
    from mirror.offsets.runs import RunArray

_AT_THE_END = frozenset({Exactness.TIP, Exactness.BEHIND})


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherLog:
    """The log in which a group goes on."""

    start: int
    """Its first offset."""
    end: int
    """Its last stable offset, asked for before the map of the flow there was read: what
    is not in that map yet comes after it."""
    born: Start
    """The first record that the flow there did not copy, from the position of the flow
    back on; or the end."""


def both_ways(there: Translated, back: Translated, log: OtherLog) -> Translated:
    """Where a group goes on in `log`, which has what was written there and copies.

    `there`: the answer of the flow there for the group's offset. `back`: that of the
    flow back, whose copies the group reads beside its own cluster's records: the next
    one to read, as an offset of `log`.
    """
    if there.exactness is Exactness.UNKNOWN:
        return UNKNOWN
    at_the_end = there.exactness in _AT_THE_END
    copy = max(there.offset, log.end) if at_the_end else there.offset
    born, sure = _next_born(back, log)
    if born > copy or (born == copy and not sure):
        return replace(there, offset=copy, joint=True)
    exactness = Exactness.EXACT if sure else Exactness.EARLIER
    if there.exactness is Exactness.BEHIND:
        exactness = Exactness.BEHIND
    elif at_the_end and sure and born >= log.end:
        exactness = Exactness.TIP
    return replace(there, offset=born, exactness=exactness, joint=True)


def _next_born(back: Translated, log: OtherLog) -> tuple[int, bool]:
    """The next record to read that was written to the log itself, or an offset before
    it; and whether it is sure.
    """
    if back.exactness is Exactness.EXACT:
        return max(back.offset, log.start), True
    if back.exactness in _AT_THE_END:
        # All that the flow back has copied is read; what follows it is not.
        return max(log.born.offset, log.start), log.born.sure
    # Not known one by one; or older than all that the map knows.
    return max(back.offset, log.start), False


def merged(answers: Sequence[Translated], end: int) -> Translated:
    """Where a group goes on in a copy of several sources: `answers` are those of the
    sources that it reads, `end` the copy's last stable offset, asked for before their
    maps were read, or 0 if maps may name copies late. Records of sources that the group
    does not read are not looked at.
    """
    known = [each for each in answers if each.exactness is not Exactness.UNKNOWN]
    if not known:
        return UNKNOWN
    limits = [
        replace(each, offset=max(each.offset, end))
        if each.exactness in _AT_THE_END
        else each
        for each in known
    ]
    first = min(limits, key=lambda each: each.offset)
    if all(each.exactness in _AT_THE_END for each in known):
        # All is read. What other sources wrote behind that the group has not seen.
        last = max(each.offset for each in known)
        first = replace(first, offset=min(first.offset, last))
    return replace(first, joint=True)


def again(runs: RunArray, *, read: int, answer: int) -> int:
    """How many records a group reads again that stand in these `runs` of a flow to the
    log with the answer: it has read the source up to the offset `read`.
    """
    return _count(runs, UPSTREAM, read, DOWNSTREAM, answer)


def again_born(runs: RunArray, *, read: int, answer: int) -> int:
    """The same for records that were written to the log with the answer: `runs` are of
    the flow back, and the group has read its copies up to the offset `read`.
    """
    return _count(runs, DOWNSTREAM, read, UPSTREAM, answer)


def _count(runs: RunArray, column: int, below: int, other: int, first: int) -> int:
    """Records below an offset in one column, and from an offset on in the other one."""
    last = np.minimum(runs[:, COUNT], below - runs[:, column])
    begin = np.maximum(first - runs[:, other], 0)
    return int(np.maximum(last - begin, 0).sum())
