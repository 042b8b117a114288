"""Proves everything that both logs have, partition by partition, again and again.

Main type: `PastCopies`. It keeps on the target where it is, so a round goes on after a
restart. A partition in which a whole pass has found nothing is proven up to its end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
import hashlib
import re
import time
from typing import TYPE_CHECKING

from mirror.offsets.progress import NO_ID
from mirror.pairs import proofs
from mirror.pairs.proofs import Proof
from mirror.proofs.continuous.schedule import prefix, range_bytes
from mirror.proofs.run_files import RunFiles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirror.clusters.topics import TopicPartition
    from mirror.proofs.continuous.schedule import Costs
    from mirror.proofs.continuous.step import Outcome, ProofStep
    from mirror.proofs.copied_partition import CopiedPartition
    from mirror.proofs.ranges import Range
    from mirror.proofs.survey import ProofSurvey


_NO_PARTITION = 1 << 31
"""Comes after all of a topic."""
_PREFIX = "rolling/"
"""Of the keys of places, as no topic's name has a slash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """What one step came to."""

    outcomes: Mapping[TopicPartition, Outcome]
    place: Proof
    """Where the round goes on."""
    proven: tuple[Proof, ...]
    """Of partitions in which a whole pass has found nothing."""
    disproven: tuple[Proof, ...]
    """How far partitions are proven in which something was found now, if earlier proofs
    went further."""
    failure: str
    """Why a partition could not be compared; empty if all could."""


