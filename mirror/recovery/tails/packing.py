"""Packs listed records into batches for another log.

Main type: `Packer`. A compiled loop does the work: no line of Python runs once per
record. `ahead` reads and packs what comes next while the last piece is written. Replays
use both, and topics that are filled again.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from mirror.clusters.admin import topic_admin
from mirror.clusters.wire.produce import HEADER_SIZE
from mirror.copying.rewrite import MERGE_BYTES, pack
from mirror.errors import MirrorError
from mirror.records import codecs, from_places, merge_loop, to_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from concurrent.futures import Future

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.wire.produce import EncodedBatch
    from mirror.config.schema import FlowConfig
    from mirror.records.batch import Buffer, Rows

_T = TypeVar("_T")

_MOST_RUNS = 1 << 14
_NOTHING = np.empty(0, np.uint8)


class Packer:
    """For one topic of the target."""

    def __init__(
        self,
        flow: FlowConfig,
        target: Cluster,
        topic: str,
        *,
        stamp: Buffer,
        unwanted: Buffer = _NOTHING,
        admit: Callable[[Buffer, int, Rows], None] | None = None,
    ) -> None:
        """`stamp`: the header that records get; `unwanted` as of `from_places.put`.
        `admit` is called with the records of each batch, laid out in a buffer behind
        the room for the batch's header, their end there, and their rows; it may refuse
        them with an error.
        """
        limit = topic_admin.max_message_bytes(target, [topic])
        self._limit = min(limit[topic], MERGE_BYTES)
        codec = codecs.BY_NAME.get(flow.compression)
        self._codec = codecs.NONE if codec is None else codec
        self._stamp = stamp
        self._unwanted = unwanted
        self._admit = admit
        self._out = np.empty(MERGE_BYTES + 4096, np.uint8)
        self._runs = np.empty((_MOST_RUNS, 3), np.int64)
        self._result = np.zeros(from_places.RESULTS, np.int64)

    def pack(
        self,
        buffer: Buffer,
        places: Rows,
        *,
        plain: Buffer = _NOTHING,
        marked: Sequence[Buffer] = (),
        where: str,
    ) -> list[EncodedBatch]:
        """The records in batches, which know their offsets on the source. `plain`:
        those without a stamp; `marked`: headers in front of the others' stamp;
        `where`: what they are of, for people.

        Raises:
            MirrorError: one has the unwanted header.
        """
        found: list[EncodedBatch] = []
        stamps = np.concatenate([*marked, self._stamp])
        count = len(marked) + bool(self._stamp.size)
        state = np.zeros(1, np.int64)
        while (begun := int(state[0])) < len(places):
            from_places.put(
                buffer, places, stamps, count, plain, self._unwanted, state,
                self._out, self._limit, self._runs, self._result,
            )  # fmt: skip
            if refused := int(self._result[from_places.REFUSED]):
                offset = places[refused - 1, to_columns.OFFSET]
                raise MirrorError(
                    f"{where}: the flow's function fails on the record at offset "
                    f"{offset}: export or skip it"
                )
            if int(state[0]) == begun:  # a single record is larger than the buffer
                self._out = np.empty(2 * self._out.size, np.uint8)
                continue
            end = int(self._result[merge_loop.END])
            if self._admit is not None:
                self._admit(self._out, end, places[begun : int(state[0])])
            # A copy: the next batch overwrites the buffer before this one is sent.
            section = memoryview(self._out.data[HEADER_SIZE:end].tobytes())
            found.append(pack(section, self._codec, self._result, self._runs))
        return found


def ahead(pieces: Iterator[_T]) -> Generator[_T, None, None]:
    """The same pieces, of which the next one is made in a thread while the last one is
    used: the two may not ask the same cluster.
    """
    with ThreadPoolExecutor(1) as pool:
        coming: Future[_T | None] = pool.submit(next, pieces, None)
        while (piece := coming.result()) is not None:
            coming = pool.submit(next, pieces, None)
            yield piece
