"""Compares one range of a source with its copy: what a task does.

Main function: `compare`. It streams both logs, lets the kernel compare them, and
returns a `Compared`: counts, a digest, and a row for every record that is no equal
pair, which `explaining` explains or names.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
import hashlib
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mirror.errors import CorruptBatchError, MirrorError
from mirror.offsets.runs import COUNT, DOWNSTREAM, UPSTREAM
from mirror.proofs import by_content, sides
from mirror.proofs.account import Account, span_of, widened
from mirror.proofs.ranges import LAST_OFFSET, NO_RUNS, PackedRuns, covered, translated
from mirror.proofs.sides import Source
from mirror.records import alignment, merge_loop, pairing, to_columns
from mirror.records.listing import unpacked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.offsets.runs import RunArray
    from mirror.proofs.account import Span
    from mirror.proofs.log_stream import Damage, LogStream, Stored
    from mirror.proofs.ranges import Longs, Mismatches, Range
    from mirror.proofs.sides import ProofTerms
    from mirror.records.batch import Buffer, Rows
    from mirror.records.listing import Listed


_MARKS = 1 << 16
_ROWS_AT_ONCE = 1 << 12
_FEW, _MANY = 1 << 9, 1 << 20
"""Offsets to list at least where records are no plain copies, and at most."""
NO_MISMATCHES = np.empty((0, alignment.ODD_COLUMNS), np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What a task found. Offsets that it did not reach are not proven."""

    range: Range
    account: Account = field(default_factory=Account)
    """Of all but the mismatches."""
    first_equal: int = LAST_OFFSET
    """The source offset of the first record with an equal copy, if there is one."""
    spans: Mapping[str, Span] = field(default_factory=dict)
    """Where the copy has `foreign` and `older` records of the account."""
    mismatches: Mismatches = field(default_factory=lambda: NO_MISMATCHES, repr=False)
    digest: bytes = b""
    """SHA-256 over the marks of all equal pairs, in order."""
    source_start: int = 0
    """Where the source's log began when it was read."""
    target_start: int = 0
    source_damages: tuple[Damage, ...] = ()
    target_damages: tuple[Damage, ...] = ()
    own_times: bool = True
    """Off: the copy's topic uses LogAppendTime, so times were not compared."""
    fetched_bytes: int = 0
    """From both sides."""
    failure: str = ""
    """Why the comparison ended early; empty if it did not."""


def compare(terms: ProofTerms, work: Range) -> Compared:
    """Compare one range. Whatever goes wrong is in the result."""
    if work.unknown:
        return Compared(range=work, failure=work.unknown)
    try:
        with (
            terms.connected(on_source=True) as source,
            terms.connected(on_source=False) as target,
        ):
            found = _Comparison(terms, work, source, target).run()
            if terms.ids is None or found.failure:
                return found
            if not (doubtful := terms.ids.doubtful(found.mismatches)).any():
                return found
            try:
                asked = terms.ids.asked()
            except MirrorError as error:
                why = f"whether ids of schemas mean the same is not known: {error}"
                return replace(
                    found, mismatches=found.mismatches[~doubtful], failure=why
                )
            terms = replace(terms, ids=asked)
            return _Comparison(terms, work, source, target).run()
    except MirrorError as error:
        return Compared(range=work, failure=str(error))


def compare_on(
    terms: ProofTerms, work: Range, source: Cluster, target: Cluster
) -> Compared:
    """As `compare`, over connections that the caller has."""
    return _Comparison(terms, work, source, target).run()


