"""What a running service proves in a step, and how much it may read for that.

Main types: `ProofStep`, which looks at a flow, and compares some of its ranges;
`NewCopies`, what the flow has copied since its last proof, and `PastCopies`, all that
both logs have, partition by partition, again and again. `Budget` grows with what a flow
copies, `Costs` says what a range will probably cost, and `Spread` picks some ranges
evenly where not all are affordable: these are pure. What compares is loaded only when
it is used.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum, auto
import hashlib
import re
import time
from typing import TYPE_CHECKING, NamedTuple

from mirror.offsets.progress import NO_ID
from mirror.pairs import proofs
from mirror.pairs.proofs import Proof
from mirror.proofs.account import Scope
from mirror.proofs.ranges import RunFiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.offsets.translation import OffsetMap
    from mirror.proofs.account import CopiedPartition
    from mirror.proofs.ranges import Range
    from mirror.proofs.runners import Runner
    from mirror.proofs.survey import ProofSurvey
    from mirror.proofs.verification import PartitionProof


FLOOR = 10_000.0
"""Bytes per second that may be read in any case: a quiet flow is proven, too."""
_LEAST_BYTES, _MOST_BYTES = 4 << 20, 32 << 20
"""Of one range, on both sides: longer than batches, and well below a second of work."""
_SHORTEST_BYTES = 1 << 19
"""Of one range where the budget takes minutes to pay for a longer one: batches of a
flow that copies so little are short, too."""
_SAVED_SECONDS = 60.0
_IN_ONE_GO = 16
"""How many ranges a budget is cut into, to spread them."""
_UNKNOWN, _PROBE = 1_000.0, 20
"""Bytes per offset if nothing is known, and the length of the first range then."""
_RECORD_BYTES = 100
"""What two copies of a record take besides key, value and headers, at most."""
_CAUTION = 2.0
"""By how much ranges may cost more than counters say."""
_RISE = 1.05
"""How fast the cost of an offset follows records that become larger."""
_FETCHES = 4
"""Of a range on one side, at least: what a fetch brings beyond its end is wasted."""
_LEAST_FETCH = 64 << 10
_NO_PARTITION = 1 << 31
"""Comes after all of a topic."""
_PREFIX = "rolling/"
"""Of the keys of places, as no topic's name has a slash."""


# ---- how much may be read, and what ranges cost ----


class Lane(Enum):
    """What a budget is for."""

    NEW = auto()
    """What was copied since the last proof."""
    PAST = auto()
    """All that both logs have, again and again."""


class Budget:
    """The bytes that may be read: a share of those copied, or `FLOOR` if that is more.

    Two lanes that both need it get half each; what one does not need, the other may
    use.
    """

    def __init__(self, share: float, *, now: float) -> None:
        """`now`: monotonic seconds, as of all further calls."""
        self.share = share
        self.spent = 0.0
        self.copied = 0
        self._began = self._now = now
        self._known: dict[tuple[str, int], int] = {}
        self._of_lane = dict.fromkeys(Lane, 0.0)

    @property
    def allowed(self) -> float:
        """In all, since the beginning."""
        return max(self.share * self.copied, FLOOR * (self._now - self._began))

    @property
    def least(self) -> int:
        """The size of the smallest range: about what a minute allows."""
        seconds = self._now - self._began
        if seconds <= 0:
            return _LEAST_BYTES
        of_a_minute = self.allowed / seconds * _SAVED_SECONDS
        return int(min(max(of_a_minute, _SHORTEST_BYTES), _LEAST_BYTES))

    def earn(self, copied: Mapping[tuple[str, int], int], now: float) -> None:
        """`copied`: counters of bytes by partition. They may begin at zero again."""
        for key, count in copied.items():
            known = self._known.get(key, 0)
            self.copied += count - known if count >= known else count
            self._known[key] = count
        self._now = now

    def left(self, lane: Lane, *, alone: bool) -> float:
        """What the lane may read now; `alone`: the other one needs nothing."""
        left = self.allowed - self.spent
        if alone:
            return left
        return min(left, self.allowed / 2 - self._of_lane[lane])

    def spend(self, count: float, lane: Lane, *, alone: bool) -> None:
        self.spent += count
        if alone:  # the other one has no claim to it later
            for each in Lane:
                self._of_lane[each] += count / 2
        else:
            self._of_lane[lane] += count


