"""Full topics of ordinary records: small, larger, compressed."""

from __future__ import annotations

from functools import partial

from tests.benchmarks import payloads
from tests.benchmarks.scenarios.copying import Copying

SMALL = Copying(
    name="100b",
    title="100 B, random",
    payloads=partial(payloads.incompressible, 100),
    records=40_000_000,
    peers=("mm2", "mirror", "franz-go"),
)
KILOBYTE = Copying(
    name="1kb",
    title="1 KB, random",
    payloads=partial(payloads.incompressible, 1000),
    records=6_000_000,
    peers=("mm2", "mirror", "franz-go"),
)
JSON = Copying(
    name="zstd",
    title="130 B JSON, zstd",
    payloads=payloads.json_events,
    records=24_000_000,
    compression="zstd",
    stored_share=0.3,
)
BYTES = Copying(
    name="bytes",
    title="130 B JSON, zstd batches of 64 KB and more, byte for byte",
    payloads=payloads.json_events,
    records=100_000_000,
    compression="zstd",
    stored_share=0.3,
    batch_records=(4096,),
    least_batch_bytes=64 << 10,
    peers=("mm2", "mirror-bytes"),
)