class _Comparison:
    def __init__(
        self, terms: ProofTerms, work: Range, source: Cluster, target: Cluster
    ) -> None:
        self._work = work
        self._runs = work.runs
        self._terms = terms
        self._stamp = terms.stamp
        self._made = Source(
            terms, source, work.of, work.source_first, work.source_end,
            runs=self._runs,
        )  # fmt: skip
        self._source = self._made.stream
        self._seen = terms.seen
        self._is_plain = self._made.is_plain and not work.is_late
        self._target = sides.target(
            terms, target, work.of, work.target_first, work.target_end
        )
        self._records = self._bytes = self._equal = self._foreign = 0
        self._first_equal = LAST_OFFSET
        self._spans: dict[str, Span] = {}
        self._mismatches: list[Mismatches] = []
        self._sum = hashlib.sha256()
        self._run = 0
        """The next run of the map."""
        self._marks = np.empty(_MARKS, np.uint64)
        self._rows = np.empty((_ROWS_AT_ONCE, alignment.ODD_COLUMNS), np.int64)

    def run(self) -> Compared:
        failure = ""
        try:
            self._align()
        except MirrorError as error:
            failure = str(error)
        rows = np.concatenate([NO_MISMATCHES, *self._mismatches])
        self._mismatches.clear()  # there may be a million rows
        repeated = _named(rows, self._work.repeats, alignment.ONLY_TARGET)
        older = _named(rows, self._work.older, alignment.ONLY_TARGET) & ~repeated
        looped, removed = self._source.looped, self._made.removed
        elsewhere = _named(rows, self._work.late)
        if self._work.is_late:  # what is between them has ranges of its own
            looped = removed = self._bytes = self._foreign = 0
            self._spans = {}
            elsewhere = ~_named(rows, self._runs)
            elsewhere &= rows[:, alignment.WHAT] != alignment.UNEQUAL
        left_out = elsewhere & (rows[:, alignment.WHAT] == alignment.ONLY_SOURCE)
        source_start, target_start = self._source.start, self._target.start
        if self._terms.scope.by_content:
            source_start = max(source_start, self._work.of.source_start)
            target_start = max(target_start, self._work.of.target_start)
            by_content.place(
                rows, self._work,
                source_damages=self._source.damages,
                target_damages=self._target.damages,
            )  # fmt: skip
        return Compared(
            # The driver does not ask for them again, and there may be millions.
            range=replace(
                self._work, packed=PackedRuns(), repeats=NO_RUNS, older=NO_RUNS,
                late=NO_RUNS,
            ),
            account=Account(
                records=self._records + looped + removed - int(left_out.sum()),
                source_bytes=self._bytes,
                equal=self._equal,
                filtered=looped,
                removed=removed,
                foreign=self._foreign,
                repeats=int(repeated.sum()),
                older=int(older.sum()),
            ),
            first_equal=self._first_equal,
            spans=self._spans | span_of("older", rows[older, alignment.TARGET]),
            mismatches=rows[~repeated & ~older & ~elsewhere],
            digest=self._sum.digest(),
            source_start=source_start,
            target_start=target_start,
            source_damages=tuple(self._source.damages),
            target_damages=tuple(self._target.damages),
            own_times=self._target.own_times,
            fetched_bytes=self._source.fetched_bytes + self._target.fetched_bytes,
            failure=failure,
        )  # fmt: skip

    def _align(self) -> None:
        ups = SideReader(
            self._source, self._work.source_first, self._terms.flow.max_unpacked_bytes
        )
        downs = SideReader(
            self._target, self._work.target_first, self._terms.flow.max_unpacked_bytes
        )
        some = _FEW
        while (
            ups.position < self._work.source_end
            or downs.position < self._work.target_end
        ):
            walked = self._walk(ups, downs) if self._is_plain else 0
            some = _FEW if walked >= _FEW else min(2 * some, _MANY)
            self._judge(ups, downs, *self._cut(ups, downs, some))

    def _cut(self, ups: SideReader, downs: SideReader, some: int) -> tuple[int, int]:
        """Offsets of both sides that belong together, some offsets further on."""
        end = ups.position + some
        if not self._is_plain or end >= self._work.source_end:
            return self._work.source_end, self._work.target_end
        until = translated(self._runs, end)
        return end, min(max(until, downs.position), self._work.target_end)

    def _walk(self, ups: SideReader, downs: SideReader) -> int:
        """Pass what is equal, without a list of it; returns how many records."""
        walked = 0
        state = np.zeros(pairing.RESULTS, np.int64)
        state[pairing.RUN] = self._run
        while (up := ups.section()) is not None and (
            (down := downs.section()) is not None
        ):
            pairing.walk(
                up.buffer, up.rows, up.state, ups.position, self._work.source_end,
                down.buffer, down.rows, down.state,
                downs.position, self._work.target_end,
                self._runs, self._seen.key, self._seen.target_suffix,
                self._seen.stamp, self._target.own_times, self._marks, state,
            )  # fmt: skip
            count = int(state[pairing.EQUAL])
            if count:
                self._first_equal = min(self._first_equal, int(state[pairing.FIRST]))
                self._sum.update(self._marks[:count].data)
                self._equal += count
                self._records += count
                self._bytes += int(state[pairing.BYTES])
                walked += count
                ups.position = int(state[pairing.UP_END])
                downs.position = int(state[pairing.DOWN_END])
            self._run = int(state[pairing.RUN])
            passed = ups.passes(up) | downs.passes(down)
            if not passed and count < len(self._marks):
                break
        return walked

    def _judge(
        self, ups: SideReader, downs: SideReader, until: int, until_down: int
    ) -> None:
        """Compare record by record, up to these offsets."""
        ups.list_until(until)
        downs.list_until(until_down)
        marks, rows = self._marks, self._rows
        state = np.zeros(alignment.STATES, np.int64)
        state[alignment.RUN] = self._run
        result = np.zeros(alignment.RESULTS, np.int64)
        while True:
            if state[alignment.UP] == len(ups.places) and not ups.ended:
                self._count(ups.take_next())
                state[alignment.UP] = 0
                continue
            if state[alignment.DOWN] == len(downs.places) and not downs.ended:
                downs.take_next()
                state[alignment.DOWN] = 0
                continue
            if (
                ups.ended
                and downs.ended
                and (
                    state[alignment.UP] == len(ups.places)
                    and state[alignment.DOWN] == len(downs.places)
                )
            ):
                self._run = int(state[alignment.RUN])
                return
            flags = (
                alignment.TIMED * self._target.own_times
                | alignment.BY_CONTENT * self._terms.scope.by_content
                | alignment.BARE
                * (self._terms.scope.by_content or not self._terms.flow.provenance)
                | alignment.CAME_HOME * ups.came_home
                | alignment.UP_ENDS * ups.ended
                | alignment.DOWN_ENDS * downs.ended
            )
            begun, begun_down = int(state[alignment.UP]), int(state[alignment.DOWN])
            alignment.align(
                ups.buffer, ups.places, downs.buffer, downs.places, self._runs,
                self._stamp if downs.stamp is None else downs.stamp,
                flags, state, marks, rows, result,
            )  # fmt: skip
            if result[alignment.EQUAL] and self._first_equal == LAST_OFFSET:
                passed = ups.places[begun : state[alignment.UP], to_columns.OFFSET]
                unequal = rows[: result[alignment.ODD], alignment.SOURCE]
                self._first_equal = int(passed[~np.isin(passed, unequal)][0])
            self._equal += int(result[alignment.EQUAL])
            if result[alignment.FOREIGN]:
                self._foreign += int(result[alignment.FOREIGN])
                passed = downs.places[begun_down : state[alignment.DOWN]]
                self._note_foreign(
                    passed[:, to_columns.OFFSET],
                    rows[: result[alignment.ODD], alignment.TARGET],
                )
            self._sum.update(marks[: result[alignment.EQUAL]].data)
            if result[alignment.ODD]:
                self._mismatches.append(rows[: result[alignment.ODD]].copy())

    def _note_foreign(self, offsets: Longs, known: Longs) -> None:
        """Note where other writers' records are among these of the copy; `known`: the
        offsets in rows of their own.
        """
        runs = self._runs
        index = np.searchsorted(runs[:, DOWNSTREAM], offsets, "right") - 1
        copies = np.zeros(len(offsets), np.bool_)
        if len(runs):
            run = runs[np.maximum(index, 0)]
            copies = (index >= 0) & (offsets < run[:, DOWNSTREAM] + run[:, COUNT])
        others = offsets[~copies & ~np.isin(offsets, known)]
        self._spans = widened(self._spans, span_of("foreign", others))

    def _count(self, places: npt.NDArray[np.int64]) -> None:
        self._records += len(places)
        self._bytes += int(
            (places[:, to_columns.END] - places[:, to_columns.KEY_AT]).sum()
        )


