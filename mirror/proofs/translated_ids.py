"""The ids of schemas that copies have where a flow translates them.

Main type: `TranslatedIds`, which all comparisons of a flow go by. At first a source's
records are compared with the ids that the map gives their copies. Where ids then
differ, `asked` goes by both registries: a copy is right if its id means on the target
what the source's means on the source. An id that only the map knows is right as the map
has it, and one that nothing knows if it is the same, as slots copy it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING
import uuid

from mirror.copying.schemas import looks_at
from mirror.errors import MirrorError
from mirror.records import alignment
from mirror.records.schema_id_translation import IdMap
from mirror.records.schema_ids import ID_SIZE
from mirror.schemas import claims
from mirror.schemas.ids import Meaning, meanings
from mirror.schemas.registry.registry import open_registries

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np
    import numpy.typing as npt

    from mirror.clusters.cluster import Cluster
    from mirror.config.cluster_settings import ClusterConfig
    from mirror.config.schema import FlowConfig
    from mirror.proofs.log_stream import Lister
    from mirror.proofs.ranges import Mismatches
    from mirror.records.batch import Buffer, Rows
    from mirror.records.listing import Listed

_NOWHERE = (1 << 32) - 1
"""What no copy has: no registry issues the last id of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslatedIds:
    """Those of one flow; equal if they are of one proof, and so hold the same."""

    proof: uuid.UUID = field(default_factory=uuid.uuid4)
    is_asked: bool = False
    """Whether the registries were asked."""
    flow: FlowConfig = field(compare=False)
    registries: tuple[ClusterConfig, ClusterConfig] = field(compare=False, repr=False)
    """The source's and the target's, as tasks ask them."""
    ids: IdMap = field(compare=False)
    """What each of the source's ids is compared as."""
    copies: IdMap = field(compare=False, default_factory=lambda: IdMap.of({}))
    """The same for the target's: several may mean one schema."""

    @classmethod
    def noted(
        cls,
        flow: FlowConfig,
        target: Cluster,
        registries: tuple[ClusterConfig, ClusterConfig],
    ) -> TranslatedIds:
        """What the target, which is connected, has noted so far: at least what records
        have that are copied by now.

        Raises:
            ClusterError: the notes cannot be read.
        """
        found = claims.translations(
            target, flow.source, flow.schemas_context, below=True
        )
        return cls(flow=flow, registries=registries, ids=IdMap.of(found))

    def asked(self) -> TranslatedIds:
        """The same by what the registries say, which are asked once in each process.

        Raises:
            MirrorError: one of them does not answer.
        """
        if self.is_asked:
            return self
        if isinstance(found := _asked(self), MirrorError):
            raise found
        return found

    def doubtful(self, mismatches: Mismatches) -> npt.NDArray[np.bool_]:
        """Which rows (as of `alignment`) are about pairs that may only differ in ids
        which mean the same; none once the registries were asked.
        """
        where, at = mismatches[:, alignment.FIELD], mismatches[:, alignment.BYTE]
        framed = (where == alignment.KEY) | (where == alignment.VALUE)
        found: npt.NDArray[np.bool_] = (
            mismatches[:, alignment.WHAT] == alignment.UNEQUAL
        ) & ((framed & (at < ID_SIZE)) | (where == alignment.HEADERS))
        return found & (not self.is_asked)

    def lister(self, topic: str, lister: Lister, *, on_source: bool) -> Lister:
        """Lists the records of a source's topic, or of its copy, with the ids that they
        are compared by.
        """
        ids = self.ids if on_source else self.copies

        def translated(
            buffer: Buffer, rows: Rows, position: int, end: int
        ) -> Iterator[Listed]:
            return map(ids.replaced, lister(buffer, rows, position, end))

        return translated if len(ids) and looks_at(self.flow, topic) else lister


@lru_cache(maxsize=1)
def _asked(ids: TranslatedIds) -> TranslatedIds | MirrorError:
    below = ids.flow.schemas_context
    try:
        with open_registries(ids.flow, *ids.registries) as (source, target):
            contexts = source.contexts()
            here = meanings(source, contexts)
            there = meanings(target, [below + each for each in contexts])
    except MirrorError as error:
        return error
    compared = compared_as(ids.ids.as_dict(), here, there)
    return replace(
        ids, is_asked=True, ids=IdMap.of(compared[0]), copies=IdMap.of(compared[1])
    )


def compared_as(
    noted: Mapping[int, int],
    here: Mapping[int, Meaning],
    there: Mapping[int, Meaning],
) -> tuple[dict[int, int], dict[int, int]]:
    """What the source's ids and the target's are compared as: the same number where
    they mean the same. `noted`: the map; `here`, `there`: what the registries say.
    """
    first: dict[Meaning, int] = {}
    given = set(noted.values())
    for number in sorted(there, key=lambda each: (each not in given, each)):
        first.setdefault(there[number], number)
    copies = {number: first[meaning] for number, meaning in there.items()}
    # An id that the source does not know was not replaced.
    ids = dict(copies)
    for number in noted.keys() | here.keys():
        meaning, copy = here.get(number), noted.get(number, number)
        if meaning in first:
            ids[number] = first[meaning]
        elif meaning is not None and copy in there and there[copy].differs(meaning):
            ids[number] = _NOWHERE
        else:
            ids[number] = copies.get(copy, copy)
    return _changes(ids), _changes(copies)


def _changes(ids: Mapping[int, int]) -> dict[int, int]:
    return {number: one for number, one in ids.items() if number != one}
