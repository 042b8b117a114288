"""A round trip of 80 ms to one side, with as much bandwidth as one likes."""

from __future__ import annotations

from functools import partial

from tests.benchmarks import payloads
from tests.benchmarks.scenarios.copying import Copying

_PEERS = ("mm2", "mm2-shipped", "mirror")

FAR_SOURCE = Copying(
    name="wan-source",
    title="1 KB, random, source 80 ms away",
    payloads=partial(payloads.incompressible, 1000),
    records=3_000_000,
    far="source",
    peers=_PEERS,
)
FAR_TARGET = Copying(
    name="wan-target",
    title="1 KB, random, target 80 ms away",
    payloads=partial(payloads.incompressible, 1000),
    records=3_000_000,
    far="target",
    peers=_PEERS,
)
SMALL_FAR_SOURCE = Copying(
    name="wan-source-100b",
    title="100 B, random, source 80 ms away",
    payloads=partial(payloads.incompressible, 100),
    records=30_000_000,
    far="source",
    peers=_PEERS,
)
SMALL_FAR_TARGET = Copying(
    name="wan-target-100b",
    title="100 B, random, target 80 ms away",
    payloads=partial(payloads.incompressible, 100),
    records=30_000_000,
    far="target",
    peers=_PEERS,
)
