"""Batches of one to three records, as producers without linger leave them."""

from __future__ import annotations

from functools import partial

from tests.benchmarks import payloads
from tests.benchmarks.scenarios.copying import Copying

TINY = Copying(
    name="tiny",
    title="100 B, random, 1-3 records per batch",
    payloads=partial(payloads.incompressible, 100),
    records=36_000_000,
    # More per request: four take three times as long to load.
    partitions=16,
    batch_records=(1, 2, 3),
)