_ALONE = {
    alignment.ONLY_SOURCE: (alignment.SOURCE, UPSTREAM),
    alignment.ONLY_TARGET: (alignment.TARGET, DOWNSTREAM),
}
"""Where rows, and runs, have the offset of a record that is on one side alone."""


def _named(rows: Mismatches, runs: RunArray, *sides: int) -> npt.NDArray[np.bool_]:
    """Which rows are about records that these runs name, and that are on one side
    alone: either, or this one.
    """
    found = np.zeros(len(rows), np.bool_)
    for what in sides or _ALONE:
        where, column = _ALONE[what]
        alone = rows[:, alignment.WHAT] == what
        found |= alone & covered(rows[:, where], runs, column)
    return found


# ---- reads the records of one side of a range, to be walked over or as lists ----
#
# Main type: `SideReader`. It goes on from a position on that side: `section` has
# the unpacked batches there, which `pairing` compares without a list; `list_until`
# and `take_next` list records, which `alignment` compares one by one.


_NOTHING = np.empty((0, to_columns.PLACE_COLUMNS), np.int64)
_NO_BYTES = np.empty(0, np.uint8)


class RecordSection:
    """Records that can be walked over: unpacked, but not listed."""

    def __init__(self, buffer: Buffer, rows: Rows) -> None:
        self.buffer, self.rows = buffer, rows
        self._lasts = rows[:, merge_loop.FIRST_OFFSET] + rows[:, merge_loop.LAST_DELTA]
        self.state = np.zeros(merge_loop.STATES, np.int64)

    @property
    def end(self) -> int:
        return int(self._lasts[-1]) + 1

    def begin_at(self, position: int) -> None:
        self.state[:] = 0
        self.state[merge_loop.ROW] = np.searchsorted(self._lasts, position)


