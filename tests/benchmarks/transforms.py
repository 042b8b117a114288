"""The cost of a transform: records per second in one process, without brokers.

    python -m tests.benchmarks.transforms [--size 100] [--compression none]

Batches from a Fetch answer go through the rewriting step of a slot: without a
transform, with one that returns its input, and with a filter of `pyarrow.compute`.
Fetching and producing are not included. Best of some rounds.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirror.clusters.wire.produce import EncodedBatch
from mirror.copying import provenance
from mirror.copying.rewrite import Rewriter
from mirror.copying.transform import Transform
from mirror.copying.transforming import TransformingRewriter
from mirror.records import batch, codecs
from mirror.records import records as batches

_ANSWER_BYTES = 4 << 20
_BATCH_RECORDS = 1000
_HUGE = 1 << 30


def identity(given: pa.RecordBatch) -> pa.RecordBatch:
    return given


def filtered(given: pa.RecordBatch) -> pa.RecordBatch:
    """Nine in ten values begin with another byte."""
    return given.filter(pc.invert(pc.starts_with(given.column("value"), "0")))


def _answer(size: int, codec: int) -> np.ndarray:
    """4 MiB of batches, before they were compressed."""
    parts = []
    for first in range(0, max(_ANSWER_BYTES // size, 1), _BATCH_RECORDS):
        values = [
            b"%d" % (number % 10) + b"%-*d" % (size - 1, number)
            for number in range(first, first + _BATCH_RECORDS)
        ]
        made = batches.encode([(b"", value) for value in values])
        if codec != codecs.NONE:
            body = codecs.compress(codec, memoryview(made.body))
            header = batches.header(
                size=61 + len(body),
                attributes=codec,
                count=made.count,
                base_time=0,
                newest=0,
            )
            made = EncodedBatch(header=header, body=body, count=made.count)
        made.header[:8] = first.to_bytes(8, "big")
        made.stamp(-1, -1, -1, transactional=False)
        parts.append(bytes(made.header) + bytes(made.body))
    return np.frombuffer(bytearray(b"".join(parts)), np.uint8)


def _rate(worker: Rewriter, buffer: np.ndarray, rounds: int) -> float:
    rows = batch.read(
        buffer, 0, len(buffer), position=0, aborted=(), scratch=batch.scratch()
    ).rows
    count = int(rows[:, 4].sum())
    best = 0.0
    for _ in range(rounds):
        began = time.process_time()
        worker.begin()
        worker.rewrite(buffer, rows, position=0, max_bytes=_HUGE, at=("topic", 0))
        best = max(best, count / (time.process_time() - began))
    return best


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    parser.add_argument("--compression", choices=codecs.BY_NAME, default="none")
    parser.add_argument("--rounds", type=int, default=30)
    chosen = parser.parse_args()
    codec = codecs.BY_NAME[chosen.compression]
    stamp = provenance.via(source_alias="a", source_id="source", target_id="target")
    buffer = _answer(chosen.size, codec)
    workers = {"no transform": Rewriter(stamp, codec=None)}
    for name in ("identity", "filtered"):
        workers[name] = TransformingRewriter(
            stamp,
            codec=None,
            transform=Transform(f"{__spec__.name}:{name}", {}),
            dead_letters_of=None,
        )
    for name, worker in workers.items():
        rate = _rate(worker, buffer, chosen.rounds)
        print(f"{name:<14} {rate / 1e6:6.2f} M records/s  {1e9 / rate:6.0f} ns/record")
    return 0


if __name__ == "__main__":
    sys.exit(main())
