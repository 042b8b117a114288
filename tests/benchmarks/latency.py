"""The time of a record from the source's producer to the target's consumer.

Main function: `measure`. Each value begins with the time at which it was handed to the
producer; an ordinary read_committed consumer on the same host compares the clock when
it gets the record.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
import time
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tests.benchmarks.columns import Column
from tests.benchmarks.load import PRIMER, TIMESTAMP, Pacer
from tests.benchmarks.processes import PeerError, Service
from tests.benchmarks.throughput import first_look

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

    from tests.benchmarks.target import Target

_LATE_SECONDS = 10.0
_ENOUGH = 0.95
"""The load's own pace is not exact either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyResult:
    COLUMNS: ClassVar = (
        Column("p50_ms", "p50 ms", ",.1f", "less"),
        Column("p99_ms", "p99 ms", ",.1f", "less"),
        Column("max_ms", "max ms", ",.0f"),
        Column("cpu_cores", "CPU cores", ",.2f", "less"),
        Column("resident_mb", "RSS MB", ",.0f"),
    )

    records: int
    expected: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    cpu_cores: float
    """CPU seconds per second at this rate."""
    resident_mb: float

    def flaw(self) -> str | None:
        if self.records >= _ENOUGH * self.expected:
            return None
        return f"{self.records} records arrived in time instead of {self.expected}"


def measure(
    service: Service,
    target: Target,
    pacer: Pacer,
    *,
    per_second: int,
    warm_up_seconds: float,
    seconds: float,
) -> LatencyResult:
    """Watch a peer that was just started; stops it.

    Raises:
        PeerError: it ended, or copied nothing.
    """
    try:
        first_look(service, target)
        with pacer, closing(target.consumer()) as consumer:
            discard(consumer, until=time.time() + warm_up_seconds)
            cpu, began = service.cpu_seconds(), time.time()
            delays = delays_of(
                consumer, partitions=target.partitions, since=began, seconds=seconds
            )
            cpu = (service.cpu_seconds() - cpu) / (time.time() - began)
        resident = service.resident_bytes()
        service.require_running()
    finally:
        service.stop()
    if not delays:
        raise PeerError(f"no record arrived in {seconds:g} s:\n{service.log_tail()}")
    milliseconds = np.array(delays) * 1000
    return LatencyResult(
        records=len(delays),
        expected=round(per_second * seconds),
        p50_ms=float(np.percentile(milliseconds, 50)),
        p99_ms=float(np.percentile(milliseconds, 99)),
        max_ms=float(milliseconds.max()),
        cpu_cores=cpu,
        resident_mb=resident / 1e6,
    )


def discard(consumer: Consumer, *, until: float) -> None:
    """Read what is not measured."""
    while time.time() < until:
        consumer.poll(0.1)


def delays_of(
    consumer: Consumer, *, partitions: int, since: float, seconds: float
) -> list[float]:
    """Of the records that were sent in the given time, as they come."""
    until = since + seconds
    delays = []
    done: set[int | None] = set()
    # Wait for late partitions: without their records p99 would look too good.
    while len(done) < partitions and time.time() < until + _LATE_SECONDS:
        message = consumer.poll(0.1)
        now = time.time()
        if message is None:
            continue
        sent = sent_at(message)
        if sent >= until:
            done.add(message.partition())
        elif sent >= since:
            delays.append(now - sent)
    return delays


def sent_at(message: Message) -> float:
    """When a paced record was handed to the source's producer, epoch seconds.

    Raises:
        PeerError: it is not a record but the reader's end.
    """
    if message.error():
        raise PeerError(f"the target's reader failed: {message.error()}")
    (sent,) = TIMESTAMP.unpack_from(message.value() or PRIMER)
    return float(sent)
