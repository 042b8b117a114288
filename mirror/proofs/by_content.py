"""Matches records with their copies by what they say, where no offset map tells.

Main function: `aligned`, which makes from the content of both logs what the map would
say of partitions. It runs in the driver. Of a long partition it first takes a sample of
marks from either side, in which the same records are: those that occur once cut both
logs into pieces that tasks match record by record (`located`). Marks only locate;
`comparing` decides what is equal.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from mirror.errors import MirrorError
from mirror.offsets.runs import COUNT, DOWNSTREAM, UPSTREAM, joined
from mirror.proofs import sides
from mirror.proofs.account import FindingKind, ProofFinding
from mirror.proofs.ranges import NO_RUNS, Range, whole_range
from mirror.proofs.sides import Source
from mirror.records import alignment, chains, to_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mirror.clusters.cluster import Cluster
    from mirror.offsets.runs import RunArray
    from mirror.proofs.account import CopiedPartition
    from mirror.proofs.log_stream import Damage, LogStream
    from mirror.proofs.ranges import Longs, Mismatches
    from mirror.proofs.runners import OutOfReach, Runner
    from mirror.proofs.sides import ProofTerms


PIECE_OFFSETS = 250_000
"""Of the source in a piece, whose marks one task keeps."""
MOST_TARGET_OFFSETS = 1_000_000
"""In a piece: of the longer side a task only keeps what the other one has as well."""
_SAMPLED_AT_ONCE = 1_000_000
_MOST_SAMPLES = 1_000_000
"""Per side of a partition, if all of its records are there and differ: 16 MB."""
_GROUP = 32
"""Partitions that are matched before the first of them is compared."""
MOST_RECORDS = 1_000_000
"""Records of which a task keeps the marks, on either side: some 100 MB at work."""
_RATE_SHIFT = np.uint64(40)
_KEPT_ALIKE = 2
_NO_MARKS = np.empty(0, np.int64)
_NO_PAIRS = np.empty((0, 2), np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aligned:
    """One partition."""

    of: CopiedPartition
    """What there is to compare of it."""
    runs: RunArray = field(repr=False)
    """Where its records stand; what follows a floor is not known."""
    failure: str = ""
    """Why it is not."""
    findings: tuple[ProofFinding, ...] = ()
    offsets: int
    """How many of the source were looked at."""
    fetched_bytes: int = 0


def aligned(
    terms: ProofTerms,
    runner: Runner,
    partitions: Iterable[CopiedPartition],
    lost: OutOfReach,
) -> Iterator[Aligned]:
    """Match the records of partitions with their copies, some partitions at a time.

    Raises:
        MirrorError: a task failed several times.
    """
    waiting = list(partitions)
    while waiting:
        group, waiting = waiting[:_GROUP], waiting[_GROUP:]
        done: dict[tuple[str, int], list[Located]] = defaultdict(list)
        pieces: list[Range] = []
        for of in group:
            try:
                pieces += (
                    [whole_range(of)] if lost.reason(of) else _pieces(terms, runner, of)
                )
            except MirrorError as error:
                lost.note(of, str(error))
                failed = Located(piece=whole_range(of), failure=str(error))
                done[of.key].append(failed)
        tried = (replace(piece, unknown=lost.reason(piece.of)) for piece in pieces)
        tasks = (partial(located, terms, piece) for piece in tried)
        for each in runner.results(tasks):
            of = each.piece.of
            if each.failure:
                lost.note(of, each.failure)
            done[of.key].append(each)
        for of in group:
            yield _joined(of, done[of.key])


def _pieces(terms: ProofTerms, runner: Runner, of: CopiedPartition) -> Iterator[Range]:
    rest = whole_range(of)
    if _is_short(rest):
        yield rest
        return
    ups, downs = _samples(terms, runner, rest)
    found = anchors(ups.marks, downs.marks)
    up, down = ups.offsets[found[:, 0]], downs.offsets[found[:, 1]]
    while not _is_short(rest):
        index = _next_cut(up, down, rest)
        if index >= len(up):
            break
        at, there = int(up[index]), int(down[index])
        yield replace(rest, source_end=at, target_end=there)
        rest = replace(rest, source_first=at, target_first=there)
    yield rest


def _is_short(piece: Range) -> bool:
    return (
        piece.source_end - piece.source_first <= PIECE_OFFSETS
        and piece.target_end - piece.target_first <= MOST_TARGET_OFFSETS
    )


def _next_cut(up: Longs, down: Longs, rest: Range) -> int:
    """The last anchor that makes a short piece, or else the next one."""
    index = min(
        int(np.searchsorted(up, rest.source_first + PIECE_OFFSETS, "right")),
        int(np.searchsorted(down, rest.target_first + MOST_TARGET_OFFSETS, "right")),
    )
    return max(index - 1, int(np.searchsorted(up, rest.source_first, "right")))


def _samples(terms: ProofTerms, runner: Runner, whole: Range) -> tuple[Marks, Marks]:
    """The same share of both sides' records."""
    span = max(
        whole.source_end - whole.source_first, whole.target_end - whole.target_first
    )
    rate = 1
    while span > rate * _MOST_SAMPLES:
        rate *= 2
    slices = [
        (True, replace(whole, source_first=at,
                       source_end=min(at + _SAMPLED_AT_ONCE, whole.source_end)))
        for at in range(whole.source_first, whole.source_end, _SAMPLED_AT_ONCE)
    ] + [
        (False, replace(whole, target_first=at,
                        target_end=min(at + _SAMPLED_AT_ONCE, whole.target_end)))
        for at in range(whole.target_first, whole.target_end, _SAMPLED_AT_ONCE)
    ]  # fmt: skip
    for timed in (True, False):
        found: dict[bool, list[Marks]] = {True: [], False: []}
        tasks = (
            partial(sampled, terms, piece, on_source, rate, timed)
            for on_source, piece in slices
        )
        for on_source, marks in runner.results(tasks):
            found[on_source].append(marks)
        if all(each.own_times for each in found[False]):
            break
    return _in_order(found[True]), _in_order(found[False])