def range_bytes(left: float, least: int = _LEAST_BYTES) -> int:
    """The size of a range, on both sides, when so much may be read."""
    return int(min(max(left / _IN_ONE_GO, least), _MOST_BYTES))


class Costs:
    """What ranges cost in bytes on both sides, by topic.

    So much per source offset, and so much per range: batches are read as a whole, and
    answers have more than was asked for.
    """

    def __init__(self) -> None:
        self.least = _LEAST_BYTES
        """The size of the smallest range now."""
        self._slopes: dict[str, float] = {}
        self._surplus: dict[str, float] = {}
        self._guesses: dict[str, float] = {}

    def guess(self, topic: str, *, copied: int, offsets: int) -> None:
        """What the flow's counters say: each is read twice."""
        if offsets and copied:
            self._guesses[topic] = 2 * copied / offsets

    def learn(self, topic: str, *, fetched: int, offsets: int, payload: int) -> None:
        """What a range did cost; `payload`: keys, values and headers of the source."""
        if offsets and fetched:
            slope = min(fetched, 2 * payload + _RECORD_BYTES * offsets) / offsets
            slope = min(slope, _RISE * self._slopes.get(topic, slope))
            surplus = max(fetched - slope * offsets, 0.0)
            self._slopes[topic] = slope
            self._surplus[topic] = (self._surplus.get(topic, surplus) + surplus) / 2

    def knows(self, topic: str) -> bool:
        """If not, one short range has to tell."""
        return topic in self._slopes or topic in self._guesses

    def offsets(self, topic: str, count: int) -> int:
        """How many source offsets a range of `count` bytes has; at least one."""
        if not self.knows(topic):
            return _PROBE
        return max(int(count / self._slope(topic)), 1)

    def of_range(self, work: Range) -> float:
        """What a range costs."""
        if work.unknown:  # it is not read
            return 0.0
        return self.of_offsets(work.of.topic, size(work))

    def of_offsets(self, topic: str, count: int, ranges: int = 1) -> float:
        """What `count` offsets cost in this many ranges."""
        bare = self._slope(topic) * count
        surplus = self._surplus.get(topic)
        return _CAUTION * bare if surplus is None else bare + ranges * surplus

    def of_window(self, topic: str, count: int, each: int) -> float:
        """What `count` offsets cost in ranges of `each` bytes."""
        return self.of_offsets(topic, count, -(-count // self.offsets(topic, each)))

    def _slope(self, topic: str) -> float:
        known = self._slopes.get(topic) or self._guesses.get(topic) or _UNKNOWN
        return min(known, self._guesses.get(topic, known))


def size(work: Range | CopiedPartition) -> int:
    """Offsets of a range or a partition, on the side that has more."""
    ups, downs = (
        work.source_end - work.source_first,
        work.target_end - work.target_first,
    )
    return max(ups, downs)


class Spread:
    """Picks a fraction of what it is asked for, at even distances.

    It goes on where it stopped, so that of many short series it picks as many.
    """

    def __init__(self) -> None:
        self.fraction = 1.0
        self._carry = 0.5

    def __call__(self) -> bool:
        self._carry += self.fraction
        if self._carry < 1.0:
            return False
        self._carry = min(self._carry - 1.0, 1.0)
        return True


def prefix(ranges: Iterable[Range], left: float, costs: Costs) -> list[Range]:
    """The first ranges that cost no more than `left` together, one if costs are not
    known; with late records whose copies are among theirs: each of these is proven
    where its copy stands.
    """
    chosen: list[Range] = []
    late: list[Range] = []
    for work in ranges:
        if work.is_late:
            late.append(work)
            continue
        left -= costs.of_range(work)
        if left < 0:
            break
        chosen.append(work)
        if not costs.knows(work.of.topic):
            break
    if not chosen:
        return []
    end = chosen[-1].target_end
    return [*(each for each in late if each.target_first < end), *chosen]


def affordable(
    found: ProofSurvey,
    partitions: Iterable[CopiedPartition],
    left: float,
    costs: Costs,
    *,
    each: int,
) -> Iterator[tuple[CopiedPartition, list[Range]]]:
    """The first ranges of these partitions, of `each` bytes, that cost no more than
    `left` together.
    """
    for of in partitions:
        made = found.ranges(of, most=costs.offsets(of.topic, each))
        chosen = prefix(made, left, costs)
        left -= sum(map(costs.of_range, chosen))
        yield of, chosen


# ---- one step ----


class ProofStep:
    """For one flow, on the connections of its job."""

    def __init__(
        self,
        config: MirrorConfig,
        flow: FlowConfig,
        source: Cluster,
        target: Cluster,
        runner: Runner,
    ) -> None:
        self.flow = flow
        self.source, self.target = source, target
        self.surveying = 0.0
        """How many seconds surveys took."""
        self._config = config
        self._runner = runner

    def survey(
        self,
        files: RunFiles,
        proofs: Mapping[TopicPartition, Proof],
        pattern: str,
        offset_map: OffsetMap | None = None,
    ) -> ProofSurvey:
        """What there is to prove of these topics, after these proofs; `offset_map` as
        for `survey.survey`.

        Raises:
            MirrorError: as `survey.survey`.
        """
        from mirror.proofs.survey import survey  # noqa: PLC0415  with compiled kernels

        began = time.monotonic()
        try:
            return survey(
                self.flow, self.source, self.target, files, Scope(pattern=pattern),
                proofs=proofs, offset_map=offset_map,
            )  # fmt: skip
        finally:
            self.surveying += time.monotonic() - began

    def prove(
        self,
        found: ProofSurvey,
        chosen: Mapping[TopicPartition, Sequence[Range]],
        *,
        at: float,
        range_bytes: int,
    ) -> dict[TopicPartition, PartitionProof]:
        """Compare these ranges.

        Raises:
            MirrorError: a cluster does not answer, or a task failed several times.
        """
        from mirror.proofs.verification import (  # noqa: PLC0415  with compiled kernels
            Verification,
            terms_of,
        )

        # Everybody who may read the status sees what is found.
        scope = Scope(keys=False)
        terms = replace(
            terms_of(self._config, self.flow, self.source, self.target, scope),
            fetch_bytes=max(range_bytes // (2 * _FETCHES), _LEAST_FETCH),
        )
        some = replace(
            found,
            partitions=tuple(of for of in found.partitions if chosen.get(of.key)),
            unproven={},
        )
        if not some.partitions:
            return {}
        verification = Verification(terms, self.source, self.target, self._runner)
        proven = verification.prove(some, at=at, chosen=chosen)
        return {each.of.key: each for each in proven.partitions}


# ---- new copies ----
#
# If the budget covers all of it, all is compared, and the proof kept on the target: the
# next one begins there, here or in `mirror verify`. If the share is too small for that,
# evenly spread ranges are, and the target keeps no proof.


class _Plan(NamedTuple):
    """What is compared of one partition in a step."""

    ranges: Sequence[Range]
    end: tuple[int, int]
    """Where the next step goes on, on both sides."""
    whole: bool
    """Whether the ranges are all from the beginning to `end`."""

    @property
    def compared(self) -> int:
        """Offsets of the ranges."""
        return sum(size(each) for each in self.ranges if not each.is_late)


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
        self.proven_at = 0.0
        """When the last step began that compared its share of all that was copied by
        then, epoch seconds."""
        self.share = -1.0
        """How much it compared of that; -1: no step has."""
        self.is_through = True
        """Whether the last step has left nothing to be compared."""
        self.obstacles: tuple[str, ...] = ()
        """Why partitions could not be compared in the last step."""

    def moved(self, proof: Proof) -> None:
        """The target has this proof now."""
        key = (proof.topic, proof.partition)
        last = self._cursors.get(key)
        place = (proof.source_offset, proof.target_offset)
        if (
            last is None
            or last.topic_id != proof.topic_id
            or place >= (last.source_offset, last.target_offset)
        ):
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
        at: float,
        left: float,
        enough: bool,
    ) -> dict[TopicPartition, PartitionProof]:
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
        with RunFiles() as files:
            found = step.survey(files, self._cursors, ".*")
            wanted = [
                of
                for of in found.partitions
                if of.source_end > of.source_first or of.target_end > of.target_first
            ]
            total = sum(size(of) for of in wanted)
            each = range_bytes(left, self._costs.least)
            cost = sum(self._costs.of_window(of.topic, size(of), each) for of in wanted)
            known = all(self._costs.knows(of.topic) for of in wanted)
            spread = cost > left and known and not enough
            plans: dict[TopicPartition, _Plan] = {}
            if spread and left >= each:
                self._spread.fraction = left / cost
                plans = {of.key: self._spread_over(found, of, each) for of in wanted}
            elif not spread:
                plans = self._from_the_beginning(found, wanted, left, each=each)
            chosen = {key: plan.ranges for key, plan in plans.items()}
            proofs_made = step.prove(found, chosen, at=at, range_bytes=each)
        failed = {key for key, made in proofs_made.items() if made.failure}
        written: list[Proof] = []
        for of in wanted:
            if (plan := plans.get(of.key)) is not None and of.key not in failed:
                made = proofs_made.get(of.key)
                written += self._move(of, plan, made, kept.get(of.key), at=at)
        proofs.write(step.target, step.flow, written)
        done = not failed and all(
            (plan := plans.get(of.key)) and plan.end[0] >= of.source_end
            for of in wanted
        )
        if done and not found.unproven:
            self.proven_at = at
        if done and total:
            compared = sum(plan.compared for plan in plans.values())
            self.share = compared / total
        self.is_through = done and not spread
        self.obstacles = tuple(f"{name}: {why}" for name, why in found.unproven.items())
        return proofs_made

    def _spread_over(self, found: ProofSurvey, of: CopiedPartition, each: int) -> _Plan:
        """Some ranges of all that there is."""
        most = self._costs.offsets(of.topic, each)
        made = list(found.ranges(of, most=most, picked=self._spread))
        last = made[-1]
        chosen = [one for one in made[:-1] if not one.unknown]
        if self._spread() and not last.unknown:
            chosen.append(last)
        end = (last.source_end, last.target_end)
        return _Plan(ranges=chosen, end=end, whole=False)

    def _from_the_beginning(
        self,
        found: ProofSurvey,
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
        order = [*wanted[first:], *wanted[:first]]
        for of, chosen in affordable(found, order, left, self._costs, each=each):
            if not chosen:
                continue
            known = [one for one in chosen if not one.unknown]
            plans[of.key] = _Plan(
                ranges=known,
                end=(chosen[-1].source_end, chosen[-1].target_end),
                whole=len(known) == len(chosen),
            )
        return plans

    def _move(
        self,
        of: CopiedPartition,
        plan: _Plan,
        made: PartitionProof | None,
        before: Proof | None,
        *,
        at: float,
    ) -> list[Proof]:
        """Go on after the plan; returns the proof that the target may keep, if any."""
        key = of.key
        last = self._cursors.get(key)
        if last is not None and last.topic_id != of.topic_id:
            self._gaps.discard(key)  # they were in a topic that is gone
        if made is None or made.wrong or not plan.whole:
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
            records=made.account.records if made else 0,
            findings=0,
            root=made.root if made else "",
        )
        self._cursors[key] = proof
        return [] if key in self._gaps else [proof]


# ---- past copies ----
#
# The target keeps where a round is, so it goes on after a restart. A partition in which
# a whole pass has found nothing is proven up to its end.


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
        self.proven: list[Proof] = []
        """Of partitions in which a whole pass has found nothing, by the last step."""
        self.disproven: list[Proof] = []
        """How far partitions are proven in which the last step found something, if
        earlier proofs went further."""
        self.failure = ""
        """Why the last step could not compare a partition; empty if it could."""

    def prove(
        self,
        step: ProofStep,
        known: Mapping[TopicPartition, Proof],
        partitions: Sequence[TopicPartition],
        *,
        at: float,
        left: float,
    ) -> dict[TopicPartition, PartitionProof]:
        """Compare what `left` bytes allow, of one topic at most. `partitions`: all of
        the flow's, sorted.

        Raises:
            MirrorError: a cluster does not answer, or a task failed several times.
        """
        place = self._at(partitions, known)
        key = _key(place)
        with RunFiles() as files:
            is_begun = place.source_offset or place.target_offset
            cursors = {key: place} if is_begun else {}
            found = step.survey(files, cursors, re.escape(key[0]))
            rest = sorted(
                (of for of in found.partitions if of.partition >= key[1]),
                key=lambda of: of.partition,
            )
            each = range_bytes(left, self._costs.least)
            chosen = []
            for of, ranges in affordable(found, rest, left, self._costs, each=each):
                chosen += [(of, ranges)] if ranges else []
                if not ranges or ranges[-1].source_end < of.source_end:
                    break
            comparable = {
                of.key: [one for one in ranges if not one.unknown]
                for of, ranges in chosen
            }
            made = step.prove(found, comparable, at=at, range_bytes=each)
        self.proven, self.disproven = [], []
        for of, ranges in chosen:
            proof = made.get(of.key)
            if proof is not None and proof.failure:
                place = self._after(of.key, partitions)  # its turn comes next round
                continue
            if of.key != _key(place):
                place = _begin(of.key, at)
            before = known.get(of.key)
            if proof is not None and proof.wrong and before is not None:
                self.disproven += _cut(before, ranges)
            unknown = len(ranges) - len(comparable[of.key])
            place = _further(place, ranges[-1], proof, unknown)
            if ranges[-1].source_end < of.source_end:
                break
            if not place.findings:
                proven = replace(place, topic=of.topic)
                self.proven += [proven] if _is_news(proven, before) else []
            place = self._after(of.key, partitions)
        if not rest:
            place = self._after((key[0], _NO_PARTITION), partitions)
        self.share = sum(each < _key(place) for each in partitions) / len(partitions)
        failures = (each.failure for each in made.values() if each.failure)
        self.failure = next(failures, found.unproven.get(key[0], ""))
        self._next = place
        return made

    def keep(self, step: ProofStep) -> None:
        """Go on after the last step, also after a restart: when its findings are known.

        Raises:
            MirrorError: the target cannot be written to.
        """
        kept = [*self.disproven, *self.proven, self._next]
        proofs.write(step.target, step.flow, kept)
        self._place = self._next

    def _at(
        self,
        partitions: Sequence[TopicPartition],
        known: Mapping[TopicPartition, Proof],
    ) -> Proof:
        """Where the round goes on; its partition may be gone."""
        kept = [each for each in known.values() if is_place(each)]
        place = self._place or max(kept, key=lambda each: each.at, default=None)
        if place is None:
            return _begin(partitions[0], time.time())
        key = _key(place)
        after = next((each for each in partitions if each >= key), partitions[0])
        return place if after == key else _begin(after, time.time())

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


def _key(place: Proof) -> TopicPartition:
    return place.topic.removeprefix(_PREFIX), place.partition


def is_place(proof: Proof) -> bool:
    """Whether it only says where a round is."""
    return proof.topic.startswith(_PREFIX)


def _further(
    place: Proof, last: Range, proof: PartitionProof | None, unknown: int
) -> Proof:
    """After the ranges up to `last`. What is `unknown` counts as a finding: the pass
    proves nothing.
    """
    root = place.root
    if proof is not None:
        both = bytes.fromhex(place.root) + bytes.fromhex(proof.root)
        root = hashlib.sha256(both).hexdigest() if place.root else proof.root
    return replace(
        place,
        topic_id=last.of.topic_id,
        source_offset=last.source_end,
        target_offset=last.target_end,
        records=place.records + (proof.account.records if proof else 0),
        findings=place.findings + (len(proof.wrong) if proof else 0) + unknown,
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


def _is_news(proof: Proof, before: Proof | None) -> bool:
    return (
        before is None
        or before.topic_id != proof.topic_id
        or before.source_offset <= proof.source_offset
    )
