"""Records with ids of schemas, and what `schemas: require` costs, with the same ids and
with `schemas_ids: translate`: each run also copies the topic with `schemas: off`.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
import struct
from typing import TYPE_CHECKING, ClassVar

from tests import tools
from tests.benchmarks import payloads
from tests.benchmarks.columns import Column
from tests.benchmarks.scenarios.copying import Copying
from tests.harness.registry_process import AXONOPS_PROGRAM, axonops
from tests.harness.schemas import Raw, avro

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.benchmarks.bench import Bench, Measure, Start

_SCHEMAS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemasResult:
    COLUMNS: ClassVar = (
        Column("require_cpu_of_off", "require CPU per record, of off", ",.3f", "less"),
        Column("translate_cpu_of_off", "translate CPU, of off", ",.3f", "less"),
        Column("require_mb_per_second", "require MB/s", ",.0f", "more"),
        Column("translate_mb_per_second", "translate MB/s", ",.0f", "more"),
        Column("off_mb_per_second", "off MB/s", ",.0f"),
        Column("require_cpu_seconds_per_gb", "require CPU s/GB", ",.2f", "less"),
        Column("translate_cpu_seconds_per_gb", "translate CPU s/GB", ",.2f", "less"),
        Column("off_cpu_seconds_per_gb", "off CPU s/GB", ",.2f"),
    )

    require_cpu_of_off: float
    translate_cpu_of_off: float
    require_mb_per_second: float
    translate_mb_per_second: float
    off_mb_per_second: float
    require_cpu_seconds_per_gb: float
    translate_cpu_seconds_per_gb: float
    off_cpu_seconds_per_gb: float
    wrong_count: str | None
    """When one of the copies was complete and is not right."""

    def flaw(self) -> str | None:
        return self.wrong_count


class Registered(Copying):
    """In each run `off` first, then `require` and `translate`, with ids that the
    source's registry issued; where they are translated they are taken on the target.
    """

    __slots__ = ()

    @contextmanager
    def ready(self, bench: Bench) -> Iterator[Measure]:
        with ExitStack() as stack:
            one, keeping, taken = (
                stack.enter_context(
                    axonops(
                        tools.path(AXONOPS_PROGRAM),
                        bench.folder / f"{self.name}-{name}",
                    )
                )
                for name in ("a", "b", "c")
            )
            for number in range(_SCHEMAS):
                issued = Raw(one.url).register(f"s{number}", avro(f"S{number}"))
                assert issued == number + 1, "the payloads have these ids"
                Raw(taken.url).register(f"theirs{number}", avro(f"Theirs{number}"))
            topic = stack.enter_context(
                bench.topic(f"bench-{self.name}", partitions=self.partitions)
            )
            loaded = self.fill(bench, topic)

            def measure(start: Start) -> SchemasResult:
                off, require, translate = (
                    self.measure(bench, start, topic, *loaded, **each)
                    for each in (
                        {},
                        {"registries": (one.url, keeping.url)},
                        {"registries": (one.url, taken.url), "translates": True},
                    )
                )
                cpu = off.cpu_seconds_per_gb
                return SchemasResult(
                    require_cpu_of_off=require.cpu_seconds_per_gb / cpu,
                    translate_cpu_of_off=translate.cpu_seconds_per_gb / cpu,
                    require_mb_per_second=require.mb_per_second,
                    translate_mb_per_second=translate.mb_per_second,
                    off_mb_per_second=off.mb_per_second,
                    require_cpu_seconds_per_gb=require.cpu_seconds_per_gb,
                    translate_cpu_seconds_per_gb=translate.cpu_seconds_per_gb,
                    off_cpu_seconds_per_gb=cpu,
                    wrong_count=off.flaw() or require.flaw() or translate.flaw(),
                )

            yield measure


def _framed(size: int) -> list[bytes]:
    return [
        struct.pack(">bI", 0, 1 + number % _SCHEMAS) + value
        for number, value in enumerate(payloads.incompressible(size - 5))
    ]


REQUIRE = Registered(
    name="require",
    title="1 KB, random, with ids of schemas that must be on the target",
    payloads=partial(_framed, 1000),
    records=6_000_000,
    peers=("mirror",),
)
REQUIRE_SMALL = Registered(
    name="require-small",
    title="100 B, zstd, with ids of schemas that must be on the target",
    payloads=partial(_framed, 100),
    records=16_000_000,
    compression="zstd",
    peers=("mirror",),
    settle_seconds=3.0,
    measure_seconds=10.0,
)
