"""How fast a full topic is copied, and how much CPU that takes.

Main function: `measure`. The clock starts some seconds after the first committed record
is on the target, so that neither start-up nor warm-up counts, and stops with the last
record; or earlier, if the caller does not want to wait for a slow peer. Afterwards all
records on the target are counted.
"""

from __future__ import annotations

from dataclasses import dataclass
import math
import time
from typing import TYPE_CHECKING, ClassVar

from tests.benchmarks.columns import Column
from tests.benchmarks.processes import PeerError, Service

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.benchmarks.target import Target

SETTLE_SECONDS = 7.0
"""JVMs and compiled code take so long to warm up."""
_LOOK_SECONDS = 0.1
_START_SECONDS = 120.0
_STALLED_SECONDS = 60.0
_QUIET_SECONDS = 2.0
_SHORTEST_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputResult:
    COLUMNS: ClassVar = (
        Column("records_per_second", "records/s", ",.0f", "more"),
        Column("mb_per_second", "MB/s", ",.0f"),
        Column("cpu_seconds_per_million", "CPU s/M records", ",.2f", "less"),
        Column("cpu_seconds_per_gb", "CPU s/GB", ",.2f"),
        Column("start_seconds", "start s", ",.1f"),
        Column("fresh_rate", "of the rate at first", ",.2f"),
        Column("resident_mb", "RSS MB", ",.0f"),
    )

    records: int
    """As counted on the target; more or fewer than loaded is the peer's fault."""
    expected: int
    complete: bool = True
    """Whether the peer had time to copy everything, so that the count is a test."""
    start_seconds: float
    """From the start of the process to the first record on the target."""
    fresh_rate: float
    """From the first record until the clock starts, as a share of the rate that it
    measures; 0 if it starts at once.
    """
    copy_seconds: float
    """Of which the rates are taken."""
    records_per_second: float
    mb_per_second: float
    cpu_seconds_per_million: float
    cpu_seconds_per_gb: float
    resident_mb: float

    def flaw(self) -> str | None:
        if not self.complete or self.records == self.expected:
            return None
        return f"{self.records} records on the target instead of {self.expected}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    at: float
    offsets: int
    cpu_seconds: float


def measure(
    service: Service,
    target: Target,
    *,
    records: int,
    payload_bytes: int,
    settle_seconds: float = SETTLE_SECONDS,
    measure_seconds: float = math.inf,
    count: Callable[[], int] | None = None,
) -> ThroughputResult:
    """Watch a peer that was just started until all is copied; stops it.

    Args:
        service: the peer.
        target: where its copy grows.
        records: how many there are on the source.
        payload_bytes: what they hold together.
        settle_seconds: not counted after the first record.
        measure_seconds: no longer than that, even if not all is copied then.
        count: counts the records on the target. None: an ordinary reader does.

    Raises:
        PeerError: it ended, went on no longer, or was done before it was measured.
    """
    started = time.monotonic()
    try:
        fresh = first_look(service, target)
        time.sleep(settle_seconds)
        first = _look(service, target)
        last, complete = _last_look(service, target, first, records, measure_seconds)
        resident = service.resident_bytes()
    finally:
        service.stop()
    seconds = last.at - first.at
    if complete and seconds <= min(_SHORTEST_SECONDS, settle_seconds):
        raise PeerError(
            f"everything was copied within {settle_seconds:g} s of settling and "
            f"{seconds:.1f} s more: pass more --records"
        )
    counted = (count or target.count_records)()
    # Markers are offsets as well; they are spread as evenly as the records.
    copied = counted * (last.offsets - first.offsets) / target.committed_offsets()
    copied_bytes = payload_bytes * copied / records
    cpu = last.cpu_seconds - first.cpu_seconds
    return ThroughputResult(
        records=counted,
        expected=records,
        complete=complete,
        start_seconds=fresh.at - started,
        fresh_rate=_rate(fresh, first) / _rate(first, last) if settle_seconds else 0.0,
        copy_seconds=seconds,
        records_per_second=copied / seconds,
        mb_per_second=copied_bytes / seconds / 1e6,
        cpu_seconds_per_million=cpu / (copied / 1e6),
        cpu_seconds_per_gb=cpu / (copied_bytes / 1e9),
        resident_mb=resident / 1e6,
    )


def _rate(since: _Look, until: _Look) -> float:
    return (until.offsets - since.offsets) / (until.at - since.at)


def first_look(service: Service, target: Target) -> _Look:
    """The look at which there is something on the target.

    Raises:
        PeerError: it ended, or copied nothing for long.
    """
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until:
        service.require_running()
        look = _look(service, target)
        if look.offsets:
            return look
        time.sleep(_LOOK_SECONDS)
    raise PeerError(f"nothing copied in {_START_SECONDS:g} s:\n{service.log_tail()}")


def _last_look(
    service: Service,
    target: Target,
    first: _Look,
    records: int,
    measure_seconds: float,
) -> tuple[_Look, bool]:
    """The look at which the target grew for the last time, and whether all is there."""
    last = first
    while True:
        service.require_running()
        look = _look(service, target)
        if look.offsets > last.offsets:
            last = look
        quiet = look.at - last.at
        if last.offsets >= records and quiet > _QUIET_SECONDS:
            return last, True
        if quiet > _STALLED_SECONDS:
            raise PeerError(
                f"only {last.offsets} of {records} records are copied, and nothing"
                f" for {_STALLED_SECONDS:g} s:\n{service.log_tail()}"
            )
        if last.offsets < records and last.at - first.at >= measure_seconds:
            return last, False
        time.sleep(_LOOK_SECONDS)


def _look(service: Service, target: Target) -> _Look:
    offsets = target.committed_offsets()
    return _Look(
        at=time.monotonic(), offsets=offsets, cpu_seconds=service.cpu_seconds()
    )
