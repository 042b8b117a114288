"""What a repair can do about a finding, and what it cannot.

Main function: `remedies`, which is pure. A log only grows: records that are missing can
be appended, if that does not put an old value behind a new one of the same key. What
stands in the copy stays as it is.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from mirror.proofs.account import FindingKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mirror.clusters.topics import TopicPartition
    from mirror.proofs.account import ProofFinding


class Obstacle(StrEnum):
    """Why a missing record is not appended."""

    LATER_KEY = "the copy has later records of the key; --although-order appends it"
    GONE = "the source does not have it any more"
    FAILS = "the flow's function fails on it"
    HIDDEN = (
        "a transaction is open in the copy, and may hide it: the service ends what "
        "it left open"
    )
    COPIED = "it was copied, or became visible, after the proof: prove it again"


class Remedy(StrEnum):
    """What `mirror repair append` does about a finding."""

    APPEND = "append"
    PARTLY = "append some"
    NONE = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What can be done about one finding."""

    finding: ProofFinding
    remedy: Remedy
    why: str
    """In words; empty if all of it is appended."""


_IN_THE_LOG = "a log cannot be changed: `mirror repair rebuild` copies the topic again"
_REASONS = {
    FindingKind.DIFFERENT: _IN_THE_LOG,
    FindingKind.DOUBLED: _IN_THE_LOG,
    FindingKind.SWAPPED: _IN_THE_LOG,
    FindingKind.UNEXPECTED: "a log cannot be changed, and a rebuild refuses, since the "
    "source does not have it: to do without it, delete the copy and reset the flow",
    FindingKind.DAMAGED: "restore the replica from another one",
    FindingKind.UNPROVEN: "remove the reason, and prove it again",
}
_DETAILED = frozenset({FindingKind.DAMAGED, FindingKind.UNPROVEN})
"""Only the finding's own words say what is wrong."""


def remedies(
    findings: Iterable[ProofFinding],
    obstacles: Mapping[TopicPartition, Mapping[int, Obstacle]],
) -> Iterator[Advice]:
    """`obstacles`: by partition and source offset, those of missing records."""
    for each in findings:
        if each.kind is not FindingKind.MISSING:
            why = _REASONS[each.kind]
            if each.kind in _DETAILED:
                why = f"{each.detail}; {why}"
            yield Advice(finding=each, remedy=Remedy.NONE, why=why)
            continue
        assert each.source is not None
        known = obstacles.get((each.topic, each.partition), {})
        offsets = range(each.source, each.source + each.count)
        met = Counter(known[offset] for offset in offsets if offset in known)
        left = each.count - met.total()
        if not met:
            yield Advice(finding=each, remedy=Remedy.APPEND, why="")
            continue
        whys = [
            reason.value if count == each.count else f"{count}: {reason.value}"
            for reason, count in sorted(met.items())
        ]
        yield Advice(
            finding=each,
            remedy=Remedy.PARTLY if left else Remedy.NONE,
            why="; ".join(whys),
        )