def _in_order(parts: list[Marks]) -> Marks:
    offsets = np.concatenate([_NO_MARKS, *(each.offsets for each in parts)])
    marks = np.concatenate([_NO_MARKS, *(each.marks for each in parts)])
    order = np.argsort(offsets)
    return Marks(
        offsets=offsets[order], marks=marks[order],
        own_times=all(each.own_times for each in parts),
        fetched_bytes=sum(each.fetched_bytes for each in parts),
    )  # fmt: skip


def _joined(of: CopiedPartition, found: list[Located]) -> Aligned:
    """What tasks found of one partition, and what follows from it for its ends."""
    found = sorted(
        found, key=lambda each: (each.piece.source_first, each.piece.target_first)
    )
    every = [NO_RUNS]
    for each in found:
        first = (each.piece.source_first, each.piece.target_first, 0)
        every.append(np.array([first], np.int64) if each.failure else each.runs)
    runs = np.concatenate(every)
    failure = next((each.failure for each in found if each.failure), "")
    known = runs[runs[:, COUNT] > 0]
    findings: list[ProofFinding] = []
    late = not of.continues and of.source_first > of.source_start
    if late and not len(runs):
        of = replace(of, target_first=of.target_end)
    if len(runs) and runs[0, COUNT]:
        if of.begins_with_copies:
            of = replace(of, source_first=int(runs[0, UPSTREAM]))
        if late:
            of = replace(of, target_first=int(runs[0, DOWNSTREAM]))
    if not failure:
        ends = known[-1, UPSTREAM] + known[-1, COUNT] if len(known) else of.source_first
        of = replace(of, source_end=max(int(ends), of.copied_to))
        if of.copied_to < 0 and found[-1].left:
            findings.append(
                of.finding(
                    FindingKind.UNPROVEN, source=of.source_end, target=None,
                    count=found[-1].left, detail="after the last record that has a "
                    "copy: not copied yet, or missing",
                )
            )  # fmt: skip
    return Aligned(
        of=of, runs=runs, failure=failure, findings=tuple(findings),
        offsets=sum(each.piece.source_end - each.piece.source_first for each in found),
        fetched_bytes=sum(each.fetched_bytes for each in found),
    )  # fmt: skip


# ---- what tasks do before the comparison ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Records of one log, in its order."""

    offsets: Longs
    marks: Longs
    own_times: bool
    """Off: brokers wrote the times (LogAppendTime)."""
    fetched_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """Where the records of a piece of a partition stand."""

    piece: Range
    runs: RunArray = field(default_factory=lambda: NO_RUNS, repr=False)
    """As the offset map would have them."""
    left: int = 0
    """Records of the source after the last run, if the log ends there, and no flow says
    how far it is."""
    fetched_bytes: int = 0
    failure: str = ""
    """Why it is not known; empty if it is."""


def sampled(
    terms: ProofTerms, piece: Range, on_source: bool, rate: int, timed: bool
) -> tuple[bool, Marks]:
    """The side, and the records whose marks are one of `rate` (a power of two): the
    same ones on both sides. Of alike ones the first two, which says that there are
    several.

    Raises:
        ClusterError: the log cannot be read to its end.
    """
    with terms.connected(on_source=on_source) as cluster:
        stream = _stream(terms, cluster, piece, on_source)
        read = _read(terms, stream, rate=rate, timed=timed)
    order = np.argsort(read.marks, kind="stable")
    alike = read.marks[order]
    further = order[_KEPT_ALIKE:][alike[_KEPT_ALIKE:] == alike[:-_KEPT_ALIKE]]
    return on_source, replace(
        read,
        offsets=np.delete(read.offsets, further),
        marks=np.delete(read.marks, further),
    )


