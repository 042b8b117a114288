"""Functions that tests give to flows as their transform, by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def identity(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def keyed(batch: pa.RecordBatch, key: str) -> pa.RecordBatch:
    """It needs a secret for what it does."""
    assert key
    return batch


def only(batch: pa.RecordBatch, offsets: list[int]) -> pa.RecordBatch:
    return batch.filter(pc.is_in(batch.column("offset"), pa.array(offsets, pa.int64())))


def sliced(batch: pa.RecordBatch, first: int, count: int) -> pa.Table:
    """Two views on parts of what was given, with what lies before, between, behind."""
    return pa.Table.from_batches(
        [batch.slice(first, count), batch.slice(first + count + 1)]
    )


def fails_on(
    batch: pa.RecordBatch, offsets: list[int], removes: tuple[int, ...] = ()
) -> pa.RecordBatch:
    """It cannot take these offsets, and leaves others out."""
    for offset in batch.column("offset").to_pylist():
        if offset in offsets:
            raise ValueError(f"bad {offset}\nand more")
    keep = [o not in removes for o in batch.column("offset").to_pylist()]
    return batch.filter(pa.array(keep))


def masks(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Values become their length, keys are kept, headers go, times become hours."""
    columns = {name: batch.column(name) for name in batch.schema.names}
    columns["value"] = pc.cast(
        pc.cast(pc.binary_length(batch.column("value")), pa.string()), pa.binary()
    )
    columns["headers"] = pa.array(
        [[]] * batch.num_rows, batch.schema.field("headers").type
    )
    columns["timestamp"] = pc.floor_temporal(batch.column("timestamp"), unit="hour")
    return pa.RecordBatch.from_pydict(columns)


def answers(batch: pa.RecordBatch, what: Any) -> Any:
    """Something that is no answer."""
    return what(batch) if callable(what) else what


def even_and_masked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Records of even offsets, with their values replaced by their length."""
    kept = batch.filter(
        pc.equal(pc.bit_wise_and(batch.column("offset"), pa.scalar(1, pa.int64())), 0)
    )
    length = pc.cast(pc.binary_length(kept.column("value")), pa.string())
    at = kept.schema.get_field_index("value")
    return kept.set_column(at, "value", pc.cast(length, pa.binary()))


def no_poison(batch: pa.RecordBatch, unless: str = "") -> pa.RecordBatch:
    """It cannot take records whose value is poison, unless a file is there; and leaves
    out those whose value is void.
    """
    poison = pc.equal(batch.column("value"), pa.scalar(b"poison"))
    if pc.any(poison).as_py() and not (unless and Path(unless).exists()):
        raise ValueError("poison")
    void = pc.equal(batch.column("value"), pa.scalar(b"void"))
    return batch.filter(pc.invert(pc.fill_null(void, False)))


def no_poison_masked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """As `no_poison`; and a value that is secret becomes stars."""
    kept = no_poison(batch)
    value = kept.column("value")
    secret = pc.fill_null(pc.equal(value, pa.scalar(b"secret")), False)
    at = kept.schema.get_field_index("value")
    return kept.set_column(at, "value", pc.if_else(secret, pa.scalar(b"***"), value))


class Rules:
    suffix = b"!"

    @classmethod
    def shouts(cls, batch: pa.RecordBatch) -> pa.Table:
        table = pa.Table.from_batches([batch])
        value = pc.binary_join_element_wise(table["value"], cls.suffix, b"")
        return table.set_column(table.schema.get_field_index("value"), "value", value)


NOT_A_FUNCTION = 1
