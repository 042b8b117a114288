"""Where copying a partition continues: by MirrorMaker 2's position, and by its copy.

Main function: `find`, which looks at ever longer ends of a partition and its copy
until they show where copying continues, and how much may be copied again where they
do not. It reads and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mirror.adoption import window
from mirror.adoption.tail import CopyTail, compare

if TYPE_CHECKING:
    from mirror.clusters.cluster import Cluster

_FIRST_LOOK = 2_000
_TIMES_MORE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SideLog:
    """One partition on one side."""

    cluster: Cluster
    topic: str
    partition: int
    first: int
    end: int
    """After the last readable record; records of open transactions are not readable."""
    committed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """Where copying continues."""

    tail: CopyTail
    may_repeat: int = 0
    """The most records that are already in the copy and may be copied again."""


def find(
    source: SideLog, copy: SideLog | None, position: int, *, exact: bool, most: int
) -> ResumePoint:
    """`position`: the next offset after MirrorMaker 2's own; `exact`: it was written
    with the records. `copy` is None if there is none. At most `most` offsets of each
    side are looked at, in both directions.

    Raises:
        ClusterError: a cluster does not answer.
    """
    if copy is None or copy.end <= copy.first:
        return ResumePoint(tail=CopyTail(offset=position, certain=True))
    size = min(_FIRST_LOOK, most)
    before: CopyTail | None = None
    while True:
        tail = _look(source, copy, position, size)
        settled = tail.anchored and tail.complete and (tail.certain or exact)
        no_news = (
            before is not None and before.anchored and before.offset == tail.offset
        )
        if settled or no_news or size >= most or _all(source, copy, position, size):
            break
        before, size = tail, min(size * _TIMES_MORE, most)
    if tail.certain or exact:
        return ResumePoint(tail=tail)
    copies = tail.unexplained if tail.anchored else copy.end - copy.first
    return ResumePoint(
        tail=tail, may_repeat=max(min(copies, source.end - tail.offset), 0)
    )


def _look(source: SideLog, copy: SideLog, position: int, size: int) -> CopyTail:
    first = max(position - size, source.first)
    end = min(position + size, source.end)
    last = window.read(
        copy.cluster, copy.topic, copy.partition,
        first=max(copy.end - size, copy.first), end=copy.end,
    )  # fmt: skip
    timed = last.own_times
    if not timed:
        last = window.read(
            copy.cluster, copy.topic, copy.partition,
            first=max(copy.end - size, copy.first), end=copy.end, timed=False,
        )  # fmt: skip
    around = window.read(
        source.cluster, source.topic, source.partition,
        first=first, end=end, timed=timed, committed=source.committed,
    )  # fmt: skip
    tail = compare(around, last, position, from_first=first == 0)
    # Beyond the source's end there is nothing more to see.
    return replace(tail, complete=tail.complete or end >= source.end)


def _all(source: SideLog, copy: SideLog, position: int, size: int) -> bool:
    return (
        position - size <= source.first
        and position + size >= source.end
        and copy.end - size <= copy.first
    )