def located(terms: ProofTerms, piece: Range) -> Located:
    """Match all records of a piece. Whatever goes wrong is in the result."""
    if piece.unknown:
        return Located(piece=piece, failure=piece.unknown)
    try:
        with (
            terms.connected(on_source=True) as source,
            terms.connected(on_source=False) as target,
        ):
            return _located(terms, piece, source, target)
    except MirrorError as error:
        return Located(piece=piece, failure=str(error))


def _located(
    terms: ProofTerms, piece: Range, source: Cluster, target: Cluster
) -> Located:
    clusters = {True: source, False: target}
    small = (
        piece.source_end - piece.source_first <= piece.target_end - piece.target_first
    )
    timed = True
    fetched = 0
    while True:
        # Of the longer side only what the shorter one has as well is kept.
        mine, other = {}, _NO_MARKS
        for side in (small, not small):
            stream = _stream(terms, clusters[side], piece, side)
            only = None if side == small else np.unique(other)
            mine[side] = _read(terms, stream, timed=timed, only=only)
            other = mine[side].marks
            fetched += mine[side].fetched_bytes
        if mine[False].own_times or not timed:
            break
        timed = False
    ups, downs = mine[True], mine[False]
    pairs = matched(ups.marks, downs.marks)
    runs = np.ones((len(pairs), 3), np.int64)
    runs[:, UPSTREAM] = ups.offsets[pairs[:, 0]]
    runs[:, DOWNSTREAM] = downs.offsets[pairs[:, 1]]
    left = 0
    if piece.of.copied_to < 0 and piece.source_end == piece.of.source_end:
        after = int(runs[-1, 0]) + 1 if len(runs) else piece.source_first
        tail = Source(terms, source, piece.of, after, piece.source_end).stream
        left = sum(len(part.places) for part in tail.listed())
        fetched += tail.fetched_bytes
    return Located(piece=piece, runs=joined(runs), left=left, fetched_bytes=fetched)


def _stream(
    terms: ProofTerms, cluster: Cluster, piece: Range, on_source: bool
) -> LogStream:
    of = piece.of
    if on_source:
        return Source(terms, cluster, of, piece.source_first, piece.source_end).stream
    return sides.target(terms, cluster, of, piece.target_first, piece.target_end)


def _read(
    terms: ProofTerms,
    stream: LogStream,
    *,
    timed: bool,
    rate: int = 1,
    only: Longs | None = None,
) -> Marks:
    """`only`: the marks to keep, ascending."""
    stamp = terms.stamp
    offsets, found = [_NO_MARKS], [_NO_MARKS]
    count = 0
    for part in stream.listed():
        marks = np.empty(len(part.places), np.int64)
        keys = np.empty(len(part.places), np.int64)
        alignment.describe(
            part.buffer, part.places, stamp, alignment.TIMED * timed, marks, keys
        )
        kept = np.ones(len(marks), np.bool_)
        if rate > 1:
            kept = (marks.view(np.uint64) >> _RATE_SHIFT) % np.uint64(rate) == 0
        if only is not None:
            index = np.minimum(np.searchsorted(only, marks), max(len(only) - 1, 0))
            kept &= only[index] == marks if len(only) else False
        offsets.append(part.places[kept, to_columns.OFFSET])
        found.append(marks[kept])
        count += len(found[-1])
        if count > MOST_RECORDS:
            raise MirrorError(
                f"more than {MOST_RECORDS:,} records in a row, and not one that occurs "
                "once on both sides"
            )
    return Marks(
        offsets=np.concatenate(offsets),
        marks=np.concatenate(found),
        own_times=stream.own_times,
        fetched_bytes=stream.fetched_bytes,
    )


# ---- which records of two logs belong together, by their marks and their order ----
#
# Both logs keep the order, so records whose marks occur once hold the others in place
# (as in a patience diff). Of several copies of one record the first counts. Where
# records are alike, and their numbers differ, nothing says which belong together: they
# stay without a partner. Pure.


def matched(source: Longs, target: Longs) -> Longs:
    """Pairs of indexes, ascending on both sides; marks are in order of their logs."""
    found = [_NO_PAIRS]
    blocks = [(0, len(source), 0, len(target))]
    while blocks:
        up, up_end, down, down_end = blocks.pop()
        pairs, inner = _in_block(source[up:up_end], target[down:down_end])
        found.append(pairs + np.array([up, down]))
        blocks += (inner + np.array([up, up, down, down])).tolist()
    every = np.concatenate(found)
    return every[np.argsort(every[:, 0], kind="stable")]


