"""The findings of a running service that stand: nothing has shown that they are gone.

Main type: `ProofStanding`. A finding goes when its range is proven again without it,
when somebody runs `mirror verify` past it, or with its topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.status.verify import FindingStatus

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from mirror.proving.account import ProofFinding
    from mirror.proving.ranges import Range
    from mirror.recovery.proofs import Proof

TopicPartition = tuple[str, int]

_MOST_SHOWN = 100
_MOST_KEPT = 10_000
"""Of one partition; the alert needs no more."""


class ProofStanding:
    """Those of one flow."""

    def __init__(self) -> None:
        self._found: dict[TopicPartition, list[FindingStatus]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._found.values()))

    @property
    def shown(self) -> tuple[FindingStatus, ...]:
        """The first ones."""
        every = (one for _, each in sorted(self._found.items()) for one in each)
        return tuple(one for one, _ in zip(every, range(_MOST_SHOWN), strict=False))

    def proven(
        self,
        key: TopicPartition,
        ranges: Iterable[Range],
        found: Iterable[ProofFinding],
        *, at: float,
    ) -> tuple[FindingStatus, ...]:  # fmt: skip
        """These ranges were compared, and this was found; returns what is new."""
        before = self._found.pop(key, [])
        spans = [_spans(each) for each in ranges]
        now = [_status(each, at) for each in found]
        kept = [each for each in before if not any(_is_in(each, s) for s in spans)]
        if every := [*kept, *now]:
            self._found[key] = every[:_MOST_KEPT]
        known = {_identity(each) for each in before}
        return tuple(each for each in now if _identity(each) not in known)

    def seen(self, proofs: Mapping[TopicPartition, Proof]) -> None:
        """Forget what somebody's proof, made later, has passed."""
        for key in list(self._found):
            if (proof := proofs.get(key)) is not None:
                left = [one for one in self._found[key] if not _passed(one, proof)]
                self._found[key] = left
                if not left:
                    del self._found[key]

    def only(self, topics: Collection[str]) -> None:
        """Forget what was found in other topics."""
        for key in [each for each in self._found if each[0] not in topics]:
            del self._found[key]


Spans = tuple[tuple[int, int], tuple[int, int]]


def _spans(work: Range) -> Spans:
    return (
        (work.source_first, work.source_end),
        (work.target_first, work.target_end),
    )


def _is_in(one: FindingStatus, spans: Spans) -> bool:
    (first, end), (target_first, target_end) = spans
    if one.source is not None:
        return first <= one.source < end
    return one.target is not None and target_first <= one.target < target_end


def _passed(one: FindingStatus, proof: Proof) -> bool:
    if proof.at < one.found_at:
        return False
    if one.source is not None:
        return one.source < proof.source_offset
    return one.target is not None and one.target < proof.target_offset


def _identity(one: FindingStatus) -> tuple[object, ...]:
    return one.kind, one.source, one.target


def _status(found: ProofFinding, at: float) -> FindingStatus:
    return FindingStatus(
        kind=found.kind.value, topic=found.topic, partition=found.partition,
        source=found.source, target_topic=found.target_topic, target=found.target,
        count=found.count, detail=found.detail, found_at=at,
    )  # fmt: skip
