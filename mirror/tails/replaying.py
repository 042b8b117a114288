"""Records of a tail, read from the source and packed for the copy.

Main type: `Replay`, one pass over the chosen records of a partition. With a `transform`
they are what the flow's function makes of them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from mirror.batches import to_columns
from mirror.batches.listing import listed
from mirror.clusters.wire import fetch
from mirror.proving.log_stream import LogStream, Stretch
from mirror.proving.results import Results
from mirror.relay import dead_letters
from mirror.tails.packing import Packer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.batches.batch import Buffer, Rows
    from mirror.clusters.cluster import Cluster
    from mirror.clusters.wire.produce import EncodedBatch
    from mirror.config.schema import FlowConfig
    from mirror.proving.log_stream import Lister
    from mirror.proving.sides import ProofTerms
    from mirror.relay.provenance import Bytes
    from mirror.tails.tail import Offsets, TailPartition

_NOTHING = np.empty(0, np.uint8)
_LETTER = np.frombuffer(bytearray(f"{dead_letters.PREFIX}offset".encode()), np.uint8)


class Replay:
    """Goes once over one partition, from the first to the last of some offsets."""

    def __init__(  # noqa: PLR0917  both clusters, and what to read
        self,
        flow: FlowConfig,
        terms: ProofTerms,
        source: Cluster,
        target: Cluster,
        part: TailPartition,
        offsets: Offsets,
    ) -> None:
        lister: Lister = partial(listed, most_unpacked=terms.most_unpacked)
        if terms.transform is not None:
            lister = Results(terms.transform, part.key, terms.seen).listed
        self._stream = LogStream(
            source,
            Stretch(
                topic=part.topic, partition=part.partition, topic_id=part.topic_id,
                first=int(offsets[0]), end=int(offsets[-1]) + 1,
            ),
            isolation=fetch.READ_COMMITTED
            if terms.committed
            else fetch.READ_UNCOMMITTED,
            lister=lister,
        ).listed()  # fmt: skip
        self._packer = Packer(
            flow, target, part.target_topic,
            stamp=terms.seen.stamp,
            unwanted=_NOTHING if terms.transform is None else _LETTER,
        )  # fmt: skip
        self._where = f"{part.topic}-{part.partition}"
        self._buffer: Buffer = _NOTHING
        self._rest: Rows = np.empty((0, to_columns.PLACE_COLUMNS), np.int64)

    def batches(
        self, piece: Offsets, marked: Sequence[Bytes] = ()
    ) -> list[EncodedBatch]:
        """The records at the next offsets, ascending, as far as they are still there.
        `marked`: headers that they get before the flow's own.

        Raises:
            MirrorError: the flow's function fails on one, or the source cannot be read.
        """
        found: list[EncodedBatch] = []
        last = int(piece[-1])
        while True:
            offsets = self._rest[:, to_columns.OFFSET]
            count = int(np.searchsorted(offsets, last, "right"))
            now, self._rest = self._rest[:count], self._rest[count:]
            offsets = offsets[:count]
            wanted = piece[np.searchsorted(piece, offsets)] == offsets
            places = np.ascontiguousarray(now[wanted])
            found += self._packer.pack(
                self._buffer, places, marked=marked, where=self._where
            )
            if len(self._rest) or (count and offsets[-1] == last):
                return found
            some = next(self._stream, None)
            if some is None:
                return found
            self._buffer, self._rest = some.buffer, some.places
