"""TLS on both sides, and its cost: each run also copies the topic without TLS."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from tests.benchmarks import payloads
from tests.benchmarks.columns import Column
from tests.benchmarks.scenarios.copying import Copying

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.benchmarks.bench import Bench, Measure, Start


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsResult:
    COLUMNS: ClassVar = (
        Column("share_of_plain", "of plain", ",.2f", "more"),
        Column("tls_mb_per_second", "TLS MB/s", ",.0f", "more"),
        Column("plain_mb_per_second", "plain MB/s", ",.0f"),
        Column("tls_cpu_seconds_per_gb", "TLS CPU s/GB", ",.2f", "less"),
        Column("plain_cpu_seconds_per_gb", "plain CPU s/GB", ",.2f"),
    )

    share_of_plain: float
    tls_mb_per_second: float
    plain_mb_per_second: float
    tls_cpu_seconds_per_gb: float
    plain_cpu_seconds_per_gb: float
    wrong_count: str | None
    """When one of the copies was complete and is not right."""

    def flaw(self) -> str | None:
        return self.wrong_count


class Encrypted(Copying):
    """In each run plain first, then through TLS."""

    __slots__ = ()

    @contextmanager
    def ready(self, bench: Bench) -> Iterator[Measure]:
        through_tls = {
            "source": bench.source.tls,
            "target": bench.target.tls,
            "security": bench.source.security,
        }
        with bench.topic(f"bench-{self.name}", partitions=self.partitions) as topic:
            loaded = self.fill(bench, topic)

            def measure(start: Start) -> TlsResult:
                plain = self.measure(bench, start, topic, *loaded)
                tls = self.measure(bench, start, topic, *loaded, **through_tls)
                return TlsResult(
                    share_of_plain=tls.mb_per_second / plain.mb_per_second,
                    tls_mb_per_second=tls.mb_per_second,
                    plain_mb_per_second=plain.mb_per_second,
                    tls_cpu_seconds_per_gb=tls.cpu_seconds_per_gb,
                    plain_cpu_seconds_per_gb=plain.cpu_seconds_per_gb,
                    wrong_count=plain.flaw() or tls.flaw(),
                )

            yield measure


TLS = Encrypted(
    name="tls",
    title="1 KB, random, TLS on both sides",
    payloads=partial(payloads.incompressible, 1000),
    records=6_000_000,
    peers=("mirror",),
)
