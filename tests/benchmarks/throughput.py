"""How fast a full topic is copied, and what CPU that takes.

Main function: `measure`. The clock runs from the first committed record on the target
to the last, and what was copied before the first look is left out: so neither
start-up nor the first transaction count. Afterwards all records are counted.
"""

from __future__ import annotations

from dataclasses import dataclass
import time
from typing import TYPE_CHECKING, ClassVar

from tests.benchmarks.columns import Column
from tests.benchmarks.processes import PeerError, Service

if TYPE_CHECKING:
    from tests.benchmarks.target import Target

_LOOK_SECONDS = 0.05
_START_SECONDS = 120.0
_STALLED_SECONDS = 60.0
_QUIET_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputResult:
    COLUMNS: ClassVar = (
        Column("records_per_second", "records/s", ",.0f", "more"),
        Column("mb_per_second", "MB/s", ",.0f"),
        Column("cpu_seconds_per_million", "CPU s/M records", ",.2f", "less"),
        Column("cpu_seconds_per_gb", "CPU s/GB", ",.2f"),
        Column("start_seconds", "start s", ",.1f"),
        Column("resident_mb", "RSS MB", ",.0f"),
    )

    records: int
    """As counted on the target; more or fewer than loaded is the peer's fault."""
    expected: int
    start_seconds: float
    """From the start of the process to the first record on the target."""
    copy_seconds: float
    records_per_second: float
    mb_per_second: float
    cpu_seconds_per_million: float
    cpu_seconds_per_gb: float
    resident_mb: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    at: float
    offsets: int
    cpu_seconds: float


def measure(
    service: Service, target: Target, *, records: int, payload_bytes: int
) -> ThroughputResult:
    """Watch a peer that was just started until all is copied; stops it.

    Raises:
        PeerError: it ended, or went on no longer.
    """
    started = time.monotonic()
    try:
        first = _first_look(service, target, started)
        last = _last_look(service, target, first, records)
        resident = service.resident_bytes()
    finally:
        service.stop()
    copied = last.offsets - first.offsets
    if copied <= 0:
        raise PeerError("all was copied at the first look: take more --records")
    # Markers are offsets as well; they are spread as evenly as the records.
    share = copied / last.offsets
    seconds = last.at - first.at
    cpu = last.cpu_seconds - first.cpu_seconds
    return ThroughputResult(
        records=target.count_records(),
        expected=records,
        start_seconds=first.at - started,
        copy_seconds=seconds,
        records_per_second=records * share / seconds,
        mb_per_second=payload_bytes * share / seconds / 1e6,
        cpu_seconds_per_million=cpu / (records * share / 1e6),
        cpu_seconds_per_gb=cpu / (payload_bytes * share / 1e9),
        resident_mb=resident / 1e6,
    )


def _first_look(service: Service, target: Target, started: float) -> _Look:
    while time.monotonic() - started < _START_SECONDS:
        service.require_running()
        look = _look(service, target)
        if look.offsets:
            return look
        time.sleep(_LOOK_SECONDS)
    raise PeerError(f"nothing copied in {_START_SECONDS:g} s:\n{service.log_tail()}")


def _last_look(service: Service, target: Target, first: _Look, records: int) -> _Look:
    """The look at which the target grew for the last time."""
    last = first
    while True:
        service.require_running()
        look = _look(service, target)
        if look.offsets > last.offsets:
            last = look
        quiet = look.at - last.at
        if last.offsets >= records and quiet > _QUIET_SECONDS:
            return last
        if quiet > _STALLED_SECONDS:
            raise PeerError(
                f"only {last.offsets} of {records} records are copied, and nothing"
                f" for {_STALLED_SECONDS:g} s:\n{service.log_tail()}"
            )
        time.sleep(_LOOK_SECONDS)


def _look(service: Service, target: Target) -> _Look:
    offsets = target.committed_offsets()
    return _Look(
        at=time.monotonic(), offsets=offsets, cpu_seconds=service.cpu_seconds()
    )