def anchors(source: Longs, target: Longs) -> Longs:
    """The pairs of records whose mark the source has once; as `matched`."""
    marks, first, counts = np.unique(source, return_index=True, return_counts=True)
    marks, first = marks[counts == 1], first[counts == 1]
    if not len(marks) or not len(target):
        return _NO_PAIRS
    index = np.minimum(np.searchsorted(marks, target), len(marks) - 1)
    downs = np.flatnonzero(marks[index] == target)
    ups = first[index[downs]]
    # Of the same record's copies the first ones come last, so that they replace others.
    order = np.lexsort((-downs, ups))
    ups, downs = ups[order], downs[order]
    room = np.empty((3, len(downs)), np.int64)
    size = np.zeros(1, np.int64)
    chains.chain(downs, room[0], room[1], room[2], size)
    chosen = room[2, : size[0]]
    return np.stack([ups[chosen], downs[chosen]], axis=1)


def _in_block(source: Longs, target: Longs) -> tuple[Longs, Longs]:
    """Pairs, and blocks (first and end on either side) to look into once more."""
    nothing = np.empty((0, 4), np.int64)
    if np.array_equal(source, target):
        return np.repeat(np.arange(len(source))[:, None], 2, axis=1), nothing
    # What only one side has belongs to nothing.
    ups = np.flatnonzero(np.isin(source, target))
    downs = np.flatnonzero(np.isin(target, source))
    mine, theirs = source[ups], target[downs]
    held = anchors(mine, theirs)
    if not len(held) and not np.array_equal(mine, theirs):
        return _NO_PAIRS, nothing
    pairs = np.empty((min(len(mine), len(theirs)), 2), np.int64)
    blocks = np.empty((len(held) + 1, 4), np.int64)
    result = np.zeros(chains.RESULTS, np.int64)
    chains.between(mine, theirs, np.ascontiguousarray(held), pairs, blocks, result)
    pairs = pairs[: result[chains.PAIRS]]
    blocks = blocks[: result[chains.BLOCKS]]
    return (
        np.stack([ups[pairs[:, 0]], downs[pairs[:, 1]]], axis=1),
        np.stack(
            [
                ups[blocks[:, 0]], ups[blocks[:, 1] - 1] + 1,
                downs[blocks[:, 2]], downs[blocks[:, 3] - 1] + 1,
            ],
            axis=1,
        ),
    )  # fmt: skip


# ---- the expected position of a missing counterpart ----
#
# Both logs keep the order: it stood between its neighbours' copies. The latest of these
# places counts, so that compaction is believed only if a later record of the key proves
# it. Pure.


def place(
    mismatches: Mismatches,
    work: Range,
    *,
    source_damages: Iterable[Damage] = (),
    target_damages: Iterable[Damage] = (),
) -> None:
    """Write into rows without the other offset where it would be.

    If something between the neighbours' copies cannot be read, it may be that. What
    precedes the first pair of a partition counts as expired if the other log has lost
    its beginning, since the proof that this one continues: nothing can show that it was
    never there.
    """
    of = work.of
    leading = work.source_first == of.source_first or (
        work.target_first == of.target_first
    )
    whole = of.target_lost > 0 and of.target_first == of.target_start
    expired_before = of.target_start if leading and whole else 0
    _place(mismatches, work, alignment.ONLY_SOURCE, expired_before, target_damages)
    whole = of.source_lost > 0 and of.source_first == of.source_start
    expired_before = of.source_start if leading and whole else 0
    _place(mismatches, work, alignment.ONLY_TARGET, expired_before, source_damages)


def _place(
    mismatches: Mismatches,
    work: Range,
    what: int,
    expired_before: int,
    damages: Iterable[Damage],
) -> None:
    here, there, begins, others, end = (
        (alignment.SOURCE, alignment.TARGET, UPSTREAM, DOWNSTREAM, work.target_end)
        if what == alignment.ONLY_SOURCE
        else (alignment.TARGET, alignment.SOURCE, DOWNSTREAM, UPSTREAM, work.source_end)
    )
    rows = np.flatnonzero(
        (mismatches[:, alignment.WHAT] == what)
        & (mismatches[:, there] == alignment.NOWHERE)
    )
    runs = work.runs
    runs = runs[runs[:, COUNT] > 0]
    following = np.searchsorted(runs[:, begins], mismatches[rows, here], "right")
    places = np.append(runs[:, others], end)[following] - 1
    if expired_before:
        places[following == 0] = expired_before - 1
    for each in damages:
        places[following == np.searchsorted(runs[:, others], each.first)] = each.first
    mismatches[rows, there] = places