class SideReader:
    """The records of one side from a position on, first to be walked over, or the ones
    that the kernel has now.
    """

    def __init__(self, stream: LogStream, first: int, most_unpacked: int) -> None:
        self.position = first
        self._stream = stream
        self._stored = stream.stored()
        self._most_unpacked = most_unpacked
        self._part: Stored | None = None
        self._sections: Iterator[tuple[Buffer, Rows]] = iter(())
        self._section: RecordSection | None = None
        self._parts: Iterator[Listed] = iter(())
        self.buffer, self.places = _NO_BYTES, _NOTHING
        self.came_home = self.ended = False
        self.stamp: npt.NDArray[np.uint8] | None = None

    def _here(self) -> Stored | None:
        """The batches that have the next records; None: there are none."""
        while self._part is None or self._part.end <= self.position:
            self._part, self._section = next(self._stored, None), None
            if self._part is None:
                return None
            self.position = max(self.position, self._part.first)
            self._sections = unpacked(*self._part[:2], self._most_unpacked)
        return self._part

    def section(self) -> RecordSection | None:
        """The next records to walk over; None: there are none, or they are damaged."""
        if self._here() is None:
            return None
        while self._section is None or self._section.end <= self.position:
            try:
                found = next(self._sections, None)
            except CorruptBatchError:  # who lists the records says which
                found = None
            if found is None:
                return None
            self._section = RecordSection(*found)
            self._section.begin_at(self.position)
        return self._section

    def passes(self, section: RecordSection) -> bool:
        """Go on behind this section if all of it has been walked over."""
        if section.state[merge_loop.ROW] < len(section.rows):
            return False
        self.position = max(self.position, section.end)
        return True

    def list_until(self, end: int) -> None:
        """Have the records below this offset listed; `advance` takes them."""
        self._parts = self._listed(end)
        self.buffer, self.places = _NO_BYTES, _NOTHING
        self.ended = False

    def _listed(self, end: int) -> Iterator[Listed]:
        while self.position < end and (part := self._here()) is not None:
            yield from self._stream.records(part, self.position, end)
            self.position = min(part.end, end)
        self.position = max(self.position, end)
        if self._section is not None:
            self._section.begin_at(self.position)

    def take_next(self) -> npt.NDArray[np.int64]:
        """Take the next records, none at the end."""
        part = next(self._parts, None)
        if part is None:
            self.ended = True
            self.buffer, self.places = _NO_BYTES, _NOTHING
        else:
            self.buffer, self.places = part.buffer, part.places
            self.came_home = part.came_home
            self.stamp = part.stamp
        return self.places
