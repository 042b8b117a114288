"""What records look like in Arrow: the columns that a user's function sees.

`SCHEMA` is what functions are given, `KEPT` the part of it that is written. How bytes
become such columns, and back, is `arrow`'s duty.
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
"""Of the batches that functions are given. Timestamps are UTC."""
KEPT = pa.schema(list(SCHEMA)[2:])
"""Of what is written: the other columns only say where records come from."""