class PastCopies:
    """Those of one flow, across its runs."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._place: Proof | None = None
        """The partition in which the round is, and up to where it has come there.
        `at`: when the pass over the partition began."""
        self.rounds = 0
        self.share = 0.0
        """How many partitions of the round are through, 0 to 1."""

    def prove(
        self,
        step: ProofStep,
        known: Mapping[TopicPartition, Proof],
        partitions: Sequence[TopicPartition],
        *,
        left: float,
    ) -> Passed:
        """Compare what `left` bytes allow, of one topic at most. `partitions`: all of
        the flow's, sorted.

        Raises:
            MirrorError: a cluster does not answer, or a task failed several times.
        """
        at = time.time()
        place = self._at(partitions, known)
        key = _key(place)
        with RunFiles() as files:
            cursors = {key: place} if _is_begun(place) else {}
            found = step.survey(files, cursors, re.escape(key[0]))
            rest = sorted(
                (of for of in found.partitions if of.partition >= key[1]),
                key=lambda of: of.partition,
            )
            each = range_bytes(left, self._costs.least)
            chosen = self._chosen(step, found, files, rest, left, each=each)
            comparable = {
                (of.topic, of.partition): [one for one in ranges if not one.unknown]
                for of, ranges in chosen
            }
            outcomes = step.prove(found, files, comparable, at=at, range_bytes=each)
        proven, disproven = [], []
        for of, ranges in chosen:
            here = of.topic, of.partition
            outcome = outcomes.get(here)
            if outcome is not None and outcome.failure:
                place = self._after(here, partitions)  # its turn comes next round
                continue
            if here != _key(place):
                place = _begin(here, at)
            before = known.get(here)
            if outcome is not None and outcome.findings and before is not None:
                disproven += _cut(before, ranges)
            unknown = len(ranges) - len(comparable[here])
            place = _further(place, ranges[-1], outcome, unknown)
            if ranges[-1].source_end < of.source_end:
                break
            if not place.findings:
                proven.append(replace(place, topic=of.topic))
            place = self._after(here, partitions)
        if not rest:
            place = self._after((key[0], _NO_PARTITION), partitions)
        self.share = sum(each < _key(place) for each in partitions) / len(partitions)
        failures = (each.failure for each in outcomes.values() if each.failure)
        return Passed(
            outcomes=outcomes,
            place=place,
            proven=tuple(each for each in proven if _is_news(each, known)),
            disproven=tuple(disproven),
            failure=next(failures, found.unproven.get(key[0], "")),
        )

    def keep(self, step: ProofStep, passed: Passed) -> None:
        """Go on after this step, also after a restart: when its findings are known.

        Raises:
            MirrorError: the target cannot be written to.
        """
        kept = [*passed.disproven, *passed.proven, passed.place]
        proofs.write(step.target, step.flow, kept)
        self._place = passed.place

    def _at(
        self,
        partitions: Sequence[TopicPartition],
        known: Mapping[TopicPartition, Proof],
    ) -> Proof:
        """Where the round goes on; its partition may be gone."""
        place = self._place or _kept(known)
        if place is None:
            return _begin(partitions[0], time.time())
        key = _key(place)
        after = next((each for each in partitions if each >= key), partitions[0])
        return place if after == key else _begin(after, time.time())

    def _chosen(
        self,
        step: ProofStep,
        found: ProofSurvey,
        files: RunFiles,
        rest: Sequence[CopiedPartition],
        left: float,
        *,
        each: int,
    ) -> list[tuple[CopiedPartition, list[Range]]]:
        """The next ranges that are affordable."""
        chosen = []
        for of in rest:
            most = self._costs.offsets(of.topic, each)
            made = prefix(step.ranges(found, files, of, most=most), left, self._costs)
            left -= sum(map(self._costs.of, made))
            if made:
                chosen.append((of, made))
            if not made or made[-1].source_end < of.source_end:
                break
        return chosen

    def _after(
        self, key: TopicPartition, partitions: Sequence[TopicPartition]
    ) -> Proof:
        """Where the round goes on after a partition."""
        after = next((each for each in partitions if each > key), None)
        if after is None:
            self.rounds += 1
            after = partitions[0]
        return _begin(after, time.time())


def _begin(key: TopicPartition, at: float) -> Proof:
    return Proof(
        topic=_PREFIX + key[0], partition=key[1], topic_id=NO_ID, source_offset=0,
        target_offset=0, at=at, records=0, findings=0, root="",
    )  # fmt: skip


def _is_begun(place: Proof) -> bool:
    return bool(place.source_offset or place.target_offset)


def _key(place: Proof) -> TopicPartition:
    return place.topic.removeprefix(_PREFIX), place.partition


def _kept(known: Mapping[TopicPartition, Proof]) -> Proof | None:
    """The newest place that the target has."""
    places = [each for each in known.values() if is_place(each)]
    return max(places, key=lambda each: each.at, default=None)


def is_place(proof: Proof) -> bool:
    """Whether it only says where a round is."""
    return proof.topic.startswith(_PREFIX)


def _further(place: Proof, last: Range, outcome: Outcome | None, unknown: int) -> Proof:
    """After the ranges up to `last`. What is `unknown` counts as a finding: the pass
    proves nothing.
    """
    root = place.root
    if outcome is not None:
        both = bytes.fromhex(place.root) + bytes.fromhex(outcome.root)
        root = hashlib.sha256(both).hexdigest() if place.root else outcome.root
    return replace(
        place,
        topic_id=last.of.topic_id,
        source_offset=last.source_end,
        target_offset=last.target_end,
        records=place.records + (outcome.account.records if outcome else 0),
        findings=place.findings + (len(outcome.findings) if outcome else 0) + unknown,
        root=root,
    )


def _cut(proof: Proof, ranges: Sequence[Range]) -> list[Proof]:
    """The proof up to these ranges, if it goes further: after a restart, new copies are
    compared from there on, and what was found is found again.
    """
    first = next(each for each in ranges if not each.is_late)
    if proof.source_offset <= first.source_first:
        return []
    return [
        replace(
            proof, source_offset=first.source_first, target_offset=first.target_first,
            at=0.0,
        )
    ]  # fmt: skip


def _is_news(proof: Proof, known: Mapping[TopicPartition, Proof]) -> bool:
    before = known.get((proof.topic, proof.partition))
    return (
        before is None
        or before.topic_id != proof.topic_id
        or before.source_offset <= proof.source_offset
    )
