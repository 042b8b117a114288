"""Decides which missing records can be appended to a copy, from what it shows now.

Main type: `Work`, what is to be appended to one copy, from which `look` drops what must
not be: what was copied after the proof, or may have been, and what would seem to be the
newest value of its key. It is asked before a repair and again while no one else writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mirror.errors import ClusterError, RecreatedError
from mirror.offsets.runs import COUNT, DOWNSTREAM, UPSTREAM
from mirror.proving import locating
from mirror.proving.log_stream import Stretch
from mirror.proving.repairs.remedies import Obstacle

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.clusters.cluster import Cluster
    from mirror.offsets.offset_map import OffsetMap
    from mirror.offsets.runs import RunArray
    from mirror.proving.copied_partition import CopiedPartition
    from mirror.proving.repairs.missing import MissingRecord
    from mirror.proving.sides import ProofTerms
    from mirror.proving.verification import PartitionProof

TopicPartition = tuple[str, int]


@dataclass(slots=True, kw_only=True)
class Work:
    """What is to be appended to one copy."""

    proof: PartitionProof
    left: list[MissingRecord]
    """In the order of the source."""
    obstacles: dict[int, Obstacle]
    """By source offset: why it is not in `left`."""
    looked_to: int = 0
    """The copy's keys are known up to here."""

    @property
    def of(self) -> CopiedPartition:
        return self.proof.of

    @property
    def key(self) -> TopicPartition:
        return self.of.topic, self.of.partition

    @property
    def copy(self) -> TopicPartition:
        return self.of.target_topic, self.of.partition

    def drop(self, offsets: Iterable[int], why: Obstacle) -> None:
        """Leave these records out."""
        self.obstacles |= dict.fromkeys(offsets, why)
        self.left = [each for each in self.left if each.offset not in self.obstacles]


def look(
    target: Cluster,
    terms: ProofTerms,
    known: OffsetMap,
    work: Work,
    end: int | None,
    *,
    although_order: bool,
) -> None:
    """Drop what must not be appended, as far as the copy shows now. `end`: after its
    last record (None: an open transaction hides what comes next); `known`: read after
    that.

    Raises:
        ClusterError: the copy was re-created, lost its end, or cannot be read.
    """
    of = work.of
    check_copy(target, work)
    if end is None:
        work.drop([each.offset for each in work.left], Obstacle.HIDDEN)
        return
    if end < work.proof.target_end:
        raise ClusterError(
            f"cluster {target.alias}: {work.copy[0]} lost its end after the proof: "
            "prove it again"
        )
    places = {
        each.offset: known.translate(*work.key, each.offset).offset
        for each in work.left
    }
    # What the proof did not see may be a copy of it: of a transaction that was ended
    # only now, or copied again on purpose.
    proven = work.proof.target_end
    late = known.late(*work.key)
    late = late[(late[:, DOWNSTREAM] >= proven) & (late[:, DOWNSTREAM] < end)]
    again = {
        offset
        for offset, at in places.items()
        if proven <= at < end or _is_within(late, offset)
    }
    work.drop(again, Obstacle.COPIED)
    if although_order or not work.left:
        return
    begin = max(work.looked_to, min(places[each.offset] for each in work.left))
    if begin >= end:
        return
    keys = np.unique([each.key_mark for each in work.left])
    lasts = locating.last_of_keys(
        terms,
        Stretch(
            topic=of.target_topic, partition=of.partition, topic_id=of.copy_id,
            first=begin, end=end,
        ),
        keys,
        on_source=False,
    )  # fmt: skip
    last_of = dict(zip(lasts.keys.tolist(), lasts.offsets.tolist(), strict=True))
    work.drop(
        [
            each.offset
            for each in work.left
            if last_of[each.key_mark] >= places[each.offset]
        ],
        Obstacle.LATER_KEY,
    )
    work.looked_to = end


def check_copy(target: Cluster, work: Work) -> None:
    """Check that the copy is still the one that was proven.

    Raises:
        RecreatedError: it is not.
    """
    (topic,) = target.topics([work.copy[0]]).values()
    if topic.topic_id != work.of.copy_id:
        raise RecreatedError(
            f"cluster {target.alias}: {work.copy[0]} was re-created after the proof"
        )


def _is_within(late: RunArray, offset: int) -> bool:
    into = offset - late[:, UPSTREAM]
    return bool(((into >= 0) & (into < late[:, COUNT])).any())
