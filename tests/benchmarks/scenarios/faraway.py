"""A round trip of 80 ms to one side, with as much bandwidth as one likes."""

from __future__ import annotations

from functools import partial
from typing import Literal

from tests.benchmarks import payloads
from tests.benchmarks.scenarios.copying import Copying


def _far(
    side: Literal["source", "target"], size: int, *, called: str, records: int
) -> Copying:
    return Copying(
        name=f"wan-{side}" if size == 1000 else f"wan-{side}-{size}b",
        title=f"{called}, random, {side} 80 ms away",
        payloads=partial(payloads.incompressible, size),
        records=records,
        far=side,
        peers=("mm2", "mm2-shipped", "mirror"),
    )


FAR_SOURCE = _far("source", 1000, called="1 KB", records=5_000_000)
FAR_TARGET = _far("target", 1000, called="1 KB", records=5_000_000)
SMALL_FAR_SOURCE = _far("source", 100, called="100 B", records=45_000_000)
SMALL_FAR_TARGET = _far("target", 100, called="100 B", records=45_000_000)
