"""The cases that are measured: what stands on the source, and what is asked of it.

Two kinds: `Throughput` copies a full topic as fast as possible, `Latency` copies a
paced stream. How they are measured is their namesakes' duty.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tests.benchmarks import payloads

if TYPE_CHECKING:
    from collections.abc import Callable

PARTITIONS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    name: str
    title: str
    payloads: Callable[[], list[bytes]]
    records: int
    compression: str = "none"
    batch_bytes: int = 64 << 10
    """Most that the load puts into one batch, before compression."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    name: str
    title: str
    per_second: int = 1000
    seconds: float = 30.0
    warm_up_seconds: float = 10.0
    """Copied but not counted: all peers start cold."""


Scenario = Throughput | Latency

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Throughput(
            name="100b",
            title="100 B, random",
            payloads=partial(payloads.incompressible, 100),
            records=6_000_000,
        ),
        Throughput(
            name="1kb",
            title="1 KB, random",
            payloads=partial(payloads.incompressible, 1000),
            records=2_000_000,
        ),
        Throughput(
            name="zstd",
            title="130 B JSON, zstd",
            payloads=payloads.json_events,
            records=6_000_000,
            compression="zstd",
        ),
        Latency(name="latency", title="1000 records/s"),
    )
}
