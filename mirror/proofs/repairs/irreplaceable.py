"""What a copy has and its source does not: what would be lost if the copy was deleted.

Main functions: `of_proof`, which is pure and judges by a proof of the copy, and
`of_edges`, which reads what no proof looks at: copies of what the source has deleted at
its beginning, and partitions that the source does not have. What cannot be read, or is
hidden, counts too: nothing says whether the source has it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mirror.clusters.admin import topic_admin
from mirror.proofs import sides
from mirror.proofs.account import FindingKind
from mirror.proofs.log_stream import Stretch
from mirror.proofs.logs import settled_ends
from mirror.records import to_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mirror.clusters.cluster import Cluster
    from mirror.offsets.offset_map import OffsetMap
    from mirror.proofs.sides import ProofTerms
    from mirror.proofs.verification import Proven
    from mirror.topics.topics import MirroredTopic


@dataclass(frozen=True, slots=True, kw_only=True)
class Irreplaceable:
    """Records of one partition of a copy."""

    partition: int
    first: int | None
    """Offsets in the copy; None if they are not known."""
    last: int | None
    count: int
    """0: not known."""
    why: str
    """They cannot be copied again."""

    def document(self) -> dict[str, object]:
        """As in reports."""
        return {
            "partition": self.partition,
            "first": self.first,
            "last": self.last,
            "count": self.count,
            "why": self.why,
        }


_REASONS = {
    "foreign": "others than the flow have written them",
    "older": "copied from a deleted topic with the source topic's name",
    "compacted_source": "the source has compacted them away",
    "expired_source": "the source has deleted them at its beginning",
}
"""By field of the account."""
_UNSURE = {
    FindingKind.UNEXPECTED: "says that it comes from the source, which does not have "
    "it",
    FindingKind.DAMAGED: "cannot be read",
    FindingKind.UNPROVEN: "not compared",
}
"""By kind of a finding; copying again repairs the others."""


def of_proof(proven: Proven) -> Iterator[Irreplaceable]:
    """What a proof of one topic says, from its first record on."""
    for proof in proven.partitions:
        for name, why in _REASONS.items():
            if count := getattr(proof.account, name):
                first, last = proof.spans.get(name, (None, None))
                yield Irreplaceable(
                    partition=proof.of.partition, first=first, last=last,
                    count=count, why=why,
                )  # fmt: skip
        if proof.of.has_open_end:
            yield Irreplaceable(
                partition=proof.of.partition, first=proof.target_end, last=None,
                count=0, why="an open transaction hides what follows in the copy",
            )  # fmt: skip
    for each in proven.findings:
        if each.kind in _UNSURE:
            known = each.target is not None
            yield Irreplaceable(
                partition=each.partition,
                first=each.target,
                last=None if each.target is None else each.target + each.count - 1,
                count=each.count if known else 0,
                why=": ".join(filter(None, (_UNSURE[each.kind], each.detail))),
            )


def of_edges(
    terms: ProofTerms,
    source: Cluster,
    target: Cluster,
    known: OffsetMap,
    topic: MirroredTopic,
) -> Iterator[Irreplaceable]:
    """What a proof leaves out, as the logs are now.

    Raises:
        ClusterError: a cluster does not answer, or the copy cannot be read.
    """
    copy = target.wait_for_topic(topic.target_topic)
    starts = _starts(source, topic.topic, range(topic.partitions))
    firsts = _starts(target, copy.name, copy.leaders)
    ends, hidden = settled_ends(
        target, [(copy.name, number) for number in copy.leaders]
    )
    for number in copy.leaders:
        stretch = Stretch(
            topic=copy.name, partition=number, topic_id=copy.topic_id,
            first=firsts[number], end=ends[copy.name, number],
        )  # fmt: skip
        if number >= topic.partitions:
            why = "the source does not have this partition"
            if (copy.name, number) in hidden:
                yield Irreplaceable(
                    partition=number, first=stretch.end, last=None, count=0, why=why
                )
        else:
            begins = known.translate(topic.topic, number, starts[number]).offset
            stretch = replace(stretch, end=min(begins, stretch.end))
            why = f"the source has deleted them: its log begins at {starts[number]}"
        if seen := _seen(terms, target, stretch):
            first, last, count = seen
            yield Irreplaceable(
                partition=number, first=first, last=last, count=count, why=why
            )


def _seen(
    terms: ProofTerms, target: Cluster, stretch: Stretch
) -> tuple[int, int, int] | None:
    """The first and the last record of the copy there, and how many they are."""
    spans: list[tuple[int, int, int]] = []
    stream = sides.stream(terms, target, stretch, on_source=False)
    for part in stream.listed():
        if count := len(part.places):
            first, last = part.places[[0, -1], to_columns.OFFSET].tolist()
            spans.append((first, last, count))
    # What is damaged may be anything.
    spans += (
        (each.first, each.end - 1, each.end - each.first) for each in stream.damages
    )
    if not spans:
        return None
    firsts, lasts, counts = zip(*spans, strict=True)
    return min(firsts), max(lasts), sum(counts)


def _starts(cluster: Cluster, topic: str, numbers: Iterable[int]) -> dict[int, int]:
    """Where the logs begin."""
    asked = [(topic, number) for number in numbers]
    found = topic_admin.offsets_of_all(cluster, asked, timestamp=topic_admin.EARLIEST)
    return {number: offset for (_, number), offset in found.items()}
