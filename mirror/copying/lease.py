"""What the driver hands to a task, and what the task reports when its lease is over.

Main types: `LeasePlan`, the flow's plan, `Assignment` and `Lease`. They are plain
values and travel pickled or as JSON.

A `PartitionReport` is one row per partition. Rows travel through Spark as Arrow, with
the report as a text: to make columns of values, pyarrow would load pandas, a quarter of
a second of CPU and 50 MB for each slot. The driver turns reports into status and
metrics.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field, fields
from itertools import accumulate
import json
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mirror.clusters.topics import NO_ID
from mirror.status.values import NOTHING, Counts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    import uuid

    from mirror.config.cluster_settings import ClusterConfig
    from mirror.config.schema import FlowConfig
    from mirror.offsets.terms import Term


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasePlan:
    """What all slots of a flow share. Holds credentials, so never print it."""

    flow: FlowConfig
    source: ClusterConfig = field(repr=False)
    target: ClusterConfig = field(repr=False)
    source_id: str
    target_id: str
    feeders: tuple[str, ...] = ()
    """Aliases of the clusters that the configured flows copy to the source."""
    appends: bool = True
    """Whether a partition without progress is copied although its copy has records."""
    service: uuid.UUID = NO_ID
    """Identifies the service process whose counters the flow's records add to."""
    slot_ids: Mapping[int, str] = field(default_factory=dict)
    """Producer ids of slots, of this run and of earlier ones, as the driver found them,
    with their transactional ids."""
    fresh_seconds: float = 43_200.0
    """The target's leaders remember a producer whose last record is not older than
    this: half of `producer.id.expiration.ms`, which is a day by default."""


DIVERGED, HOLE = "DIVERGED", "HOLE"
"""Why a copy cannot go on with the source's offsets, in one word: its records have
others, or the source has an offset without a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One source partition and where its copy goes."""

    topic: str
    partition: int
    target_topic: str
    topic_id: str
    """The source topic's id in hex; all zeros where brokers have none."""
    paused_since: float = 0.0
    """When it was paused, epoch seconds; 0: it is not paused."""
    term: Term | None = None
    """Of a copy whose records have the source's offsets; None: they are translated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """What a slot may do, and for how long."""

    slot: int
    number: int
    """Increases by one with each lease of the flow's driver run."""
    generation: str
    """Identifies the driver run; the progress topic says which run may write."""
    seconds: float
    assignments: tuple[Assignment, ...]
    bytes_per_second: float = 0.0
    """How much it may read; 0: without a limit."""
    takes_turns: bool = False
    """Whether the rate is for the time of this lease alone: others read afterwards."""
    credit: bool = False
    """Whether the slot may copy on after its report, until its next lease begins."""

    def follows(self, last: Lease) -> bool:
        """Whether it is the next one of the same run."""
        return (last.generation, last.number + 1) == (self.generation, self.number)


# ---- what comes back ----


Named = tuple[tuple[str, int], ...]
"""Counts by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """One partition over one lease."""

    slot: int
    topic: str
    partition: int
    target_topic: str
    state: str
    reason: str = ""
    since: float = 0.0
    """When it entered this state, epoch seconds; 0 if unknown."""
    position: int = -1
    """The next source offset to copy, -1 while unknown."""
    end_offset: int = -1
    """The source's last stable offset as last seen, -1 while unknown."""
    counts: Counts = NOTHING
    """What this slot committed in this lease and knows to be committed."""
    total: Counts = NOTHING
    """What the service has committed according to the progress topic, including leases
    that died before they could report."""
    total_since: int = 0
    """When the total was zero, epoch ms; 0 if unknown."""
    bytes_in: int = 0
    """Bytes of record batches as fetched, including those of failed transactions."""
    failed: Named = ()
    """Records that could not be copied, by the reason in one word. One that is tried
    again, in a later lease too, does not count again."""
    transactions: int = 0
    latency_p50_ms: float = -1.0
    """From a record's timestamp to its commit on the target, for the newest record of
    each transaction; -1 if nothing was copied."""
    latency_p99_ms: float = -1.0
    lag_seconds: float = -1.0
    """The age of the oldest record not copied when the lease ended, 0 if there is none;
    -1 while unknown (see `tally.Lateness`)."""
    latency_counts: tuple[int, ...] = ()
    """Records by the latency described above, per bucket of `tally.latency_bounds`;
    empty if there were none."""
    latency_sum_seconds: float = 0.0
    age_counts: tuple[int, ...] = ()
    """The same for the time from a record's timestamp to its fetch."""
    age_sum_seconds: float = 0.0
    slot_seconds: float = 0.0
    """How long its slot ran in this lease."""
    slot_busy: float = 0.0
    """CPU seconds that the slot used per second; its threads may make it exceed 1."""
    slot_memory_bytes: int = 0
    """What its slot's process uses at the end of the lease; 0 if unknown."""
    slot_open_files: int = 0
    slot_open_files_limit: int = 0
    slot_transactions: int = 0
    """Transactions that its slot committed."""
    slot_transaction_seconds: float = 0.0
    """Total time of these, from when each was started to its commit."""
    slot_aborted: int = 0
    """Transactions that its slot aborted."""
    slot_process: str = ""
    """A name for its process, on one report of a slot; empty on the others."""
    slot_errors: Named = ()
    """All that this process has counted (`clusters.error_counts`)."""
    slot_takeovers: int = 0
    """How often its slot took over: read the progress and continued from there."""
    slot_copies_on: bool = False
    """Whether a process may copy its partitions after this report: this one, on credit,
    or one that had an earlier lease and that it has not fenced."""
    slot_credit_seconds: float = 0.0
    """The part of the time in which it copied on credit, before this lease began."""
    slot_handovers: int = 0
    """1 if it still copied when this lease began."""

    @property
    def lag(self) -> int:
        """Source offsets not copied yet, 0 while unknown."""
        known = self.position >= 0 and self.end_offset >= 0
        return max(self.end_offset - self.position, 0) if known else 0


REPORT_SCHEMA = pa.schema([("report", pa.string())])
_NAMES = tuple(field.name for field in fields(PartitionReport))
_values = attrgetter(*_NAMES)
_MAKERS: dict[str, Callable[[Any], Any]] = {
    "tuple[int, ...]": tuple,
    "Counts": lambda found: Counts(*found),
    "Named": lambda found: tuple(map(tuple, found)),
}
_MADE_OF = {
    field.name: _MAKERS[str(field.type)]
    for field in fields(PartitionReport)
    if str(field.type) in _MAKERS
}


def to_arrow(reports: Iterable[PartitionReport]) -> pa.RecordBatch:
    """A row for each report."""
    texts = [json.dumps(_values(each), default=_simple).encode() for each in reports]
    ends = array("i", accumulate(map(len, texts), initial=0))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))]
    column = pa.Array.from_buffers(pa.string(), len(texts), buffers)
    return pa.RecordBatch.from_arrays([column], schema=REPORT_SCHEMA)


def _simple(found: Any) -> Any:
    """What JSON does not know: counts, and numbers that come out of an array."""
    return found.each if isinstance(found, Counts) else found.item()


def from_row(row: Sequence[str]) -> PartitionReport:
    """A report from a Spark row. A flow may have a hundred thousand of them, for which
    its slots wait.
    """
    values = dict(zip(_NAMES, json.loads(row[0]), strict=True))
    for name, make in _MADE_OF.items():
        values[name] = make(values[name])
    return PartitionReport(**values)
