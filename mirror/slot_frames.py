"""Spark frames that are computed in a slot's own Python process.

Main function: `slot_frames`, one partition per slot. Spark keeps a pool of processes
for each environment, so a variable that names the slot brings it back to the process
where it is warm. `warm_up` starts those processes before there is anything to do.
"""

from __future__ import annotations

from functools import reduce
import threading
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from mirror.executors import one_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

_SLOT = "MIRROR_SLOT"
# Spark reads its `environment` when a function is wrapped: one flow at a time.
_wrapping = threading.Lock()


def slot_frames(
    spark: SparkSession,
    flow: str,
    texts: Mapping[int, str],
    places: Sequence[str | None],
    *,
    work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: str,
) -> DataFrame:
    """What `work` makes of each slot's text, at that slot's place, all in one frame."""
    environment = spark.sparkContext.environment
    frames = []
    with _wrapping:
        for slot, text in texts.items():
            environment[_SLOT] = f"{flow}/{slot}"
            frame = one_row(spark, text, places[slot])
            frames.append(frame.mapInArrow(work, schema))
        environment.pop(_SLOT, None)
    return reduce(DataFrame.union, frames)


def warm_up(spark: SparkSession, flow: str, slots: int) -> None:
    """Start the slots' processes; takes seconds."""
    texts = dict.fromkeys(range(slots), "")
    slot_frames(
        spark, flow, texts, [None] * slots, work=_nothing, schema="nothing string"
    ).collect()


def _nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    # To the end of the input: Spark throws a worker away that leaves some.
    for _ in batches:
        pass
    yield from ()
