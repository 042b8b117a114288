"""The ids of schemas that copies have where a flow translates them.

Main type: `TranslatedIds`, which all comparisons of a flow go by: a source's records
are compared as their copies must be, so a copy with any other id differs. An id that
the map does not have stays, as when a slot copies it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror.batches.schema_id_map import IdMap
from mirror.metadata import schema_claims
from mirror.relay.schemas import looks_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.batches.batch import Buffer, Rows
    from mirror.batches.listing import Listed
    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig
    from mirror.proving.log_stream import Lister


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslatedIds:
    """Those of one flow."""

    flow: FlowConfig
    ids: IdMap

    @classmethod
    def of(cls, flow: FlowConfig, target: Cluster) -> TranslatedIds:
        """What the target, which is connected, has noted so far: at least what records
        have that are copied by now.

        Raises:
            ClusterError: the notes cannot be read.
        """
        found = schema_claims.translations(target, flow.source, flow.schemas_context)
        return cls(flow=flow, ids=IdMap.of(found))

    def lister(self, topic: str, lister: Lister) -> Lister:
        """Lists the records of a source's topic with the ids that their copies have."""

        def translated(
            buffer: Buffer, rows: Rows, position: int, end: int
        ) -> Iterator[Listed]:
            return map(self.ids.replaced, lister(buffer, rows, position, end))

        return translated if looks_at(self.flow, topic) else lister
