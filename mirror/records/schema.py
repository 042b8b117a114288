"""What records look like in Arrow: the columns that a user's function sees.

`SCHEMA` is what functions get, `KEPT` the part of it that is written. `arrow` converts
bytes to such columns and back.
"""

from __future__ import annotations

import pyarrow as pa

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
    ]
)
"""The schema of the batches that functions get. Timestamps are UTC."""
KEPT = pa.schema(list(SCHEMA)[2:])
"""The schema of what is written: the other columns only say where records come from."""
