"""Proves what a flow has copied since its last proof, while it goes on.

Main type: `NewCopies`. If the budget covers all of it, all is compared, and the proof
kept on the target: the next one begins there, here or in `mirror verify`. If the share
is too small for that, evenly spread ranges are, and the target keeps no proof.
"""

from __future__ import annotations

from dataclasses import dataclass
import time
from typing import TYPE_CHECKING

from mirror.pairs import proofs
from mirror.pairs.proofs import Proof
from mirror.proofs.continuous.schedule import Spread, prefix, range_bytes, size
from mirror.proofs.run_files import RunFiles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirror.clusters.topics import TopicPartition
    from mirror.proofs.continuous.schedule import Costs
    from mirror.proofs.continuous.step import Outcome, ProofStep
    from mirror.proofs.copied_partition import CopiedPartition
    from mirror.proofs.ranges import Range
    from mirror.proofs.survey import ProofSurvey


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What one step came to."""

    at: float
    """When it began, epoch seconds."""
    outcomes: Mapping[TopicPartition, Outcome]
    covered: bool
    """Whether its share of all that was copied by then was compared."""
    all: bool
    """Whether nothing is left to be compared."""
    share: float
    """How much was compared of what was covered; -1: nothing was to be."""
    obstacles: tuple[str, ...]
    """Why partitions cannot be compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    ranges: Sequence[Range]
    """To be compared."""
    end: tuple[int, int]
    """Where the next step goes on, on both sides."""
    compared: int
    """Offsets of the ranges."""
    whole: bool
    """Whether that is all from the beginning to `end`."""


