"""Records of a tail, read from the source and packed for the copy.

Main type: `Replay`, one pass over the chosen records of a partition. A compiled loop
packs them: no line of Python runs once per record. With a `transform` they are what the
flow's function makes of them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from mirror.batches import codecs, from_places, merge_loop, to_columns
from mirror.batches.listing import listed
from mirror.clusters.admin import topic_admin
from mirror.clusters.wire import fetch
from mirror.clusters.wire.produce import HEADER_SIZE
from mirror.errors import MirrorError
from mirror.proving.log_stream import LogStream, Stretch
from mirror.proving.results import Results
from mirror.relay import dead_letters
from mirror.relay.grouping import MERGE_BYTES
from mirror.relay.rewrite import _pack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.batches.batch import Buffer, Rows
    from mirror.clusters.cluster import Cluster
    from mirror.clusters.wire.produce import EncodedBatch
    from mirror.config.schema import FlowConfig
    from mirror.proving.log_stream import Lister
    from mirror.proving.sides import Terms
    from mirror.relay.provenance import Bytes
    from mirror.tails.survey import Offsets, TailPartition

_MOST_RUNS = 1 << 14
_NOTHING = np.empty(0, np.uint8)
_LETTER = np.frombuffer(bytearray(f"{dead_letters.PREFIX}offset".encode()), np.uint8)


class Replay:
    """Goes once over one partition, from the first to the last of some offsets."""

    def __init__(  # noqa: PLR0917  both clusters, and what to read
        self,
        flow: FlowConfig,
        terms: Terms,
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
        self._unwanted = _NOTHING if terms.transform is None else _LETTER
        self._stamp = terms.seen.stamp
        limit = topic_admin.max_message_bytes(target, [part.target_topic])
        self._limit = min(limit[part.target_topic], MERGE_BYTES)
        codec = codecs.BY_NAME.get(flow.compression)
        self._codec = codecs.NONE if codec is None else codec
        self._where = f"{part.topic}-{part.partition}"
        self._buffer: Buffer = _NOTHING
        self._rest: Rows = np.empty((0, to_columns.PLACE_COLUMNS), np.int64)
        self._out = np.empty(MERGE_BYTES + 4096, np.uint8)
        self._runs = np.empty((_MOST_RUNS, 3), np.int64)
        self._result = np.zeros(from_places.RESULTS, np.int64)

    def batches(
        self, piece: Offsets, marked: Sequence[Bytes] = ()
    ) -> list[EncodedBatch]:
        """The records at the next offsets, ascending, as far as they are still there.
        `marked`: headers that they get before the flow's own.

        Raises:
            MirrorError: the flow's function fails on one, or the source cannot be read.
        """
        found: list[EncodedBatch] = []
        stamps = (*marked, *([self._stamp] if self._stamp.size else ()))
        last = int(piece[-1])
        while True:
            offsets = self._rest[:, to_columns.OFFSET]
            count = int(np.searchsorted(offsets, last, "right"))
            now, self._rest = self._rest[:count], self._rest[count:]
            offsets = offsets[:count]
            wanted = piece[np.searchsorted(piece, offsets)] == offsets
            self._pack(np.ascontiguousarray(now[wanted]), stamps, found)
            if len(self._rest) or (count and offsets[-1] == last):
                return found
            some = next(self._stream, None)
            if some is None:
                return found
            self._buffer, self._rest = some.buffer, some.places

    def _pack(
        self, places: Rows, stamps: Sequence[Bytes], found: list[EncodedBatch]
    ) -> None:
        stamp = np.concatenate([_NOTHING, *stamps])
        state = np.zeros(1, np.int64)
        while (begun := int(state[0])) < len(places):
            from_places.put(
                self._buffer, places, stamp, len(stamps), self._unwanted, state,
                self._out, self._limit, self._runs, self._result,
            )  # fmt: skip
            if refused := int(self._result[from_places.REFUSED]):
                offset = places[refused - 1, to_columns.OFFSET]
                raise MirrorError(
                    f"{self._where}: the flow's function fails on the record at offset "
                    f"{offset}: export or skip it"
                )
            if int(state[0]) == begun:  # a single record is larger than the buffer
                self._out = np.empty(2 * self._out.size, np.uint8)
                continue
            end = int(self._result[merge_loop.END])
            # A copy: the next batch overwrites the buffer before this one is sent.
            section = memoryview(self._out.data[HEADER_SIZE:end].tobytes())
            found.append(_pack(section, self._codec, self._result, self._runs))
