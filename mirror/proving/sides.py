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
from typing import TYPE_CHECKING

from mirror.batches import codecs
from mirror.batches.listing import Loops, listed
from mirror.clusters.cluster import Cluster
from mirror.clusters.wire import fetch
from mirror.errors import UnreachableError
from mirror.proving.homecomers import Homecomers, by_stamp
from mirror.proving.log_stream import PATIENCE_SECONDS, LogStream, Stretch
from mirror.relay import provenance
from mirror.retry import patiently

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.config.cluster_settings import ClusterConfig
    from mirror.config.schema import FlowConfig
    from mirror.offsets.runs import RunArray
    from mirror.proving.copied_partition import CopiedPartition
    from mirror.proving.log_stream import Lister
    from mirror.proving.results import Results
    from mirror.proving.translated_ids import TranslatedIds

_kept: ContextVar[dict[str, Cluster] | None] = ContextVar("kept", default=None)
"""By alias, while `keeping`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofTerms:
    """What all ranges of a flow have in common."""

    source: ClusterConfig = field(repr=False)
    target: ClusterConfig = field(repr=False)
    source_id: str
    target_id: str
    stamped: bool = True
    """Whether copies get the provenance header. If not, those that the flow made while
    it was set otherwise may have it."""
    committed: bool = True
    """Whether only committed records of the source are copied."""
    most_unpacked: int = codecs.MOST_UNPACKED
    transform: FlowConfig | None = None
    """The flow, if it has a function to call."""
    exactly_once: bool = True
    """Off: records may be copied several times."""
    by_content: bool = False
    """Whether records and copies are matched by what they say, without the map; then
    copies may be without the provenance header."""
    former_sources: tuple[str, ...] = ()
    """Ids of the source before it was rebuilt: what came home to it has their stamp on
    the target."""
    former_targets: tuple[str, ...] = ()
    """Ids of the target before it was rebuilt."""
    keys: bool = True
    """Whether findings name the keys of their records."""
    homes: tuple[tuple[str, bool], ...] = ()
    """As of the flow: which keys have their home elsewhere, and are left out."""
    ids: TranslatedIds | None = None
    """The ids of schemas that copies have; None: those of the source."""
    fetch_bytes: int | None = None
    """The most to fetch at once; None: what suits long ranges."""

    @property
    def seen(self) -> provenance.Provenance:
        """The header that copies get, and which records are left out."""
        return self.header if self.stamped else provenance.none()

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
            homes=self.homes,
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
            terms.transform or terms.ids or seen.homes.size
            or terms.former_sources or terms.former_targets
        )  # fmt: skip
        """Whether copies are the records as they are, with the stamp of `seen`."""
        loops = Loops(seen.key, seen.target_suffix, seen.homes)
        most = terms.most_unpacked
        lister: Lister = partial(listed, loops=loops, most_unpacked=most)
        if runs is not None and terms.stamped:
            lister = Homecomers(
                runs, loops, most_unpacked=most, former=terms.former_loops
            ).listed
        if terms.transform is not None:
            from mirror.proving.results import Results  # noqa: PLC0415  with Arrow

            key = (of.topic, of.partition)
            self._results = Results(terms.transform, key, seen)
            lister = self._results.listed
        stretch = Stretch(
            topic=of.topic, partition=of.partition, topic_id=of.topic_id,
            first=first, end=end,
        )  # fmt: skip
        self.stream = stream(terms, cluster, stretch, on_source=True, lister=lister)

    @property
    def removed(self) -> int:
        """How many records the flow's function left out."""
        return 0 if self._results is None else self._results.removed


def target(
    terms: ProofTerms, cluster: Cluster, of: CopiedPartition, first: int, end: int
) -> LogStream:
    """The records of the copy from `first` up to `end`."""
    stretch = Stretch(
        topic=of.target_topic, partition=of.partition, topic_id=of.copy_id,
        first=first, end=end,
    )  # fmt: skip
    lister = None
    if stamps := terms.former_stamps:
        lister = by_stamp(stamps, most_unpacked=terms.most_unpacked)
    return stream(terms, cluster, stretch, on_source=False, lister=lister, of=of.topic)


def stream(
    terms: ProofTerms,
    cluster: Cluster,
    stretch: Stretch,
    *,
    on_source: bool,
    lister: Lister | None = None,
    of: str = "",
) -> LogStream:
    """The records of a stretch; by default all that are in the log. `of`: the topic on
    the source, if ids of a copy are compared.
    """
    committed = terms.committed or not on_source
    lister = lister or partial(listed, most_unpacked=terms.most_unpacked)
    if terms.ids is not None and (on_source or of):
        lister = terms.ids.lister(of or stretch.topic, lister, on_source=on_source)
    return LogStream(
        cluster,
        stretch,
        isolation=fetch.READ_COMMITTED if committed else fetch.READ_UNCOMMITTED,
        lister=lister,
        fetch_bytes=terms.fetch_bytes,
    )
