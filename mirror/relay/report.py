"""What a task tells the driver at the end of its lease, one row per partition.

Main type: `PartitionReport`. Rows travel through Spark as Arrow; this module turns
reports into a record batch and back. What they mean for status and metrics is
decided in the driver.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """One partition over one lease. Counters are of this lease alone."""

    slot: int
    topic: str
    partition: int
    target_topic: str
    state: str
    reason: str = ""
    since: float = 0.0
    """Since when it is in this state, epoch seconds; 0 if the slot cannot tell."""
    position: int = -1
    """The next source offset to copy, -1 while not known."""
    end_offset: int = -1
    """The source's last stable offset as last seen, -1 while not known."""
    records: int = 0
    bytes: int = 0
    """Record batches produced, as sent."""
    bytes_in: int = 0
    """Record batches fetched, as they came, those of failed transactions too."""
    filtered: int = 0
    """Records left out because they came through the target before."""
    unexplained: int = 0
    """How many of these no flow of this configuration can have brought there."""
    skipped: int = 0
    """Records of aborted transactions and transaction markers."""
    lost: int = 0
    """Offsets that vanished at the source; the loss ledger has their ranges."""
    removed: int = 0
    """Records that the flow's transform left out."""
    dead_letters: int = 0
    """Records on which it failed, which went to the dead-letter topic."""
    transactions: int = 0
    latency_p50_ms: float = -1.0
    """From a record's timestamp to its commit on the target, newest of each
    transaction; -1 if nothing was copied."""
    latency_p99_ms: float = -1.0
    lag_seconds: float = -1.0
    """The age of the oldest record not copied yet, 0 if there is none, when the lease
    ended; -1 while not known (see `lateness`)."""
    latency_counts: tuple[int, ...] = ()
    """Records by the same latency as above, per bucket of `latency.bounds`."""
    latency_sum_seconds: float = 0.0
    age_counts: tuple[int, ...] = ()
    """The same from a record's timestamp to its fetch."""
    age_sum_seconds: float = 0.0
    slot_seconds: float = 0.0
    """How long its slot was at work in this lease."""
    slot_busy: float = 0.0
    """CPU seconds that the slot used per second; its threads may make it exceed 1."""
    slot_transactions: int = 0
    """Transactions that its slot committed."""
    slot_transaction_seconds: float = 0.0
    """How long these took together, from the first write to the commit."""
    slot_aborted: int = 0
    """Transactions that its slot gave up."""
    slot_takeovers: int = 0
    """How often its slot began anew: took over, read progress, went on from there."""

    @property
    def lag(self) -> int:
        """Source offsets not copied yet, 0 while not known."""
        known = self.position >= 0 and self.end_offset >= 0
        return max(self.end_offset - self.position, 0) if known else 0


_TYPES = {
    "str": pa.string(),
    "int": pa.int64(),
    "float": pa.float64(),
    "tuple[int, ...]": pa.list_(pa.int64()),
}
ARROW_SCHEMA = pa.schema(
    [(field.name, _TYPES[str(field.type)]) for field in fields(PartitionReport)]
)
_SQL = {
    "str": "string",
    "int": "bigint",
    "float": "double",
    "tuple[int, ...]": "array<bigint>",
}
_LISTS = [f.name for f in fields(PartitionReport) if str(f.type).startswith("tuple")]
SQL_SCHEMA = ", ".join(
    f"`{field.name}` {_SQL[str(field.type)]}" for field in fields(PartitionReport)
)


def to_arrow(reports: Iterable[PartitionReport]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [asdict(report) for report in reports], schema=ARROW_SCHEMA
    )


def from_row(row: Any) -> PartitionReport:
    """A report from a Spark row."""
    values = row.asDict()
    return PartitionReport(**values | {name: tuple(values[name]) for name in _LISTS})