class NewCopies:
    """Those of one flow, across its runs."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._spread = Spread()
        self._cursors: dict[TopicPartition, Proof] = {}
        """Where the next step goes on."""
        self._gaps: set[TopicPartition] = set()
        """Partitions with something unproven, or a finding, since the proof that the
        target has."""
        self._taken: dict[TopicPartition, Proof] = {}
        """The proofs on the target that are taken note of."""
        self._first = 0

    def moved(self, proof: Proof) -> None:
        """The target has this proof now."""
        key = (proof.topic, proof.partition)
        last = self._cursors.get(key)
        same = last is not None and last.topic_id == proof.topic_id
        if last is None or not same or _place(proof) >= _place(last):
            self._cursors[key] = proof
            self._gaps.discard(key)

    def disproven(self, proof: Proof) -> None:
        """The target's proof goes no further than this one now, and must not."""
        self._gaps.add((proof.topic, proof.partition))

    def prove(
        self,
        step: ProofStep,
        kept: Mapping[TopicPartition, Proof],
        *,
        left: float,
        enough: bool,
    ) -> Round:
        """Compare what `left` bytes allow. `enough`: in the long run all is affordable,
        so what is not affordable now can wait.

        Raises:
            MirrorError: a cluster does not answer, or a task failed several times.
        """
        for key, proof in kept.items():
            # Only once: it may be of a deleted topic with this name.
            if self._taken.get(key) != proof:
                self._taken[key] = proof
                self.moved(proof)
        at = time.time()
        with RunFiles() as files:
            found = step.survey(files, self._cursors, ".*")
            wanted = [
                of
                for of in found.partitions
                if of.source_end > of.source_first or of.target_end > of.target_first
            ]
            total = sum(_offsets(of) for of in wanted)
            each = range_bytes(left, self._costs.least)
            cost = sum(
                self._costs.of_window(of.topic, _offsets(of), each) for of in wanted
            )
            known = all(self._costs.knows(of.topic) for of in wanted)
            spread = cost > left and known and not enough
            plans: dict[TopicPartition, _Plan] = {}
            if spread and left >= each:
                self._spread.fraction = left / cost
                plans = {_key(of): self._spread_over(step, found, files, of, each)
                         for of in wanted}  # fmt: skip
            elif not spread:
                plans = self._from_the_beginning(
                    step, found, files, wanted, left, each=each
                )
            outcomes = step.prove(
                found, files, {key: plan.ranges for key, plan in plans.items()},
                at=at, range_bytes=each,
            )  # fmt: skip
        failed = {key for key, each in outcomes.items() if each.failure}
        written: list[Proof] = []
        for of in wanted:
            if (plan := plans.get(_key(of))) is not None and _key(of) not in failed:
                before = kept.get(_key(of))
                written += self._move(of, plan, outcomes.get(_key(of)), before, at=at)
        proofs.write(step.target, step.flow, written)
        reached = {_key(of) for of in wanted if _reaches(plans.get(_key(of)), of)}
        compared = sum(p.compared for key, p in plans.items() if key not in failed)
        done = len(reached) == len(wanted) and not failed
        return Round(
            at=at,
            outcomes=outcomes,
            covered=done and not found.unproven,
            all=done and not spread,
            share=compared / total if total and done else -1.0,
            obstacles=tuple(f"{name}: {why}" for name, why in found.unproven.items()),
        )

    def _spread_over(
        self,
        step: ProofStep,
        found: ProofSurvey,
        files: RunFiles,
        of: CopiedPartition,
        each: int,
    ) -> _Plan:
        """Some ranges of all that there is."""
        most = self._costs.offsets(of.topic, each)
        made = list(step.ranges(found, files, of, most=most, picked=self._spread))
        last = made[-1]
        chosen = [one for one in made[:-1] if not one.unknown]
        if self._spread() and not last.unknown:
            chosen.append(last)
        return _Plan(
            ranges=chosen,
            end=(last.source_end, last.target_end),
            compared=_sum(chosen),
            whole=False,
        )

    def _from_the_beginning(
        self,
        step: ProofStep,
        found: ProofSurvey,
        files: RunFiles,
        wanted: Sequence[CopiedPartition],
        left: float,
        *,
        each: int,
    ) -> dict[TopicPartition, _Plan]:
        """The first ranges, as many as are affordable; each step begins with another
        partition, so that all get on.
        """
        plans = {}
        self._first += 1
        first = self._first % max(len(wanted), 1)
        for of in [*wanted[first:], *wanted[:first]]:
            made = step.ranges(
                found, files, of, most=self._costs.offsets(of.topic, each)
            )
            chosen = prefix(made, left, self._costs)
            left -= sum(map(self._costs.of, chosen))
            if not chosen:
                continue
            known = [one for one in chosen if not one.unknown]
            plans[_key(of)] = _Plan(
                ranges=known,
                end=(chosen[-1].source_end, chosen[-1].target_end),
                compared=_sum(known),
                whole=len(known) == len(chosen),
            )
        return plans

    def _move(
        self,
        of: CopiedPartition,
        plan: _Plan,
        outcome: Outcome | None,
        before: Proof | None,
        *,
        at: float,
    ) -> list[Proof]:
        """Go on after the plan; returns the proof that the target may keep, if any."""
        key = _key(of)
        last = self._cursors.get(key)
        if last is not None and last.topic_id != of.topic_id:
            self._gaps.discard(key)  # they were in a topic that is gone
        if outcome is None or outcome.findings or not plan.whole:
            self._gaps.add(key)
        reached = plan.end[0] >= of.source_end
        proof = Proof(
            topic=of.topic,
            partition=of.partition,
            topic_id=of.topic_id,
            source_offset=plan.end[0],
            target_offset=plan.end[1],
            # What was copied by then is proven: not yet, if the budget ended before.
            at=at if reached else before.at if before else 0.0,
            records=outcome.account.records if outcome else 0,
            findings=0,
            root=outcome.root if outcome else "",
        )
        self._cursors[key] = proof
        return [] if key in self._gaps else [proof]


def _place(proof: Proof) -> tuple[int, int]:
    return proof.source_offset, proof.target_offset


def _key(of: CopiedPartition) -> TopicPartition:
    return of.topic, of.partition


def _offsets(of: CopiedPartition) -> int:
    return max(of.source_end - of.source_first, of.target_end - of.target_first)


def _sum(ranges: Sequence[Range]) -> int:
    return sum(size(each) for each in ranges if not each.is_late)


def _reaches(plan: _Plan | None, of: CopiedPartition) -> bool:
    return plan is not None and plan.end[0] >= of.source_end
