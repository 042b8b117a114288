"""Opens the logs of both sides, as all tasks of a proof read them.

Main types: `ProofTerms`, what all tasks of a flow have in common, and `Source`, which
streams a source's records as they must be in the copy. `target` streams the copy,
`stream` the records of either side as they are, but a source's with the ids of schemas
that their copies have.
"""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mirror.clusters.cluster import Cluster
from mirror.clusters.wire import fetch
from mirror.copying import provenance
from mirror.errors import UnreachableError
from mirror.offsets.runs import COUNT, UPSTREAM, between
from mirror.proofs.log_stream import PATIENCE_SECONDS, LogStream, OffsetRange
from mirror.proofs.ranges import covered
from mirror.records import home_stamps, scan, to_columns
from mirror.records.listing import Listed, Loops, are_fillers, listed
from mirror.retry import patiently

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mirror.config.cluster_settings import ClusterConfig
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.offsets.runs import RunArray
    from mirror.proofs.account import CopiedPartition, Scope
    from mirror.proofs.function_results import Results
    from mirror.proofs.log_stream import Lister
    from mirror.proofs.translated_ids import TranslatedIds
    from mirror.records.batch import Buffer, Rows


_kept: ContextVar[dict[str, Cluster] | None] = ContextVar("kept", default=None)
"""By alias, while `keeping`."""
_NOTHING = np.empty((0, to_columns.PLACE_COLUMNS), np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofTerms:
    """What all ranges of a flow have in common."""

    source: ClusterConfig = field(repr=False)
    target: ClusterConfig = field(repr=False)
    source_id: str
    target_id: str
    flow: FlowConfig
    scope: Scope
    """Without a map, copies may be without the provenance header."""
    former_sources: tuple[str, ...] = ()
    """Ids of the source before it was rebuilt: what came home to it has their stamp on
    the target."""
    former_targets: tuple[str, ...] = ()
    """Ids of the target before it was rebuilt."""
    same_copies: frozenset[str] = frozenset()
    """The topic ids of copies with the source's offsets, in hex: what came home to
    these, the flow has copied like other records."""
    ids: TranslatedIds | None = None
    """The ids of schemas that copies have; None: those of the source."""
    fetch_bytes: int | None = None
    """The most to fetch at once; None: what suits long ranges."""

    @property
    def isolation(self) -> int:
        """With which the source is read: only what is committed is copied, or all."""
        committed = self.flow.isolation_level == "read_committed"
        return fetch.READ_COMMITTED if committed else fetch.READ_UNCOMMITTED

    @property
    def seen(self) -> provenance.Provenance:
        """The header that copies get, and which records are left out."""
        return self.header if self.flow.provenance else provenance.none()

    @property
    def stamp(self) -> provenance.Bytes:
        """The header by which a copy of this source is known."""
        return self.header.stamp

    @property
    def header(self) -> provenance.Provenance:
        """The same, whether the flow stamps now or not."""
        return self._via(self.source_id, self.target_id)

    @property
    def former_stamps(self) -> list[provenance.Bytes]:
        """Those that copies have of the source before it was rebuilt."""
        return [self._via(e, self.target_id).stamp for e in self.former_sources]

    @property
    def former_loops(self) -> list[Loops]:
        """By which what was born on the target before it was rebuilt is known."""
        found = (self._via(self.source_id, each) for each in self.former_targets)
        return [Loops(each.key, each.target_suffix) for each in found]

    def _via(self, source_id: str, target_id: str) -> provenance.Provenance:
        return provenance.via(
            source_alias=self.source.alias, source_id=source_id, target_id=target_id,
            homes=self.flow.homes,
        )  # fmt: skip

    @contextlib.contextmanager
    def connected(self, *, on_source: bool) -> Iterator[Cluster]:
        """One of the two, as soon as it answers.

        Raises:
            UnreachableError: it does not, for long.
            ClusterError: it refuses us, or is another one.
        """
        config, cluster_id = self.target, self.target_id
        if on_source:
            config, cluster_id = self.source, self.source_id
        kept = _kept.get()
        made = None if kept is None else kept.pop(config.alias, None)
        if made is None:
            made = Cluster(config, cluster_id=cluster_id)
            patiently(made.connect, seconds=PATIENCE_SECONDS, also=UnreachableError)
        try:
            yield made
        except BaseException:
            made.close()
            raise
        if kept is None or config.alias in kept:
            made.close()
        else:
            kept[config.alias] = made


@contextlib.contextmanager
def connected(
    config: MirrorConfig, flow: FlowConfig
) -> Iterator[tuple[Cluster, Cluster]]:
    """The source and the target of a flow.

    Raises:
        ClusterError: one of them does not answer, or refuses us.
    """
    source, target = (Cluster(config.clusters[x]) for x in (flow.source, flow.target))
    with (
        contextlib.closing(source.connect()),
        contextlib.closing(target.connect()),
    ):
        yield source, target


@contextlib.contextmanager
def keeping() -> Iterator[None]:
    """Within it this thread keeps its connections from one short range to the next:
    with a login, to make them takes longer than to read it.
    """
    kept: dict[str, Cluster] = {}
    before = _kept.set(kept)
    try:
        yield
    finally:
        _kept.reset(before)
        for each in kept.values():
            each.close()


class Source:
    """The records of a source from `first` up to `end`, as they must be in the copy."""

    def __init__(
        self,
        terms: ProofTerms,
        cluster: Cluster,
        of: CopiedPartition,
        first: int,
        end: int,
        *,
        runs: RunArray | None = None,
    ) -> None:
        """`runs`: the offset map, if records that came home are listed as well.

        Raises:
            TransformError: the flow's function cannot be imported or called.
        """
        self._results: Results | None = None
        seen = terms.seen
        self.is_plain = not (
            terms.flow.transform or terms.ids or seen.homes.size
            or terms.former_sources or terms.former_targets
        )  # fmt: skip
        """Whether copies are the records as they are, with the stamp of `seen`."""
        loops = Loops(seen.key, seen.target_suffix, seen.homes)
        most = terms.flow.max_unpacked_bytes
        lister: Lister = partial(listed, loops=loops, most_unpacked=most)
        if runs is not None and terms.flow.provenance:
            lister = RestoredRecords(
                runs, loops, most_unpacked=most, former=terms.former_loops,
                stamped=of.copy_id.hex in terms.same_copies,
            ).listed  # fmt: skip
        if terms.flow.transform is not None:
            from mirror.proofs.function_results import Results  # noqa: PLC0415  with Arrow

            self._results = Results(terms.flow, of.key, seen)
            lister = self._results.listed
        wanted = OffsetRange.within(of, first, end, on_source=True)
        self.stream = stream(terms, cluster, wanted, on_source=True, lister=lister)

    @property
    def removed(self) -> int:
        """How many records the flow's function left out."""
        return 0 if self._results is None else self._results.removed


def target(
    terms: ProofTerms, cluster: Cluster, of: CopiedPartition, first: int, end: int
) -> LogStream:
    """The records of the copy from `first` up to `end`."""
    wanted = OffsetRange.within(of, first, end, on_source=False)
    lister = None
    if stamps := terms.former_stamps:
        lister = by_stamp(stamps, most_unpacked=terms.flow.max_unpacked_bytes)
    return stream(terms, cluster, wanted, on_source=False, lister=lister, of=of.topic)


def stream(
    terms: ProofTerms,
    cluster: Cluster,
    wanted: OffsetRange,
    *,
    on_source: bool,
    lister: Lister | None = None,
    of: str = "",
) -> LogStream:
    """The records of a range; by default all that are in the log, except for fillers
    of a copy. `of`: the topic on the source, if ids of a copy are compared.
    """
    lister = lister or partial(listed, most_unpacked=terms.flow.max_unpacked_bytes)
    if not on_source:
        lister = _without_fillers(lister, terms.header.filler)
    if terms.ids is not None and (on_source or of):
        lister = terms.ids.lister(of or wanted.topic, lister, on_source=on_source)
    return LogStream(
        cluster,
        wanted,
        isolation=terms.isolation if on_source else fetch.READ_COMMITTED,
        lister=lister,
        fetch_bytes=terms.fetch_bytes,
    )


def _without_fillers(lister: Lister, header: bytes) -> Lister:
    """Leaves out what stands where the source has no record: it is no copy of one. But
    fillers that the source has, with a header that names another cluster, are records.
    """

    def found(buffer: Buffer, rows: Rows, position: int, end: int) -> Iterator[Listed]:
        for part in lister(buffer, rows, position, end):
            which = are_fillers(part.buffer, part.places, header)
            yield part._replace(places=part.places[~which]) if which.any() else part

    return found


# ---- records that came home to a copy ----
#
# A flow leaves out records that came through its target before, but `mirror failback
# --restore` writes them back there without their stamp, and to the offset map. So
# looped records that the map names are records like others, less the header that is
# gone from their copies. And what it leaves out by key, it may have copied while it
# was configured otherwise: the map says so. Into copies with the source's offsets the
# flow copies what came home, stamp and all.


class RestoredRecords:
    """For one range of a source."""

    def __init__(
        self,
        runs: RunArray,
        loops: Loops,
        *,
        most_unpacked: int,
        former: Sequence[Loops] = (),
        stamped: bool = False,
    ) -> None:
        """`loops`: which records a flow leaves out. `former`: as these, of the target
        before it was rebuilt; the flow leaves none of them out. `stamped`: what came
        home is copied as other records are.
        """
        self._former = () if stamped else former
        self._stamped = stamped
        self._runs = runs
        self._loops = loops
        self._most_unpacked = most_unpacked

    def listed(
        self, buffer: Buffer, rows: Rows, position: int, end: int
    ) -> Iterator[Listed]:
        """As `listing.listed`; records that came home are in parts of their own.

        Raises:
            CorruptBatchError: records do not fit their batch.
        """
        looped = False
        for part in listed(
            buffer, rows, position, end,
            loops=self._loops, most_unpacked=self._most_unpacked,
        ):  # fmt: skip
            looped = looped or part.looped > 0
            until = position
            if len(part.places):
                until = int(part.places[-1, to_columns.OFFSET]) + 1
            if looped and self._lacks(part.places, position, until):
                yield Listed(part.buffer, _NOTHING, part.looped)
                yield from self._both(buffer, rows, part.places, position, until)
            else:
                yield from self._of_former(part)
            position = until
        if looped:  # behind the last record that was copied
            until = min(end, int(rows[-1, scan.LAST]) + 1)
            if self._lacks(_NOTHING, position, until):
                yield from self._both(buffer, rows, _NOTHING, position, until)

    def _lacks(self, places: Rows, position: int, until: int) -> bool:
        """Whether the map names more offsets than these; seldom, so the records are
        listed twice only then.
        """
        named = between(self._runs, position, until, UPSTREAM)[:, COUNT].sum()
        here = covered(places[:, to_columns.OFFSET], self._runs, UPSTREAM)
        return bool(named > here.sum())

    def _both(
        self, buffer: Buffer, rows: Rows, copied: Rows, position: int, until: int
    ) -> Iterator[Listed]:
        """What was copied and what came home, from `position` on, below `until`."""
        rows = rows[rows[:, scan.LAST] >= position]
        for part in listed(
            buffer, rows, position, until,
            loops=Loops(self._loops.via), most_unpacked=self._most_unpacked,
        ):  # fmt: skip
            offsets = part.places[:, to_columns.OFFSET]
            named = covered(offsets, self._runs, UPSTREAM)
            left_out = ~np.isin(offsets, copied[:, to_columns.OFFSET])
            born_here = (part.places[:, to_columns.HIDDEN] == 0) | self._stamped
            was_copied = ~left_out | (named & born_here)
            home = ~was_copied & named
            home[home] = _take(part.buffer, part.places, home, self._loops)
            places, home = part.places[was_copied | home], home[was_copied | home]
            for some, is_home in _split(places, home):
                # They have been counted as left out.
                came = int(np.isin(some[:, to_columns.OFFSET], offsets[left_out]).sum())
                found = Listed(part.buffer, some, -came, came_home=bool(is_home))
                yield from (found,) if is_home else self._of_former(found)

    def _of_former(self, part: Listed) -> Iterator[Listed]:
        """The same records; in parts of their own those that came home to a target
        that was rebuilt.
        """
        if not self._former:
            yield part
            return
        offsets = part.places[:, to_columns.OFFSET]
        named = covered(offsets, self._runs, UPSTREAM)
        home = np.zeros(len(offsets), np.bool_)
        for loops in self._former:
            home[named] |= _take(part.buffer, part.places, named, loops)
        looped = part.looped
        for some, is_home in _split(part.places, home):
            yield Listed(part.buffer, some, looped, came_home=bool(is_home))
            looped = 0
        if looped:
            yield Listed(part.buffer, _NOTHING, looped)


def _take(
    buffer: Buffer, places: Rows, which: npt.NDArray[np.bool_], loops: Loops
) -> npt.NDArray[np.bool_]:
    """Take the stamp off some records; returns of which of these it was there."""
    chosen = np.ascontiguousarray(places[which])
    taken = np.zeros(len(chosen), np.uint8)
    home_stamps.take(buffer, chosen, loops.via, loops.target_suffix, taken)
    places[which] = chosen
    return taken > 0


def _split(places: Rows, which: npt.NDArray[Any]) -> Iterator[tuple[Rows, int]]:
    """The records in parts of which all have the same number."""
    cuts = np.flatnonzero(np.diff(which)) + 1
    parts = zip(np.split(places, cuts), np.split(which, cuts), strict=True)
    return ((some, int(numbers[0])) for some, numbers in parts if len(some))


def by_stamp(stamps: Sequence[Buffer], *, most_unpacked: int) -> Lister:
    """Lists copies; in parts of their own those with one of these stamps."""

    def lister(buffer: Buffer, rows: Rows, position: int, end: int) -> Iterator[Listed]:
        for part in listed(buffer, rows, position, end, most_unpacked=most_unpacked):
            which = np.zeros(len(part.places), np.int64)
            for number, stamp in enumerate(stamps, 1):
                which[_end_with(part.buffer, part.places, stamp)] = number
            for some, number in _split(part.places, which):
                stamp_of = stamps[number - 1] if number else None
                yield part._replace(places=some, stamp=stamp_of)

    return lister


def _end_with(buffer: Buffer, places: Rows, stamp: Buffer) -> npt.NDArray[np.bool_]:
    """Which records end with the bytes of this header."""
    at = places[:, to_columns.END] - stamp.size
    fits = (at >= places[:, to_columns.HEADERS_AT]) & (
        places[:, to_columns.HEADERS] > 0
    )
    found = np.zeros(len(places), np.bool_)
    begins = at[fits]
    same = np.ones(len(begins), np.bool_)
    for i, byte in enumerate(stamp.tolist()):
        same &= buffer[begins + i] == byte
    found[fits] = same
    return found
